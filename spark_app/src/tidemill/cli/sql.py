"""`tidemill sql`: a SELECT over the PStates and depots of a store."""

from __future__ import annotations

import atexit
import datetime
import decimal
import gc
import uuid
from typing import Annotated, Any

import typer

from tidemill.cli.loader import STORE_DEFAULT, JsonOption, StoreOption, existing_store
from tidemill.cli.output import command, say, show_json, show_table, to_json, wants_json
from tidemill.scans.sql import MEMORY_MB, ROWS, SECONDS, Limits, run_sql


@command
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help='Such as "select k0, value from Visits.counts".')],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    module: Annotated[str, typer.Option("--module", help="Only this module's tables, without its name.")] = "",
    rows: Annotated[int, typer.Option("--rows", help="Rows of the answer at most.")] = ROWS,
    seconds: Annotated[float, typer.Option("--seconds", help="How long the query may take.")] = SECONDS,
    memory_mb: Annotated[int, typer.Option("--memory-mb", help="For DuckDB, and again for rows read.")] = MEMORY_MB,
) -> None:
    """Answer a SELECT over PStates and depots, with DuckDB; --json prints a list of objects."""
    wants_json(json_)
    atexit.unregister(gc.freeze)  # DuckDB's types are garbage when the process ends, and it complains where they stay
    answer = run_sql(existing_store(store), query, module, Limits(seconds, rows, memory_mb))
    shown = [[_plain(value) for value in row] for row in answer.rows]
    if json_:
        show_json([dict(zip(answer.columns, row, strict=True)) for row in shown])
    else:
        numbers = _numbers(answer.columns, answer.rows)
        show_table("", answer.columns, [[_cell(value) for value in row] for row in shown], right=numbers)
    if answer.is_cut:
        say(f"There are more rows; these are the first {rows:,}. --rows says how many.")


def _cell(value: Any) -> str | None:
    """A value as it stands in a table: numbers with all their digits, what has parts as JSON."""
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else to_json(value)


def _numbers(columns: list[str], rows: list[list[Any]]) -> list[str]:
    """The columns whose first value is a number."""
    first = rows[0] if rows else []
    return [name for name, value in zip(columns, first, strict=False) if type(value) in (int, float, decimal.Decimal)]


def _plain(value: Any) -> Any:
    """A value of SQL as a data value: types that only SQL has as text, whole decimals as integers."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, uuid.UUID)):
        return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else str(value)
    if isinstance(value, tuple) and hasattr(value, "nanoseconds"):
        return _interval(*value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """An interval as SQL reads it: 1 year 2 months 3 days 04:05:06.5."""
    years, months = int(months / 12), months - 12 * int(months / 12)
    named = ((years, "year"), (months, "month"), (days, "day"))
    parts = [f"{number} {name}{'' if abs(number) == 1 else 's'}" for number, name in named if number]
    if nanoseconds or not parts:
        seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
        sign = "-" if nanoseconds < 0 else ""
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}")
    return " ".join(parts)
