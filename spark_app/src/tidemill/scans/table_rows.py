"""The live rows of one table of a PState, in chunks: all of them, or those whose keys lie between bounds.

Rows are sorted by task and keys in each level, so bounds on leading keys are found by binary search, and what lies
outside them is not read. Keys may be on any task: where a topology wrote them is its own choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
import polars as pl

from tidemill.journal.snapshot import TaskSet
from tidemill.scans.bounds import Allowed, Bounds
from tidemill.tables.chunks import chunks
from tidemill.tables.codecs import Misfit, key_codec, value_codec
from tidemill.tables.container import OPERAND
from tidemill.tables.level_merge import CombinerNames, common_combiner_names, resolve
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table
from tidemill.tables.view import SnapshotView

CHUNK_ROWS: Final = 100_000
RANGES_MAX: Final = 100_000
"""More ranges of keys than these are not looked up one by one."""

RANGES_MIN: Final = 64
ROWS_PER_RANGE: Final = 200
"""So many rows are read in the time in which one range is looked up; below `RANGES_MIN` nobody counts."""

CHUNKS_MAX: Final = 1_000
"""All places to cut at are looked up before the first chunk, so a table that is large has no small chunks."""

ALL_TASKS: Final = TaskSet(1, 0)


@dataclass(frozen=True)
class KeysWithin:
    """Rows whose leading keys are `prefix`, and whose next one is from `low` to `high` (None: open), in stored form."""

    prefix: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None


EVERYTHING: Final = KeysWithin()


def key_ranges(table: Table, bounds: Bounds, depth: int | None = None) -> list[KeysWithin]:
    """The ranges that hold all rows within the bounds, in the order of their keys: leading keys that are one of some
    values, then one key between two. Only the first `depth` keys count: all, if it is None.
    """
    prefixes: list[tuple[Any, ...]] = [()]
    for name, kind in list(zip(table.key_names, table.keys, strict=True))[:depth]:
        allowed = _stored(kind, bounds.get(name, Allowed()))
        if allowed.values is None or len(prefixes) * len(allowed.values) > RANGES_MAX:
            return [KeysWithin(prefix, allowed.low, allowed.high) for prefix in prefixes]
        prefixes = [(*prefix, value) for prefix, value in product(prefixes, allowed.values)]
    return [KeysWithin(prefix) for prefix in prefixes]


def _stored(kind: str, allowed: Allowed) -> Allowed:
    """The bounds in stored form; what is no key of this type bounds nothing."""
    if kind == "object":  # shown as text, which does not sort as the keys do
        return Allowed()
    check = key_codec(kind).check

    def stored(value: Any) -> Any:
        try:
            return None if value is None else check(value)
        except Misfit:
            return None

    values = None if allowed.values is None else [stored(value) for value in allowed.values]
    if values is not None and None in values:
        values = None
    order = key_codec(kind).order
    ordered = None if values is None else tuple(sorted(dict.fromkeys(values), key=order))  # some become one key
    return Allowed(ordered, stored(allowed.low), stored(allowed.high))


def live_rows(
    pstate_id: str,
    table: Table,
    view: SnapshotView,
    tasks: Sequence[int] | None,
    bounds: Bounds,
    wanted: frozenset[str] | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[pl.DataFrame]:
    """Rows in the order of tasks and keys: task, k0, k1, … and the stored value columns. `tasks` None is all of them.

    Of the value columns those that are not `wanted` may be left out. A frame has about `chunk_rows`, more of a table of
    many.
    """
    levels = view.levels((pstate_id, table.id), table)
    ranges = key_ranges(table, bounds, min((len(each.table.keys) for level in levels for each in level), default=0))
    if ranges != [EVERYTHING]:
        asked = sorted({int(task) for level in levels for each in level for task in each.task_values()})
        asked = asked if tasks is None else list(tasks)
        if _are_many(len(asked) * len(ranges), levels):
            ranges = [EVERYTHING]
        else:
            tasks = asked
    spans = [None] if tasks is None else ((task, each) for task in tasks for each in ranges)
    for span in spans:
        stacks = levels if span is None else [[_Slice(each, *span) for each in level] for level in levels]
        filled = [[each for each in level if each.height or each.clear_frame is not None] for level in stacks]
        height = sum(each.height for level in filled for each in level)
        for chunk in chunks(table, filled, ALL_TASKS, max(chunk_rows, height // CHUNKS_MAX)):
            frames = _thinned(table, chunk.frames, wanted)
            rows, _ = resolve(table, frames, is_base=True)
            if rows.height:
                yield rows


def initial_rows(table: Table, initial: Any, tasks: Sequence[int]) -> Iterator[pl.DataFrame]:
    """The rows of tasks on which a plain value was never written: its initial value."""
    if initial is not None and table.value is not None and table.id == "0" and tasks:
        codec = value_codec(table.value)
        value = codec.series([codec.check(initial)] * len(tasks))
        yield pl.DataFrame({"task": pl.Series(tasks, dtype=pl.Int32), "value": value})


def _are_many(ranges: int, levels: Sequence[Sequence[SortedTable]]) -> bool:
    """Whether it takes longer to look up so many ranges than to read all rows."""
    return ranges > RANGES_MIN and ranges * ROWS_PER_RANGE > sum(each.height for level in levels for each in level)


def _thinned(
    table: Table, frames: list[tuple[pl.DataFrame, CombinerNames]], wanted: frozenset[str] | None
) -> list[tuple[pl.DataFrame, CombinerNames]]:
    """The frames without value columns that nobody asked for, where no operand has to be folded into them."""
    if wanted is None or common_combiner_names(table, [names for _, names in frames]) is None:
        return frames
    if any((frame["kind"] == OPERAND).any() for frame, _ in frames):
        return frames
    dropped = {"none", *(name for name, _ in table.columns)} - wanted
    return [(frame.drop(dropped & set(frame.columns)), names) for frame, names in frames]


class _Slice:
    """The rows of a task of a sorted table whose keys are in a range."""

    def __init__(self, level: SortedTable, task: int, keys: KeysWithin) -> None:
        start, end = within = level.prefix_bounds(task, keys.prefix)
        depth = len(keys.prefix)
        if start < end and keys.low is not None:
            start = level.seek(within, depth, keys.low, after=False)
        if start < end and keys.high is not None:
            end = max(start, level.seek(within, depth, keys.high, after=True))
        self.table, self.combiner_names = level.table, level.combiner_names
        self.height = end - start
        self.clear_frame = _clears_of(level, task)
        self._level, self._start, self._task = level, start, task

    @property
    def row_bytes(self) -> float:
        return self._level.row_bytes

    def task_values(self) -> np.ndarray[Any, Any]:
        return np.array([self._task] if self.height else [], dtype=np.int64)

    def rows(self, start: int, end: int) -> pl.DataFrame:
        return self._level.rows(self._start + start, self._start + end)

    def place(self, row: int) -> tuple[Any, ...]:
        return self._level.place(self._start + row)

    def lower_bound(self, place: Sequence[Any]) -> int:
        return min(max(self._level.lower_bound(place) - self._start, 0), self.height)


def _clears_of(level: SortedTable, task: int) -> pl.DataFrame | None:
    if level.clear_frame is None:
        return None
    found = level.clear_frame.filter(pl.col("task") == task)
    return found if found.height else None
