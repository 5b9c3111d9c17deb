"""What an attempt changed and not yet wrote: rows in dicts (for row steps) above sorted overlay levels (for everything
else).

`TaskTable` is one task's view of one table; `DirtyRows` are its rows that share all keys but the last, with a cache of
what was read or written. Flushing turns written cells into a sorted level, the same kind of data as a committed
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidemill.tables.codecs import NullKey, key_codec, refusal
from tidemill.tables.container import CLEAR, DELETE, PUT
from tidemill.tables.merge_reader import TaskReader, range_test
from tidemill.tables.null_keys import check_nulls
from tidemill.tables.sorted_table import End, nan_token
from tidemill.tables.tables import Table
from tidemill.values.absent import ABSENT
from tidemill.values.keys import NAN

Prefix = tuple[Any, ...]


class DirtyRows:
    """Rows of one table and task below one prefix, by their last key in stored form (None in a table without keys)."""

    __slots__ = ("cache", "count", "dirty", "is_cleared", "prefix", "table", "takes_none")

    def __init__(self, table: TaskTable, prefix: Prefix, is_cleared: bool) -> None:
        self.table, self.prefix, self.is_cleared = table, prefix, is_cleared
        self.cache: dict[Any, Any] = {}
        self.dirty: set[Any] = set()
        self.count: int | None = None
        self.takes_none = table.takes_none(prefix)

    def get(self, key: Any) -> Any:
        """What the row holds, or ABSENT."""
        try:
            return self.cache[key]
        except KeyError:
            held = self.cache[key] = self._load(key)
            return held

    def _load(self, key: Any) -> Any:
        if self.is_cleared:
            return ABSENT
        return self.table.reader.get((*self.prefix, key) if self.table.has_keys else ())

    def put(self, key: Any, held: Any) -> None:
        """Write a checked value, or ABSENT to delete the row.

        Raises:
            SchemaMismatch: a key on the way is None, and the schema does not allow that.
        """
        if not self.takes_none and (key is None or not self.dirty):
            self.table.check((*self.prefix, key))
        if self.count is not None:
            self.count += (held is not ABSENT) - (self.get(key) is not ABSENT)
        self.cache[key] = held
        if self.table.watches:
            self.table.note((*self.prefix, key))
        if not self.dirty:
            self.table.changed.append(self)
        self.dirty.add(key)

    def put_element(self, index: int, held: Any) -> None:
        """As `put`, in a list: every index below its size has a row, so none is looked for. Raises: as `put`."""
        size, self.count = self.size(), None
        self.put(index, held)
        self.count = max(size, index + 1)

    def size(self) -> int:
        """How many rows are there; counted once, then kept up to date."""
        if self.count is None:
            count = 0 if self.is_cleared else self.table.count(self.prefix)
            reader = self.table.reader
            for key in self.dirty:
                was = not self.is_cleared and reader.get((*self.prefix, key)) is not ABSENT
                count += (self.cache[key] is not ABSENT) - was
            self.count = count
        return self.count

    def scan(self, low: End = None, high: End = None, is_reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """(key, held) in key order, or against it, as things are now; later writes are not seen."""
        order = key_codec(self.table.table.keys[-1]).order
        written = {key: self.cache[key] for key in self.dirty}
        inside = range_test(order, low, high)
        keys = sorted((key for key in written if inside(key)), key=order, reverse=is_reverse)
        stored = iter(()) if self.is_cleared else self.table.reader.scan(self.prefix, low, high, is_reverse)
        unchanged = (row for row in stored if row[0] not in written)
        changed = ((key, written[key]) for key in keys)
        rows = _merge(unchanged, changed, order, is_reverse) if keys else unchanged
        return (row for row in rows if row[1] is not ABSENT)


def _merge(
    first: Iterator[tuple[Any, Any]], second: Iterator[tuple[Any, Any]], order: Callable[[Any], Any], is_reverse: bool
) -> Iterator[tuple[Any, Any]]:
    """Two sorted streams of distinct keys as one."""
    a, b = next(first, None), next(second, None)
    while a is not None and b is not None:
        if (order(a[0]) < order(b[0])) != is_reverse:
            yield a
            a = next(first, None)
        else:
            yield b
            b = next(second, None)
    while a is not None:
        yield a
        a = next(first, None)
    while b is not None:
        yield b
        b = next(second, None)


class SizeWatch:
    """The size of one map of structures in an attempt: counted once, then kept up to date with what is written.

    `held` says which of the elements that were looked at are there, `pending` are those that were written since, both
    by a token that is equal to itself. Counted anew where it is not valid any more.
    """

    __slots__ = ("held", "is_gone", "is_valid", "pending", "size")

    def __init__(self, size: int, is_gone: bool, pending: dict[Any, Any]) -> None:
        self.size, self.is_gone, self.pending = size, is_gone, pending
        self.held: dict[Any, bool] = {}
        self.is_valid = True


class TaskTable:
    """One task's rows of one table: cells by prefix, what is cleared, and the reader of the levels below."""

    def __init__(
        self,
        pstate: str,
        table: Table,
        task: int,
        make_reader: Callable[[], TaskReader],
        parts: Callable[[], tuple[TaskReader, TaskReader]],
        count: Callable[[Prefix], int] | None = None,
    ) -> None:
        self.pstate, self.table, self.task = pstate, table, task
        self._parts, self._count = parts, count
        self.has_keys = bool(table.keys)
        self.changed: list[DirtyRows] = []
        self.cleared: dict[Prefix, None] = {}
        self.watches: dict[int, dict[Prefix, SizeWatch]] = {}
        self._cells: dict[Prefix, DirtyRows] = {}
        self._make_reader = make_reader
        self._reader: TaskReader | None = None

    def close(self) -> None:
        """Let go of its rows, which have it. It cannot be used after this."""
        self.changed.clear()
        self.watches.clear()
        self._cells.clear()
        self._reader = None

    def takes_none(self, prefix: Prefix) -> bool:
        """Whether None is a key below a prefix of all keys but the last; a table without keys has None for its key."""
        return not self.has_keys or (len(prefix) in self.table.nullable and self.table.null_key(prefix) is None)

    def check(self, keys: Prefix) -> None:
        """Refuse to write at or below keys of which one is None that must not be. Raises: SchemaMismatch."""
        try:
            check_nulls(self.table, keys)
        except NullKey as refused:
            raise refusal(self.pstate, (), refused) from None

    @property
    def reader(self) -> TaskReader:
        """The rows of this task in the levels below; opened when it is first asked for, and again after `forget`."""
        if self._reader is None:
            self._reader = self._make_reader()
        return self._reader

    def count(self, prefix: Prefix) -> int:
        """How many rows the levels below hold below a prefix of all keys but the last."""
        return self.reader.count(prefix) if self._count is None else self._count(prefix)

    def cells(self, prefix: Prefix) -> DirtyRows:
        """The cells below a prefix of all keys but the last."""
        cells = self._cells.get(prefix)
        if cells is None:
            cells = self._cells[prefix] = DirtyRows(self, prefix, self.is_cleared(prefix))
        return cells

    def is_cleared(self, prefix: Prefix) -> bool:
        """Whether everything that levels hold below this prefix is gone."""
        return bool(self.cleared) and any(prefix[:n] in self.cleared for n in range(len(prefix) + 1))

    def clear(self, prefix: Prefix) -> None:
        """Delete every row at or below a prefix."""
        if len(prefix) == len(self.table.keys):
            cells = self.cells(prefix[:-1])
            cells.put(prefix[-1] if prefix else None, ABSENT)
            return
        self.check(prefix)
        self.cleared[prefix] = None
        if self.watches:
            self.note(prefix)
        for cells in self._below(prefix):
            cells.cache.clear()
            cells.dirty.clear()
            cells.is_cleared, cells.count = True, 0
        self.changed = [cells for cells in self.changed if cells.dirty]

    def watch(self, prefix: Prefix, size: SizeWatch) -> None:
        """Tell a size of the elements below a prefix that are written from now on."""
        self.watches.setdefault(len(prefix), {})[prefix] = size

    def note(self, keys: Prefix) -> None:
        """Tell all sizes above these keys what was written, and those at or below them that they are not valid."""
        for depth, watches in self.watches.items():
            if depth < len(keys):
                watch = watches.get(keys[:depth])
                if watch is not None:
                    watch.pending[nan_token(keys[depth])] = keys[depth]
            else:
                for prefix in [prefix for prefix in watches if prefix[: len(keys)] == keys]:
                    watches.pop(prefix).is_valid = False

    def _below(self, prefix: Prefix) -> list[DirtyRows]:
        if len(prefix) == len(self.table.keys) - 1:
            return [self._cells[prefix]] if prefix in self._cells else []
        return [cells for known, cells in self._cells.items() if known[: len(prefix)] == prefix]

    def child_keys(self, prefix: Prefix, low: End, high: End) -> Iterator[Any]:
        """Candidates for the keys right below a short prefix, in order; some may hold nothing."""
        depth = len(prefix)
        order = key_codec(self.table.keys[depth]).order
        inside = range_test(order, low, high)
        written = (cells.prefix[depth] for cells in self.changed if cells.prefix[:depth] == prefix)
        found = {nan_token(key): key for key in written}
        if not self.is_cleared(prefix):
            found.update((nan_token(key), key) for key in self.reader.child_keys(prefix, low, high))
        return iter(sorted(filter(inside, found.values()), key=order))

    @property
    def committed(self) -> TaskReader:
        """The rows as they were committed, without what the attempt changed."""
        return self._parts()[0]

    def changed_keys(self, prefix: Prefix) -> tuple[bool, dict[Any, Any]]:
        """Whether the attempt deleted all below a short prefix, and the keys right below it at or below which it wrote
        or deleted something, by a token that is equal to itself.
        """
        depth, within, overlay = len(prefix), tuple(map(nan_token, prefix)), self._parts()[1]
        keys = list(overlay.child_keys(prefix, None, None))
        for cells in self.changed:
            if cells.prefix[:depth] == prefix:
                keys += cells.dirty if len(cells.prefix) == depth else [cells.prefix[depth]]
        cleared = {tuple(map(nan_token, gone)) for gone in self.cleared}
        cleared |= {gone for level in overlay.levels for gone in level.clears.get(self.task, ())}
        tokens = {gone[depth] for gone in cleared if len(gone) > depth and gone[:depth] == within}
        is_float = self.table.keys[depth] == "float"
        keys += [NAN if is_float and isinstance(token, str) else token for token in tokens]
        is_gone = any(within[: len(gone)] == gone for gone in cleared)
        return is_gone, {nan_token(key): key for key in keys}

    def has_any(self, prefix: Prefix) -> bool:
        """Whether a live row stands at or below a prefix."""
        width = len(self.table.keys)
        if len(prefix) == width:
            return self.cells(prefix[:-1]).get(prefix[-1] if prefix else None) is not ABSENT
        if len(prefix) == width - 1:
            return next(self.cells(prefix).scan(), None) is not None
        return any(self.has_any((*prefix, key)) for key in self.child_keys(prefix, None, None))

    @property
    def changes(self) -> int:
        """How many rows were written or deleted, and prefixes cleared, since they were last handed over."""
        return sum(len(cells.dirty) for cells in self.changed) + len(self.cleared)

    @property
    def cached(self) -> int:
        """How many rows the caches hold as Python values, changed or only read, and those looked for in vain."""
        return sum(len(cells.cache) for cells in self._cells.values())

    def take_changes(self, rows: ChangedRows) -> None:
        """Hand over all changes since the last time, and forget what was cached above the levels below.

        Cells below the top prefix are no longer used afterwards: who held on to them asks for them again.
        """
        for prefix in self.cleared:
            rows.add_clear(self.task, prefix)
        for cells in self.changed:
            rows.add(self.task, cells)
        self.forget()

    def forget(self) -> None:
        """Drop caches after levels changed below; nothing may be dirty that was not handed over."""
        top = self._cells.pop((), None)
        self._cells.clear()
        if top is not None:
            top.cache.clear()
            top.dirty.clear()
            top.is_cleared, top.count = False, None
            self._cells[()] = top
        self.cleared.clear()
        self.changed.clear()
        for watches in self.watches.values():
            for watch in watches.values():
                watch.is_valid = False
        self.watches.clear()
        self._reader = None


class ChangedRows:
    """Changed rows of one table, by column, on their way into a level."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.tasks: list[int] = []
        self.keys: list[list[Any]] = [[] for _ in table.keys]
        self.kinds: list[int] = []
        self.cells: list[Any] = []

    def add(self, task: int, cells: DirtyRows) -> None:
        """Take the changed cells of one prefix: a delete for each that is ABSENT, a put for each other."""
        keys = list(cells.dirty)
        held = [cells.cache[key] for key in keys]
        self.tasks += [task] * len(keys)
        for column, part in zip(self.keys, cells.prefix, strict=False):
            column += [part] * len(keys)
        if self.keys:
            self.keys[-1] += keys
        self.kinds += [DELETE if value is ABSENT else PUT for value in held]
        self.cells += held

    def add_clear(self, task: int, prefix: Prefix) -> None:
        """Take a row which says that all below a prefix of a task is gone (kind `CLEAR` plus the prefix's length)."""
        self.tasks.append(task)
        for depth, column in enumerate(self.keys):
            column.append(prefix[depth] if depth < len(prefix) else None)
        self.kinds.append(CLEAR + len(prefix))
        self.cells.append(ABSENT)
