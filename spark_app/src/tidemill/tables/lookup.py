"""Looking up many keys at once: the rows of each level that match, resolved by columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.tables.chunks import rows_at_once
from tidemill.tables.level_merge import CombinerNames, empty_rows, key_columns, order_rows, resolve
from tidemill.tables.migrated_values import migrated
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table
from tidemill.tables.unpacked_values import is_packed, is_whole

Positions = np.ndarray[Any, Any]
"""Row numbers, ascending."""

_PROBES_PER_ROW = 64
"""A probe costs about as much as reading so many rows of a level in a join."""


def lookup(table: Table, levels: Sequence[SortedTable], keys: pl.DataFrame) -> pl.DataFrame:
    """The live rows of distinct keys (columns task, k0, …), operands folded, sorted by key; `levels` oldest first.

    Of whole structures only so many are taken apart at once as a compaction takes.
    """
    if not any(is_whole(level.table, table) for level in levels):
        return _lookup(table, levels, keys)
    shared = ["task", *table.key_names[: min(len(level.table.keys) for level in levels)]]
    structures = keys.select(shared).unique(maintain_order=True)
    at_once = rows_at_once(table, levels, max(1, structures.height))
    if structures.height <= at_once:
        return _lookup(table, levels, keys)
    pieces = (structures.slice(start, at_once) for start in range(0, structures.height, at_once))
    wanted = (keys.join(piece, on=shared, how="semi", nulls_equal=True, maintain_order="left") for piece in pieces)
    return order_rows(table, pl.concat([_lookup(table, levels, some) for some in wanted]))


def _lookup(table: Table, levels: Sequence[SortedTable], keys: pl.DataFrame) -> pl.DataFrame:
    found: list[tuple[Table, pl.DataFrame, CombinerNames]] = []
    wanted = keys
    for level in reversed(levels):
        if wanted.height == 0:
            break
        rows = matching_rows(table, level, wanted)
        if rows.height or level.clears:
            found.append((level.table, _with_clears(level.table, rows, level), level.combiner_names))
        if level.is_all_puts and rows.height and rows.height * 4 > wanted.height:
            wanted = wanted.join(rows, on=key_columns(level.table), how="anti", nulls_equal=True, maintain_order="left")
    rows, _ = resolve(table, migrated(table, found[::-1]), is_base=True) if found else (empty_rows(table), ())
    if any(is_packed(written, table) for written, _, _ in found):
        rows = rows.join(keys, on=key_columns(table), how="semi", nulls_equal=True, maintain_order="left")
    return rows


def _with_clears(table: Table, rows: pl.DataFrame, level: SortedTable) -> pl.DataFrame:
    return pl.concat([clear_rows(table, level), rows], how="diagonal") if level.clears else rows


def clear_rows(table: Table, level: SortedTable) -> pl.DataFrame:
    """The clears of a level as rows."""
    return empty_rows(table) if level.clear_frame is None else level.clear_frame


def matching_rows(table: Table, level: SortedTable, keys: pl.DataFrame, *, is_bare: bool = False) -> pl.DataFrame:
    """The rows of one level (clears aside) whose keys are among `keys`; without their values if `is_bare`.

    Of a level of whole structures those that may have such an element.
    """
    if is_packed(level.table, table):
        table = level.table
        keys = keys.select(key_columns(table)).unique(maintain_order=True)
    if is_bare:
        return _matching_rows(table, level, keys, [*key_columns(table), "kind"])
    return level.widened(_matching_rows(table, level, keys, level.column_names))


def _matching_rows(table: Table, level: SortedTable, keys: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    if level.height and (not table.keys or keys.height * _PROBES_PER_ROW < level.height):
        taken = level.arrow.select(columns).take(_probe(level, keys))
        return pl.DataFrame(pl.from_arrow(taken))
    rows = level.stored_frame.select(columns)
    if level.height == 0:
        return rows
    if table.keys == ("int",) and keys["k0"].null_count() == 0 and rows["k0"].null_count() == 0:
        return rows[_search(level, keys)]
    return rows.join(keys, on=key_columns(table), how="semi", nulls_equal=True, maintain_order="left")


_TOGETHER_MIN = 256
"""From so many keys on one search for all of them is faster than one each."""


def _probe(level: SortedTable, keys: pl.DataFrame) -> Positions:
    if keys.height >= _TOGETHER_MIN:
        return probe_together(level, keys)
    positions = [level.find(row[0], row[1:]) for row in keys.iter_rows()]
    hits = np.array([position for position in positions if position >= 0], dtype=np.int64)
    hits.sort()
    return hits


def probe_together(level: SortedTable, keys: pl.DataFrame) -> Positions:
    """A binary search that takes its next step for all keys (columns task, k0, …) at once."""
    low, high = np.zeros(keys.height, dtype=np.int64), np.full(keys.height, level.height, dtype=np.int64)
    names = key_columns(level.table)
    places = level.arrow.select(names)
    while bool((low < high).any()):
        middle = np.minimum((low + high) >> 1, level.height - 1)
        is_before, _ = _compared(places, middle, keys, names)
        is_open = low < high
        low = np.where(is_open & is_before, middle + 1, low)
        high = np.where(is_open & ~is_before, middle, high)
    at = np.minimum(low, level.height - 1)
    _, is_equal = _compared(places, at, keys, names)
    return np.sort(at[is_equal & (low < level.height)])


def _compared(places: Any, rows: Positions, keys: pl.DataFrame, names: list[str]) -> tuple[Positions, Positions]:
    """Which rows come before the keys beside them, and which hold them; None comes first, NaN last."""
    found = pl.DataFrame(pl.from_arrow(places.take(rows)))
    is_before, is_equal = np.zeros(len(rows), dtype=bool), np.ones(len(rows), dtype=bool)
    for name in names:
        row, key = found[name], keys[name]
        less = (row < key).fill_null(False) | (row.is_null() & key.is_not_null())
        is_before |= is_equal & less.to_numpy()
        is_equal &= row.eq_missing(key).to_numpy()
    return is_before, is_equal


def _search(level: SortedTable, keys: pl.DataFrame) -> Positions:
    """Int keys: one numpy search a task, over sorted keys."""
    ordered = keys.sort("task", "k0")
    numbers, stored = ordered["k0"].to_numpy(), level.stored_frame["k0"].to_numpy()
    query_tasks = ordered["task"].to_numpy()
    tasks, starts = np.unique(query_tasks, return_index=True)
    hits: list[Positions] = [np.empty(0, dtype=np.int64)]
    for task, start, end in zip(tasks.tolist(), starts, [*starts[1:], len(numbers)], strict=True):
        first, last = level.task_bounds(task)
        if first == last:
            continue
        rows, wanted = stored[first:last], numbers[start:end]
        at = rows.searchsorted(wanted)
        at[at == len(rows)] = 0
        hits.append(first + at[rows[at] == wanted])
    return np.concatenate(hits)
