"""Merging adjacent levels into runs, so that reads stay short and operands and tombstones do not pile up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.tables.chunks import chunks
from tidemill.tables.level_merge import CombinerNames, key_columns, resolve
from tidemill.tables.parts import PartLoader
from tidemill.tables.run_writer import RunWriter
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.table_bounds import bound_of
from tidemill.tables.tables import Layout, Table, is_size_table, row_key
from tidemill.tables.view import SnapshotView
from tidemill.values.errors import invariant

CHUNK_ROWS: Final = 500_000
"""Rows of all levels together that are merged at a time: about 100 MB for rows of a few numbers."""


def merge(
    layouts: Mapping[str, Layout],
    levels: Sequence[Level],
    task_set: TaskSet,
    loader: PartLoader,
    *,
    is_base: bool,
    chunk_rows: int = CHUNK_ROWS,
    key: str = "",
) -> tuple[Any, Part] | None:
    """Levels (oldest first) as one container for the tasks of `task_set`; None if nothing is left.

    `layouts` is PState id -> layout. Rows of PStates that are not in it were deleted with them, and are dropped. The
    container is bytes, or mapped from a file if it is large: memory is bounded by rows of about `chunk_rows`. `key` is
    that of the object which it will be. Values that wait for a migration go through it; that takes a base, for what a
    row holds is known only there.
    """
    view = SnapshotView(Snapshot(tuple(levels)), task_set, loader)
    bounds: dict[str, int] = {}
    with RunWriter(sum(part.bytes for level in levels for part in level.parts)) as writer:
        for pstate, layout in layouts.items():
            for table in layout.stored.values():
                at = (pstate, table.id)
                for rows, combiner_names in _merged(table, view.levels(at, table), task_set, is_base, chunk_rows):
                    writer.append(at, table, rows, combiner_names)
                    bounds[row_key(at)] = max(bounds.get(row_key(at), 0), bound_of(table, rows))
                    loader.release()
                writer.end_table()
        if not writer.meta:
            return None
        data = writer.finish(bounds, key)
        counts = {row_key(at): meta.rows for at, meta in writer.meta.items()}
        generations = {row_key(at): held for at, meta in writer.meta.items() if (held := meta.table.generation)}
        return data, Part("", task_set, counts, bounds=bounds, generations=generations).sealed(data)


def _merged(
    table: Table, stacks: Sequence[Sequence[SortedTable]], task_set: TaskSet, is_base: bool, chunk_rows: int
) -> Iterator[tuple[pl.DataFrame, CombinerNames]]:
    """The merged rows, a chunk at a time, all with the same columns."""
    columns = [*key_columns(table), "kind", *(name for name, _ in table.columns)]
    levels = [level for stack in stacks for level in stack]
    is_migrated = any(level.table is not table for level in levels)
    invariant(is_base or not is_migrated, "values are migrated in a base", table=table.id)
    if table.fields is not None and (is_migrated or any(level.has_none for level in levels)):
        columns.append("none")
    for chunk in chunks(table, stacks, task_set, chunk_rows):
        rows, combiner_names = resolve(table, chunk.frames, is_base=is_base)
        rows = chunk.without_earlier_clears(rows)
        if is_base and is_size_table(table.id):
            rows = rows.filter(pl.col("value") != 0)  # nothing below: as before the first element
        if rows.height:
            if "none" in columns and "none" not in rows.columns:
                rows = rows.with_columns(pl.lit(None, pl.Int64).alias("none"))
            yield rows.select(columns), combiner_names or tuple(None for _ in table.columns)
