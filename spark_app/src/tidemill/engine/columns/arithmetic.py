"""Built-in operations on whole columns, where the result provably equals that of Python values; else None.

Integers stay exact: a result that could leave 64 bits is left to Python. Columns with None, or of different types, are
left to Python too, because there a row may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from tidemill.values.columns import Column, RecordColumn, length

_SAFE_SUM = 2**62
_SAFE_FLOAT = 2**53

Fast = Callable[[Sequence[Column]], Column | None]


def _series(args: Sequence[Column]) -> list[pl.Series] | None:
    """The arguments as series without None of one type; None if one of them is something else."""
    found: list[pl.Series] = []
    for arg in args:
        if not isinstance(arg, pl.Series) or arg.null_count() or (found and arg.dtype != found[0].dtype):
            return None
        found.append(arg)
    return found


def _magnitude(series: pl.Series) -> int:
    """The largest absolute value of an integer series."""
    if not len(series):
        return 0
    return max(abs(int(series.max())), abs(int(series.min())))  # type: ignore[arg-type]


def _numbers(args: Sequence[Column], limit: int) -> list[pl.Series] | None:
    """Series of one numeric type; integers only if the sum of their largest values stays below `limit`."""
    found = _series(args)
    if not found or found[0].dtype not in (pl.Int64, pl.Float64):
        return None
    if found[0].dtype == pl.Int64 and sum(map(_magnitude, found)) >= limit:
        return None
    return found


def _plus(args: Sequence[Column]) -> Column | None:
    found = _numbers(args, _SAFE_SUM)
    if found is None:
        return None
    total = found[0]
    for series in found[1:]:
        total = total + series
    return total


def _minus(args: Sequence[Column]) -> Column | None:
    found = _numbers(args, _SAFE_SUM)
    if found is None or len(found) < 2:
        return None
    total = found[0]
    for series in found[1:]:
        total = total - series
    return total


def _times(args: Sequence[Column]) -> Column | None:
    found = _series(args)
    if found is None or len(found) != 2 or found[0].dtype not in (pl.Int64, pl.Float64):
        return None
    if found[0].dtype == pl.Int64 and _magnitude(found[0]) * _magnitude(found[1]) >= _SAFE_SUM:
        return None
    return found[0] * found[1]


def _step(amount: int) -> Fast:
    def run(args: Sequence[Column]) -> Column | None:
        found = _numbers(args, _SAFE_SUM)
        return None if found is None else found[0] + amount

    return run


def _divide(args: Sequence[Column]) -> Column | None:
    found = _numbers(args, _SAFE_FLOAT)
    if found is None or bool((found[1] == 0).any()):
        return None
    return found[0].cast(pl.Float64) / found[1].cast(pl.Float64)


def _floor_divide(args: Sequence[Column]) -> Column | None:
    found = _series(args)
    if found is None or found[0].dtype != pl.Int64 or bool((found[1] == 0).any()):
        return None
    return found[0] // found[1] if _magnitude(found[0]) < _SAFE_SUM else None


def _modulo(args: Sequence[Column]) -> Column | None:
    found = _series(args)
    if found is None or found[0].dtype != pl.Int64 or bool((found[1] == 0).any()):
        return None
    return found[0] - (found[0] // found[1]) * found[1] if _magnitude(found[0]) < _SAFE_SUM else None


def _parity(rest: int) -> Fast:
    def run(args: Sequence[Column]) -> Column | None:
        found = _series(args)
        return None if found is None or found[0].dtype != pl.Int64 else (found[0] & 1) == rest

    return run


def _compare(compare: Callable[[pl.Series, pl.Series], pl.Series]) -> Fast:
    def run(args: Sequence[Column]) -> Column | None:
        found = _series(args)
        if found is None or len(found) != 2 or found[0].dtype not in (pl.Int64, pl.String, pl.Float64):
            return None
        if found[0].dtype == pl.Float64 and bool((found[0].is_nan() | found[1].is_nan()).any()):
            return None
        return compare(found[0], found[1])

    return run


def truth(column: Column) -> pl.Series:
    """Which values count as true: all but None and False."""
    if isinstance(column, pl.Series):
        return column.fill_null(False) if column.dtype == pl.Boolean else column.is_not_null()
    if isinstance(column, RecordColumn):
        return pl.Series("", [True], dtype=pl.Boolean).new_from_index(0, length(column))
    return pl.Series("", [value is not None and value is not False for value in column], dtype=pl.Boolean)


def _and(args: Sequence[Column]) -> Column | None:
    if not args:
        return None
    total = truth(args[0])
    for arg in args[1:]:
        total = total & truth(arg)
    return total


def _or(args: Sequence[Column]) -> Column | None:
    if not args:
        return None
    total = truth(args[0])
    for arg in args[1:]:
        total = total | truth(arg)
    return total


def _is_null(args: Sequence[Column]) -> Column | None:
    return args[0].is_null() if isinstance(args[0], pl.Series) else None


def _is_not_null(args: Sequence[Column]) -> Column | None:
    return args[0].is_not_null() if isinstance(args[0], pl.Series) else None


def _tuple(args: Sequence[Column]) -> Column | None:
    return RecordColumn("list", tuple(str(i) for i in range(len(args))), tuple(args)) if args else None


def _field(args: Sequence[Column], index: int) -> Column | None:
    record = args[0]
    if not isinstance(record, RecordColumn) or record.kind != "list":
        return None
    return record.fields[index]


def _size(args: Sequence[Column]) -> Column | None:
    record = args[0]
    if not isinstance(record, RecordColumn):
        return None
    return pl.Series("", [len(record.names)], dtype=pl.Int64).new_from_index(0, length(record))


def get_field(args: Sequence[Column], key: Any) -> Column | None:
    """A constant key or index of records: a column of theirs, without making Python objects."""
    record = args[0]
    if not isinstance(record, RecordColumn) or type(key) not in (str, int):
        return None
    if record.kind == "list":
        is_inside = type(key) is int and 0 <= key < len(record.fields)
        return record.fields[key] if is_inside else None
    return record.field(key) if type(key) is str else None


FAST: dict[str, Fast] = {
    "IDENTITY": lambda args: args[0],
    "TUPLE": _tuple,
    "FIRST": lambda args: _field(args, 0),
    "LAST": lambda args: _field(args, -1),
    "SIZE": _size,
    "INC": _step(1),
    "DEC": _step(-1),
    "PLUS": _plus,
    "MINUS": _minus,
    "TIMES": _times,
    "DIV": _divide,
    "FLOOR_DIV": _floor_divide,
    "MOD": _modulo,
    "EQUAL": _compare(lambda a, b: a == b),
    "NOT_EQUAL": _compare(lambda a, b: a != b),
    "LESS_THAN": _compare(lambda a, b: a < b),
    "LESS_THAN_OR_EQUAL": _compare(lambda a, b: a <= b),
    "GREATER_THAN": _compare(lambda a, b: a > b),
    "GREATER_THAN_OR_EQUAL": _compare(lambda a, b: a >= b),
    "AND": _and,
    "OR": _or,
    "NOT": lambda args: ~truth(args[0]),
    "IS_NULL": _is_null,
    "IS_NOT_NULL": _is_not_null,
    "IS_EVEN": _parity(0),
    "IS_ODD": _parity(1),
}
"""By name of the operation; a result of None means: not this way."""
