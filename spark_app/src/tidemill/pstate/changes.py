"""Which keys of a PState may differ between two of its snapshots, found in the parts that only one of them has."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.journal.snapshot import Part, Snapshot
from tidemill.pstate.info import PStateInfo
from tidemill.tables.codecs import key_codec
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.parts import PartLoader
from tidemill.tables.sorted_table import SortedTable, nan_token
from tidemill.tables.tables import Layout, Table, row_key
from tidemill.values.absent import ABSENT


class ChangedKeys:
    """Where two snapshots of one topology may differ: a part that both have says nothing, so only the others are read.

    That is the work of the microbatches in between, or of a compaction since. Reading a key in both snapshots tells
    whether it did change. Raises: as `PartLoader.table`.
    """

    def __init__(self, before: Snapshot, after: Snapshot, loader: PartLoader, pstate: PStateInfo) -> None:
        self._all = (*before.parts(), *after.parts())
        shared = set(map(_identity, before.parts())) & set(map(_identity, after.parts()))
        self._parts = tuple(part for part in self._all if _identity(part) not in shared)
        self._loader, self._pstate_id = loader, pstate.id
        self._layout: Layout = pstate.layout

    def is_touched(self, task: int) -> bool:
        """Whether anything of this task's partition may differ."""
        return any(self._levels(self._parts, task, table) for table in self._layout.tables.values())

    def is_key_touched(self, task: int, key: object) -> bool:
        """Of a map: whether anything at or below this key may differ."""
        for table in self._layout.tables.values():
            stored = (key_codec(table.keys[0]).check(key),)
            for rows in self._levels(self._parts, task, table):
                start, end = rows.prefix_bounds(task, stored)
                if start < end or _clears(rows, task, stored):
                    return True
        return False

    def keys(self, task: int, after: object = ABSENT) -> Iterator[object]:
        """Of a map: the keys of this task that may differ, in order, from the first one behind `after`."""
        readers = list(self._readers(task))
        codec = key_codec(readers[0].table.keys[0]) if readers else None
        low = ABSENT if after is ABSENT or codec is None else codec.check(after)
        while codec is not None:
            found = [key for reader in readers if (key := reader.next_key((), low, None)) is not ABSENT]
            if not found:
                return
            low = min(found, key=codec.order)
            yield codec.present(low)

    def _readers(self, task: int) -> Iterator[TaskReader]:
        tables = self._layout.tables.values()
        levels = {table.id: self._levels(self._parts, task, table) for table in tables}
        # What a clear removed stands in parts below it, which both snapshots have.
        is_cleared = any(level.clears.get(task) for found in levels.values() for level in found)
        for table in tables:
            found = self._levels(self._all, task, table) if is_cleared else levels[table.id]
            yield TaskReader(table, task, found)

    def _levels(self, parts: tuple[Part, ...], task: int, table: Table) -> list[SortedTable]:
        key = (self._pstate_id, table.id)
        held = (part for part in parts if task in part.tasks and part.rows.get(row_key(key)))
        return [rows for rows in (self._loader.table(part, key, table) for part in held) if _has(rows, task)]


def _has(rows: SortedTable, task: int) -> bool:
    start, end = rows.task_bounds(task)
    return start < end or bool(rows.clears.get(task))


def _identity(part: Part) -> tuple[str, str]:
    return part.name, part.checksum


def _clears(rows: SortedTable, task: int, stored: tuple[object]) -> bool:
    """Whether it clears the whole partition, or something at or below a key."""
    return any(not cleared or cleared[0] == nan_token(stored[0]) for cleared in rows.clears.get(task, ()))
