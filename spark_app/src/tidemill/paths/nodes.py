"""What paths navigate: the nodes of a structure, by one protocol.

A node is a map, a set or a list. Rows of a PState, the values of a `TestPState` and plain Python values have their own
forms of these three; a navigator does not know which one it met. `get` returns a plain Python value (int, str, list, …)
where the element is a value, or another node where the schema has an indexed structure below it (always a node then,
perhaps an empty one), or `ABSENT`.

Plain values are never changed in place: their node changes a copy, which `result` hands to whoever holds the value. An
indexed structure changes in place; its `result` is UNCHANGED, because nothing is left to do for the one above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from tidemill.values.absent import ABSENT
from tidemill.values.errors import SchemaMismatch


class _Unchanged:
    """The type of `UNCHANGED`: a transform that left its place as it was, or changed a node in place."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()


class KeyRange:
    """Bounds of a sorted range; None is open. `limit` elements at most, from the high end if `is_reverse`."""

    __slots__ = ("end", "includes_end", "includes_start", "is_reverse", "limit", "start")

    def __init__(
        self,
        start: Any = None,
        end: Any = None,
        includes_start: bool = True,
        includes_end: bool = False,
        limit: int | None = None,
        is_reverse: bool = False,
    ) -> None:
        self.start = start
        self.end = end
        self.includes_start = includes_start
        self.includes_end = includes_end
        self.limit = limit
        self.is_reverse = is_reverse


class Node:
    """A structure that a path can go into. Nodes of a snapshot only read: what writes is not implemented."""

    __slots__ = ()

    noun: ClassVar[str]
    """What errors call it: "map", "set", "list" or "record"."""

    plain_types: ClassVar[tuple[type, ...]]
    """The plain containers whose contents it can take over."""

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        """What the navigator `all` goes to, in order."""
        raise NotImplementedError

    def size(self) -> int:
        """How many elements there are: as many as `elements` gives."""
        return sum(1 for _ in self.elements())

    def is_empty(self) -> bool:
        """Whether there is no element; looks no further than the first."""
        return all(False for _ in self.elements())

    def clear(self) -> None:
        """Remove all that it holds, in the structures below it too."""
        raise NotImplementedError

    def fill(self, value: Any) -> None:
        """Add what a plain value of `plain_types` holds."""
        raise NotImplementedError

    def replace(self, value: Any, where: str) -> None:
        """Hold what a plain value holds, and nothing else; None stands for an empty one.

        Raises:
            SchemaMismatch: the value is no collection of this node's kind.
        """
        if value is not None and not isinstance(value, self.plain_types):
            text = f"{where}: an indexed {self.noun} cannot become {type(value).__name__}"
            raise SchemaMismatch(text, pstate=where, value=value)
        self.clear()
        if value is not None:
            self.fill(value)

    def result(self) -> Any:
        """The changed copy of a plain value, else UNCHANGED."""
        return UNCHANGED


class MapNode(Node):
    """A map. One of rows iterates in key order; a reverse range comes in ascending order too."""

    __slots__ = ()
    noun = "map"
    plain_types = (dict,)

    def get(self, key: Any) -> Any:
        """The element at a key: a plain value, a node where the schema has a structure there, or ABSENT.

        Raises:
            SchemaMismatch: it is no key of a map of structures, or no field of a record.
        """
        raise NotImplementedError

    def put(self, key: Any, value: Any) -> None:
        """Write the element at a key; an indexed structure there holds the new value, and nothing else, from then on.

        Raises:
            SchemaMismatch: the key or the value does not fit the schema.
            BadInput: a plain dict holds another key that Python takes for this one, such as 1 and True.
        """
        raise NotImplementedError

    def delete(self, key: Any) -> None:
        """Remove the element at a key; nothing happens if there is none.

        Raises:
            SchemaMismatch: it cannot be a key of this map.
        """
        raise NotImplementedError

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        """(key, element) of all entries, or of those within `bounds` in key order; empty structures are left out."""
        raise NotImplementedError

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        return ([key, value] for key, value in self.items(bounds))

    def fill(self, value: dict[Any, Any]) -> None:
        for key, item in value.items():
            self.put(key, item)


class RecordNode(MapNode):
    """A fixed-keys record that is indexed field by field, or that holds an indexed structure in a field: a map of its
    fields, in the order of the schema.
    """

    __slots__ = ()
    noun = "record"


class SetNode(Node):
    """A set; iterates in ascending order, a reverse range too."""

    __slots__ = ()
    noun = "set"
    plain_types = (set, frozenset)

    def contains(self, element: Any) -> bool:
        """Whether the element is there; one of a wrong type never is."""
        raise NotImplementedError

    def add(self, element: Any) -> None:
        """Put an element in; nothing changes if it is there.

        Raises:
            SchemaMismatch: it does not fit the schema.
            BadInput: a plain set holds another element that Python takes for this one, such as 1 and True.
        """
        raise NotImplementedError

    def discard(self, element: Any) -> None:
        """Take an element out; nothing changes if it is not there.

        Raises:
            SchemaMismatch: it cannot be an element of this set.
        """
        raise NotImplementedError

    def fill(self, value: Any) -> None:
        for element in value:
            self.add(element)


class ListNode(Node):
    """A list, by index from 0 without gaps."""

    __slots__ = ()
    noun = "list"
    plain_types = (list, tuple)

    def get(self, index: Any) -> Any:
        """ABSENT for all that is no index of an element."""
        raise NotImplementedError

    def part(self, start: int, stop: int) -> Iterator[Any]:
        """The elements at the indexes [start, stop), all of which are there."""
        return (self.get(index) for index in range(start, stop))

    def put(self, index: Any, value: Any) -> None:
        """Write the element at an index; the index after the last one appends.

        Raises:
            BadPath: there is no such index.
            SchemaMismatch: the value does not fit the schema.
        """
        raise NotImplementedError

    def write(self, index: int, value: Any) -> None:
        """As `put`, at an index of which the caller knows that it is there."""
        raise NotImplementedError

    def remove(self, index: int) -> None:
        """Take out the last element, which stands at this index."""
        raise NotImplementedError

    def append(self, value: Any) -> None:
        """Add an element at the end.

        Raises:
            SchemaMismatch: it does not fit the schema.
        """
        self.write(self.size(), value)

    def delete(self, index: Any) -> None:
        """Take an element out; those behind it move up. Nothing happens if there is none."""
        old = self.get(index)
        if old is not ABSENT:
            self.splice(index, [old], [])

    def splice(self, start: int, old: Sequence[Any], new: Sequence[Any]) -> None:
        """Put `new` in place of `old`, the elements from `start` on as they were read; those behind them move.

        Only what changes is written. A structure that moves is read whole and written anew.
        """
        size = max(self.size(), start + len(old))  # structures at the end may have become empty since they were read
        tail = [] if len(new) == len(old) else list(self.part(start + len(old), size))
        before, after = [*old, *tail], [*new, *tail]
        changed = [(at, whole(value)) for at, value in enumerate(after) if at >= len(before) or value is not before[at]]
        for at, value in changed:
            self.write(start + at, value)
        for index in reversed(range(size + len(new) - len(old), size)):
            self.remove(index)

    def move(self, index: int, place: int) -> None:
        """Take the element at an index to another place in the list; those between the two move by one."""
        if index == place:
            return
        first, last = min(index, place), max(index, place)
        old = list(self.part(first, last + 1))
        new = list(old)
        new.insert(place - first, new.pop(index - first))
        self.splice(first, old, new)

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        """(index, element), in order; lists have no ranges, so `bounds` is not looked at."""
        return enumerate(self.elements())

    def fill(self, value: Any) -> None:
        self.splice(self.size(), [], list(value))


class RootValue:
    """The whole partition of a PState whose schema is a plain value; before any write, its initial value."""

    __slots__ = ()

    def get_value(self) -> Any:
        """The value as it stands, as a plain Python value."""
        raise NotImplementedError

    def put_value(self, value: Any) -> None:
        """Replace the value.

        Raises:
            SchemaMismatch: the new one does not fit the schema.
        """
        raise NotImplementedError


def is_empty_node(value: Any) -> bool:
    """Whether it is a structure that holds nothing; a plain value, even an empty list, is none."""
    return isinstance(value, Node) and value.is_empty()


def whole(value: Any) -> Any:
    """A structure with all that is in it as a plain value; a plain value as it is."""
    if isinstance(value, MapNode):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, SetNode):
        return set(value.elements())
    return [whole(item) for item in value.elements()] if isinstance(value, ListNode) else value


def assign(entries: Any, key: Any, value: Any, where: str) -> None:
    """Put a value at a key that may hold an indexed structure."""
    current = entries.get(key)
    if isinstance(current, Node):
        current.replace(value, where)
    else:
        entries.put(key, value)
