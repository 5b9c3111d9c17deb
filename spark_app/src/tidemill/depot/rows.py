"""Records on their way into a depot: sorted by partition, checked to be data, bounded in size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.values import columns
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.errors import RecordRefused
from tidemill.values.message_pack import pack
from tidemill.values.record_checks import RECORD_BYTES_MAX, check_each, check_size

_FIXED_BYTES = 8


@dataclass(frozen=True)
class PartitionedRows:
    """Records in the order of their partitions; `counts` is (partition, records), ascending, without zeros."""

    column: Column
    counts: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """How many records."""
        return sum(count for _, count in self.counts)


def in_one_partition(column: Column, partition: int) -> PartitionedRows:
    """All records in the one partition."""
    count = columns.length(column)
    return PartitionedRows(column, ((partition, count),) if count else ())


def split_by_partition(column: Column, partitions: NDArray[Any]) -> PartitionedRows:
    """Sort records by partition; those of one partition keep their order. `partitions[i]` is the place of record i."""
    if len(partitions) == 0:
        return PartitionedRows(column, ())
    tally = np.bincount(partitions)
    present = np.flatnonzero(tally)
    counts = tuple(zip(present.tolist(), tally[present].tolist(), strict=True))
    if len(counts) == 1 or bool((partitions[1:] >= partitions[:-1]).all()):
        return PartitionedRows(column, counts)
    narrow = np.uint16 if present[-1] < 2**16 else np.int64  # 16 bits are sorted by radix, in linear time
    order = np.argsort(partitions.astype(narrow), kind="stable")
    return PartitionedRows(columns.gather_rows(column, order), counts)


def of_pairs(pairs: Iterable[tuple[int, Column]]) -> PartitionedRows:
    """The records of (partition, column) pairs, in any order of partitions."""
    return merge([in_one_partition(column, partition) for partition, column in pairs])


def merge(batches: Sequence[PartitionedRows]) -> PartitionedRows:
    """One batch of several; within a partition the records of earlier batches come first."""
    if len(batches) == 1:
        return batches[0]
    pieces: dict[int, list[Column]] = {}
    for batch in batches:
        row = 0
        for partition, count in batch.counts:
            whole = len(batch.counts) == 1
            piece = batch.column if whole else columns.slice_rows(batch.column, row, count)
            pieces.setdefault(partition, []).append(piece)
            row += count
    ordered = [piece for partition in sorted(pieces) for piece in pieces[partition]]
    counts = tuple((partition, sum(map(columns.length, pieces[partition]))) for partition in sorted(pieces))
    return PartitionedRows(_concat(ordered), counts)


def _concat(pieces: Sequence[Column]) -> Column:
    """Lists of values are not columns yet: many small ones become one column at once."""
    lists = [piece for piece in pieces if isinstance(piece, list)]
    if len(lists) == len(pieces):
        return columns.from_values([value for piece in lists for value in piece], tuples_as_lists=True)
    typed = [columns.from_values(p, tuples_as_lists=True) if isinstance(p, list) else p for p in pieces]
    return columns.concat(typed) if typed else []


# --- checks ----------------------------------------------------------------------------------------------------------


def check_records(column: Column, first: int | None = 0) -> None:
    """Refuse records that are not data or too large, before anything is stored.

    `first` is the number of the column's first record in what the caller appends, None where it is the only one.

    Raises:
        RecordRefused: says which record; the context holds its `index`.
    """
    check_values(column, first)
    if _row_bytes_max(column) > RECORD_BYTES_MAX:
        for index, value in enumerate(columns.to_values(column), first or 0):
            check_size(value, index, is_only=first is None)


def frame_of(table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """The rows of somebody's Arrow table: the one place where Arrow of others enters.

    Raises:
        RecordRefused: Polars does not read it, or it holds times without a zone.
    """
    try:
        frame = pl.DataFrame(pl.from_arrow(table))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        text = (str(error).splitlines() or [""])[0]
        raise RecordRefused(f"The Arrow table cannot be read: {text}. Write its columns as plain types.") from error
    check_frame(frame)
    return frame


def check_frame(frame: pl.DataFrame) -> None:
    """Refuse times without a zone, as in records of any other form: nobody knows which moment they mean.

    Raises:
        RecordRefused: says which column, and what to do.
    """
    for name, dtype in frame.schema.items():
        if isinstance(dtype, pl.Datetime) and dtype.time_zone is None:
            advice = f'Give it one: frame.with_columns(pl.col("{name}").dt.replace_time_zone("UTC")).'
            raise RecordRefused(f"The column {name!r} holds datetimes without a time zone. {advice}", column=name)


def check_values(column: Column, first: int | None = None) -> None:
    """Series hold data by their type; only values must be looked at."""
    if isinstance(column, RecordColumn):
        for field in column.fields:
            check_values(field, first)
    elif isinstance(column, list):
        check_each(column, first)


def _row_bytes_max(column: Column) -> int:
    """An upper bound of a record's bytes."""
    if isinstance(column, RecordColumn):
        return sum(map(_row_bytes_max, column.fields))
    if isinstance(column, list):
        return max((len(pack(value)) for value in column), default=0)
    if column.dtype == pl.String:
        return _FIXED_BYTES + int(column.str.len_bytes().max() or 0)  # type: ignore[arg-type]
    if column.dtype == pl.Binary:
        return _FIXED_BYTES + int(column.bin.size().max() or 0)  # type: ignore[arg-type]
    return _FIXED_BYTES


def estimated_bytes(column: Column) -> int:
    """About how many bytes a column has in memory; for bounds only."""
    if isinstance(column, RecordColumn):
        return sum(map(estimated_bytes, column.fields))
    if isinstance(column, list):
        return len(column) * 100
    return int(column.estimated_size())
