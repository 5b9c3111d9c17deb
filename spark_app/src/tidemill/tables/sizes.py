"""How many elements each subindexed structure has, kept beside its rows: `view(Ops.SIZE)` is one look-up a level.

A delta says by how much it changed each size: a row of the size table for each prefix, an operand of `sum`. Whether an
element was there before is looked up for all elements of a delta together, when it is finished: an element that is a
structure is there while its own size is not 0. So sizes are folded on reads and in compaction as other aggregates are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.tables.codecs import key_codec
from tidemill.tables.container import CLEAR, DELETE, OPERAND, TableRows
from tidemill.tables.level_merge import key_columns, order_rows, resolve
from tidemill.tables.lookup import lookup, matching_rows
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table, is_size_table
from tidemill.tables.unpacked_values import is_packed

SUM = ("sum",)
Flags = np.ndarray[Any, Any]


def live_keys(table: Table, levels: Sequence[SortedTable], keys: pl.DataFrame) -> Flags:
    """Which of some distinct keys (columns task, k0, …) hold something; `levels` oldest first."""
    columns = key_columns(table)
    alive = np.zeros(keys.height, dtype=bool)
    wanted = keys.select(columns).with_row_index("row")
    for age, level in enumerate(reversed(levels)):
        if wanted.height == 0:
            break
        if is_packed(level.table, table):
            held = lookup(table, levels[: len(levels) - age], wanted.select(columns)).select(columns)
            alive[wanted.join(held, on=columns, how="semi", nulls_equal=True)["row"].to_numpy()] = True
            break
        found = matching_rows(table, level, wanted.select(columns), is_bare=True)
        if found.height:
            hits = wanted.join(found, on=columns, how="inner", nulls_equal=True)
            alive[hits.filter(pl.col("kind") != DELETE)["row"].to_numpy()] = True
            wanted = wanted.join(found, on=columns, how="anti", nulls_equal=True)
        if level.clear_frame is not None:
            wanted = _without_cleared(wanted, level.clear_frame)
    return alive


def _without_cleared(rows: pl.DataFrame, clears: pl.DataFrame) -> pl.DataFrame:
    """The rows that none of some clears covers."""
    for kind in clears["kind"].unique().to_list():
        on = ["task", *(f"k{depth}" for depth in range(kind - CLEAR))]
        rows = rows.join(clears.filter(pl.col("kind") == kind), on=on, how="anti", nulls_equal=True)
    return rows


def _not_cleared(rows: pl.DataFrame, clears: pl.DataFrame | None) -> Flags:
    flags = np.ones(rows.height, dtype=bool)
    if clears is not None:
        flags[:] = False
        flags[_without_cleared(rows.with_row_index("row"), clears)["row"].to_numpy()] = True
    return flags


def count_elements(marks: Sequence[TaskReader], prefix: tuple[Any, ...]) -> int:
    """How many elements a structure has by the rows that say which are there (`Counted.marks`): it reads them all."""
    found = [_live_below(reader, prefix) for reader in marks]
    return pl.concat(found).n_unique() if len(found) > 1 else found[0].len()


def _live_below(reader: TaskReader, prefix: tuple[Any, ...]) -> pl.Series:
    if not is_size_table(reader.table.id):
        rows = reader.newest(prefix)
        return rows.filter(pl.col("kind") != DELETE)["key"]
    if reader.before is not None:
        keys = [key for key, size in reader.scan(prefix) if size > 0]
        return key_codec(reader.table.keys[-1]).stored_series(keys)
    levels = []
    for level in reader.levels:
        levels.append((level.rows(*level.prefix_bounds(reader.task, prefix)), level.combiner_names))
        if level.clears_key(reader.task, prefix):  # a clear ends above single elements: all of these, or none
            break
    rows, _ = resolve(reader.table, levels[::-1], is_base=True)
    return rows.filter(pl.col("value") > 0)[reader.table.key_names[-1]]


class ElementRows:
    """Rows that say which elements are there (`Counted.marks`): those of the levels below, oldest first, and those of a
    delta, if it has any.
    """

    def __init__(self, table: Table, before: Sequence[SortedTable], changed: TableRows | None) -> None:
        self._table, self._before = table, before
        self._counts = is_size_table(table.id)
        self._level = None
        if changed is not None:
            self._level = SortedTable(changed.table, changed.rows, changed.combiner_names)

    @property
    def changed_keys(self) -> pl.DataFrame | None:
        """The keys that the delta wrote or deleted (columns task, k0, …); None if it has no rows here."""
        return None if self._level is None else self._level.stored_frame.select(key_columns(self._table))

    @property
    def clears(self) -> pl.DataFrame | None:
        """What the delta cleared above single elements."""
        return None if self._level is None else self._level.clear_frame

    def live(self, keys: pl.DataFrame, is_kept: Flags) -> tuple[Flags, Flags]:
        """Which of some distinct keys are there below the delta, and which with it; what it clears (not `is_kept`) is
        not looked up.
        """
        kept = keys.filter(pl.Series(is_kept))
        if not self._counts:
            return self._live_rows(keys, kept, is_kept)
        columns = key_columns(self._table)
        held = lookup(self._table, self._before, kept).select(*columns, "value")
        before = _beside(keys, columns, held)["value"].fill_null(0)
        if self._level is None:
            return (flags := before.to_numpy() > 0), flags
        rows = _beside(keys, columns, self._level.stored_frame.select(*columns, "kind", "value"))
        is_added = (rows["kind"].fill_null(OPERAND) == OPERAND).to_numpy()
        after = before.to_numpy() * is_added + rows["value"].fill_null(0).to_numpy()
        return before.to_numpy() > 0, after > 0

    def _live_rows(self, keys: pl.DataFrame, kept: pl.DataFrame, is_kept: Flags) -> tuple[Flags, Flags]:
        columns = key_columns(self._table)
        before = np.zeros(keys.height, dtype=bool)
        before[is_kept] = live_keys(self._table, self._before, kept)
        if self._level is None:
            return before, before
        kinds = _beside(keys, columns, self._level.stored_frame.select(*columns, "kind"))["kind"]
        is_written = kinds.is_not_null().to_numpy()
        return before, np.where(is_written, kinds.fill_null(DELETE).to_numpy() != DELETE, before)


def _beside(keys: pl.DataFrame, columns: list[str], rows: pl.DataFrame) -> pl.DataFrame:
    return keys.join(rows, on=columns, how="left", nulls_equal=True, maintain_order="left")


def size_rows(sizes: Table, marks: Sequence[ElementRows]) -> TableRows | None:
    """The rows of a size table that belong to a delta's rows; None if no size changed."""
    changed = [mark for mark in marks if mark.changed_keys is not None]
    elements = pl.concat([keys for mark in changed if (keys := mark.changed_keys) is not None])
    if len(changed) > 1:
        elements = elements.unique(maintain_order=True)
    clears = [mark.clears for mark in changed if mark.clears is not None]
    cleared = pl.concat([_cleared(sizes, rows) for rows in clears]).unique() if clears else None
    was_there, is_there = np.zeros(elements.height, dtype=bool), np.zeros(elements.height, dtype=bool)
    is_kept = np.ones(elements.height, dtype=bool)
    for rows in clears:  # the size itself went
        is_kept &= _not_cleared(elements, rows)
    open_rows = np.arange(elements.height)
    for mark in [*changed, *(mark for mark in marks if mark not in changed)]:
        before, after = mark.live(elements[open_rows], is_kept[open_rows])
        was_there[open_rows] |= before
        is_there[open_rows] |= after
        open_rows = open_rows[~(was_there[open_rows] & is_there[open_rows])]  # the others stay, whatever else holds
    change = pl.Series("value", is_there.astype(np.int64) - was_there.astype(np.int64))
    columns = key_columns(sizes)
    sums = elements.with_columns(change).group_by(columns, maintain_order=True).agg(pl.col("value").sum())
    sums = sums.filter(pl.col("value") != 0).with_columns(pl.lit(OPERAND, pl.Int8).alias("kind"))
    frames = [sums] if cleared is None else [cleared, sums]
    layers = [(order_rows(sizes, frame.select(*columns, "kind", "value")), SUM) for frame in frames]
    rows, combiner_names = resolve(sizes, layers, is_base=False)
    return TableRows(sizes, rows, combiner_names or SUM) if rows.height else None


def _cleared(sizes: Table, clears: pl.DataFrame) -> pl.DataFrame:
    """Clears as rows of the size table: the size itself goes where all below its prefix went."""
    kind = pl.when(pl.col("kind") == CLEAR + len(sizes.keys)).then(pl.lit(DELETE)).otherwise(pl.col("kind"))
    rows = clears.select(*key_columns(sizes), kind.cast(pl.Int8).alias("kind"))
    return rows.with_columns(pl.lit(None, pl.Int64).alias("value"))
