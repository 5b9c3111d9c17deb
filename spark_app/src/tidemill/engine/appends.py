"""What a topology appends to depots, staged as data of the attempt: nobody sees it before a commit names it.

Each thread keeps the rows of its tasks in the order in which they were appended. In the end they become parts, each a
depot's segment of one depot (`depot.segment`): small ones ride in the commit entry, large ones are objects. The leader
publishes them after the commit (`leader.publisher`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from tidemill.depot.header import Header, SegmentSummary
from tidemill.depot.rows import PartitionedRows, check_records, split_by_partition
from tidemill.depot.segment import encode_segment
from tidemill.engine.columns.access import partitions_of
from tidemill.engine.columns.functions import row_values
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame, concat
from tidemill.engine.step import AppendedRow
from tidemill.engine.work import AttemptWork, DeltaPart
from tidemill.journal.snapshot import Part, TaskSet
from tidemill.plan import program as pg
from tidemill.plan.steps import step_of
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.tables.record_schema import check_column, check_record
from tidemill.values import columns as cols
from tidemill.values import ids
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.data import detached
from tidemill.values.errors import RecordRefused, TidemillError, message_of
from tidemill.values.message_pack import pack

VALUE = "*value"
"""The column of a staged frame."""

PART_BYTES_MAX = 32 * 1024 * 1024
"""A thread that staged more for a depot writes it as an object, and goes on with the next part."""

INLINE_BYTES_MAX = 256 * 1024
"""Staged parts of an attempt that are smaller in all ride in the commit entry."""


@dataclass
class Staged:
    """What one thread staged: `waiting` by depot, of about `sizes` bytes, and `parts` that are written already."""

    waiting: dict[str, list[Frame]] = field(default_factory=dict)
    parts: list[DeltaPart] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, work: AttemptWork, thread: int, depot: str, frame: Frame) -> None:
        """More rows of a depot; they are written once they are many."""
        held = _held_bytes(frame.columns[VALUE])
        step = max(1, frame.rows // -(-held // PART_BYTES_MAX)) if held > PART_BYTES_MAX else frame.rows
        for start in range(0, frame.rows, step):
            piece = frame if step == frame.rows else frame.slice(start, min(step, frame.rows - start))
            self.waiting.setdefault(depot, []).append(piece)
            self.sizes[depot] = self.sizes.get(depot, 0) + held * piece.rows // frame.rows
            if self.sizes[depot] >= PART_BYTES_MAX:
                self.parts.append(_part(work, thread, depot, self.waiting.pop(depot), inline_max=0))
                del self.sizes[depot]

    def finish(self, work: AttemptWork, thread: int) -> tuple[DeltaPart, ...]:
        """All of it as parts; of one depot in the order in which they were appended."""
        inline_max = INLINE_BYTES_MAX // (work.threads * max(1, len(self.waiting)))
        rest = [_part(work, thread, depot, frames, inline_max) for depot, frames in sorted(self.waiting.items())]
        return (*self.parts, *rest)


def append_frame(
    staged: Staged, work: AttemptWork, thread: int, operator: pg.Append, values: Column, at: Frame
) -> None:
    """Stage a record for each row of `at`, for the partition of the row's task, or of another module's depot.

    Raises:
        UserCodeError: one of them is no record that the depot takes; names the step, the task and the value.
    """
    frame = Frame(at.rows, partitions_of(operator.partition, at), {VALUE: _records(values)})
    _check(work.program.targets[operator.depot], frame, lambda index: (operator, row_values(at, index)))
    staged.add(work, thread, operator.depot, frame)


def append_rows(staged: Staged, work: AttemptWork, thread: int, depot: str, rows: Iterable[AppendedRow]) -> None:
    """Stage records that were appended row by row, each as it is now for good. Raises as `append_frame`."""
    held = list(rows)
    tasks = pl.Series("", [row.task for row in held], dtype=pl.Int32)
    values = cols.from_values([row.value for row in held], tuples_as_lists=True)
    frame = Frame(len(held), tasks, {VALUE: values})

    operators = work.program.operators
    _check(work.program.targets[depot], frame, lambda index: (operators[held[index].operator], {}))
    staged.add(work, thread, depot, frame)


def _records(values: Column) -> Column:
    """The records as they are now, whatever becomes of them in the functions behind."""
    if isinstance(values, RecordColumn):
        return replace(values, fields=tuple(map(_records, values.fields)))
    return cols.from_values(list(map(detached, values)), tuples_as_lists=True) if isinstance(values, list) else values


def _check(
    target: pg.AppendTarget, frame: Frame, origin_of: Callable[[int], tuple[pg.Operator, dict[str, Any]]]
) -> None:
    """`origin_of` gives the operator of a row by its index, and the row's variables."""
    column = frame.columns[VALUE]
    try:
        _check_tasks(target, frame)
        check_column(target, column)
        check_records(column)
        _check_for_sink(target, column)
    except RecordRefused as error:
        index = int(error.context.get("index", 0))
        value = cols.to_values(cols.gather_rows(column, np.array([index])))[0]
        operator, row = origin_of(index)
        cause = _refusal(target, value) or error
        step = f"{step_of(operator)} on task {frame.tasks()[index]}"
        raise user_error(cause, step, operator.at, {"value": value, **row}) from error


def _check_tasks(target: pg.AppendTarget, frame: Frame) -> None:
    """A global depot has its one partition on task 0."""
    tasks = frame.tasks().to_numpy()
    if target.is_global and tasks.any():
        text = f"{target.name} is a global depot: its one partition is on task 0. Write .global_partition() before it."
        raise RecordRefused(text, index=int(np.flatnonzero(tasks)[0]))


def _check_for_sink(target: pg.AppendTarget, column: Column) -> None:
    """What a sink says against records, which are data and fit its schema."""
    if target.check is None:
        return
    for index, value in enumerate(cols.to_values(column)):
        try:
            target.check(value)
        except Exception as error:
            said = str(error) if isinstance(error, TidemillError) else f"{type(error).__name__}: {message_of(error)}"
            raise RecordRefused(f"{target.name} cannot take it: {said}", index=index) from error


def _refusal(target: pg.AppendTarget, value: Any) -> RecordRefused | None:
    """What is said of a record alone."""
    try:
        check_record(target, value)
        check_records([value], None)
        _check_for_sink(target, [value])
    except RecordRefused as error:
        return error
    return None


def _held_bytes(column: Column) -> int:
    if isinstance(column, RecordColumn):
        return sum(map(_held_bytes, column.fields))
    if isinstance(column, list):
        return sum(len(pack(value)) for value in column)
    return int(column.estimated_size())


def _part(work: AttemptWork, thread: int, depot: str, frames: list[Frame], inline_max: int) -> DeltaPart:
    """One part of the rows of a depot: its bytes if they are few, else an object that was just written."""
    frame = concat(frames)
    rows = split_by_partition(frame.columns[VALUE], frame.tasks().to_numpy())
    target = work.program.targets[depot]
    partitions = target.partitions or (1 if target.is_global else work.tasks)
    return write_part(work, thread, depot, rows, partitions, inline_max)


def write_part(
    work: AttemptWork, thread: int, depot: str, rows: PartitionedRows, partitions: int, inline_max: int,
    store: ObjectStore | None = None,
) -> DeltaPart:  # fmt: skip
    """Rows of a depot as a part: its bytes if they are few, else an object that was just written."""
    name = f"appends/{work.microbatch_id:020d}-{work.version:06d}-{thread:04d}-{ids.nonce()}.arrow"
    content = bytes(encode_segment(_header(work, partitions, rows, f"{work.prefix}/{name}"), rows.column))
    part = Part("", TaskSet(work.threads, thread), {depot: rows.length}).sealed(content)
    if len(content) <= inline_max:
        return DeltaPart(part, content)
    (store or open_store(work.store_url, probe=False)).create(f"{work.prefix}/{name}", content)
    return DeltaPart(replace(part, name=name), None)


def _header(work: AttemptWork, partitions: int, rows: PartitionedRows, key: str) -> Header:
    """As if the part were the first segment of an empty depot."""
    ends = [0] * partitions
    for partition, count in rows.counts:
        ends[partition] = count
    none = (0,) * partitions
    return Header((SegmentSummary(1, ids.nonce(), work.now_millis, tuple(ends)),), none, none, key=key)
