"""Merging adjacent levels into runs, so that reads stay short and operands and tombstones do not pile up.

Size-tiered: when enough deltas stand above the runs (or the oldest of them is old), they are merged, together with
the runs right below that are not much larger than what is merged. So runs shrink from old to new by a factor, there
are few of them, and a row is rewritten about log(state / delta) times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tidemill.model.schema import Schema
from tidemill.model.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.state.container import TableKey, TableRows, encode
from tidemill.state.folding import Identities, order_rows, resolve
from tidemill.state.parts import PartLoader
from tidemill.state.sorted_table import SortedTable
from tidemill.state.table_bounds import bound_of
from tidemill.state.tables import Table, layout_of
from tidemill.state.view import SnapshotView, row_key

AGE_MAX = 256
"""No delta stays a delta for more microbatches than this."""


@dataclass(frozen=True)
class CompactionOptions:
    """`deltas_max` deltas are merged at once; a run is drawn in if it is at most `growth` times as big as what is
    merged above it.
    """

    deltas_max: int = 12
    growth: float = 1.5
    runs_max: int = 8
    chunk_rows: int = 4_000_000


@dataclass(frozen=True)
class CompactionPlan:
    """Adjacent levels, oldest first. `is_base`: the first one is the oldest of the snapshot, so nothing older can
    exist.
    """

    levels: tuple[Level, ...]
    is_base: bool


def plan(snapshot: Snapshot, options: CompactionOptions | None = None) -> CompactionPlan | None:
    """The levels to merge next, None if there is nothing to do."""
    options = options or CompactionOptions()
    levels = snapshot.levels
    first_delta = next((i for i, level in enumerate(levels) if level.kind == "delta"), len(levels))
    deltas = levels[first_delta:]
    runs = first_delta
    if deltas:
        is_old = deltas[-1].last - deltas[0].first >= AGE_MAX
        if len(deltas) >= options.deltas_max or is_old:
            return _plan_from(levels, first_delta, options)
    if runs > options.runs_max:
        return CompactionPlan(levels[:first_delta], True)
    return None


def _plan_from(levels: Sequence[Level], start: int, options: CompactionOptions) -> CompactionPlan:
    """Merge everything from `start` on, and runs below it as long as they are small beside it."""
    size = sum(map(level_rows, levels[start:]))
    while start > 0 and level_rows(levels[start - 1]) <= options.growth * size:
        start -= 1
        size += level_rows(levels[start])
    return CompactionPlan(tuple(levels[start:]), start == 0)


def plan_range(snapshot: Snapshot) -> tuple[int, int] | None:
    """`plan` with default options, as positions [first, stop) among the snapshot's levels."""
    chosen = plan(snapshot)
    if chosen is None:
        return None
    first = snapshot.levels.index(chosen.levels[0])
    return first, first + len(chosen.levels)


def level_rows(level: Level) -> int:
    return sum(sum(part.rows.values()) for part in level.parts)


def apply(snapshot: Snapshot, merged: Sequence[Level], parts: Sequence[Part], *, is_base: bool) -> Snapshot:
    """The snapshot in which a run of `parts` stands for the levels that were merged.

    Levels that were committed while the merge ran stay above it.
    """
    levels = snapshot.levels
    start = levels.index(merged[0])
    run = Level("run", merged[0].first, merged[-1].last, tuple(parts), is_base)
    return Snapshot((*levels[:start], run, *levels[start + len(merged) :]))


def merge(
    schemas: Mapping[str, Schema],
    levels: Sequence[Level],
    task_set: TaskSet,
    loader: PartLoader,
    *,
    is_base: bool,
    chunk_rows: int = 4_000_000,
) -> tuple[bytes, Part] | None:
    """Levels (oldest first) as one container for the tasks of `task_set`; None if nothing is left.

    `schemas` is PState id -> schema. Rows of PStates that are not in it were deleted with them, and are dropped.
    Memory is bounded by rows of about `chunk_rows` at a time and by the encoded result.
    """
    view = SnapshotView(Snapshot(tuple(levels)), task_set, loader)
    tables: dict[TableKey, TableRows] = {}
    for pstate, schema in schemas.items():
        for table in layout_of(schema).tables.values():
            stacks = view.levels((pstate, table.id), table)
            merged = _merge_table(table, stacks, task_set, is_base, chunk_rows)
            if merged is not None:
                tables[pstate, table.id] = merged
    if not tables:
        return None
    bounds = {row_key(key): bound_of(_table_of(schemas, key), rows.rows) for key, rows in tables.items()}
    data = encode(tables, "parquet", bounds)
    rows = {row_key(key): merged.rows.height for key, merged in tables.items()}
    return data, Part("", task_set, rows, len(data), bounds)


def _table_of(schemas: Mapping[str, Schema], key: TableKey) -> Table:
    return layout_of(schemas[key[0]]).tables[key[1]]


def _merge_table(
    table: Table, stacks: Sequence[Sequence[SortedTable]], task_set: TaskSet, is_base: bool, chunk_rows: int
) -> TableRows | None:
    chunks: list[pl.DataFrame] = []
    identities: Identities = ()
    for frames in cut_levels(table, stacks, task_set, chunk_rows):
        rows, found = resolve(table, frames, is_base=is_base)
        if rows.height:
            chunks.append(rows)
            identities = tuple(a or b for a, b in zip(identities, found, strict=True)) if identities else found
    if not chunks:
        return None
    return TableRows(pl.concat(chunks, how="diagonal", rechunk=True), identities or tuple(None for _ in table.columns))


def cut_levels(
    table: Table, stacks: Sequence[Sequence[SortedTable]], task_set: TaskSet, chunk_rows: int
) -> Iterator[list[tuple[pl.DataFrame, Identities]]]:
    """Rows of all levels, cut by tasks so that each cut holds about `chunk_rows`; a huge task is one cut."""
    levels = [level for stack in stacks for level in stack]
    for tasks in _task_cuts(levels, task_set, chunk_rows):
        cut = [(_rows_of_tasks(table, level, tasks, task_set), level.identities) for level in levels]
        filled = [(rows, identities) for rows, identities in cut if rows.height]
        if filled:
            yield filled


def _task_cuts(levels: Sequence[SortedTable], task_set: TaskSet, chunk_rows: int) -> Iterator[range]:
    """Ranges of tasks in ascending order."""
    tasks = sorted({task for level in levels for task in (*level.task_values(), *level.clears) if task in task_set})
    start, rows = 0, 0
    for i, task in enumerate(tasks):
        size = sum(end - first for first, end in (level.task_bounds(task) for level in levels))
        if rows and rows + size > chunk_rows:
            yield range(tasks[start], tasks[i - 1] + 1)
            start, rows = i, 0
        rows += size
    if tasks:
        yield range(tasks[start], tasks[-1] + 1)


def _rows_of_tasks(table: Table, level: SortedTable, tasks: range, task_set: TaskSet) -> pl.DataFrame:
    start, end = level.task_bounds(tasks.start)[0], level.task_bounds(tasks.stop - 1)[1]
    rows = level.frame.slice(start, end - start)
    # A level that was packed for fewer threads holds tasks of other sets between those of this one.
    own = pl.col("task") % task_set.modulus == task_set.remainder
    if any(task in tasks and task not in task_set for task in level.task_values()):
        rows = rows.filter(own)
    if level.clear_frame is None:
        return rows
    clears = level.clear_frame.filter(pl.col("task").is_between(tasks.start, tasks.stop - 1) & own)
    return order_rows(table, pl.concat([clears, rows], how="diagonal")) if clears.height else rows
