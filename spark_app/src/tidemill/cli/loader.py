"""What commands work on: a module's class by name, a store, a module of a store."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli import completion
from tidemill.clients.module import ModuleClient
from tidemill.cluster.stores import absolute_url
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.definition_log import DefinitionLog, no_such_module
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, UnknownName
from tidemill.values.names import is_folder_name

STORE_VARIABLE = "TIDEMILL_STORE"
STORE_DEFAULT = "./tidemill-data"

StoreOption = Annotated[
    str,
    typer.Option(
        "--store", envvar=STORE_VARIABLE, help="Store: a folder, file:///folder or s3://bucket/prefix?endpoint=…"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
OwnerOption = Annotated[
    str,
    typer.Option(
        "--owner", envvar="TIDEMILL_OWNER", help="The operator's word: CLUSTER/NAMESPACE/NAME/UID of a Module."
    ),
]
TakeOverFromOption = Annotated[
    str,
    typer.Option(
        "--take-over-from", envvar="TIDEMILL_TAKE_OVER_FROM", help="With --owner: the uid whose store it takes."
    ),
]
ModuleArgument = Annotated[
    str,
    typer.Argument(metavar="MODULE", help="Name of a module in the store.", autocompletion=completion.modules),
]
OptionalModule = Annotated[
    str,
    typer.Argument(metavar="[MODULE]", help="All modules if left out.", autocompletion=completion.modules),
]
DeleteOption = Annotated[
    list[str] | None, typer.Option("--delete", help="A depot or PState that goes with the update; may be repeated.")
]
BreakMirrorsOption = Annotated[
    bool, typer.Option("--break-mirrors", help="Although other modules mirror what goes or changes; they stop.")
]
TopologyArgument = Annotated[str, typer.Argument(metavar="TOPOLOGY", autocompletion=completion.topologies)]
DepotArgument = Annotated[
    str,
    typer.Argument(metavar="DEPOT", help="Such as words; with or without its *.", autocompletion=completion.depots),
]
PStateArgument = Annotated[
    str,
    typer.Argument(metavar="PSTATE", help="Such as counts; with or without its $$.", autocompletion=completion.pstates),
]
ClassArgument = Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="Python module (or file.py) and class.")]


def load_module(name: str) -> Any:
    """An instance of the class that `MODULE:CLASS` names; MODULE is importable from here, or a file.

    Raises:
        BadInput: there is no such module or class, or importing it failed.
    """
    place, _, class_name = name.rpartition(":")
    if not place or not class_name:
        raise BadInput(f"'{name}' is not MODULE:CLASS; write it like examples.flights.module:Flights.")
    module = _import(place)
    found = getattr(module, class_name, None)
    if found is None:
        raise BadInput(f"{place} has no class '{class_name}'{_classes_of(module)}.")
    try:
        return found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:
        raise BadInput(f"{name} cannot be made: {type(error).__name__}: {error}{_raised_at(error)}") from error


def _classes_of(module: Any) -> str:
    """The modules that a Python module has, for a sentence about one that it has not."""
    from tidemill.api.module import Module

    classes = (value for value in vars(module).values() if isinstance(value, type))
    names = sorted(found.__name__ for found in classes if issubclass(found, Module) and found is not Module)
    return f"; it has {', '.join(names)}" if names else "; it has no class that derives from tidemill.Module"


def _import(place: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return _import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except BadInput:
        raise
    except ModuleNotFoundError as error:
        hint = "" if error.name and not place.startswith(error.name) else "; it is looked for from this folder on"
        raise BadInput(
            f"Cannot import {place}: there is no Python module '{error.name}'{hint}{_raised_at(error)}."
        ) from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"Cannot import {place}: {type(error).__name__}: {error}{_raised_at(error)}") from error


def _raised_at(error: BaseException) -> str:
    """The line of the module's own code that raised; syntax errors say theirs themselves."""
    from tidemill.api.locations import raised_location

    at = raised_location(error.__traceback__)
    if isinstance(error, SyntaxError) or at.line == 0 or "importlib" in at.file:
        return ""
    return f" ({at.file}, line {at.line})"


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise BadInput(f"There is no file {path}.")
    # As a module of its name from its folder: workers on other processes import it the same way.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.import_module(path.stem)
    found = getattr(module, "__file__", None)
    if found is None or not path.samefile(found):
        raise BadInput(f"{path} has the name of another Python module, {found or path.stem}; rename the file.")
    return module


def existing_store(url: str) -> ObjectStore:
    """A store to look into; a folder that is not there is not made.

    Raises:
        UnknownName: there is nothing at this place.
    """
    if "://" not in url and not Path(url).is_dir():
        raise UnknownName(f"There is no store at {url}; name one with --store or {STORE_VARIABLE}.")
    return open_store(absolute_url(url))


def stored_definition(store: ObjectStore, module: str) -> StoredDefinition:
    """The newest definition of a module.

    Raises:
        UnknownName: the store has no such module.
    """
    found = DefinitionLog(store, module).newest() if is_folder_name(module) else None
    if found is None or found.is_destroyed:
        raise no_such_module(store, module)
    return found


def client_of(store: ObjectStore, module: str, code: str) -> ModuleClient:
    """A client of a module, with its code if the caller named it."""
    client = ModuleClient(store, module)
    if code:
        from tidemill.api.declaration import record_module

        declaration = record_module(load_module(code))
        if declaration.name != module:
            raise BadInput(f"{code} is the module {declaration.name}, not {module}; name the class of {module}.")
        client.declare(declaration)
    return client
