"""The nodes that paths read (`paths.nodes`), over one task's rows of one PState, wherever these rows come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from tidemill.language.schema import FixedKeysSchema, Schema
from tidemill.paths.containers import keys_within
from tidemill.paths.nodes import KeyRange, ListNode, MapNode, RecordNode, RootValue, SetNode
from tidemill.tables.codecs import KeyCodec, Misfit, key_codec, refusal
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.null_keys import shown
from tidemill.tables.sizes import count_elements
from tidemill.tables.sorted_table import End
from tidemill.tables.tables import (
    Layout,
    ListPlace,
    MapPlace,
    Place,
    RecordPlace,
    SetPlace,
    Table,
    ValuePlace,
    marks_of,
    tables_below,
    value_schema,
)
from tidemill.values.absent import ABSENT
from tidemill.values.errors import SchemaMismatch

Prefix = tuple[Any, ...]
"""The leading keys of rows, in stored form."""


class RowsBelow(Protocol):
    """Rows of one table and task that share all keys but the last, by that key (None in a table without keys)."""

    def get(self, key: Any) -> Any:
        """What the row holds, or ABSENT."""
        ...

    def scan(self, low: End = None, high: End = None, is_reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """(key, held) in key order, or against it."""
        ...

    def size(self) -> int:
        """How many rows are there."""
        ...


class TaskRows(Protocol):
    """One task's rows of one table."""

    table: Table

    @property
    def committed(self) -> TaskReader:
        """The rows as they were committed."""
        ...

    def cells(self, prefix: Prefix) -> RowsBelow:
        """The rows below a prefix of all keys but the last."""
        ...

    def child_keys(self, prefix: Prefix, low: End, high: End) -> Iterator[Any]:
        """Candidates for the keys right below a short prefix, in order; some may hold nothing."""
        ...

    def has_any(self, prefix: Prefix) -> bool:
        """Whether a live row stands at or below a prefix."""
        ...


def size_in(sizes: TaskRows, prefix: Prefix) -> int:
    """The size of the structure at a prefix by the rows of its size table."""
    held = sizes.cells(prefix[:-1]).get(prefix[-1] if prefix else None)
    return 0 if held is ABSENT else int(held)


class PartitionReader:
    """One task's partition of one PState, to read: its rows by the id of their table."""

    def __init__(self, name: str, layout: Layout, initial_value: Any, tables: Mapping[str, TaskRows]) -> None:
        self.name, self.layout, self.initial_value = name, layout, initial_value
        self.tables = tables

    def root(self) -> Any:
        """Where paths begin: the node of the whole partition, or its `RootValue` if the schema is a plain value."""
        return self.node(self.layout.root, ())

    def node(self, place: Place, prefix: Prefix) -> Any:
        """The node of a place; a value has one only where it is the whole partition."""
        if isinstance(place, MapPlace):
            return (RowMap if isinstance(place.element, ValuePlace) else NestedRowMap)(self, place, prefix)
        if isinstance(place, SetPlace):
            return RowSet(self, place, prefix)
        if isinstance(place, ListPlace):
            return RowList(self, place, prefix)
        return RowRecord(self, place, prefix) if isinstance(place, RecordPlace) else RowValue(self, place)

    def has_any(self, place: Place, prefix: Prefix) -> bool:
        """Whether a live row stands at or below a place, below these keys."""
        return any(self.tables[table.id].has_any(prefix) for table in tables_below(place))

    def size(self, place: MapPlace, prefix: Prefix) -> int | None:
        """How many elements a map of structures has; None if each of them must be looked at for that."""
        return self.committed_size(place, prefix)

    def committed_size(self, place: MapPlace, prefix: Prefix) -> int | None:
        """As `size`, as it was committed."""
        if place.sizes is not None:
            return size_in(self.tables[place.sizes.id], prefix)
        marks = marks_of(place.element)
        return None if marks is None else count_elements([self.tables[mark].committed for mark in marks], prefix)

    def mismatch(self, misfit: Misfit, place: Sequence[Any]) -> SchemaMismatch:
        """The error of a value, or of a key, that does not fit at this place: the keys that lead to it."""
        return refusal(self.name, place, misfit)


class RowNode:
    """What the nodes of all places but the root value share."""

    __slots__ = ("partition", "place", "prefix")

    def __init__(self, partition: PartitionReader, place: Any, prefix: Prefix) -> None:
        self.partition, self.place, self.prefix = partition, place, prefix

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

    def _scan(self, rows: RowsBelow, codec: KeyCodec, bounds: KeyRange | None) -> Iterator[tuple[Any, Any]]:
        low, high = self._ends(codec, bounds)
        if bounds is None or bounds.limit is None:
            return rows.scan(low, high)
        found = islice(rows.scan(low, high, bounds.is_reverse), bounds.limit)
        return reversed(list(found)) if bounds.is_reverse else found

    def _child_keys(self, codec: KeyCodec, bounds: KeyRange | None) -> Iterator[Any]:
        """Stored keys right below this node that hold something."""
        low, high = self._ends(codec, bounds)
        depth = len(self.prefix)
        found: dict[Any, Any] = {}
        for table in tables_below(self.place):
            rows = self.partition.tables[table.id]
            if len(table.keys) == depth + 1:
                found.update({codec.order(key): key for key, _ in rows.cells(self.prefix).scan(low, high)})
            else:
                found.update({codec.order(key): key for key in rows.child_keys(self.prefix, low, high)})
        ordered = [found[order] for order in sorted(found)]
        is_reverse = bounds is not None and bounds.is_reverse
        live = (
            key
            for key in (reversed(ordered) if is_reverse else ordered)
            if self.partition.has_any(self.place.element, (*self.prefix, key))
        )
        limited = islice(live, bounds.limit) if bounds is not None else live
        return reversed(list(limited)) if is_reverse else limited


class RowMap(RowNode, MapNode):
    """A map whose elements are values; keys are brought into stored form before they are looked up."""

    __slots__ = ("_cells", "_codec")

    def __init__(self, partition: PartitionReader, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        assert isinstance(place.element, ValuePlace)
        self._codec = key_codec(place.key)
        self._cells = partition.tables[place.element.table.id].cells(prefix)

    def get(self, key: Any) -> Any:
        try:
            return self._cells.get(self._codec.check(key))
        except Misfit:
            return ABSENT

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        present = self._codec.present
        return ((present(key), held) for key, held in self._scan(self._cells, self._codec, bounds))

    def size(self) -> int:
        return self._cells.size()


class NestedRowMap(RowNode, MapNode):
    """A map whose elements are structures themselves; each key has one, perhaps an empty one."""

    __slots__ = ("_codec",)

    def __init__(self, partition: PartitionReader, place: MapPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._codec = key_codec(place.key)

    def get(self, key: Any) -> Any:
        return self._child(self._stored(key))

    def _child(self, stored: Any) -> Any:
        return self.partition.node(self.place.element, (*self.prefix, stored))

    def _stored(self, key: Any) -> Any:
        try:
            return self._codec.check(key)
        except Misfit as misfit:
            raise self.refusal(misfit) from None

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        return ((self._codec.present(key), self._child(key)) for key in self._child_keys(self._codec, bounds))

    def size(self) -> int:
        size = self.partition.size(self.place, self.prefix)
        return sum(1 for _ in self._child_keys(self._codec, None)) if size is None else size


class RowSet(RowNode, SetNode):
    """A set: each element is the last key of a row."""

    __slots__ = ("_cells", "_codec")

    def __init__(self, partition: PartitionReader, place: SetPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._codec = key_codec(place.table.keys[-1])
        self._cells = partition.tables[place.table.id].cells(prefix)

    def contains(self, element: Any) -> bool:
        try:
            return self._cells.get(self._codec.check(element)) is not ABSENT
        except Misfit:
            return False

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        present = self._codec.present
        return (present(key) for key, _ in self._scan(self._cells, self._codec, bounds))

    def size(self) -> int:
        return self._cells.size()


class RowList(RowNode, ListNode):
    """A list: each index is the last key of a row, or leads to a structure."""

    __slots__ = ("_rows",)

    def __init__(self, partition: PartitionReader, place: ListPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        element = place.element
        self._rows = partition.tables[element.table.id] if isinstance(element, ValuePlace) else None

    def get(self, index: Any) -> Any:
        if type(index) is not int or index < 0:
            return ABSENT
        if self._rows is None:
            return self.partition.node(self.place.element, (*self.prefix, index)) if index < self.size() else ABSENT
        return self._rows.cells(self.prefix).get(index)

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        if self._rows is not None:
            return (held for _, held in self._rows.cells(self.prefix).scan())
        return self._structures(0, self.size())

    def part(self, start: int, stop: int) -> Iterator[Any]:
        if self._rows is not None:
            return (held for _, held in self._rows.cells(self.prefix).scan((start, True), (stop, False)))
        return self._structures(start, stop)

    def _structures(self, start: int, stop: int) -> Iterator[Any]:
        return (self.partition.node(self.place.element, (*self.prefix, index)) for index in range(start, stop))

    def size(self) -> int:
        if self._rows is not None:
            return self._rows.cells(self.prefix).size()
        last = KeyRange(limit=1, is_reverse=True)
        return int(next(iter(self._child_keys(key_codec("int"), last)), -1)) + 1


class RowRecord(RowNode, RecordNode):
    """Fields that hold structures are nodes; the plain ones stand in one row, or at the top level in one row each."""

    __slots__ = ("_plain",)

    def __init__(self, partition: PartitionReader, place: RecordPlace, prefix: Prefix) -> None:
        super().__init__(partition, place, prefix)
        self._plain = _plain_fields(place)

    def _row(self, table: Table) -> tuple[RowsBelow, Any]:
        rows, prefix = self.partition.tables[table.id], self.prefix
        return (rows.cells(prefix[:-1]), prefix[-1]) if prefix else (rows.cells(()), None)

    def _own(self) -> dict[str, Any]:
        cells, key = self._row(self.place.own)
        return cells.get(key) or {}

    def _is_plain(self, name: Any) -> bool:
        """Whether it is a field in the record's own row. A list, say, names no field, and cannot be looked up."""
        return isinstance(name, (str, int, float)) and name in self._plain

    def get(self, name: Any) -> Any:
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
            known = ", ".join(repr(key) for key in (*self._plain, *(key for key, _ in self.place.fields)))
            raise self.refusal(Misfit(name, f"one of the fields {known}"))
        return place

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        if bounds is None:
            return self._fields()
        fields = dict(self._fields())
        return ((name, fields[name]) for name in keys_within(fields, bounds))

    def _fields(self) -> Iterator[tuple[Any, Any]]:
        if self._plain:
            own = self._own()
            yield from ((name, own[name]) for name in self._plain if name in own)
        for name, place in self.place.fields:
            if self.partition.has_any(place, self.prefix):
                yield name, self.get(name)


def _plain_fields(place: RecordPlace) -> dict[str, Schema]:
    """The fields that stand in the record's own row."""
    if place.own is None:
        return {}
    schema = value_schema(place.own)
    assert isinstance(schema, FixedKeysSchema)
    return dict(schema.fields)


class RowValue(RootValue):
    """The whole partition of a PState of a plain value."""

    __slots__ = ("_cells", "_initial_value")

    def __init__(self, partition: PartitionReader, place: ValuePlace) -> None:
        self._initial_value = partition.initial_value
        self._cells = partition.tables[place.table.id].cells(())

    def get_value(self) -> Any:
        held = self._cells.get(None)
        return self._initial_value if held is ABSENT else held
