"""Parquet files, read a few row groups at a time; groups whose statistics say that no row is wanted are never read."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
OPERATORS = (*_COMPARISONS, "in", "not in")


@dataclass(frozen=True)
class RowGroup:
    """A group of rows of a file: where it begins in the file, in rows, and how many it has; `bytes` as stored."""

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
        batch = LazyBatch(lazy.select(self.columns), size, f"{file.path} from row {chosen[0].first} on")
        return batch, (stop, end) if stop < end else None

    def _follows(self, number: int) -> bool:
        """Whether a group begins where the one before it ends."""
        before, group = self.groups[number - 1], self.groups[number]
        return (before.file, before.first + before.rows) == (group.file, group.first)

    def _scanned(self, file: SourceFile, groups: Sequence[RowGroup]) -> pl.LazyFrame:
        rows = sum(group.rows for group in groups)
        return scanned(file).slice(groups[0].first, rows)

    def _loaded(self, file: SourceFile, groups: Sequence[RowGroup]) -> pl.LazyFrame:
        wanted = set(self.columns) | (set(self.predicate.meta.root_names()) if self.predicate is not None else set())
        with pq.ParquetFile(RangeFile(file)) as opened:
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
    types: dict[str, pl.DataType] = {}
    predicates = [each for each in (predicate_of(skip_conditions), more) if each is not None]
    predicate, found, is_local = (pl.all_horizontal(predicates) if predicates else None), list[RowGroup](), True
    for number, file in enumerate(files):
        try:
            with pq.ParquetFile(RangeFile(file)) as opened:
                footer, schema = opened.metadata, opened.schema_arrow
        except (pa.ArrowInvalid, OSError) as error:
            raise BadInput(f"{file.path} is no Parquet file: {error}") from error
        own = dict(pl.DataFrame(schema.empty_table()).schema)
        types = types or own
        if own != types:
            raise BadInput(f"{file.path} has other columns than {files[0].path}.")
        is_local = is_local and _is_as_polars_reads(file, types)
        first = 0
        for position in range(footer.num_row_groups):
            group = footer.row_group(position)
            if group.num_rows and not _is_skipped(group, skip_conditions):
                found.append(RowGroup(number, position, group.total_byte_size, first, group.num_rows))
            first += group.num_rows
    wanted = tuple(columns) if columns is not None else tuple(types)
    asked = set(wanted) | (set(predicate.meta.root_names()) if predicate is not None else set())
    if unknown := sorted(asked - types.keys()):
        raise BadInput(f"There is no column {', '.join(unknown)}; there are {', '.join(types)}.")
    return ParquetInput(files, types, tuple(found), wanted, predicate, stride, is_local)


def _is_as_polars_reads(file: SourceFile, types: dict[str, pl.DataType]) -> bool:
    """Whether Polars itself reads a file, with these columns."""
    try:
        return not file.bucket and dict(scanned(file).collect_schema()) == types
    except pl.exceptions.PolarsError:
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


def _is_skipped(group: Any, conditions: Any) -> bool:
    """Whether the least and the greatest values of a group say that no row of it fulfils all conditions."""
    if conditions is None or isinstance(conditions, pl.Expr):
        return False
    bounds = {}
    for number in range(group.num_columns):
        column = group.column(number)
        found = column.statistics
        if found is not None and found.has_min_max:
            bounds[column.path_in_schema] = (found.min, found.max)
    return any(_excludes(*bounds[name], how, value) for name, how, value in conditions if name in bounds)


def _excludes(low: Any, high: Any, how: str, value: Any) -> bool:
    try:
        if how in ("==", "="):
            return bool(value < low or value > high)
        if how == "in":
            return all(each < low or each > high for each in value)
        if how in ("<", "<="):
            return bool(low > value or (how == "<" and low == value))
        if how in (">", ">="):
            # Statistics leave NaN out, and Polars has it above all numbers.
            return not isinstance(high, float) and bool(high < value or (how == ">" and high == value))
    except TypeError:  # statistics of another type than the value: the rows themselves will tell
        return False
    return False
