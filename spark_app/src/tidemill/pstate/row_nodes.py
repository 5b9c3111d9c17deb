"""The nodes that paths navigate (`paths.nodes`), over the cells of one task: what row steps and clients read and write
through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from tidemill.language.schema import FixedKeysSchema, Schema
from tidemill.paths.nodes import KeyRange
from tidemill.pstate.overlay import DirtyRows, End, Prefix, TaskTable
from tidemill.tables.codecs import KeyCodec, Misfit, checker, key_codec, refusal
from tidemill.tables.null_keys import check_nulls, shown
from tidemill.tables.tables import (
    Layout,
    ListPlace,
    MapPlace,
    Place,
    RecordPlace,
    SetPlace,
    Table,
    ValuePlace,
    tables_below,
)
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath, SchemaMismatch


class TaskPartition:
    """One task's partition of one PState: its tables, and the root node. `generation` grows when cells below the top
    go away.
    """

    def __init__(self, name: str, layout: Layout, initial_value: Any, table_of: Callable[[Table], TaskTable]) -> None:
        self.name, self.layout, self.initial_value = name, layout, initial_value
        self.tables = {table.id: table_of(table) for table in layout.tables.values()}
        self.generation = 0
        self.root: Any = (
            RootNode(self, layout.root) if isinstance(layout.root, ValuePlace) else self.node(layout.root, ())
        )

    def node(self, place: Place, prefix: Prefix) -> Any:
        """The node of a place that is no value."""
        if isinstance(place, MapPlace):
            if not isinstance(place.element, ValuePlace):
                return StructureMap(self, place, prefix)
            return CodedMap(self, place, prefix) if place.key in ("object", "float") else ValueMap(self, place, prefix)
        if isinstance(place, SetPlace):
            return SetNode(self, place, prefix)
        if isinstance(place, ListPlace):
            return ListNode(self, place, prefix)
        assert isinstance(place, RecordPlace)
        return RecordNode(self, place, prefix)

    def clear(self, place: Place, prefix: Prefix) -> None:
        for table in tables_below(place):
            self.tables[table.id].clear(prefix)

    def has_any(self, place: Place, prefix: Prefix) -> bool:
        return any(self.tables[table.id].has_any(prefix) for table in tables_below(place))

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
        if value is node or _is_same(node, value):
            return
        kind = _PLAIN_KINDS[type(place)]
        if value is not None and not isinstance(value, kind):
            raise node.refusal(Misfit(value, f"{kind[0].__name__} of indexed elements"))
        node.clear()
        if value is not None:
            node.fill(value)

    def mismatch(self, misfit: Misfit, place: Sequence[Any]) -> SchemaMismatch:
        """The error of a value, or of a key, that does not fit at this place: the keys that lead to it."""
        return refusal(self.name, place, misfit)


_PLAIN_KINDS: dict[type, tuple[type, ...]] = {
    MapPlace: (dict,),
    SetPlace: (set, frozenset),
    ListPlace: (list, tuple),
    RecordPlace: (dict,),
}


def _is_same(node: Any, value: Any) -> bool:
    """Whether a transform gave back the very structure that it was given."""
    return isinstance(value, _Structure) and value.place is node.place and value.prefix == node.prefix


def value_schema(table: Table) -> Schema:
    """The schema of what a row of a value table holds."""
    if table.fields is not None:
        return FixedKeysSchema(table.fields)
    assert table.value is not None
    return table.value


class _Structure:
    """What all nodes but the root value share."""

    __slots__ = ("partition", "place", "prefix")

    def __init__(self, partition: TaskPartition, place: Any, prefix: Prefix) -> None:
        self.partition, self.place, self.prefix = partition, place, prefix

    def clear(self) -> None:
        self.partition.clear(self.place, self.prefix)

    def refusal(self, misfit: Misfit, *keys: Any) -> SchemaMismatch:
        """The error of a value, or of a key, that does not fit below this node."""
        table = next(iter(tables_below(self.place)))
        return self.partition.mismatch(misfit, (*shown(table, self.prefix), *keys))

    def _ends(self, codec: KeyCodec, bounds: KeyRange | None) -> tuple[End, End]:
        if bounds is None:
            return None, None
        try:
            low = None if bounds.start is None else (codec.check(bounds.start), bounds.includes_start)
            high = None if bounds.end is None else (codec.check(bounds.end), bounds.includes_end)
        except Misfit as misfit:
            raise self.refusal(misfit) from None
        return low, high

    def _scan(self, cells: DirtyRows, codec: KeyCodec, bounds: KeyRange | None) -> Iterator[tuple[Any, Any]]:
        low, high = self._ends(codec, bounds)
        if bounds is None or bounds.limit is None:
            return cells.scan(low, high)
        rows = islice(cells.scan(low, high, bounds.is_reverse), bounds.limit)
        return reversed(list(rows)) if bounds.is_reverse else rows

    def _child_keys(self, tables: list[TaskTable], codec: KeyCodec, bounds: KeyRange | None) -> Iterator[Any]:
        """Stored keys right below this node that hold something."""
        low, high = self._ends(codec, bounds)
        depth = len(self.prefix)
        found: dict[Any, Any] = {}
        for table in tables:
            if len(table.table.keys) == depth + 1:
                keys = [key for key, _ in table.cells(self.prefix).scan(low, high)]
            else:
                keys = table.child_keys(self.prefix, low, high)
            found.update({codec.order(key): key for key in keys})
        ordered = [found[order] for order in sorted(found)]
        is_reverse = bounds is not None and bounds.is_reverse
        live = (
            key
            for key in (reversed(ordered) if is_reverse else ordered)
            if self.partition.has_any(self.place.element, (*self.prefix, key))
        )
        limited = islice(live, bounds.limit) if bounds is not None else live
        return reversed(list(limited)) if is_reverse else limited


class CodedMap(_Structure):
    """A map whose elements are values; keys are brought into stored form before they are looked up."""

    __slots__ = ("_cache", "_cells", "_check", "_codec", "_dirty", "_table")

    def __init__(self, partition: TaskPartition, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        assert isinstance(place.element, ValuePlace)
        self._codec = key_codec(place.key)
        self._check = checker(value_schema(place.element.table))
        self._table = partition.tables[place.element.table.id]
        self._cells = self._table.cells(prefix)
        self._cache, self._dirty = self._cells.cache, self._cells.dirty

    def get(self, key: Any) -> Any:
        try:
            return self._cells.get(self._codec.check(key))
        except Misfit:
            return ABSENT

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

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        present = self._codec.present
        return ((present(key), held) for key, held in self._scan(self._cells, self._codec, bounds))

    def size(self) -> int:
        return self._cells.size()

    def fill(self, value: dict[Any, Any]) -> None:
        for key, element in value.items():
            self.put(key, element)


class ValueMap(CodedMap):
    """Keys that are stored as they are: found in the cache without any call."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        try:
            return self._cache[key]
        except (KeyError, TypeError):
            return super().get(key)


class StructureMap(_Structure):
    """A map whose elements are structures themselves; each key has one, perhaps an empty one."""

    __slots__ = ("_children", "_codec", "_generation")

    def __init__(self, partition: TaskPartition, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._codec = key_codec(place.key)
        self._children: dict[Any, Any] = {}
        self._generation = partition.generation

    def get(self, key: Any) -> Any:
        if self._generation != self.partition.generation:
            self._children.clear()
            self._generation = self.partition.generation
        stored = self._stored(key)
        child = self._children.get(stored)
        if child is None:
            child = self._children[stored] = self.partition.node(self.place.element, (*self.prefix, stored))
        return child

    def _stored(self, key: Any) -> Any:
        try:
            return self._codec.check(key)
        except Misfit as misfit:
            raise self.refusal(misfit) from None

    def put(self, key: Any, value: Any) -> None:
        self.partition.assign(self.place.element, (*self.prefix, self._stored(key)), value)

    def delete(self, key: Any) -> None:
        self.partition.clear(self.place.element, (*self.prefix, self._stored(key)))

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        tables = [self.partition.tables[table.id] for table in tables_below(self.place)]
        for stored in self._child_keys(tables, self._codec, bounds):
            key = self._codec.present(stored)
            yield key, self.get(key)

    def size(self) -> int:
        return sum(1 for _ in self.items())

    def fill(self, value: dict[Any, Any]) -> None:
        for key, element in value.items():
            self.put(key, element)


class SetNode(_Structure):
    __slots__ = ("_cells", "_codec")

    def __init__(self, partition: TaskPartition, place: SetPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._codec = key_codec(place.table.keys[-1])
        self._cells = partition.tables[place.table.id].cells(prefix)

    def contains(self, element: Any) -> bool:
        try:
            return self._cells.get(self._codec.check(element)) is not ABSENT
        except Misfit:
            return False

    def add(self, element: Any) -> None:
        self._cells.put(self._stored(element), True)

    def discard(self, element: Any) -> None:
        self._cells.put(self._stored(element), ABSENT)

    def _stored(self, element: Any) -> Any:
        try:
            return self._codec.check(element)
        except Misfit as misfit:
            raise self.refusal(misfit) from None

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        present = self._codec.present
        return (present(key) for key, _ in self._scan(self._cells, self._codec, bounds))

    def size(self) -> int:
        return self._cells.size()

    def fill(self, value: set[Any]) -> None:
        for element in value:
            self.add(element)


class ListNode(_Structure):
    """Rows by index from 0 without gaps."""

    __slots__ = ("_check", "_table")

    def __init__(self, partition: TaskPartition, place: ListPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._table, self._check = None, None
        if isinstance(place.element, ValuePlace):
            self._table = partition.tables[place.element.table.id]
            self._check = checker(value_schema(place.element.table))

    def get_at(self, index: int) -> Any:
        if self._table is None:
            return self.partition.node(self.place.element, (*self.prefix, index)) if index < self.size() else ABSENT
        return self._table.cells(self.prefix).get(index)

    def put_at(self, index: int, value: Any) -> None:
        """Raises BadPath if there is no such index; the index after the last appends."""
        if not 0 <= index <= self.size():
            raise BadPath(f"{self.partition.name}: a list of {self.size()} elements has no index {index}")
        if self._table is None or self._check is None:
            self.partition.assign(self.place.element, (*self.prefix, index), value)
            return
        try:
            self._table.cells(self.prefix).put(index, self._check(value))
        except Misfit as misfit:
            raise self.refusal(misfit, index) from None

    def append(self, value: Any) -> None:
        self.put_at(self.size(), value)

    def values(self) -> Iterator[Any]:
        if self._table is not None:
            return (held for _, held in self._table.cells(self.prefix).scan())
        return (self.get_at(index) for index in range(self.size()))

    def size(self) -> int:
        if self._table is not None:
            return self._table.cells(self.prefix).size()
        tables = [self.partition.tables[table.id] for table in tables_below(self.place)]
        last = max((key for key in self._child_keys(tables, key_codec("int"), None)), default=-1)
        return int(last) + 1

    def fill(self, value: list[Any]) -> None:
        for element in value:
            self.append(element)


class RecordNode(_Structure):
    """Fields that hold structures are nodes; the plain ones stand in one row, or at the top level in one row each."""

    __slots__ = ("_checks",)

    def __init__(self, partition: TaskPartition, place: RecordPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        own = place.own.fields if place.own is not None and place.own.fields is not None else ()
        if place.own is not None and isinstance(place.own.value, FixedKeysSchema):
            own = place.own.value.fields
        self._checks = {name: checker(schema) for name, schema in own}

    def _row(self, table: Table) -> tuple[DirtyRows, Any]:
        task_table, prefix = self.partition.tables[table.id], self.prefix
        return (task_table.cells(prefix[:-1]), prefix[-1]) if prefix else (task_table.cells(()), None)

    def _own(self) -> dict[str, Any]:
        cells, key = self._row(self.place.own)
        return cells.get(key) or {}

    def _is_plain(self, name: Any) -> bool:
        """Whether it is a field in the record's own row. A list, say, names no field, and cannot be looked up."""
        return isinstance(name, (str, int, float)) and name in self._checks

    def get_field(self, name: Any) -> Any:
        if self._is_plain(name):
            return self._own().get(name, ABSENT)
        place = self._place(name)
        if isinstance(place, ValuePlace):
            cells, key = self._row(place.table)
            return cells.get(key)
        return self.partition.node(place, self.prefix)

    def _place(self, name: Any) -> Place:
        place: Place | None = self.place.field(name)
        if place is None:
            known = ", ".join(repr(key) for key in (*self._checks, *(key for key, _ in self.place.fields)))
            raise self.refusal(Misfit(name, f"one of the fields {known}"))
        return place

    def put_field(self, name: Any, value: Any) -> None:
        try:
            if self._is_plain(name):
                cells, key = self._row(self.place.own)
                cells.put(key, {**self._own(), name: self._checks[name](value)})
                return
            place = self._place(name)
            if isinstance(place, ValuePlace):
                cells, key = self._row(place.table)
                cells.put(key, checker(value_schema(place.table))(value))
                return
        except Misfit as misfit:
            raise self.refusal(misfit, name) from None
        self.partition.assign(place, self.prefix, value)

    def delete_field(self, name: Any) -> None:
        if self._is_plain(name):
            cells, key = self._row(self.place.own)
            rest = {field: value for field, value in self._own().items() if field != name}
            cells.put(key, rest or ABSENT)
        else:
            self.partition.clear(self._place(name), self.prefix)

    def fields(self) -> Iterator[tuple[Any, Any]]:
        if self._checks:
            own = self._own()
            yield from ((name, own[name]) for name in self._checks if name in own)
        for name, place in self.place.fields:
            if self.partition.has_any(place, self.prefix):
                yield name, self.get_field(name)

    def fill(self, value: dict[Any, Any]) -> None:
        for name, field in value.items():
            self.put_field(name, field)


class RootNode:
    """The whole partition of a PState of a plain value."""

    __slots__ = ("_cells", "_check", "_partition", "place", "prefix")

    def __init__(self, partition: TaskPartition, place: ValuePlace) -> None:
        self._partition, self.place, self.prefix = partition, place, ()
        self._cells = partition.tables[place.table.id].cells(())
        self._check = checker(value_schema(place.table))

    def get_value(self) -> Any:
        held = self._cells.get(None)
        return self._partition.initial_value if held is ABSENT else held

    def put_value(self, value: Any) -> None:
        try:
            self._cells.put(None, self._check(value))
        except Misfit as misfit:
            raise self._partition.mismatch(misfit, ()) from None

    def clear(self) -> None:
        """Back to the initial value."""
        self._cells.put(None, ABSENT)
