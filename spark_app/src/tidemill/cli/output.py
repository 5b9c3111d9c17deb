"""What the command line prints: tables for people, JSON for programs, one sentence for an error, and exit codes."""

from __future__ import annotations

import datetime
import functools
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import typer

from tidemill.cli.controls import escaped, without_controls
from tidemill.values.errors import (
    BadInput,
    CorruptState,
    DefinitionError,
    InvariantViolation,
    OwnedByAnother,
    RetryableError,
    StoreRestored,
    TidemillError,
)
from tidemill.values.json import jsonable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

P = ParamSpec("P")
R = TypeVar("R")

EXIT_REFUSED = 1
"""The caller, or the module's author, must change something."""
EXIT_TRY_AGAIN = 3
EXIT_CORRUPT = 4
EXIT_OWNED = 5
"""The module belongs to somebody else."""

EXIT_BUG = 70

PIPE_COLUMNS = 160
"""How wide tables are where nobody says: wide enough not to break names."""

WHOLE_COLUMNS = 40
"""Names and numbers up to this width stay in one line; longer texts are broken, so that they leave room for others."""

_state = {"json": False}


def console() -> Console:
    """Where results go; made anew each time, so that a test's output is found."""
    from tidemill.cli.consoles import PlainConsole  # results as JSON or plain lines do without Rich

    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    return PlainConsole(file=sys.stdout, highlight=False, emoji=False, width=width)


def messages() -> Console:
    """Where progress and errors go: stderr, so that results can be piped."""
    from tidemill.cli.consoles import PlainConsole

    return PlainConsole(file=sys.stderr, highlight=False, emoji=False, soft_wrap=not sys.stderr.isatty())


def wants_json(is_json: bool) -> bool:
    """Remember that errors are to be JSON too."""
    _state["json"] = is_json
    return is_json


def say(text: str) -> None:
    """One line for people; it goes to stderr."""
    messages().print(text, markup=False)


def log(text: str) -> None:
    """One line of a process that goes on, with its time; it goes to stderr."""
    say(f"{time_text(time.time_ns() // 1_000_000)} {text}")


def show_line(text: str) -> None:
    """A line of a result for people, as it is also where it goes into a pipe."""
    typer.echo(without_controls(text))


def show_json(value: Any) -> None:
    """A result as one line of JSON."""
    typer.echo(to_json(value))


def to_json(value: Any) -> str:
    """Any data value as one line of JSON, by the rules of `values.json.jsonable`."""
    return escaped(json.dumps(jsonable(value), ensure_ascii=False))


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A table; the columns named in `right` hold numbers."""
    console().print(table_of(title, columns, rows, right))


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> Table:
    """The table that `show_table` shows."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(without_controls(title), style="table.title") if title else None, title_justify="left")
    cells = [[Text(without_controls(cell_text(cell))) for cell in row] for row in rows]
    for place, name in enumerate(columns):
        is_wide = max((row[place].cell_len for row in cells), default=0) > WHOLE_COLUMNS
        is_whole = place < len(columns) - 1 and not is_wide  # the last one, and wide ones, share what is left
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(Text(without_controls(name)), justify=justify, overflow="fold", no_wrap=is_whole)
    for row in cells:
        table.add_row(*row)
    return table


def cell_text(value: Any) -> str:
    """A value as a table's cell shows it: "-" for None, thousands apart, floats with one digit."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def time_text(millis: int) -> str:
    """Milliseconds since 1970 as a person reads them; the Z says that it is UTC."""
    return datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def counted(number: int, noun: str) -> str:
    """A number of things: `1 record`, `2,000 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn errors into one sentence and an exit code; only our own bugs show a stack trace."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TidemillError as error:
            raise _exit(error) from error
        except TimeoutError as error:
            raise _exit(RetryableError(str(error))) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except BrokenPipeError as error:
            raise typer.Exit(0) from error
        except OSError as error:  # what the system refuses: a full disk, no right
            raise _exit(BadInput(_refused_by_system(error))) from error

    return run


def _refused_by_system(error: OSError) -> str:
    place = "" if error.filename is None else f"{error.filename}: "
    if isinstance(error, (FileExistsError, NotADirectoryError)) and place:
        return f"{place}A folder is needed here, and this is a file, or below one. Name another place."
    return f"{place}{error.strerror or error}."


def _exit(error: TidemillError) -> typer.Exit:
    if isinstance(error, InvariantViolation):
        raise error
    if _state["json"]:
        body: dict[str, Any] = {"code": error.code, "message": str(error)}
        if isinstance(error, DefinitionError):
            body["faults"] = [vars(fault) for fault in error.faults]
        typer.echo(escaped(json.dumps({"error": body}, ensure_ascii=False)), err=True)
    else:
        messages().print(f"Error: {error}", style="bold red", markup=False)
    return typer.Exit(_exit_code(error))


def _exit_code(error: TidemillError) -> int:
    if isinstance(error, (RetryableError, StoreRestored)):
        return EXIT_TRY_AGAIN
    if isinstance(error, OwnedByAnother):
        return EXIT_OWNED
    return EXIT_CORRUPT if isinstance(error, CorruptState) else EXIT_REFUSED
