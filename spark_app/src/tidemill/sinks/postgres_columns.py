"""Values of which a column of PostgreSQL would make others: they are refused, since COPY does so without a word.

Digits behind those that a column is declared to keep are no other value: it rounds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, time
from struct import pack, unpack
from typing import Any, Final, NamedTuple

from tidemill.values.errors import BadInput

TYPES: Final = (
    "SELECT a.attname, COALESCE(NULLIF(t.typbasetype, 0), t.oid)::int"
    " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
    " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
)
"""Of each column of a table its name and the number of its type; needs no right to read the table."""


class ColumnType(NamedTuple):
    """A line of `TYPES`."""

    name: str
    kind: int


Change = Callable[[Any], str]
"""What a column would make of a value, for people; empty where it keeps it."""

BOOL, BYTEA, TEXT, FLOAT4, FLOAT8, BPCHAR, VARCHAR = 16, 17, 25, 700, 701, 1042, 1043
DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ = 1082, 1083, 1114, 1184, 1186, 1266


def unchanged(columns: Sequence[ColumnType | None], rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """The rows, whose values are in the order of the columns; None is a column that the table lacks.

    Raises:
        BadInput: a column would hold another value than a row has; the caller stores a type that fits.
    """
    checks = [
        (index, column.name, check)
        for index, column in enumerate(columns)
        if column is not None and (check := _CHECKS.get(column.kind))
    ]
    for row in rows:
        for index, name, check in checks:
            value = row[index]
            if value is not None and (text := check(value)):
                raise BadInput(f"the column {name} {text}, and a row has {value!r}")
        yield row


def _truth(value: Any) -> str:
    return "has truths" if _is_number(value) else ""


def _moment(value: Any) -> str:
    return "has times" if _is_number(value) else ""


def _day(value: Any) -> str:
    if not isinstance(value, datetime):
        return "has days" if _is_number(value) else ""
    at = value if value.tzinfo is None else value.astimezone(UTC)
    return "" if at.time() == time() else "has days"


def _hour(value: Any) -> str:
    return "has times of a day" if isinstance(value, datetime) or _is_number(value) else ""


def _double(value: Any) -> str:
    is_kept = not _is_whole(value) or (abs(value) < 1 << 1023 and int(float(value)) == value)
    return "" if is_kept else "has floats, of which none is this whole number"


def _single(value: Any) -> str:
    if not _is_whole(value):
        return ""
    is_kept = abs(value) < 1 << 127 and int(unpack("f", pack("f", float(value)))[0]) == value
    return "" if is_kept else "has floats of 32 bits, of which none is this whole number"


def _bytes(value: Any) -> str:
    return "" if isinstance(value, bytes) else "has bytes"


def _text(value: Any) -> str:
    return "has texts" if isinstance(value, (bytes, bool)) else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_CHECKS: Final[dict[int, Change]] = {
    BOOL: _truth, BYTEA: _bytes, TEXT: _text, BPCHAR: _text, VARCHAR: _text, FLOAT4: _single, FLOAT8: _double,
    DATE: _day, TIME: _hour, TIMETZ: _hour, TIMESTAMP: _moment, TIMESTAMPTZ: _moment, INTERVAL: _moment,
}  # fmt: skip
