"""Plain values as nodes, so that each navigator is written once; they are copied before their first change."""

from __future__ import annotations

import datetime as _datetime
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tidemill.paths.nodes import UNCHANGED, KeyRange, ListNode, MapNode, Node, SetNode
from tidemill.values.absent import ABSENT
from tidemill.values.data import in_order, sort_key
from tidemill.values.errors import BadPath, NotSelectable
from tidemill.values.keys import admit, has_key, plain_key

SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes, _datetime.datetime})


def keys_within(keys: Iterable[Any], bounds: KeyRange | None) -> list[Any]:
    """The keys inside a range, ascending; with a limit the lowest ones, or the highest if it is reverse."""
    ordered = in_order(keys)
    if bounds is None:
        return ordered
    if bounds.start is not None:
        low = sort_key(bounds.start)
        ordered = [k for k in ordered if sort_key(k) > low or (bounds.includes_start and sort_key(k) == low)]
    if bounds.end is not None:
        high = sort_key(bounds.end)
        ordered = [k for k in ordered if sort_key(k) < high or (bounds.includes_end and sort_key(k) == high)]
    if bounds.limit is None:
        return ordered
    limit = max(bounds.limit, 0)
    return ordered[max(len(ordered) - limit, 0) :] if bounds.is_reverse else ordered[:limit]


# --- containers ------------------------------------------------------------------------------------------------------


class PlainMap(MapNode):
    """A dict; iterates in insertion order, ranges in key order."""

    __slots__ = ("_changed", "_data")

    def __init__(self, data: dict[Any, Any]) -> None:
        self._data = data
        self._changed = False

    def get(self, key: Any) -> Any:
        if type(key) is not str:
            if isinstance(key, dict):
                return ABSENT
            key = plain_key(key)
            if not has_key(self._data, key):
                return ABSENT
        return self._data.get(key, ABSENT)

    def put(self, key: Any, value: Any) -> None:
        if type(key) is not str:
            key = admit(self._data, plain_key(key))
        self._own()[key] = value

    def delete(self, key: Any) -> None:
        if self.get(key) is not ABSENT:
            del self._own()[plain_key(key)]

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        if bounds is None:
            return iter(self._data.items())
        return ((key, self._data[key]) for key in keys_within(self._data, bounds))

    def result(self) -> Any:
        return self._data if self._changed else UNCHANGED

    def _own(self) -> dict[Any, Any]:
        if not self._changed:
            self._data = dict(self._data)
            self._changed = True
        return self._data


class PlainList(ListNode):
    """A Python list."""

    __slots__ = ("_changed", "_data")

    def __init__(self, data: list[Any]) -> None:
        self._data = data
        self._changed = False

    def get(self, index: Any) -> Any:
        return self._data[index] if type(index) is int and 0 <= index < len(self._data) else ABSENT

    def put(self, index: Any, value: Any) -> None:
        if type(index) is not int or not 0 <= index <= len(self._data):
            raise BadPath(f"a list of {len(self._data)} elements has no place {index!r}", key=index)
        self.write(index, value)

    def write(self, index: int, value: Any) -> None:
        self._own()[index : index + 1] = [value]

    def splice(self, start: int, old: Sequence[Any], new: Sequence[Any]) -> None:
        self._own()[start : start + len(old)] = new

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        return iter(self._data)

    def part(self, start: int, stop: int) -> Iterator[Any]:
        return islice(self._data, start, stop)

    def size(self) -> int:
        return len(self._data)

    def result(self) -> Any:
        return self._data if self._changed else UNCHANGED

    def _own(self) -> list[Any]:
        if not self._changed:
            self._data = list(self._data)
            self._changed = True
        return self._data


class PlainSet(SetNode):
    """A Python set; iterates in element order, so that a retried attempt sees the same."""

    __slots__ = ("_changed", "_data")

    def __init__(self, data: Any) -> None:
        self._data = data
        self._changed = False

    def contains(self, element: Any) -> bool:
        return not isinstance(element, dict) and has_key(self._data, plain_key(element))

    def add(self, element: Any) -> None:
        element = admit(self._data, plain_key(element))
        if not self._changed:
            self._data, self._changed = set(self._data), True
        self._data.add(element)

    def discard(self, element: Any) -> None:
        if self.contains(element):
            if not self._changed:
                self._data, self._changed = set(self._data), True
            self._data.discard(plain_key(element))

    def elements(self, bounds: KeyRange | None = None) -> Iterator[Any]:
        return iter(keys_within(self._data, bounds))

    def result(self) -> Any:
        return self._data if self._changed else UNCHANGED


def map_of(value: Any, navigator: str, where: str, *, is_keyed: bool = False) -> Any:
    """The map that a navigator meets; a list as well if `is_keyed`.

    Raises:
        BadPath: the value is no map.
    """
    if type(value) is dict:
        return PlainMap(value)
    if value is None:
        return PlainMap({})
    if isinstance(value, MapNode):
        return value
    if isinstance(value, dict):
        return PlainMap(dict(value))
    if is_keyed and isinstance(value, (list, tuple, ListNode)):
        return list_of(value, navigator, where)
    raise misfit(navigator, value, "a map", where)


def set_of(value: Any, navigator: str, where: str) -> Any:
    """The set that a navigator meets.

    Raises:
        BadPath: the value is no set.
    """
    if value is None:
        return PlainSet(set())
    if isinstance(value, (set, frozenset)):
        return PlainSet(value)
    if isinstance(value, SetNode):
        return value
    raise misfit(navigator, value, "a set", where)


def list_of(value: Any, navigator: str, where: str) -> ListNode:
    """The list that a navigator meets.

    Raises:
        BadPath: the value is no list.
    """
    if value is None:
        return PlainList([])
    if isinstance(value, (list, tuple)):
        return PlainList(value if isinstance(value, list) else list(value))
    if isinstance(value, ListNode):
        return value
    raise misfit(navigator, value, "a list", where)


def misfit(navigator: str, value: Any, expected: str, where: str) -> BadPath:
    """The error of a navigator that met a value of another kind."""
    text = f"an indexed {value.noun}" if isinstance(value, Node) else type(value).__name__
    return BadPath(
        f"{where}: {navigator} needs {expected} but met {text}", navigator=navigator, kind=text, pstate=where
    )


# --- whole structures ------------------------------------------------------------------------------------------------


def plain(value: Any, where: str) -> Any:
    """A plain copy that shares no container with the state.

    Raises:
        NotSelectable: it is an indexed structure, or holds one.
    """
    if type(value) in SCALARS:
        return value
    if isinstance(value, dict):
        return {key: plain(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, where) for item in value]
    if isinstance(value, (set, frozenset)):
        return set(value)
    if isinstance(value, Node):
        raise NotSelectable(
            f"{where}: an indexed {value.noun} cannot be taken whole, because it may be larger than memory; "
            f"navigate into it with key, all, map_vals or a sorted range, or take view(Ops.SIZE)",
            pstate=where,
        )
    return value
