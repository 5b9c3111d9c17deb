"""Columns of values: the form in which batches of data are stored, moved and computed on.

A `Column` is one of
- a Polars series of Int64, Float64, String, Boolean, Binary or Datetime(us, UTC); null is None,
- a `RecordColumn`: lists of one length, or dicts of one key order, kept as one column a field,
- a Python list of values, for everything else.
The forms are interchangeable: `to_values` gives equal values whichever form `from_values` chose.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Literal, Union

import numpy as np
import polars as pl

from tidemill.values.errors import RecordRefused
from tidemill.values.message_pack import pack, unpack

DATETIME = pl.Datetime("us", "UTC")
PLAIN_TYPES: dict[type, pl.DataType | type[pl.DataType]] = {
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    bool: pl.Boolean,
    bytes: pl.Binary,
}
_INT64 = (-(2**63), 2**63 - 1)
DEPTH_MAX = 8
"""Records nested deeper are not taken apart into columns."""


@dataclass(frozen=True)
class RecordColumn:
    """Records of one shape, a column a field: `kind` "list" (names "0", "1", …) or "dict"; no record is None."""

    kind: Literal["list", "dict"]
    names: tuple[str, ...]
    fields: tuple[Column, ...]

    def field(self, name: str) -> Column | None:
        """The column of one field; None if the records have no such field."""
        return self.fields[self.names.index(name)] if name in self.names else None


Column = Union[pl.Series, RecordColumn, list[Any]]


# --- between values and columns --------------------------------------------------------------------------------------


def from_values(values: Sequence[Any], tuples_as_lists: bool = False, depth: int = 0) -> Column:
    """The best column for these values; `tuples_as_lists` is for records that are about to be stored.

    Records in records, `depth` levels of them, stay values beyond a bound: columns would be many and short there.
    """
    kinds = set(map(type, values))
    nullable = type(None) in kinds
    kinds.discard(type(None))
    if len(kinds) != 1:
        if tuples_as_lists and kinds == {tuple, list} and not nullable and depth < DEPTH_MAX:
            return _records_of_lists(values, tuples_as_lists, depth)
        return list(values)
    kind = kinds.pop()
    if kind in PLAIN_TYPES:
        return _plain(values, kind)
    if kind is datetime.datetime:
        return _datetimes(values)
    if nullable or depth >= DEPTH_MAX:
        return list(values)
    if kind is list or (kind is tuple and tuples_as_lists):
        return _records_of_lists(values, tuples_as_lists, depth)
    if kind is dict:
        return _records_of_dicts(values, tuples_as_lists, depth)
    return list(values)


def _plain(values: Sequence[Any], kind: type) -> Column:
    try:
        return pl.Series("", values, dtype=PLAIN_TYPES[kind], strict=True)
    except (OverflowError, TypeError, UnicodeEncodeError, pl.exceptions.PolarsError):
        return list(values)


def _datetimes(values: Sequence[Any]) -> Column:
    if all(value is None or value.tzinfo is datetime.UTC for value in values):
        return pl.Series("", values, dtype=DATETIME, strict=True)
    return list(values)


def _records_of_lists(values: Sequence[Any], tuples_as_lists: bool, depth: int) -> Column:
    width = len(values[0])
    if width == 0 or any(map(partial(_differs, width), map(len, values))):
        return list(values)
    columns = tuple(from_values(list(map(itemgetter(i), values)), tuples_as_lists, depth + 1) for i in range(width))
    return RecordColumn("list", tuple(map(str, range(width))), columns)


def _differs(expected: Any, actual: Any) -> bool:
    return bool(expected != actual)


def _records_of_dicts(values: Sequence[Any], tuples_as_lists: bool, depth: int) -> Column:
    names = tuple(values[0])
    is_uniform = not any(map(partial(_differs, names), map(tuple, values)))
    if not names or not is_uniform or any(type(name) is not str for name in names):
        return list(values)
    columns = tuple(from_values(list(map(itemgetter(name), values)), tuples_as_lists, depth + 1) for name in names)
    return RecordColumn("dict", names, columns)


def to_values(column: Column) -> list[Any]:
    """The Python values; records become fresh lists or dicts."""
    if isinstance(column, list):
        return column
    if isinstance(column, pl.Series):
        return _series_values(column)
    fields = [to_values(field) for field in column.fields]
    if column.kind == "list":
        return list(map(list, zip(*fields, strict=True)))
    return [dict(zip(column.names, row, strict=True)) for row in zip(*fields, strict=True)]


def _series_values(series: pl.Series) -> list[Any]:
    if series.dtype == DATETIME:
        return [None if value is None else value.replace(tzinfo=datetime.UTC) for value in series.to_list()]
    return series.to_list()


def repeat(value: Any, count: int) -> Column:
    """A column of one value, `count` times."""
    if type(value) in PLAIN_TYPES and (type(value) is not int or _INT64[0] <= value <= _INT64[1]):
        return pl.Series("", [value], dtype=PLAIN_TYPES[type(value)]).new_from_index(0, count)
    return [value] * count


def from_frame(frame: pl.DataFrame) -> RecordColumn:
    """The rows of a data frame as dict records; narrower numbers are widened, unknown types become values.

    Raises:
        RecordRefused: a column has times finer than a microsecond, which records do not hold.
    """
    check_times(frame)
    return RecordColumn("dict", tuple(frame.columns), tuple(_from_series(series) for series in frame))


def check_times(frame: pl.DataFrame) -> None:
    """Refuse times whose last digits Python's values would lose: rows that differ would become equal.

    Raises:
        RecordRefused: says which column, and what to do.
    """
    for series in frame:
        if _has_nanoseconds(series.dtype) and _is_finer(series):
            raise RecordRefused(
                f"The column {series.name!r} holds times finer than a microsecond, which would be cut. Cut them "
                f'yourself, .dt.cast_time_unit("us"), or keep them as whole numbers, .dt.epoch("ns").',
                column=series.name,
            )


def _has_nanoseconds(dtype: Any) -> bool:
    if isinstance(dtype, (pl.List, pl.Array)):
        return _has_nanoseconds(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return any(_has_nanoseconds(field.dtype) for field in dtype.fields)
    return isinstance(dtype, (pl.Datetime, pl.Duration)) and dtype.time_unit == "ns"


def _is_finer(series: pl.Series) -> bool:
    if isinstance(series.dtype, (pl.List, pl.Array)):
        return _is_finer(series.explode())
    if isinstance(series.dtype, pl.Struct):
        return any(_has_nanoseconds(field.dtype) and _is_finer(field) for field in series.struct.unnest())
    return bool((series.to_physical() % 1_000 != 0).any())


def _from_series(series: pl.Series) -> Column:
    dtype = series.dtype
    if dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128):
        return series.cast(pl.Int64)
    if dtype in (pl.Int64, pl.Float64, pl.String, pl.Boolean, pl.Binary) or dtype == DATETIME:
        return series
    if dtype == pl.Float32:
        return series.cast(pl.Float64)
    if isinstance(dtype, pl.Datetime):
        aware = series.dt.replace_time_zone("UTC") if dtype.time_zone is None else series.dt.convert_time_zone("UTC")
        return aware.cast(DATETIME)
    if dtype in (pl.Categorical, pl.Enum):
        return series.cast(pl.String)
    return from_values(series.to_list())


# --- operations on columns -------------------------------------------------------------------------------------------


def length(column: Column) -> int:
    """The number of rows."""
    return length(column.fields[0]) if isinstance(column, RecordColumn) else len(column)


def filter_rows(column: Column, mask: pl.Series) -> Column:
    """The rows where the Boolean `mask` is true."""
    if isinstance(column, pl.Series):
        return column.filter(mask)
    if isinstance(column, RecordColumn):
        return RecordColumn(column.kind, column.names, tuple(filter_rows(field, mask) for field in column.fields))
    return [value for value, keep in zip(column, mask.to_list(), strict=True) if keep]


def gather_rows(column: Column, indices: np.ndarray[Any, Any]) -> Column:
    """The rows at `indices` (integers, any order, repeats allowed)."""
    if isinstance(column, pl.Series):
        return column[indices]
    if isinstance(column, RecordColumn):
        return RecordColumn(column.kind, column.names, tuple(gather_rows(field, indices) for field in column.fields))
    return [column[index] for index in indices.tolist()]


def slice_rows(column: Column, start: int, count: int) -> Column:
    """`count` rows from `start` on, fewer at the column's end."""
    if isinstance(column, pl.Series):
        return column.slice(start, count)
    if isinstance(column, RecordColumn):
        fields = tuple(slice_rows(field, start, count) for field in column.fields)
        return RecordColumn(column.kind, column.names, fields)
    return column[start : start + count]


def concat(columns: Sequence[Column]) -> Column:
    """One column after the other, in one piece, as all that takes single rows of pieces is slow; forms that differ meet
    as values.
    """
    columns = [column for column in columns if length(column) > 0] or list(columns[:1])
    first = columns[0]
    if len(columns) == 1:
        return first
    if isinstance(first, pl.Series) and all(isinstance(c, pl.Series) and c.dtype == first.dtype for c in columns):
        return pl.concat([c for c in columns if isinstance(c, pl.Series)], rechunk=True)
    if isinstance(first, RecordColumn) and all(_same_shape(first, column) for column in columns):
        records = [c for c in columns if isinstance(c, RecordColumn)]
        fields = tuple(concat([record.fields[i] for record in records]) for i in range(len(first.names)))
        return RecordColumn(first.kind, first.names, fields)
    values = [value for column in columns for value in to_values(column)]
    return from_values(values)


def form(column: Column) -> Any:
    """Equal for columns that `concat` joins without a look at their values."""
    if isinstance(column, pl.Series):
        return column.dtype
    if isinstance(column, RecordColumn):
        return column.kind, column.names, tuple(form(field) for field in column.fields)
    return None


def _same_shape(first: RecordColumn, other: Column) -> bool:
    return isinstance(other, RecordColumn) and (other.kind, other.names) == (first.kind, first.names)


def owned(column: Column) -> Column:
    """A copy that holds its rows and no more: a slice holds all of what it was cut from."""
    if isinstance(column, pl.Series):
        return _owned_series(column)
    if isinstance(column, RecordColumn):
        return RecordColumn(column.kind, column.names, tuple(owned(field) for field in column.fields))
    return column


def _owned_series(series: pl.Series) -> pl.Series:
    if series.dtype in (pl.String, pl.Binary):  # views share the buffers of long texts, whoever gathers them
        return pl.Series(series.name, series.to_arrow(compat_level=pl.CompatLevel.oldest()))
    return series.rechunk() if series.n_chunks() > 1 else series[np.arange(len(series))]


# --- flat form, for files and messages -------------------------------------------------------------------------------

Layout = Any
"""JSON-like: "plain" (one series), "values" (one Binary series of MessagePack), or [kind, [names…], [layouts…]]."""


def flatten(column: Column, pack: Callable[[Any], bytes] = pack) -> tuple[Layout, list[pl.Series]]:
    """The column as plain series and a layout from which `unflatten` makes it again; `pack` is for its values."""
    if isinstance(column, pl.Series):
        return "plain", [column]
    if isinstance(column, list):
        return "values", [pl.Series("", [pack(value) for value in column], dtype=pl.Binary)]
    parts = [flatten(field, pack) for field in column.fields]
    layout = [column.kind, list(column.names), [inner for inner, _ in parts]]
    return layout, [plain for _, series in parts for plain in series]


def unflatten(
    layout: Layout,
    series: Sequence[pl.Series],
    step: int | None = None,
    unpack: Callable[[bytes], Any] = unpack,
) -> Column:
    """The inverse of `flatten`; takes exactly the series that the layout asks for.

    Values are unpacked `step` rows at a time, all at once if it is left out.
    """
    remaining = iter(series)
    return _unflatten(layout, remaining, partial(_unpacked, step, unpack))


def _unflatten(layout: Layout, remaining: Iterator[pl.Series], unpacked: Callable[[pl.Series], Column]) -> Column:
    if layout == "plain":
        return next(remaining)
    if layout == "values":
        return unpacked(next(remaining))
    kind, names, layouts = layout
    return RecordColumn(kind, tuple(names), tuple(_unflatten(inner, remaining, unpacked) for inner in layouts))


def _unpacked(step: int | None, unpack: Callable[[bytes], Any], packed: pl.Series) -> list[Any]:
    step = step or max(1, len(packed))
    parts = (packed.slice(row, step).to_list() for row in range(0, len(packed), step))
    return [unpack(value) for part in parts for value in part]


def width(layout: Layout) -> int:
    """How many series a layout needs."""
    return 1 if isinstance(layout, str) else sum(width(inner) for inner in layout[2])
