"""Structures that were stored as one value, and became subindexed by a migration: their elements as rows.

Rows of the table before are found by the keys that both have. Each of them becomes the rows of its elements, below all
that was written since, as if the whole structure had been written then; in a size table it becomes their number.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import numpy as np
import polars as pl

from tidemill.tables.codecs import key_codec
from tidemill.tables.container import CLEAR, DELETE, PUT
from tidemill.tables.level_merge import cell_columns, key_columns, order_rows
from tidemill.tables.sorted_table import End, nan_token
from tidemill.tables.tables import Table, is_size_table
from tidemill.values.absent import ABSENT

Structure = dict[Any, Any] | set[Any] | list[Any] | None


def is_packed(stored: Table, table: Table) -> bool:
    """Whether a row of `stored` is a whole structure, of whose elements each is a row of `table`."""
    return len(stored.keys) < len(table.keys)


def is_whole(stored: Table, table: Table) -> bool:
    """Whether a row of `stored` is a whole structure, that becomes rows of `table`: its elements, or their number."""
    return is_packed(stored, table) or is_size_table(stored.id) != is_size_table(table.id)


def size_of(structure: Structure) -> int:
    """How many elements there are."""
    return 0 if structure is None else len(structure)


def cells_by_key(table: Table, structure: Structure) -> Iterator[tuple[Any, Any]]:
    """(stored key, what its row of `table` holds) of each element."""
    if structure is None:
        return
    if isinstance(structure, list):
        pairs: Any = enumerate(structure)
    else:
        pairs = structure.items() if isinstance(structure, dict) else ((element, True) for element in structure)
    stored = key_codec(table.keys[-1]).check
    for key, value in pairs:
        yield stored(key), _cell(table, value)


def _cell(table: Table, value: Any) -> Any:
    if table.fields is None or value is None:
        return value
    return {field: value[field] for field, _ in table.fields if field in value}


STRUCTURE_BYTES: Final = 1_000
ELEMENT_BYTES: Final = 220
"""What an element takes beside its key and its cell: its place in three lists and a dict, and its order."""


def _held_bytes(value: Any) -> int:
    """About how many bytes of memory a stored key or a cell takes."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(map(_held_bytes, chain(value.keys(), value.values())))
    return size + sum(map(_held_bytes, value)) if isinstance(value, (list, tuple, set, frozenset)) else size


class Elements:
    """The elements of one structure, to be read as rows that share all keys but the last."""

    def __init__(self, table: Table, structure: Structure) -> None:
        order = key_codec(table.keys[-1]).order
        cells = ((order(key), key, cell) for key, cell in cells_by_key(table, structure))
        rows = sorted(cells, key=itemgetter(0))
        self.keys = [key for _, key, _ in rows]
        self._orders = [at for at, _, _ in rows]
        self._cells = [cell for _, _, cell in rows]
        self._places = {nan_token(key): place for place, key in enumerate(self.keys)}
        self._order = order
        held = sum(map(_held_bytes, self.keys)) + sum(map(_held_bytes, self._cells))
        self.bytes = STRUCTURE_BYTES + ELEMENT_BYTES * len(self.keys) + held

    def get(self, key: Any) -> Any:
        """What the row of a stored key holds, or ABSENT."""
        place = self._places.get(nan_token(key))
        return ABSENT if place is None else self._cells[place]

    def between(self, low: End, high: End) -> list[tuple[Any, Any]]:
        """(stored key, cell) within a range, in the order of keys."""
        start = 0 if low is None else self._place(low[0], is_after=not low[1])
        end = len(self.keys) if high is None else self._place(high[0], is_after=high[1])
        return list(zip(self.keys[start:end], self._cells[start:end], strict=True))

    def next_key(self, after: Any, low: End) -> Any:
        """The least key beyond `after`, or from `low` on if that is ABSENT; ABSENT if there is none."""
        place = 0
        if after is not ABSENT:
            place = self._place(after, is_after=True)
        elif low is not None:
            place = self._place(low[0], is_after=not low[1])
        return self.keys[place] if place < len(self.keys) else ABSENT

    def _place(self, key: Any, *, is_after: bool) -> int:
        return (bisect_right if is_after else bisect_left)(self._orders, self._order(key))


class UnpackedMemory:
    """The structures that readers of a process took apart last, as many as take `bytes_max` together, and one at least;
    safe for several threads. Without it each element that is read would cost its whole structure.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._held: OrderedDict[tuple[Any, ...], Elements] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...]) -> Elements | None:
        """What was put under a key, if it is still held."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: tuple[Any, ...], elements: Elements) -> None:
        """Hold one more; those that nobody asked for longest go for it."""
        with self._lock:
            before = self._held.pop(key, None)
            self._bytes += elements.bytes - (0 if before is None else before.bytes)
            self._held[key] = elements
            while self._bytes > self._bytes_max and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].bytes


MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Some 200,000 short elements."""

MEMORY: Final = UnpackedMemory(MEMORY_BYTES_MAX)


def unpacked_rows(table: Table, rows: pl.DataFrame, structures: Sequence[Structure]) -> pl.DataFrame:
    """The sorted rows of the elements of structures; `rows` have the keys of the table before."""
    assert table.before is not None
    elements = [list(cells_by_key(table, structure)) for structure in structures]
    counts = np.array([len(each) for each in elements], dtype=np.int64)
    flat = list(chain.from_iterable(elements))
    shared = rows.select(key_columns(table.before))[np.repeat(np.arange(rows.height), counts)]
    last = key_codec(table.keys[-1]).stored_series([key for key, _ in flat]).alias(table.key_names[-1])
    kinds = pl.Series("kind", [PUT] * len(flat), dtype=pl.Int8)
    columns = cell_columns(table, [PUT] * len(flat), [cell for _, cell in flat])
    return order_rows(table, shared.with_columns(last, kinds).with_columns(**columns))


def hiding_rows(table: Table, newer: pl.DataFrame) -> pl.DataFrame:
    """Rows of the table before that hide as much of it as some rows of `table` do: elements alone hide no structure."""
    assert table.before is not None
    width = len(table.before.keys)
    kind = pl.when(pl.col("kind") == CLEAR + width).then(pl.lit(DELETE, pl.Int8)).otherwise(pl.col("kind"))
    clears = newer.filter((pl.col("kind") >= CLEAR) & (pl.col("kind") <= CLEAR + width))
    return clears.select(kind.cast(pl.Int8).alias("kind"), *key_columns(table.before))
