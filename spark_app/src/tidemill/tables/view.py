"""A committed snapshot, seen by a set of tasks: its parts are loaded when a table in them is first asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.journal.snapshot import Part, Snapshot, TaskSet
from tidemill.tables.container import TableKey
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.parts import PartLoader
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table, row_key
from tidemill.values.data import INT_MIN
from tidemill.values.errors import reading_object


class SnapshotView:
    """Immutable, so all that was loaded stays right. Not safe for several threads at once."""

    def __init__(self, snapshot: Snapshot, task_set: TaskSet, loader: PartLoader) -> None:
        self.snapshot, self.task_set = snapshot, task_set
        self._loader = loader
        self._levels: dict[TableKey, list[list[SortedTable]]] = {}
        self._readers: dict[tuple[TableKey, int], TaskReader] = {}

    def levels(self, key: TableKey, table: Table) -> list[list[SortedTable]]:
        """The sorted tables of each level that has any, oldest first."""
        levels = self._levels.get(key)
        if levels is None:
            name = row_key(key)
            found = ([self._open(part, key, table) for part in parts] for parts in self._parts(name))
            levels = self._levels[key] = [level for level in found if level]
        return levels

    def has_rows(self, key: TableKey) -> bool:
        """Whether any level has rows of a table, without loading one."""
        return any(self._parts(row_key(key)))

    def _parts(self, name: str) -> Iterator[list[Part]]:
        for level in self.snapshot.levels:
            yield [part for part in level.parts if part.rows.get(name) and part.tasks.overlaps(self.task_set)]

    def _open(self, part: Part, key: TableKey, table: Table) -> SortedTable:
        container = self._loader.load(part)
        meta = container.meta[key]
        with reading_object(part.name):
            return SortedTable(table, container.tables[key], meta.combiner_names, meta.table)

    def bound(self, key: TableKey, table: Table) -> int:
        """No integer of this table can be farther from zero: one row a level, so the levels' bounds add up.

        What a migration makes of values has no bound but that of all integers.
        """
        name = row_key(key)
        if any(part.rows.get(name) and part.generation(name) < table.generation for part in self.snapshot.parts()):
            return -INT_MIN
        return sum(max((part.bounds.get(name, 0) for part in level.parts), default=0) for level in self.snapshot.levels)

    def reader(self, key: TableKey, table: Table, task: int) -> TaskReader:
        """The reader of one task's rows of a table."""
        reader = self._readers.get((key, task))
        if reader is None:
            reader = self._readers[key, task] = TaskReader(table, task, newest_first(self.levels(key, table)))
        return reader

    def close(self) -> None:
        """Let go of what was loaded."""
        self._levels.clear()
        self._readers.clear()


def newest_first(levels: list[list[SortedTable]]) -> list[SortedTable]:
    """All sorted tables, those of newer levels first."""
    return [table for level in reversed(levels) for table in level]
