"""What paths navigate: indexed structures of one task's partition of a PState, as small protocols.

`get` of an indexed structure returns a plain Python value (int, str, list, dict, …) where the element is a value, or
another node where the schema has an indexed structure below it (always a node then, perhaps an empty one), or `ABSENT`.
Plain values are never changed in place: a transform builds a new value and puts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol, Union, runtime_checkable


class _Absent:
    """The type of `ABSENT`: no element here, which is not the same as an element that is None."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


class KeyRange(Protocol):
    """Bounds of a sorted range; None is open. `limit` elements at most, from the high end if `is_reverse`."""

    start: Any
    end: Any
    includes_start: bool
    includes_end: bool
    limit: int | None
    is_reverse: bool


@runtime_checkable
class IndexedMap(Protocol):
    """A top-level or a subindexed map. Iteration is in key order; a reverse range is yielded in ascending order too."""

    def get(self, key: Any) -> Any: ...
    def put(self, key: Any, value: Any) -> None: ...
    def delete(self, key: Any) -> None: ...
    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]: ...
    def size(self) -> int: ...
    def clear(self) -> None: ...


@runtime_checkable
class IndexedSet(Protocol):
    def contains(self, element: Any) -> bool: ...
    def add(self, element: Any) -> None: ...
    def discard(self, element: Any) -> None: ...
    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]: ...
    def size(self) -> int: ...
    def clear(self) -> None: ...


@runtime_checkable
class IndexedList(Protocol):
    def get_at(self, index: int) -> Any: ...
    def put_at(self, index: int, value: Any) -> None: ...
    def append(self, value: Any) -> None: ...
    def values(self) -> Iterator[Any]: ...
    def size(self) -> int: ...
    def clear(self) -> None: ...


@runtime_checkable
class IndexedRecord(Protocol):
    """A fixed-keys record that is indexed field by field, or that holds an indexed structure in a field."""

    def get_field(self, name: Any) -> Any: ...
    def put_field(self, name: Any, value: Any) -> None: ...
    def delete_field(self, name: Any) -> None: ...
    def fields(self) -> Iterator[tuple[Any, Any]]: ...
    def clear(self) -> None: ...


@runtime_checkable
class RootValue(Protocol):
    """The whole partition of a PState whose schema is a plain value; before any write, its initial value."""

    def get_value(self) -> Any: ...
    def put_value(self, value: Any) -> None: ...


Node = Union[IndexedMap, IndexedSet, IndexedList, IndexedRecord, RootValue]
