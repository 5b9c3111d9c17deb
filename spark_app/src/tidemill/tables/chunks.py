"""Levels of a table cut into chunks of rows by ranges of (task, keys), so that passes over a large table hold little.

A clear stands where its prefix begins, and concerns rows of later chunks of its task as well: each chunk gets all
clears of its tasks that begin before its end. `Chunk.without_earlier_clears` drops those that another chunk keeps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np
import polars as pl

from tidemill.journal.snapshot import TaskSet
from tidemill.tables.codecs import key_codec
from tidemill.tables.container import CLEAR
from tidemill.tables.level_merge import CombinerNames, order_rows
from tidemill.tables.migrated_values import migrated
from tidemill.tables.tables import Table
from tidemill.tables.unpacked_values import is_whole

Place = tuple[Any, ...]
"""(task, stored keys…)."""

_PACKED_BYTES: Final = 16 * 1024 * 1024
"""So many bytes of whole structures are taken apart at once."""

_STEPS: Final = 4
"""So many steps of each level make a chunk. More make chunks of more equal length, and more marks to sort."""


class SortedRows(Protocol):
    """Sorted rows of one table, as a `SortedTable` has them, or some of its rows."""

    height: int
    clear_frame: pl.DataFrame | None

    @property
    def table(self) -> Table:
        """The table in whose columns they come."""

    @property
    def combiner_names(self) -> CombinerNames:
        """What their operands are of."""

    @property
    def row_bytes(self) -> float:
        """About how many bytes a row takes."""

    def task_values(self) -> np.ndarray[Any, Any]:
        """The tasks that have rows here, ascending."""

    def rows(self, start: int, end: int) -> pl.DataFrame:
        """Rows [start, end)."""

    def place(self, row: int) -> Place:
        """The task and stored keys of a row."""

    def lower_bound(self, place: Sequence[Any]) -> int:
        """The first row that is not before a place, of which the last keys may be missing."""


Order = tuple[Any, ...]
"""A place in a form that Python compares as the rows are sorted."""


@dataclass(frozen=True)
class Chunk:
    """The rows of each level between two places, oldest level first; `low` is the first place, None if it is open."""

    table: Table
    frames: list[tuple[pl.DataFrame, CombinerNames]]
    low: Order | None

    def without_earlier_clears(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Sorted rows that were made of this chunk, without clears that begin before it: they come first."""
        if self.low is None:
            return rows
        count = 0
        for kind, *place in rows.select("kind", "task", *self.table.key_names).iter_rows():
            if kind < CLEAR or _order(self.table, place) >= self.low:
                break
            count += 1
        return rows.slice(count)


def chunks(table: Table, stacks: Sequence[Sequence[SortedRows]], task_set: TaskSet, chunk_rows: int) -> Iterator[Chunk]:
    """All rows of the tasks of `task_set` in ascending order, in chunks of at most about `chunk_rows`."""
    sources = [_Source(table, level, task_set) for stack in stacks for level in stack]
    lows: list[int] = [0] * len(sources)
    low: Order | None = None
    chunk_rows = rows_at_once(table, [source.level for source in sources], chunk_rows)
    for high, ends in [*_cuts(table, [source.level for source in sources], chunk_rows), (None, None)]:
        ends = ends or [source.level.height for source in sources]
        bounds = zip(sources, lows, ends, strict=True)
        cut = [(source.level, source.rows(start, end, low, high)) for source, start, end in bounds]
        filled = [(level.table, rows, level.combiner_names) for level, rows in cut if rows.height]
        if filled:
            yield Chunk(table, migrated(table, filled), low)
        lows, low = ends, high


def rows_at_once(table: Table, levels: Sequence[SortedRows], chunk_rows: int) -> int:
    """Fewer rows where some are whole structures, of which each becomes the rows of its elements, or their number."""
    packed = [level for level in levels if is_whole(level.table, table) and level.height]
    if not packed:
        return chunk_rows
    mean = sum(level.height * level.row_bytes for level in packed) / sum(level.height for level in packed)
    return max(1, min(chunk_rows, int(_PACKED_BYTES / max(1.0, mean))))


def _cuts(table: Table, levels: Sequence[SortedRows], chunk_rows: int) -> list[tuple[Order, list[int]]]:
    """Places between chunks, and where each level has them.

    Each level marks its rows in equal steps, and every so many marks of all levels there is a cut: between two cuts a
    level has at most a step more than it has marks. Where some rows are whole structures, no cut is within one.
    """
    if sum(level.height for level in levels) <= chunk_rows:
        return []
    step = max(1, chunk_rows // (_STEPS * len(levels)))
    width = 1 + min(len(level.table.keys) for level in levels)
    places = [level.place(row)[:width] for level in levels for row in range(step, level.height, step)]
    marks = sorted(((_order(table, place), place) for place in places), key=itemgetter(0))
    every = (_STEPS - 1) * len(levels)
    return [(order, [level.lower_bound(place) for level in levels]) for order, place in marks[every::every]]


def _order(table: Table, place: Sequence[Any]) -> Order:
    return place[0], *(key_codec(kind).order(key) for kind, key in zip(table.keys, place[1:], strict=False))


class _Source:
    """One sorted table, as far as it is about the tasks of a set."""

    def __init__(self, table: Table, level: SortedRows, task_set: TaskSet) -> None:
        self.level = level
        self._own = pl.col("task") % task_set.modulus == task_set.remainder
        # A level that was packed for fewer threads holds tasks of other sets between those of this one.
        tasks = level.task_values() if task_set.modulus > 1 else ()
        self._is_own = bool(np.all(np.mod(tasks, task_set.modulus) == task_set.remainder))
        self._clears = None if level.clear_frame is None else level.clear_frame.filter(self._own)
        self._clear_orders: list[Order] = []
        if self._clears is not None:
            self._clears = order_rows(level.table, self._clears)
            places = self._clears.select("task", *level.table.key_names).iter_rows()
            self._clear_orders = [_order(table, place) for place in places]

    def rows(self, start: int, end: int, low: Order | None, high: Order | None) -> pl.DataFrame:
        """Rows [start, end), with the clears that concern rows between two places."""
        rows = self.level.rows(start, end)
        if not self._is_own:
            rows = rows.filter(self._own)
        if self._clears is None:
            return rows
        first = 0 if low is None else bisect_left(self._clear_orders, low[:1])
        last = self._clears.height if high is None else bisect_left(self._clear_orders, high)
        clears = self._clears.slice(first, last - first)
        return order_rows(self.level.table, pl.concat([clears, rows], how="diagonal")) if clears.height else rows
