"""Looking up many keys at once: the rows of each level that match, resolved by columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.state.folding import Identities, empty_rows, key_columns, resolve
from tidemill.state.sorted_table import SortedTable
from tidemill.state.tables import Table

_PROBES_PER_ROW = 64
"""A probe costs about as much as reading so many rows of a level in a join."""


def lookup(table: Table, levels: Sequence[SortedTable], keys: pl.DataFrame) -> pl.DataFrame:
    """The live rows of distinct keys (columns task, k0, …), operands folded, sorted by key; `levels` oldest first."""
    found: list[tuple[pl.DataFrame, Identities]] = []
    wanted = keys
    for level in reversed(levels):
        if wanted.height == 0:
            break
        rows = matching_rows(table, level, wanted)
        if rows.height or level.clears:
            found.append((_with_clears(table, rows, level), level.identities))
        if level.is_all_puts and rows.height and rows.height * 4 > wanted.height:
            wanted = wanted.join(rows, on=key_columns(table), how="anti", nulls_equal=True, maintain_order="left")
    rows, _ = resolve(table, found[::-1], is_base=True) if found else (empty_rows(table), ())
    return rows


def _with_clears(table: Table, rows: pl.DataFrame, level: SortedTable) -> pl.DataFrame:
    return pl.concat([clear_rows(table, level), rows], how="diagonal") if level.clears else rows


def clear_rows(table: Table, level: SortedTable) -> pl.DataFrame:
    """The clears of a level as rows."""
    return empty_rows(table) if level.clear_frame is None else level.clear_frame


def matching_rows(table: Table, level: SortedTable, keys: pl.DataFrame) -> pl.DataFrame:
    """The rows of one level (clears aside) whose keys are among `keys`."""
    if level.height == 0:
        return level.widened(level.stored_frame.clear())
    if not table.keys or keys.height * _PROBES_PER_ROW < level.height:
        return _probe(level, keys)
    if table.keys == ("int",) and keys["k0"].null_count() == 0 and level.stored_frame["k0"].null_count() == 0:
        return _search(level, keys)
    found = level.stored_frame.join(keys, on=key_columns(table), how="semi", nulls_equal=True, maintain_order="left")
    return level.widened(found)


def _probe(level: SortedTable, keys: pl.DataFrame) -> pl.DataFrame:
    positions = [level.find(row[0], row[1:]) for row in keys.iter_rows()]
    hits = np.array([position for position in positions if position >= 0], dtype=np.int64)
    hits.sort()
    return level.widened(
        pl.DataFrame(pl.from_arrow(level.arrow.take(hits))) if len(hits) else level.stored_frame.clear()
    )


def _search(level: SortedTable, keys: pl.DataFrame) -> pl.DataFrame:
    """Int keys: one numpy search a task, over sorted keys."""
    ordered = keys.sort("task", "k0")
    numbers, stored = ordered["k0"].to_numpy(), level.stored_frame["k0"].to_numpy()
    query_tasks = ordered["task"].to_numpy()
    tasks, starts = np.unique(query_tasks, return_index=True)
    hits: list[np.ndarray[Any, Any]] = []
    for task, start, end in zip(tasks.tolist(), starts, [*starts[1:], len(numbers)], strict=True):
        first, last = level.task_bounds(task)
        if first == last:
            continue
        rows, wanted = stored[first:last], numbers[start:end]
        at = rows.searchsorted(wanted)
        at[at == len(rows)] = 0
        hits.append(first + at[rows[at] == wanted])
    return level.widened(level.stored_frame[np.concatenate(hits)] if hits else level.stored_frame.clear())
