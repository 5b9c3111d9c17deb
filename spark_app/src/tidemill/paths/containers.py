"""Plain values under the same protocols as indexed structures, so that each navigator is written once.

Plain containers are copied before their first change (`result()` gives the changed copy); nodes change in place,
and their `result` is UNCHANGED, because nothing is left for the parent to do.
"""

from __future__ import annotations

import datetime as _datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tidemill.paths.nodes import IndexedList, IndexedMap, IndexedRecord, IndexedSet, KeyRange, RootValue
from tidemill.values.absent import ABSENT
from tidemill.values.data import sort_key
from tidemill.values.errors import BadPath, NotSelectable, SchemaMismatch
from tidemill.values.keys import admit, has_key, plain_key


class _Unchanged:
    """The type of `UNCHANGED`: a transform that left its place as it was, or changed a node in place."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes, _datetime.datetime})


# --- what a value is -------------------------------------------------------------------------------------------------

_PROTOCOLS: Final = (
    ("map", IndexedMap), ("set", IndexedSet), ("list", IndexedList), ("record", IndexedRecord), ("root", RootValue),
)  # fmt: skip
_NODE_KINDS: dict[type, str] = dict.fromkeys([*SCALARS, dict, list, set, frozenset, tuple], "")


def node_kind(value: Any) -> str:
    """Which protocol of `paths.nodes` a value follows ("map", "set", …), "" for plain values."""
    kind = type(value)
    known = _NODE_KINDS.get(kind)
    if known is None:
        known = next((name for name, protocol in _PROTOCOLS if isinstance(value, protocol)), "")
        _NODE_KINDS[kind] = known
    return known


def is_empty_node(value: Any) -> bool:
    kind = node_kind(value)
    if kind == "map":
        return not any(True for _ in value.items(_ONE))
    if kind == "set":
        return not any(True for _ in value.elements(_ONE))
    if kind == "record":
        return not any(True for _ in value.fields())
    return kind == "list" and value.size() == 0


class KeyBounds:
    """A sorted range as `paths.nodes.KeyRange` describes it."""

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


_ONE: Final = KeyBounds(limit=1)


def sorted_keys(keys: Iterable[Any]) -> list[Any]:
    """Keys in the order of indexed structures."""
    found = list(keys)
    if len(set(map(type, found))) <= 1 and (not found or type(found[0]) in (int, str, bytes)):
        return sorted(found)
    return sorted(found, key=sort_key)


def keys_within(keys: Iterable[Any], bounds: KeyRange | None) -> list[Any]:
    """The keys inside a range, ascending; with a limit the lowest ones, or the highest if it is reverse."""
    ordered = sorted_keys(keys)
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


class PlainMap:
    """A dict as an `IndexedMap`; iterates in insertion order, ranges in key order."""

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


class NodeMap:
    """An indexed map: changes go to the node at once."""

    __slots__ = ("delete", "get", "items", "put")

    def __init__(self, node: IndexedMap) -> None:
        self.get = node.get
        self.put = node.put
        self.delete = node.delete
        self.items = node.items

    def result(self) -> Any:
        return UNCHANGED


class RecordMap:
    """An indexed fixed-keys record as a map of its fields."""

    __slots__ = ("_node", "delete", "get", "put")

    def __init__(self, node: IndexedRecord) -> None:
        self._node = node
        self.get = node.get_field
        self.put = node.put_field
        self.delete = node.delete_field

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        if bounds is None:
            return self._node.fields()
        fields = dict(self._node.fields())
        return ((key, fields[key]) for key in keys_within(fields, bounds))

    def result(self) -> Any:
        return UNCHANGED


class PlainList:
    """A list by index, for `key` on lists."""

    __slots__ = ("_changed", "_data")

    def __init__(self, data: list[Any]) -> None:
        self._data = data
        self._changed = False

    def get(self, key: Any) -> Any:
        return self._data[key] if type(key) is int and 0 <= key < len(self._data) else ABSENT

    def put(self, key: Any, value: Any) -> None:
        if type(key) is not int or not 0 <= key < len(self._data):
            raise BadPath(f"a list of {len(self._data)} elements has no place {key!r}", key=key)
        self._own()[key] = value

    def delete(self, key: Any) -> None:
        if self.get(key) is not ABSENT:
            del self._own()[key]

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        return enumerate(self._data)

    def result(self) -> Any:
        return self._data if self._changed else UNCHANGED

    def _own(self) -> list[Any]:
        if not self._changed:
            self._data = list(self._data)
            self._changed = True
        return self._data


class NodeList:
    """An indexed list by index."""

    __slots__ = ("_node",)

    def __init__(self, node: IndexedList) -> None:
        self._node = node

    def get(self, key: Any) -> Any:
        return self._node.get_at(key) if type(key) is int and 0 <= key < self._node.size() else ABSENT

    def put(self, key: Any, value: Any) -> None:
        self._node.put_at(key, value)

    def delete(self, key: Any) -> None:
        kept = [value for index, value in enumerate(self._node.values()) if index != key]
        refill_list(self._node, kept)

    def items(self, bounds: KeyRange | None = None) -> Iterator[tuple[Any, Any]]:
        return enumerate(self._node.values())

    def result(self) -> Any:
        return UNCHANGED


class PlainSet:
    """A Python set as an `IndexedSet`; iterates in element order, so that a retried attempt sees the same."""

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


class NodeSet:
    """An indexed set: changes go to the node at once."""

    __slots__ = ("add", "contains", "discard", "elements")

    def __init__(self, node: IndexedSet) -> None:
        self.contains = node.contains
        self.add = node.add
        self.discard = node.discard
        self.elements = node.elements

    def result(self) -> Any:
        return UNCHANGED


_MAPS: dict[str, Callable[[Any], Any]] = {"map": NodeMap, "record": RecordMap, "list": NodeList}


def map_of(value: Any, navigator: str, where: str, *, is_keyed: bool = False) -> Any:
    """The map that a navigator meets: an adapter with get, put, delete, items and result. `is_keyed` takes lists too.

    Raises:
        BadPath: the value is no map.
    """
    if type(value) is dict:
        return PlainMap(value)
    if value is None:
        return PlainMap({})
    kind = node_kind(value)
    if kind in ("map", "record") or (kind == "list" and is_keyed):
        return _MAPS[kind](value)
    if isinstance(value, dict):
        return PlainMap(dict(value))
    if is_keyed and isinstance(value, (list, tuple)):
        return PlainList(list(value))
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
    if node_kind(value) == "set":
        return NodeSet(value)
    raise misfit(navigator, value, "a set", where)


def list_of(value: Any, navigator: str, where: str) -> list[Any]:
    """The elements of the list that a navigator meets, as a list of their own.

    Raises:
        BadPath: the value is no list.
    """
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return list(value)
    if node_kind(value) == "list":
        return list(value.values())
    raise misfit(navigator, value, "a list", where)


def misfit(navigator: str, value: Any, expected: str, where: str) -> BadPath:
    """The error of a navigator that met a value of another kind."""
    found = node_kind(value)
    text = f"an indexed {found}" if found else type(value).__name__
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
    kind = node_kind(value)
    if kind == "root":
        return plain(value.get_value(), where)
    if kind:
        raise NotSelectable(
            f"{where}: an indexed {kind} cannot be taken whole, because it may be larger than memory; "
            f"navigate into it with key, all, map_vals or a sorted range, or take view(Ops.SIZE)",
            pstate=where,
        )
    return value


_WHOLE: Final[dict[str, tuple[type, ...]]] = {
    "map": (dict,), "record": (dict,), "set": (set, frozenset), "list": (list, tuple),
}  # fmt: skip


def replace_node(node: Any, value: Any, where: str) -> None:
    """Make an indexed structure hold what `value` holds; None and empty collections clear it.

    Raises:
        SchemaMismatch: the value is no collection of the node's kind.
    """
    kind = node_kind(node)
    fits = value is None or isinstance(value, _WHOLE[kind])
    if not fits:
        text = f"{where}: an indexed {kind} cannot become {type(value).__name__}"
        raise SchemaMismatch(text, pstate=where, value=value)
    if kind == "list":
        refill_list(node, list(value or ()))
        return
    node.clear()
    if kind == "set":
        for element in value or ():
            node.add(element)
    else:
        entries = map_of(node, "put", where)
        for key, item in (value or {}).items():
            assign(entries, key, item, where)


def refill_list(node: IndexedList, values: list[Any]) -> None:
    node.clear()
    for value in values:
        node.append(value)


def assign(entries: Any, key: Any, value: Any, where: str) -> None:
    """Put a value at a key that may hold an indexed structure."""
    current = entries.get(key)
    if node_kind(current):
        replace_node(current, value, where)
    else:
        entries.put(key, value)
