"""Reading one task's rows of one table through all levels, a key or a range at a time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from tidemill.tables.codecs import key_codec
from tidemill.tables.container import DELETE, OPERAND, PUT
from tidemill.tables.level_merge import CombinerNames, fold_cells
from tidemill.tables.migrated_values import migrated_cell
from tidemill.tables.sorted_table import Bounds, End, SortedTable, nan_token
from tidemill.tables.tables import Table
from tidemill.tables.unpacked_values import MEMORY, Elements
from tidemill.values.absent import ABSENT

_CHUNK_MIN, _CHUNK_MAX = 32, 8192
_numbers = itertools.count()


class TaskReader:
    """`levels` newest first: at most one sorted table a level, as a task is in one part of a level only.

    Those that were written before a migration are in the reader `before`, whose rows go through it.
    """

    def __init__(self, table: Table, task: int, levels: Sequence[SortedTable]) -> None:
        self.table, self.task = table, task
        levels = [level for level in levels if level.clears.get(task) or _is_filled(level.task_bounds(task))]
        self.levels = [level for level in levels if level.table.generation == table.generation]
        self.before: TaskReader | None = None
        self._number = next(_numbers)
        if len(self.levels) < len(levels):
            assert table.before is not None
            older = [level for level in levels if level.table.generation < table.generation]
            self.before = TaskReader(table.before, task, older)

    def get(self, keys: tuple[Any, ...]) -> Any:
        """What the row of these stored keys holds (`SortedTable.cells`), or ABSENT."""
        operands: list[tuple[Any, CombinerNames]] = []
        base: Any = ABSENT
        for level in self.levels:
            row = level.find(self.task, keys)
            if row >= 0:
                kind = PUT if level.is_all_puts else level.kinds[row]
                if kind == PUT:
                    base = level.cells(row)
                    break
                if kind == DELETE:
                    break
                operands.append((level.cells(row), level.combiner_names))
            if level.clears and level.clears_key(self.task, keys):
                break
        else:
            base = self._older_cell(keys)
        return fold_cells(self.table, base, reversed(operands)) if operands else base

    def _older_cell(self, keys: tuple[Any, ...]) -> Any:
        """What the reader before holds in the row of these keys, after the migration."""
        if self.before is None:
            return ABSENT
        if self.table.is_unpacked:
            return self._elements(keys[:-1]).get(keys[-1])
        return self._migrated(keys, self.before.get(keys))

    def _migrated(self, keys: tuple[Any, ...], held: Any) -> Any:
        """What a row of the reader before holds, after the migration."""
        return held if held is ABSENT else migrated_cell(self.table, held, keys)

    def _elements(self, prefix: tuple[Any, ...]) -> Elements:
        """The structure that the reader before holds in one row, if nothing newer cleared it. It is remembered, for its
        elements are asked for one after the other.
        """
        assert self.before is not None
        at = (self._number, *map(nan_token, prefix))
        elements = MEMORY.get(at)
        if elements is None:
            is_cleared = any(level.clears_key(self.task, prefix) for level in self.levels)
            held = ABSENT if is_cleared else self.before.get(prefix)
            made = None if held is ABSENT else migrated_cell(self.table, held, prefix)
            elements = Elements(self.table, made)
            MEMORY.put(at, elements)
        return elements

    def scan(
        self,
        prefix: tuple[Any, ...],
        low: End = None,
        high: End = None,
        is_reverse: bool = False,
    ) -> Iterator[tuple[Any, Any]]:
        """(last key, what its row holds) below a prefix that names all keys but the last, in key order or against it.

        `low` and `high` are ends of the range.
        """
        streams = []
        for age, level in enumerate(self.levels):
            bounds = _range(level, self.task, prefix, low, high)
            if _is_filled(bounds) or level.clears.get(self.task):
                streams.append(self._stream(level, age, bounds, len(prefix), is_reverse))
        if self.before is not None:
            streams.append(self._older(prefix, low, high, is_reverse))
        yield from self._merge(streams, prefix)

    def _older(
        self, prefix: tuple[Any, ...], low: End, high: End, is_reverse: bool
    ) -> Iterator[tuple[Any, int, Any, int, Any]]:
        """As `_stream`, of the reader before: below all levels, and not migrated yet, but for what was unpacked."""
        assert self.before is not None
        order = key_codec(self.table.keys[len(prefix)]).order
        if self.table.is_unpacked:
            elements = self._elements(prefix).between(low, high)
            rows = iter(elements[::-1] if is_reverse else elements)
        else:
            rows = self.before.scan(prefix, low, high, is_reverse)
        for key, held in rows:
            yield _ordered(order(key), is_reverse), len(self.levels), key, PUT, held

    def _stream(
        self, level: SortedTable, age: int, bounds: Bounds, depth: int, is_reverse: bool
    ) -> Iterator[tuple[Any, int, Any, int, Any]]:
        """(order of the key, age, key, kind, cells) of one level, read in growing chunks."""
        order = key_codec(self.table.keys[depth]).order
        start, end = bounds
        chunk = _CHUNK_MIN
        while start < end:
            first, last = (max(start, end - chunk), end) if is_reverse else (start, min(end, start + chunk))
            keys, cells = level.keys_between(first, last, depth), level.cells_between(first, last)
            kinds = level.kinds[first:last].tolist()
            rows = zip(keys, kinds, cells, strict=True)
            for key, kind, held in reversed(list(rows)) if is_reverse else rows:
                yield _ordered(order(key), is_reverse), age, key, kind, held
            start, end = (start, first) if is_reverse else (last, end)
            chunk = min(chunk * 2, _CHUNK_MAX)

    def _merge(self, streams: list[Any], prefix: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        merged = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=_order_and_age)
        for _, rows in groupby(merged, key=_order_of):
            found = list(rows)
            key = found[0][2]
            held = self._folded([(age, kind, cells) for _, age, _, kind, cells in found], (*prefix, key))
            if held is not ABSENT:
                yield key, held

    def _folded(self, rows: list[tuple[int, int, Any]], keys: tuple[Any, ...]) -> Any:
        """The newest first rows of one key, folded; clears of levels without a row count as well."""
        cleared_age = self._cleared_age(keys)
        operands: list[tuple[Any, CombinerNames]] = []
        base: Any = ABSENT
        for age, kind, cells in rows:
            if age > cleared_age or kind == DELETE:
                break
            if kind == OPERAND:
                operands.append((cells, self.levels[age].combiner_names))
                continue
            is_made = age < len(self.levels) or self.table.is_unpacked
            base = cells if is_made else self._migrated(keys, cells)
            break
        return fold_cells(self.table, base, reversed(operands)) if operands else base

    def _cleared_age(self, keys: tuple[Any, ...]) -> int:
        """The newest level that clears these keys; older levels (greater ages) do not count for them."""
        for age, level in enumerate(self.levels):
            if level.clears and level.clears_key(self.task, keys):
                return age
        return len(self.levels)  # that of the reader before, which nothing clears then

    def next_key(self, prefix: tuple[Any, ...], after: Any, low: End) -> Any:
        """The least key below `prefix` that is in any level, live or not: beyond `after`, or from `low` on if that is
        ABSENT.
        """
        depth = len(prefix)
        codec = key_codec(self.table.keys[depth])
        best: Any = ABSENT
        for level in self.levels:
            bounds = level.prefix_bounds(self.task, prefix)
            start = bounds[0]
            if after is not ABSENT:
                start = level.seek(bounds, depth, after, after=True)
            elif low is not None:
                start = level.seek(bounds, depth, low[0], after=not low[1])
            if start < bounds[1]:
                key = level.key_at(start, depth)
                if best is ABSENT or codec.order(key) < codec.order(best):
                    best = key
        older = self._older_next_key(prefix, after, low)
        if older is not ABSENT and (best is ABSENT or codec.order(older) < codec.order(best)):
            return older
        return best

    def _older_next_key(self, prefix: tuple[Any, ...], after: Any, low: End) -> Any:
        if self.before is None:
            return ABSENT
        if self.table.is_unpacked and len(prefix) == len(self.before.table.keys):
            return self._elements(prefix).next_key(after, low)
        return self.before.next_key(prefix, after, low)

    def child_keys(self, prefix: tuple[Any, ...], low: End, high: End) -> Iterator[Any]:
        """The keys right below a short prefix, in order; some may hold nothing."""
        is_inside = range_test(key_codec(self.table.keys[len(prefix)]).order, None, high)
        key = self.next_key(prefix, ABSENT, low)
        while key is not ABSENT and is_inside(key):
            yield key
            key = self.next_key(prefix, key, low)

    def has_any(self, prefix: tuple[Any, ...]) -> bool:
        """Whether a live row stands at or below `prefix`."""
        if len(prefix) == len(self.table.keys):
            return self.get(prefix) is not ABSENT
        if len(prefix) + 1 == len(self.table.keys):
            return next(self.scan(prefix), None) is not None
        return any(self.has_any((*prefix, key)) for key in self.child_keys(prefix, None, None))

    def count(self, prefix: tuple[Any, ...]) -> int:
        """How many live rows stand below a prefix that names all keys but the last; reads all of their keys."""
        return int((self.newest(prefix)["kind"] != DELETE).sum())

    def newest(self, prefix: tuple[Any, ...]) -> pl.DataFrame:
        """The keys below a prefix that names all keys but the last, and the newest kind of each (columns key, kind)."""
        found = [_NO_KEYS.cast({"key": key_codec(self.table.keys[-1]).dtype})]
        for level in self.levels:
            found.append(level.bare_rows(*level.prefix_bounds(self.task, prefix)))
            if level.clears_key(self.task, prefix):
                break
        else:
            found += [] if self.before is None else [self._older_newest(prefix)]
        return pl.concat(found).unique("key", keep="first")

    def _older_newest(self, prefix: tuple[Any, ...]) -> pl.DataFrame:
        assert self.before is not None
        if not self.table.is_unpacked:
            return self.before.newest(prefix)
        keys = key_codec(self.table.keys[-1]).stored_series(self._elements(prefix).keys).alias("key")
        return pl.DataFrame([keys]).with_columns(kind=pl.lit(PUT, pl.Int8))


_NO_KEYS = pl.DataFrame(schema={"key": pl.Null, "kind": pl.Int8})


def range_test(order: Callable[[Any], Any], low: End, high: End) -> Callable[[Any], bool]:
    """Whether a stored key is inside a range."""

    def is_inside(key: Any) -> bool:
        at = order(key)
        if low is not None and (at < order(low[0]) or (at == order(low[0]) and not low[1])):
            return False
        return high is None or at < order(high[0]) or (at == order(high[0]) and high[1])

    return is_inside


def _is_filled(bounds: Bounds) -> bool:
    return bounds[0] < bounds[1]


def _range(
    level: SortedTable,
    task: int,
    prefix: tuple[Any, ...],
    low: End,
    high: End,
) -> Bounds:
    start, end = bounds = level.prefix_bounds(task, prefix)
    if low is not None:
        start = level.seek(bounds, len(prefix), low[0], after=not low[1])
    if high is not None:
        end = level.seek(bounds, len(prefix), high[0], after=high[1])
    return start, max(start, end)


class _Descending:
    """Turns an order around, for a merge from the high end."""

    __slots__ = ("order",)

    def __init__(self, order: Any) -> None:
        self.order = order

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.order < self.order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.order == other.order


def _ordered(order: Any, is_reverse: bool) -> Any:
    return _Descending(order) if is_reverse else order


def _order_of(row: tuple[Any, ...]) -> Any:
    return row[0]


def _order_and_age(row: tuple[Any, ...]) -> Any:
    return row[0], row[1]
