"""Merging adjacent levels into runs, so that reads stay short and operands and tombstones do not pile up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
