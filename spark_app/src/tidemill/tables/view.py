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
            found = ([self._open(part, key, table) for part in parts] for parts in self._parts(key, table))
            levels = self._levels[key] = [level for level in found if level]
        return levels

    def has_rows(self, key: TableKey, table: Table) -> bool:
        """Whether any level has rows of a table, without loading one."""
        return any(self._parts(key, table))

    def _parts(self, key: TableKey, table: Table) -> Iterator[list[Part]]:
        for level in self.snapshot.levels:
            parts = (part for part in level.parts if part.tasks.overlaps(self.task_set))
            yield [part for part in parts if stored_key(part, key, table) is not None]

    def _open(self, part: Part, key: TableKey, table: Table) -> SortedTable:
        container = self._loader.load(part)
        key = stored_key(part, key, table) or key
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


def stored_key(part: Part, key: TableKey, table: Table) -> TableKey | None:
    """Under which key a part has rows of a table; None if it has none.

    Sizes of structures that a migration subindexed are known from the values before it, until those are rewritten.
    """
    if part.rows.get(row_key(key)):
        return key
    if table.before is None or table.before.id == table.id:
        return None
    values = (key[0], table.before.id)
    has_older = part.rows.get(row_key(values)) and part.generation(row_key(values)) < table.generation
    return values if has_older else None


def newest_first(levels: list[list[SortedTable]]) -> list[SortedTable]:
    """All sorted tables, those of newer levels first."""
    return [table for level in reversed(levels) for table in level]
