"""The names that a shell offers on the line of a command: modules of the store that it names, and their objects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from tidemill.definition.definition import StoredDefinition

SECONDS_MAX: Final = 1.0
"""Somebody waits with a finger on the key: a store that answers later offers nothing."""

NAMES_MAX: Final = 200


def modules(ctx: typer.Context, incomplete: str) -> list[str]:
    """The modules of the store."""
    return _offered(lambda: _modules(_url(ctx)), incomplete)


def topologies(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topologies of the module that the line names."""
    return _objects(ctx, incomplete, lambda definition: definition.topologies)


def depots(ctx: typer.Context, incomplete: str) -> list[str]:
    """The depots of the module that the line names, without the `*` that a shell would take for files."""
    return _objects(ctx, incomplete, lambda definition: (name.removeprefix("*") for name in definition.depots))


def read_depots(ctx: typer.Context, incomplete: str) -> list[str]:
    """The depots of the module that the line names, and those of other modules that it reads, without the `*`."""
    return _objects(ctx, incomplete, lambda definition: (name.removeprefix("*") for name in definition.read_depots))


def pstates(ctx: typer.Context, incomplete: str) -> list[str]:
    """The PStates of the module that the line names, without the `$$` that a shell would take for its own number."""
    return _objects(ctx, incomplete, _pstates)


def queries(ctx: typer.Context, incomplete: str) -> list[str]:
    """The queries of the module that the line names."""
    return _objects(ctx, incomplete, lambda definition: definition.queries)


def options(incomplete: str) -> list[str]:
    """The names of dynamic options, which no store is asked for."""
    from tidemill.language.options import OPTIONS

    return _fitting(OPTIONS, incomplete)


def _pstates(definition: StoredDefinition) -> Iterable[str]:
    owned = (topology.pstates.values() for topology in definition.topologies.values())
    return (pstate.name.removeprefix("$$") for pstates in owned for pstate in pstates if not pstate.is_private)


def _url(ctx: typer.Context) -> str:
    return str(ctx.params["store"])  # from the line, the environment, or by default


def _objects(ctx: typer.Context, incomplete: str, names: Callable[[StoredDefinition], Iterable[str]]) -> list[str]:
    url, module = _url(ctx), str(ctx.params.get("module") or "")

    def look() -> Iterable[str]:
        from tidemill.journal.definition_log import DefinitionLog
        from tidemill.store.urls import open_store
        from tidemill.values.names import is_folder_name

        definition = DefinitionLog(open_store(url, probe=False), module).newest() if is_folder_name(module) else None
        return () if definition is None else names(definition)

    return _offered(look, incomplete)


def _modules(url: str) -> Iterable[str]:
    from tidemill.journal.definition_log import modules_of
    from tidemill.store.urls import open_store

    return modules_of(open_store(url, probe=False))


def _offered(look: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """What fits of the names, where the store gives them in time; a line that is not finished yet has no errors."""
    from tidemill.values.errors import TidemillError

    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(_fitting(look(), incomplete))
        except (TidemillError, OSError):
            return

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SECONDS_MAX)
    return [] if asking.is_alive() else found


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    wanted = incomplete.lstrip("*$")
    return sorted(name for name in names if name.startswith(wanted))[:NAMES_MAX]
