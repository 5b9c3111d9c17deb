"""`tidemill query`: the result of a query topology, computed in this process or on Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tidemill.cli import completion
from tidemill.cli.loader import STORE_DEFAULT, JsonOption, StoreOption, client_of, existing_store, load_module
from tidemill.cli.output import command, show_json, show_table, to_json, wants_json
from tidemill.values.errors import BadInput

if TYPE_CHECKING:
    from tidemill.engine.work import AttemptRunner


@command
def query(
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE",
            help="Name of a module in the store, or MODULE:CLASS, which is its code.",
            autocompletion=completion.modules,
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the query.", autocompletion=completion.queries)],
    args: Annotated[
        str, typer.Argument(metavar="[ARGS]", help="Its arguments, a JSON list such as '[\"a\", 3]'.")
    ] = "[]",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    code: Annotated[str, typer.Option("--module", help="MODULE:CLASS, the module's code: the query runs here.")] = "",
    engine: Annotated[
        str, typer.Option("--engine", help="local (this process) | spark; without it where the query's module says.")
    ] = "",
) -> None:
    """Call a query topology; its steps run in this process, or on Spark."""
    from tidemill.cluster.engines import check_engine
    from tidemill.paths.json import value_from_json
    from tidemill.queries.handle import QueryHandle

    wants_json(json_)
    if engine:
        check_engine(engine)
    given = _parsed(args)
    opened = existing_store(store)
    if ":" in module and not code:
        from tidemill.api.declaration import record_module

        code, module = module, record_module(load_module(module)).name
    handle = QueryHandle(client_of(opened, module, code), name, cast(Any, engine or None), _spark)
    result = handle.invoke(*(value_from_json(arg, f"argument {number}") for number, arg in enumerate(given, 1)))
    if json_:
        show_json(result)
    else:
        _show(name, result)


def _spark() -> AttemptRunner:
    from tidemill.cluster.engines import open_engine

    try:
        return open_engine("spark")
    except BadInput as error:
        if error.context.get("extra") != "spark":
            raise
        raise BadInput(f"{error}, or let the query run in this process, within its bounds: --engine local") from error


def _show(name: str, result: Any) -> None:
    """A result for people: maps and lists of rows as tables, anything else as one line."""
    if isinstance(result, dict) and result:
        show_table(name, ("key", "value"), ((to_json(key), to_json(value)) for key, value in result.items()))
    elif isinstance(result, list) and result and all(isinstance(row, dict) and row for row in result):
        columns = list(dict.fromkeys(key for row in result for key in row))
        rows = ([to_json(row[column]) if column in row else None for column in columns] for row in result)
        show_table(name, [str(column) for column in columns], rows)
    elif isinstance(result, list) and result:
        show_table(name, ("value",), ([to_json(value)] for value in result))
    else:
        typer.echo(to_json(result))


def _parsed(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"The arguments are not JSON ({error}); write them like '[\"a\", 3]'.") from error
    if not isinstance(found, list):
        raise BadInput(f"The arguments are a JSON list, not {text}; write it like '[{text}]'.")
    return found
