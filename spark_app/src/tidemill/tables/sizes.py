"""How many elements each subindexed structure has, kept beside its rows: `view(Ops.SIZE)` is one look-up a level.

A delta says by how much it changed each size: a row of the size table for each prefix, an operand of `sum`. Whether a
key was there before is looked up for all keys of a delta together, when it is finished. So sizes are folded on reads
and in compaction as other aggregates are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.tables.container import CLEAR, DELETE, OPERAND, TableRows
from tidemill.tables.folding import key_columns, order_rows, resolve
from tidemill.tables.lookup import matching_rows
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table

SUM = ("sum",)


def live_keys(table: Table, levels: Sequence[SortedTable], keys: pl.DataFrame) -> np.ndarray[Any, Any]:
    """Which of some distinct keys (columns task, k0, …) hold something; `levels` oldest first."""
    columns = key_columns(table)
    alive = np.zeros(keys.height, dtype=bool)
    wanted = keys.select(columns).with_row_index("row")
    for level in reversed(levels):
        if wanted.height == 0:
            break
        found = matching_rows(table, level, wanted.select(columns), is_bare=True)
        if found.height:
            hits = wanted.join(found, on=columns, how="inner", nulls_equal=True)
            alive[hits.filter(pl.col("kind") != DELETE)["row"].to_numpy()] = True
            wanted = wanted.join(found, on=columns, how="anti", nulls_equal=True)
        wanted = without_cleared(wanted, table, level)
    return alive


def without_cleared(rows: pl.DataFrame, table: Table, level: SortedTable) -> pl.DataFrame:
    """The rows that no clear of a level covers."""
    clears = level.clear_frame
    if clears is None:
        return rows
    for kind in clears["kind"].unique().to_list():
        on = ["task", *table.key_names[: kind - CLEAR]]
        rows = rows.join(clears.filter(pl.col("kind") == kind), on=on, how="anti", nulls_equal=True)
    return rows


def size_rows(sizes: Table, changed: TableRows, before: Sequence[SortedTable]) -> TableRows | None:
    """The rows of the size table that belong to a delta's rows of a table; `before` are the levels below, oldest
    first. None if no size changed.
    """
    level = SortedTable(changed.table, changed.rows, changed.combiner_names)
    elements = level.stored_frame.select(*key_columns(changed.table), "kind")
    is_there = elements["kind"].to_numpy() != DELETE
    old = without_cleared(elements.with_row_index("row"), changed.table, level)
    was_there = np.zeros(elements.height, dtype=bool)
    was_there[old["row"].to_numpy()] = live_keys(changed.table, before, old)
    change = pl.Series("value", is_there.astype(np.int64) - was_there.astype(np.int64))
    columns = key_columns(sizes)
    sums = elements.with_columns(change).group_by(columns, maintain_order=True).agg(pl.col("value").sum())
    sums = sums.filter(pl.col("value") != 0).with_columns(pl.lit(OPERAND, pl.Int8).alias("kind"))
    frames = [sums] if level.clear_frame is None else [_cleared(sizes, level.clear_frame), sums]
    layers = [(order_rows(sizes, frame.select(*columns, "kind", "value")), SUM) for frame in frames]
    rows, combiner_names = resolve(sizes, layers, is_base=False)
    return TableRows(sizes, rows, combiner_names or SUM) if rows.height else None


def _cleared(sizes: Table, clears: pl.DataFrame) -> pl.DataFrame:
    """Clears as rows of the size table: the size itself goes where all below its prefix went."""
    kind = pl.when(pl.col("kind") == CLEAR + len(sizes.keys)).then(pl.lit(DELETE)).otherwise(pl.col("kind"))
    rows = clears.select(*key_columns(sizes), kind.cast(pl.Int8).alias("kind"))
    return rows.with_columns(pl.lit(None, pl.Int64).alias("value"))
