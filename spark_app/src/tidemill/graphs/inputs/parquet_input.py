"""Parquet files, read a few row groups at a time; groups whose statistics say that no row is wanted are never read."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.graphs.inputs.files import SourceFile
from tidemill.graphs.nodes import Cursor, LazyBatch
from tidemill.values.errors import BadInput

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
STRIDE = 64 * 1024 * 1024
OPERATORS = (*_COMPARISONS, "in", "not in")
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}
"""The bytes of a value in memory, by its type in the file."""
_ORDERED = (pl.Boolean, pl.Date, pl.String, pl.Binary)
_TEXT_BYTES = 16
"""The least that a text takes."""
PLACES = 32
"""Where a sample has rows from."""
PLACE_ROWS = 256


@dataclass(frozen=True)
class RowGroup:
    """A group of rows of a file: where it begins in the file, in rows, and how many it has; `bytes`: about as many as
    the columns that are read take in memory.
    """

    file: int
    number: int
    bytes: int
    first: int
    rows: int


@dataclass(frozen=True)
class ParquetInput:
    """Some files of one schema; of their rows those that `predicate` lets pass, with `columns` (all, if None).

    Polars reads files of this machine, several times as fast as PyArrow, if it sees the same `types` in them.
    """

    files: tuple[SourceFile, ...]
    types: dict[str, pl.DataType]
    groups: tuple[RowGroup, ...]
    columns: tuple[str, ...]
    predicate: pl.Expr | None
    stride: int
    is_local: bool

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {name: self.types[name] for name in self.columns}

    @property
    def batch_bytes(self) -> int:
        return self.stride

    def describe(self) -> str:
        size = sum(group.bytes for group in self.groups)
        return f"{len(self.files)} Parquet file(s), {len(self.groups)} row groups, {size:,} bytes"

    def plan(self, channels: int) -> list[Cursor]:
        """Runs of row groups with about as many bytes; a cursor is (next group, end)."""
        total, before, owners = sum(group.bytes for group in self.groups), 0, list[int]()
        for group in self.groups:
            owners.append(min(channels - 1, (before + group.bytes // 2) * channels // max(total, 1)))
            before += group.bytes
        spans = [(owners.index(c), owners.index(c) + owners.count(c)) if c in owners else None for c in range(channels)]
        return list(spans)

    def read(self, cursor: Cursor) -> tuple[LazyBatch, Cursor]:
        """Groups of one file that follow each other, until they have `stride` bytes."""
        start, end = cursor
        stop, size = start + 1, self.groups[start].bytes
        while stop < end and self._follows(stop) and size + self.groups[stop].bytes <= self.stride:
            size += self.groups[stop].bytes
            stop += 1
        chosen = self.groups[start:stop]
        file = self.files[chosen[0].file]
        lazy = self._scanned(file, chosen) if self.is_local else self._loaded(file, chosen)
        lazy = lazy if self.predicate is None else lazy.filter(self.predicate)
        place = f"{file.path} from row {chosen[0].first} on"
        batch = LazyBatch(lazy.select(self.columns), size, place, check=file.check)
        return batch, (stop, end) if stop < end else None

    def sample(self) -> pl.DataFrame:
        """Some rows, from places all over the row groups, for guesses."""
        total = sum(group.rows for group in self.groups)
        places = sorted({total * place // PLACES for place in range(PLACES)}) if total else []
        scans = [self._rows_at(place) for place in places if self.is_local]
        chosen = (lazy if self.predicate is None else lazy.filter(self.predicate) for lazy in scans)
        found = pl.collect_all([lazy.select(self.columns) for lazy in chosen])
        return pl.concat(found) if found else pl.DataFrame(schema=self.schema)

    def _rows_at(self, place: int) -> pl.LazyFrame:
        """The rows behind a row of all groups together, some of that group."""
        for group in self.groups:
            if place < group.rows:
                file = self.files[group.file]
                return scanned(file).slice(group.first + place, min(PLACE_ROWS, group.rows - place))
            place -= group.rows
        raise IndexError(place)

    def _follows(self, number: int) -> bool:
        """Whether a group begins where the one before it ends."""
        before, group = self.groups[number - 1], self.groups[number]
        return (before.file, before.first + before.rows) == (group.file, group.first)

    def _scanned(self, file: SourceFile, groups: Sequence[RowGroup]) -> pl.LazyFrame:
        rows = sum(group.rows for group in groups)
        file.check()
        return scanned(file).slice(groups[0].first, rows)

    def _loaded(self, file: SourceFile, groups: Sequence[RowGroup]) -> pl.LazyFrame:
        wanted = set(self.columns) | (set(self.predicate.meta.root_names()) if self.predicate is not None else set())
        with _reading(file), pq.ParquetFile(RangeFile(file)) as opened:
            columns = [name for name in self.types if name in wanted]
            found = pl.from_arrow(opened.read_row_groups([group.number for group in groups], columns=columns))
        assert isinstance(found, pl.DataFrame)
        return found.lazy()


def scanned(file: SourceFile) -> pl.LazyFrame:
    """A file of this machine in Polars."""
    return pl.scan_parquet(file.path, glob=False, hive_partitioning=False)


class RangeFile(io.RawIOBase):
    """A file of a folder or a bucket as PyArrow reads it: by ranges."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes from here on, all that are left without a number."""
        found = self._file.read(self._position, self._file.size if size is None or size < 0 else size)
        self._position += len(found)
        return found


def parquet_input(
    files: tuple[SourceFile, ...],
    columns: Sequence[str] | None,
    skip_conditions: Any,
    stride: int,
    more: pl.Expr | None = None,
) -> ParquetInput:
    """The files with what is wanted of them; their footers are read now. `more`: another predicate.

    Raises:
        BadInput: a file is no Parquet, has other columns than the first one, or there is no such column.
    """
    conditions = [] if skip_conditions is None or isinstance(skip_conditions, pl.Expr) else _listed(skip_conditions)
    predicates = [each for each in (predicate_of(conditions or skip_conditions), more) if each is not None]
    predicate = pl.all_horizontal(predicates) if predicates else None
    read = None if columns is None else {*columns, *(() if predicate is None else predicate.meta.root_names())}
    types, found, is_local = dict[str, pl.DataType](), list[RowGroup](), True
    for number, file in enumerate(files):
        footer, own = _footer(file)
        types = types or own
        if own != types:
            raise BadInput(f"{file.path} has other columns than {files[0].path}.")
        is_local = is_local and _is_as_polars_reads(file, types)
        first, bytes_of = 0, _bytes_in(footer, read)
        with _reading(file):
            skipped = _skipped(footer, types, conditions)
        for position in range(footer.num_row_groups):
            group = footer.row_group(position)
            if group.num_rows and position not in skipped:
                found.append(RowGroup(number, position, bytes_of(group), first, group.num_rows))
            first += group.num_rows
    wanted = tuple(columns) if columns is not None else tuple(types)
    asked = set(wanted) | (set(predicate.meta.root_names()) if predicate is not None else set())
    if unknown := sorted(asked - types.keys()):
        raise BadInput(f"There is no column {', '.join(unknown)}; there are {', '.join(types)}.")
    return ParquetInput(files, types, tuple(found), wanted, predicate, stride, is_local)


def _footer(file: SourceFile) -> tuple[Any, dict[str, pl.DataType]]:
    """What a file says of its row groups, and its columns. Raises BadInput where it is no Parquet."""
    with _reading(file):
        with pq.ParquetFile(RangeFile(file)) as opened:
            footer, schema = opened.metadata, opened.schema_arrow
        return footer, dict(pl.DataFrame(schema.empty_table()).schema)


@contextmanager
def _reading(file: SourceFile) -> Iterator[None]:
    """Whatever a damaged file makes its readers raise, as a name that is no text, is BadInput."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise BadInput(f"{file.path} is no Parquet file, or is damaged: {error}") from error


def _bytes_in(footer: Any, columns: set[str] | None) -> Callable[[Any], int]:
    """About how much memory a group's columns (all, if None) take, so that a stride has as much of what is read however
    many columns the file has besides, and however little of it is stored where values come again and again.
    """
    parts = [(number, footer.schema.column(number)) for number in range(footer.num_columns)]
    widths = {number: _WIDTHS.get(part.physical_type, _TEXT_BYTES) for number, part in parts}
    if columns is None:
        return lambda group: max(group.total_byte_size, group.num_rows * sum(widths.values()))
    # A nested column has several parts, as `place.city`; a plain one may have a dot in its name.
    read = [number for number, part in parts if not columns.isdisjoint((part.path, part.path.split(".")[0]))]
    return lambda group: sum(max(group.column(n).total_uncompressed_size, group.num_rows * widths[n]) for n in read)


def _is_as_polars_reads(file: SourceFile, types: dict[str, pl.DataType]) -> bool:
    """Whether Polars itself reads a file, with these columns."""
    try:
        return not file.bucket and dict(scanned(file).collect_schema()) == types
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False


def predicate_of(conditions: Any) -> pl.Expr | None:
    """The rows that are wanted: a Polars expression, or (column, operator, value) of which all must hold.

    Raises:
        BadInput: it is neither.
    """
    if conditions is None or isinstance(conditions, pl.Expr):
        return conditions
    made = [_condition(each) for each in _listed(conditions)]
    return pl.all_horizontal(made) if made else None


def _listed(conditions: Any) -> list[Any]:
    if not isinstance(conditions, Iterable) or isinstance(conditions, str):
        raise BadInput(f"skip_conditions are a list of (column, operator, value), not {conditions!r}.")
    return list(conditions)


def _condition(condition: Any) -> pl.Expr:
    if not (isinstance(condition, (tuple, list)) and len(condition) == 3 and condition[1] in OPERATORS):
        raise BadInput(f"{condition!r} is no condition: use (column, one of {' '.join(OPERATORS)}, value).")
    column, how, value = condition
    if how in _COMPARISONS:
        compared: pl.Expr = _COMPARISONS[how](pl.col(column), value)
        return compared
    among = pl.col(column).is_in(list(value))
    return among if how == "in" else ~among


def _skipped(footer: Any, types: Mapping[str, pl.DataType], conditions: Sequence[Any]) -> set[int]:
    """The row groups of which the least and the greatest values say that no row fulfils all conditions."""
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    found: set[int] = set()
    for name, how, value in conditions:
        if paths.count(name) == 1 and name in types and _has_bounds(types[name]):
            check_types(footer, paths.index(name))
            lows, highs = _bounds(footer, paths.index(name), types[name])
            found.update(_excluded(lows.alias(name), highs.alias(name), how, value).arg_true())
    return found


def check_types(footer: Any, column: int) -> None:
    """Raises ValueError where a row group has another type than its file: PyArrow ends the process where it is asked
    for the statistics of such a one.
    """
    kind = footer.schema.column(column).physical_type
    kinds = {footer.row_group(number).column(column).physical_type for number in range(footer.num_row_groups)}
    if not kinds <= {kind}:
        raise ValueError(f"column {footer.schema.column(column).path!r} is {kind} and {', '.join(kinds - {kind})}")


def _has_bounds(kind: pl.DataType) -> bool:
    """Whether statistics hold values of a column as they are, in the order that Polars has."""
    is_time = isinstance(kind, pl.Datetime) and kind.time_unit != "ns"  # statistics of nanoseconds are no times
    return kind.is_integer() or kind.is_float() or kind.is_decimal() or is_time or kind in _ORDERED


def _bounds(footer: Any, column: int, kind: pl.DataType) -> tuple[pl.Series, pl.Series]:
    """The least and the greatest value of a column in each row group, null where nobody says."""
    groups = [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]
    try:
        pairs = [(None, None) if each is None or not each.has_min_max else (each.min, each.max) for each in groups]
        lows, highs = (pl.Series([pair[side] for pair in pairs], dtype=kind) for side in (0, 1))
    except (TypeError, ValueError, pl.exceptions.PolarsError):  # of another type: the rows themselves will tell
        lows = highs = pl.Series([None] * len(groups), dtype=kind)
    return (lows.fill_nan(None), highs.fill_nan(None)) if kind.is_float() else (lows, highs)


def _excluded(lows: pl.Series, highs: pl.Series, how: str, value: Any) -> pl.Series:
    """For each pair of bounds whether they rule a value out that fulfils a condition. Polars compares the bounds as it
    compares rows: so a literal is rounded to the type of the column, or the column to that of the literal.
    """
    nothing = pl.Series([False] * len(lows), dtype=pl.Boolean)
    # Statistics leave NaN out, and Polars has it above all numbers.
    has_nan = lows.dtype.is_float()
    try:
        if how in ("==", "=", "in"):
            values = list(value) if how == "in" else [value]
            if any(has_nan and each != each for each in values):
                return nothing
            outside = [_true(lows, ">", each) | _true(highs, "<", each) for each in values]
            return reduce(operator.and_, outside, ~nothing)
        if how in ("<", "<="):
            return lows.is_not_null() & ~_true(lows, how, value, unknown=True)
        if how in (">", ">=") and not has_nan:
            return highs.is_not_null() & ~_true(highs, how, value, unknown=True)
    except (TypeError, pl.exceptions.PolarsError):  # a value of another type: the rows themselves will tell
        pass
    return nothing


def _true(bounds: pl.Series, how: str, value: Any, *, unknown: bool = False) -> pl.Series:
    """Where a comparison with bounds is true; `unknown` where it is null."""
    return bounds.to_frame().select(_COMPARISONS[how](pl.col(bounds.name), value).fill_null(unknown)).to_series()
