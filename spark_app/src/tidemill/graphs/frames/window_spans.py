"""How long windows of frames are, and how far apart."""

from __future__ import annotations

import re
from datetime import timedelta

import polars as pl

from tidemill.values.errors import BadInput

Span = str | int | timedelta
"""Text as Polars has it ("1h30m", "1d", "1mo"), a timedelta, or a whole number."""

_NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


def window_spans(schema: pl.Schema, column: str, *spans: Span) -> tuple[str | int, ...]:
    """The spans of windows over a column, as Polars takes them.

    Raises:
        BadInput: there is no such column, it has another type, or a span does not fit it.
    """
    if column not in schema:
        raise BadInput(f"there is no column {column!r}; there are {', '.join(schema)}")
    kind = schema[column]
    if kind in (pl.Int32, pl.Int64):
        wrong = [span for span in spans if isinstance(span, bool) or not isinstance(span, int) or span <= 0]
    elif kind in (pl.Date, pl.Datetime):
        wrong = [span for span in spans if not (span if isinstance(span, str) else _is_time(span))]
    else:
        raise BadInput(
            f"windows need a column of dates, of times with a date, Int32 or Int64, and {column!r} is {kind}"
        )
    if wrong:
        advice = "a whole number above 0" if kind.is_integer() else 'a time above 0, as "1h" or timedelta(hours=1)'
        raise BadInput(f"windows over {column!r}, which is {kind}, take {advice}, not {wrong[0]!r}")
    found = tuple(_text(span) if isinstance(span, timedelta) else span for span in spans)
    _check_unit(column, kind, found)
    return found


def _check_unit(column: str, kind: pl.DataType, spans: tuple[str | int, ...]) -> None:
    """Refuses parts of the unit that times have, which Polars drops: of such a span nothing may stay."""
    if kind.is_integer():
        return
    unit = getattr(kind, "time_unit", "us")  # sessions of days are found in microseconds
    for span in spans:
        parts = sum(int(count) * _NANOSECONDS[name] for count, name in re.findall(r"(\d+)(ns|us|ms)", str(span)))
        if parts % _NANOSECONDS[unit]:
            whole = {"ms": "milliseconds", "us": "microseconds"}[unit]
            raise BadInput(f"windows over {column!r}, which is {kind}, take whole {whole}, not {span!r}")


def _is_time(span: Span) -> bool:
    return isinstance(span, timedelta) and span > timedelta(0)


def _text(span: timedelta) -> str:
    """As Polars writes it: days are those of the calendar."""
    parts = {"d": span.days, "s": span.seconds, "us": span.microseconds}
    return "".join(f"{count}{unit}" for unit, count in parts.items() if count)
