"""The nodes of an attempt: they read and write the rows of one task, in its `overlay`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from tidemill.pstate.nodes import (
    NestedRowMap,
    PartitionReader,
    Prefix,
    RowList,
    RowMap,
    RowNode,
    RowRecord,
    RowSet,
    RowValue,
    size_in,
)
from tidemill.pstate.overlay import DirtyRows, SizeWatch, TaskTable
from tidemill.tables.codecs import Misfit, checker, key_codec
from tidemill.tables.null_keys import check_nulls
from tidemill.tables.tables import (
    Layout,
    ListPlace,
    MapPlace,
    Place,
    RecordPlace,
    SetPlace,
    Table,
    ValuePlace,
    is_size_table,
    marks_of,
    tables_below,
    value_schema,
)
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath


class TaskPartition(PartitionReader):
    """One task's partition of one PState, to read and write. `generation` grows when cells below the top go away."""

    tables: dict[str, TaskTable]

    def __init__(self, name: str, layout: Layout, initial_value: Any, table_of: Callable[[Table], TaskTable]) -> None:
        super().__init__(name, layout, initial_value, {table.id: table_of(table) for table in layout.stored.values()})
        self.generation = self._watched_in = 0
        self._watches: dict[tuple[str, Prefix], SizeWatch] = {}
        self.top: Any = self.root()

    def close(self) -> None:
        """Let go of its nodes, which have it. It cannot be used after this."""
        self.top = None
        self._watches.clear()

    def node(self, place: Place, prefix: Prefix) -> Any:
        if isinstance(place, MapPlace):
            if not isinstance(place.element, ValuePlace):
                return WritableNestedMap(self, place, prefix)
            return (CachedMap if place.key in _STORED_AS_THEY_ARE else WritableMap)(self, place, prefix)
        if isinstance(place, SetPlace):
            return WritableSet(self, place, prefix)
        if isinstance(place, ListPlace):
            return WritableList(self, place, prefix)
        return WritableRecord(self, place, prefix) if isinstance(place, RecordPlace) else WritableValue(self, place)

    def size(self, place: MapPlace, prefix: Prefix) -> int | None:
        """The size as it was committed, and what the attempt changed below the prefix."""
        marks = marks_of(place.element)
        if marks is None:
            return None
        watch = self._watched(place, prefix)
        for token, key in list(watch.pending.items()):
            at = (*prefix, key)
            was_there = watch.held.get(token)
            if was_there is None:
                was_there = not watch.is_gone and any(self._was_there(mark, at) for mark in marks)
            watch.held[token] = self._is_there(place.element, at)
            watch.size += watch.held[token] - was_there
        watch.pending.clear()
        return watch.size

    def _watched(self, place: MapPlace, prefix: Prefix) -> SizeWatch:
        tables = [self.tables[table.id] for table in tables_below(place)]
        name = (tables[0].table.id, prefix)
        if self._watched_in != self.generation:
            self._watches.clear()
            self._watched_in = self.generation
        watch = self._watches.get(name)
        if watch is None or not watch.is_valid:
            found = [table.changed_keys(prefix) for table in tables]
            is_gone = any(gone for gone, _ in found)
            size = 0 if is_gone else self.committed_size(place, prefix) or 0
            changed = {token: key for _, keys in found for token, key in keys.items()}
            watch = self._watches[name] = SizeWatch(size, is_gone, changed)
            for table in tables:
                table.watch(prefix, watch)
        return watch

    def _is_there(self, element: Place, prefix: Prefix) -> bool:
        """Whether a structure below a map is not empty; sizes that this counts are kept up to date, too."""
        if isinstance(element, RecordPlace):
            has_row = element.own is not None and self.tables[element.own.id].has_any(prefix)
            return has_row or any(self._is_there(field, prefix) for _, field in element.fields)
        if isinstance(element, MapPlace) and not isinstance(element.element, ValuePlace):
            return bool(self.size(element, prefix))
        return self.tables[next(iter(tables_below(element))).id].cells(prefix).size() > 0

    def _was_there(self, mark: str, keys: Prefix) -> bool:
        """Whether the element at some keys was committed, by a table that says so (`Counted.marks`)."""
        if is_size_table(mark):
            return size_in(self.tables[mark], keys) > 0
        return self.tables[mark].committed.get(keys) is not ABSENT

    def clear(self, place: Place, prefix: Prefix) -> None:
        """Delete all rows at or below a place, below these keys.

        Raises:
            SchemaMismatch: a key is None, and the schema does not allow that.
        """
        for table in tables_below(place):
            self.tables[table.id].clear(prefix)

    def stored_path(self, place: Place, path: Sequence[Any]) -> Prefix:
        """The keys on the way to a place in stored form.

        Raises:
            SchemaMismatch: a key does not fit the schema.
        """
        table = next(iter(tables_below(place)))
        try:
            stored = tuple(key_codec(kind).check(key) for kind, key in zip(table.keys, path, strict=False))
            check_nulls(table, stored)
        except Misfit as misfit:
            raise self.mismatch(misfit, ()) from None
        return stored

    def assign(self, place: Place, prefix: Prefix, value: Any) -> None:
        """Replace a whole structure by a plain value of its kind; None empties it."""
        node = self.node(place, prefix)
        if isinstance(value, RowNode) and value.place is place and value.prefix == prefix:
            return  # a transform gave back the very structure that it was given
        if value is not None and not isinstance(value, node.plain_types):
            raise node.refusal(Misfit(value, f"{node.plain_types[0].__name__} of indexed elements"))
        node.clear()
        if value is not None:
            node.fill(value)


class WritableNode(RowNode):
    """What the nodes of all places but the root value share."""

    __slots__ = ()
    partition: TaskPartition

    def clear(self) -> None:
        """Delete all rows that the node holds, in the structures below it too.

        Raises:
            SchemaMismatch: a key that leads here is None, and the schema does not allow that.
        """
        self.partition.clear(self.place, self.prefix)


class WritableMap(WritableNode, RowMap):
    """A map whose elements are values; what was written waits in its `DirtyRows`, and is read from there."""

    __slots__ = ("_cache", "_check", "_dirty")
    _cells: DirtyRows

    def __init__(self, partition: TaskPartition, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        assert isinstance(place.element, ValuePlace)
        self._check = checker(value_schema(place.element.table))
        self._cache, self._dirty = self._cells.cache, self._cells.dirty

    def put(self, key: Any, value: Any) -> None:
        try:
            stored, held = self._codec.check(key), self._check(value)
        except Misfit as misfit:
            raise self.refusal(misfit, key) from None
        cells = self._cells
        if cells.count is None and self._dirty and stored is not None:
            self._cache[stored] = held
            self._dirty.add(stored)
        else:
            cells.put(stored, held)

    def delete(self, key: Any) -> None:
        try:
            self._cells.put(self._codec.check(key), ABSENT)
        except Misfit as misfit:
            raise self.refusal(misfit) from None


_STORED_AS_THEY_ARE: Final[dict[str, type]] = {
    "int": int, "str": str, "bool": bool, "bytes": bytes, "datetime": datetime
}  # fmt: skip
"""Types of keys that need no other form, with those of Python: `True == 1 == 1.0` is not the same key."""


class CachedMap(WritableMap):
    """Keys that are stored as they are: found in the cache without any call."""

    __slots__ = ("_key_type",)

    def __init__(self, partition: TaskPartition, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._key_type = _STORED_AS_THEY_ARE[place.key]

    def get(self, key: Any) -> Any:
        if type(key) is not self._key_type:
            return super().get(key)
        try:
            return self._cache[key]
        except KeyError:
            return super().get(key)


class WritableNestedMap(WritableNode, NestedRowMap):
    """Keeps the nodes of its elements: row steps come back to them."""

    __slots__ = ("_children", "_generation")

    def __init__(self, partition: TaskPartition, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._children: dict[Any, Any] = {}
        self._generation = partition.generation

    def _child(self, stored: Any) -> Any:
        if self._generation != self.partition.generation:
            self._children.clear()
            self._generation = self.partition.generation
        child = self._children.get(stored)
        if child is None:
            child = self._children[stored] = super()._child(stored)
        return child

    def put(self, key: Any, value: Any) -> None:
        self.partition.assign(self.place.element, (*self.prefix, self._stored(key)), value)

    def delete(self, key: Any) -> None:
        self.partition.clear(self.place.element, (*self.prefix, self._stored(key)))


class WritableSet(WritableNode, RowSet):
    """A set; the row of an element that is in it holds True."""

    __slots__ = ()
    _cells: DirtyRows

    def add(self, element: Any) -> None:
        self._cells.put(self._stored(element), True)

    def discard(self, element: Any) -> None:
        self._cells.put(self._stored(element), ABSENT)

    def _stored(self, element: Any) -> Any:
        try:
            return self._codec.check(element)
        except Misfit as misfit:
            raise self.refusal(misfit) from None


class WritableList(WritableNode, RowList):
    """A list; an element that is a value is one row, one that is a structure is rows below its index."""

    __slots__ = ()
    _rows: TaskTable | None

    def put(self, index: Any, value: Any) -> None:
        """Raises BadPath if there is no such index; the index after the last appends."""
        if type(index) is not int or not 0 <= index <= self.size():
            raise BadPath(f"{self.partition.name}: a list of {self.size()} elements has no index {index!r}")
        self.write(index, value)

    def write(self, index: int, value: Any) -> None:
        if self._rows is None:
            self.partition.assign(self.place.element, (*self.prefix, index), value)
            return
        try:
            held = checker(value_schema(self._rows.table))(value)
        except Misfit as misfit:
            raise self.refusal(misfit, index) from None
        self._rows.cells(self.prefix).put_element(index, held)

    def remove(self, index: int) -> None:
        self.partition.clear(self.place.element, (*self.prefix, index))


class WritableRecord(WritableNode, RowRecord):
    """A record; a write of one plain field writes the row that they share anew, or at the top level its own row."""

    __slots__ = ()

    def _row(self, table: Table) -> tuple[DirtyRows, Any]:
        rows, prefix = self.partition.tables[table.id], self.prefix
        return (rows.cells(prefix[:-1]), prefix[-1]) if prefix else (rows.cells(()), None)

    def put(self, name: Any, value: Any) -> None:
        try:
            if self._is_plain(name):
                cells, key = self._row(self.place.own)
                cells.put(key, {**self._own(), name: checker(self._plain[name])(value)})
                return
            place = self._place(name)
            if isinstance(place, ValuePlace):
                cells, key = self._row(place.table)
                cells.put(key, checker(value_schema(place.table))(value))
                return
        except Misfit as misfit:
            raise self.refusal(misfit, name) from None
        self.partition.assign(place, self.prefix, value)

    def delete(self, name: Any) -> None:
        if self._is_plain(name):
            cells, key = self._row(self.place.own)
            rest = {field: value for field, value in self._own().items() if field != name}
            cells.put(key, rest or ABSENT)
        else:
            self.partition.clear(self._place(name), self.prefix)


class WritableValue(RowValue):
    """The whole partition of a PState of a plain value, as its only row."""

    __slots__ = ("_check", "_partition")
    _cells: DirtyRows

    def __init__(self, partition: TaskPartition, place: ValuePlace) -> None:
        super().__init__(partition, place)
        self._partition = partition
        self._check = checker(value_schema(place.table))

    def put_value(self, value: Any) -> None:
        try:
            self._cells.put(None, self._check(value))
        except Misfit as misfit:
            raise self._partition.mismatch(misfit, ()) from None

    def clear(self) -> None:
        """Back to the initial value."""
        self._cells.put(None, ABSENT)
