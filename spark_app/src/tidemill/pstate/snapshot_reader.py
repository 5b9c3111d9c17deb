"""Reading a committed snapshot: nodes over its levels, with nothing above them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from tidemill.journal.snapshot import Part, Snapshot, TaskSet
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.nodes import PartitionReader, Prefix
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.parts import PartLoader
from tidemill.tables.sorted_table import End, SortedTable
from tidemill.tables.tables import Layout, Table, row_key
from tidemill.tables.view import SnapshotView, stored_key
from tidemill.values.absent import ABSENT

OPEN_MAX: Final = 4_096
"""Partitions that a reader keeps open; each takes about 1 KB and 1 KB a table, the rows aside."""

FOUND_MAX: Final = 8_192
"""Rows that a reader remembers: some MB. Each is plain data of few bytes (`TEXT_MAX`, `FIELDS_MAX`)."""

TEXT_MAX: Final = 128
FIELDS_MAX: Final = 8
_MISSING: Final = object()
_numbers = itertools.count()


class SnapshotReader:
    """The PStates of a topology at one commit; several threads may read at once.

    Partitions stay open between selects, but not longer than the process holds their parts (`PartMemory`): so the bytes
    of all readers have the bound of that memory, beside the parts of the selects under way.
    """

    def __init__(self, pstates: Mapping[str, PStateInfo], snapshot: Snapshot, loader: PartLoader) -> None:
        self.snapshot = snapshot
        self._pstates = {name: (info, info.layout) for name, info in pstates.items()}
        self._loader = loader
        self._found: dict[Prefix, Any] = {}
        self._roots: dict[tuple[str, int], Any] = {}
        loader.tell(self)

    def root(self, pstate: str, task: int) -> Any:
        """The root node of one task's partition, to read from at once. Raises: as `PartLoader.table`."""
        roots = self._roots  # where parts are dropped meanwhile, what is opened here is not kept
        root = roots.get((pstate, task))
        if root is None:
            info, layout = self._pstates[pstate]
            tables = _Tables(self.snapshot, self._loader, info.id, layout, task, self._found)
            root = PartitionReader(pstate, layout, info.initial_value, tables).root()
            if len(roots) >= OPEN_MAX:
                roots.clear()
            roots[pstate, task] = root
        return root

    @property
    def infos(self) -> dict[str, PStateInfo]:
        """The PStates by name."""
        return {name: info for name, (info, _) in self._pstates.items()}

    def rows_in(self, pstate: str, part: Part) -> int:
        """How many rows of a PState a part has, without those that only count others."""
        info, layout = self._pstates[pstate]
        return sum(part.rows.get(row_key((info.id, table)), 0) for table in layout.tables)

    def tables_of(self, pstate: str, part: Part) -> list[SortedTable]:
        """The tables of a PState in a part, without those that only count others. Raises: as `PartLoader.table`."""
        info, layout = self._pstates[pstate]
        keys = [(info.id, table) for table in layout.tables if part.rows.get(row_key((info.id, table)))]
        return [self._loader.table(part, key, layout.tables[key[1]]) for key in keys]

    def view(self) -> SnapshotView:
        """The same levels for a reader of columns, which only one thread may use."""
        return SnapshotView(self.snapshot, TaskSet(1, 0), self._loader)

    def forget(self) -> None:
        """Let go of all partitions; they are opened again when they are asked for."""
        self._roots = {}
        self._found.clear()


class StoredRows:
    """One task's committed rows of one table. `sizes` opens those of its size table, if it has one.

    `found` holds rows that were asked for before, of all tables of the reader: to merge levels costs more than to look
    there. Only plain values are kept, which no caller can change, under plain keys.
    """

    def __init__(self, reader: TaskReader, sizes: Callable[[], StoredRows] | None, found: dict[Prefix, Any]) -> None:
        self.table, self.reader = reader.table, reader
        self._sizes, self._found = sizes, found
        self._number = next(_numbers)
        self._is_record = reader.table.fields is not None

    @property
    def committed(self) -> TaskReader:
        """The rows."""
        return self.reader

    def get(self, keys: Prefix) -> Any:
        """What the row of these stored keys holds, or ABSENT."""
        at, found = (self._number, *keys), self._found
        held = found.get(at, _MISSING)
        if held is _MISSING:
            held = self.reader.get(keys)
            if all(map(_is_short, keys)) and (_is_short(held) or (self._is_record and _is_short_row(held))):
                if len(found) >= FOUND_MAX:
                    found.clear()
                found[at] = held
        return held

    def cells(self, prefix: Prefix) -> StoredRowsBelow:
        return StoredRowsBelow(self, prefix)

    def child_keys(self, prefix: Prefix, low: End, high: End) -> Iterator[Any]:
        return self.reader.child_keys(prefix, low, high)

    def has_any(self, prefix: Prefix) -> bool:
        return self.reader.has_any(prefix)

    def count(self, prefix: Prefix) -> int:
        """How many rows stand below a prefix of all keys but the last."""
        if self._sizes is None:
            return self.reader.count(prefix)
        held = self._sizes().get(prefix)
        return 0 if held is ABSENT else int(held)


class StoredRowsBelow:
    """Committed rows that share all keys but the last."""

    __slots__ = ("_prefix", "_rows")

    def __init__(self, rows: StoredRows, prefix: Prefix) -> None:
        self._rows, self._prefix = rows, prefix

    def get(self, key: Any) -> Any:
        return self._rows.get((*self._prefix, key) if self._rows.table.keys else ())

    def scan(self, low: End = None, high: End = None, is_reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        return self._rows.reader.scan(self._prefix, low, high, is_reverse)

    def size(self) -> int:
        return self._rows.count(self._prefix)


class _Tables(dict[str, StoredRows]):
    """The rows of one task by the id of their table, opened when they are asked for. It knows no reader: without a
    circle, what nobody uses is let go of at once.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        loader: PartLoader,
        pstate_id: str,
        layout: Layout,
        task: int,
        found: dict[Prefix, Any],
    ) -> None:
        super().__init__()
        self._layout, self._open = layout, partial(_opened, snapshot, loader, pstate_id, task)
        self._found = found

    def __missing__(self, table_id: str) -> StoredRows:
        table = self._layout.sizes.get(table_id)
        sizes = None if table is None else _once(partial(self._open, table), self._found)
        rows = self[table_id] = StoredRows(self._open(self._layout.stored[table_id]), sizes, self._found)
        return rows


def _once(open_reader: Callable[[], TaskReader], found: dict[Prefix, Any]) -> Callable[[], StoredRows]:
    """Opens the rows of a size table when they are asked for, and once."""
    return lru_cache(maxsize=1)(lambda: StoredRows(open_reader(), None, found))


def _is_short(value: Any) -> bool:
    """Whether it is plain data of few bytes. An int of a PState has 64 bits."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= TEXT_MAX
    return kind in (int, float, bool) or value is None or value is ABSENT


def _is_short_row(held: Any) -> bool:
    """Whether it is the own row of a record with few plain fields; readers take fields out of it, never the row."""
    return type(held) is dict and len(held) <= FIELDS_MAX and all(map(_is_short, held.values()))


def _opened(snapshot: Snapshot, loader: PartLoader, pstate_id: str, task: int, table: Table) -> TaskReader:
    """One task's rows of a table in all levels: a task is in one part of a level only."""
    key = (pstate_id, table.id)
    parts = (part for level in reversed(snapshot.levels) for part in level.parts if task in part.tasks)
    stored = ((part, stored_key(part, key, table)) for part in parts)
    return TaskReader(table, task, [loader.table(part, at, table) for part, at in stored if at is not None])
