"""Indexed structures in plain dicts: the simplest form of `paths.nodes`, and the model of all others in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidemill.language.schema import FixedKeysSchema, ListSchema, MapSchema, Schema, SetSchema, has_indexed
from tidemill.paths.containers import keys_within, plain
from tidemill.paths.nodes import (
    KeyRange,
    ListNode,
    MapNode,
    Node,
    RecordNode,
    RootValue,
    SetNode,
    is_empty_node,
    whole,
)
from tidemill.tables.codecs import KeyCodec, Misfit, NullKey, checker, key_codec, refusal
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath, SchemaMismatch

Check = Callable[[Any], Any]


def _checked(check: Check) -> Check:
    """The check of a value, with the error that callers know."""

    def checked(value: Any) -> Any:
        try:
            return check(value)
        except NullKey as null:
            raise refusal("TestPState", (), null) from None
        except Misfit as misfit:
            place = "".join(f"[{step!r}]" for step in misfit.path)
            text = f"{misfit.value!r}{' at ' + place if place else ''} does not fit {misfit.expected}"
            raise SchemaMismatch(text, value=misfit.value, expected=misfit.expected) from None

    return checked


def _or_absent(check: Check, key: Any) -> Any:
    """A key of a wrong kind is simply not there where it is only looked for."""
    try:
        return check(key)
    except SchemaMismatch:
        return ABSENT


class MemoryNode:
    """The data of a node, and what writes need: `null` is the key on the way here that is None and must not be, so that
    nothing is written.
    """

    def __init__(self, null: NullKey | None) -> None:
        self._null = null

    def _check_place(self) -> None:
        if self._null is not None:
            raise refusal("TestPState", (), self._null)


def _written_key(codec: KeyCodec, is_nullable: bool) -> Check:
    """The check of a key that is written; None may be looked for, but not be written, where it is no key."""

    def check(key: Any) -> Any:
        if key is None and not is_nullable:
            raise NullKey(codec.type, (None,))
        return codec.check(key)

    return _checked(check)


class MemoryMap(MemoryNode, MapNode):
    """A top-level or subindexed map, by stored keys; nodes below it live as long as it does."""

    def __init__(self, schema: MapSchema, null: NullKey | None = None) -> None:
        super().__init__(null)
        self._value = schema.value
        self._codec = key_codec(schema.key)
        self._key = _checked(self._codec.check)
        self._written = _written_key(self._codec, schema.nullable)
        self._is_nullable = schema.nullable
        self._check = _checked(checker(schema.value))
        self._is_nested = has_indexed(schema.value)
        self._data: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        if not self._is_nested:
            return self._data.get(_or_absent(self._key, key), ABSENT)
        key = self._key(key)
        if key not in self._data:
            is_null = key is None and not self._is_nullable
            null = self._null or (NullKey(self._codec.type, (None,)) if is_null else None)
            self._data[key] = memory_node(self._value, null)
        return self._data[key]

    def put(self, key: Any, value: Any) -> None:
        self._check_place()
        key = self._written(key)
        if self._is_nested:
            self.get(key).replace(value, "memory")
        else:
            self._data[key] = self._check(value)

    def delete(self, key: Any) -> None:
        self._check_place()
        key = self._written(key)
        if key in self._data and self._is_nested:
            self._data[key].clear()
        else:
            self._data.pop(key, None)

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        present = [self._codec.present(key) for key, value in self._data.items() if not is_empty_node(value)]
        return iter([(key, self._data[self._key(key)]) for key in keys_within(present, bounds)])

    def clear(self) -> None:
        self._check_place()
        for key, value in self._data.items():
            if isinstance(value, Node) and (key is not None or self._is_nullable):
                value.clear()
        if not self._is_nested:
            self._data.clear()


class MemorySet(MemoryNode, SetNode):
    """A subindexed set, as a Python set of stored keys."""

    def __init__(self, schema: SetSchema, null: NullKey | None = None) -> None:
        super().__init__(null)
        self._codec = key_codec(schema.element)
        self._key = _checked(self._codec.check)
        self._written = _written_key(self._codec, schema.nullable)
        self._data: set[Any] = set()

    def contains(self, element: Any) -> bool:
        return _or_absent(self._key, element) in self._data

    def add(self, element: Any) -> None:
        self._check_place()
        self._data.add(self._written(element))

    def discard(self, element: Any) -> None:
        self._check_place()
        self._data.discard(self._written(element))

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        return iter(keys_within(map(self._codec.present, self._data), bounds))

    def size(self) -> int:
        return len(self._data)

    def clear(self) -> None:
        self._check_place()
        self._data.clear()


class MemoryList(MemoryNode, ListNode):
    """A list whose elements are values, or nodes; as long as its last element that holds something."""

    def __init__(self, schema: ListSchema, null: NullKey | None = None) -> None:
        super().__init__(null)
        self._element = schema.element
        self._check = _checked(checker(schema.element))
        self._is_nested = has_indexed(schema.element)
        self._data: list[Any] = []

    def get(self, index: Any) -> Any:
        return self._data[index] if type(index) is int and 0 <= index < self.size() else ABSENT

    def put(self, index: Any, value: Any) -> None:
        """Raises BadPath if there is no such index; the index after the last appends."""
        if type(index) is not int or not 0 <= index <= self.size():
            raise BadPath(f"TestPState: a list of {self.size()} elements has no index {index!r}")
        self.write(index, value)

    def write(self, index: int, value: Any) -> None:
        self._check_place()
        if not self._is_nested:
            self._data[index : index + 1] = [self._check(value)]
            return
        self._data += [memory_node(self._element, self._null) for _ in range(index + 1 - len(self._data))]
        self._data[index].replace(value, "memory")

    def remove(self, index: int) -> None:
        self._check_place()
        del self._data[index:]

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        return iter(self._data[: self.size()])

    def size(self) -> int:
        size = len(self._data)
        while size and is_empty_node(self._data[size - 1]):
            size -= 1
        return size

    def clear(self) -> None:
        self._check_place()
        self._data.clear()


class MemoryRecord(MemoryNode, RecordNode):
    """A fixed-keys record; fields iterate in the order of the schema."""

    def __init__(self, schema: FixedKeysSchema, null: NullKey | None = None) -> None:
        super().__init__(null)
        self._checks = {name: _checked(checker(field)) for name, field in schema.fields}
        self._nodes = {name: memory_node(field, null) for name, field in schema.fields if has_indexed(field)}
        self._data: dict[Any, Any] = {}

    def get(self, name: Any) -> Any:
        self._check(name)
        return self._nodes[name] if name in self._nodes else self._data.get(name, ABSENT)

    def put(self, name: Any, value: Any) -> None:
        self._check_place()
        if name in self._nodes:
            self._nodes[name].replace(value, "memory")
        else:
            self._data[name] = self._check(name)(value)

    def delete(self, name: Any) -> None:
        self._check_place()
        if name in self._nodes:
            self._nodes[name].clear()
        else:
            self._data.pop(name, None)

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        fields = {name: self.get(name) for name in self._checks}
        held = {name: value for name, value in fields.items() if value is not ABSENT and not is_empty_node(value)}
        return iter([(name, held[name]) for name in (held if bounds is None else keys_within(held, bounds))])

    def clear(self) -> None:
        self._check_place()
        self._data.clear()
        for node in self._nodes.values():
            node.clear()

    def _check(self, name: Any) -> Check:
        if not isinstance(name, (str, int, float)) or name not in self._checks:
            raise SchemaMismatch(f"the record has no key {name!r}; it has {', '.join(map(str, self._checks))}")
        return self._checks[name]


class MemoryValue(RootValue):
    """A PState whose partition is one plain value."""

    def __init__(self, schema: Schema, initial: Any = None) -> None:
        self._check = _checked(checker(schema))
        self._value = self._check(initial)

    def get_value(self) -> Any:
        return self._value

    def put_value(self, value: Any) -> None:
        self._value = self._check(value)


def memory_node(schema: Schema, null: NullKey | None = None) -> Any:
    """The empty node of an indexed structure; `null` as in `MemoryNode`."""
    if isinstance(schema, MapSchema):
        return MemoryMap(schema, null)
    if isinstance(schema, SetSchema):
        return MemorySet(schema, null)
    if isinstance(schema, ListSchema):
        return MemoryList(schema, null)
    if isinstance(schema, FixedKeysSchema):
        return MemoryRecord(schema, null)
    raise TypeError(f"{schema!r} is a plain value")


def memory_root(schema: Schema, initial: Any = None) -> Node | RootValue:
    """The empty partition of a PState of this schema: maps and records are indexed, everything else is one value."""
    if isinstance(schema, (MapSchema, FixedKeysSchema)) or has_indexed(schema):
        node: Node = memory_node(schema)
        return node
    return MemoryValue(schema, initial)


def contents(node: Any) -> Any:
    """All that a node holds, as plain values: for tests and for looking inside."""
    return plain(node.get_value() if isinstance(node, RootValue) else whole(node), "memory")
