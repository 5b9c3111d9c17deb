"""The values of the oracle's PStates: plain Python values, and indexed structures, in which True and 1 are two keys.

Nothing is changed in place: what changes a structure returns another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidemill.language import schema as sc
from tidemill.values.data import check_data, sort_key
from tidemill.values.errors import BadInput
from tidemill.values.keys import key_token, object_key, plain_key

VOID: Any = type("Void", (), {"__repr__": lambda self: "VOID"})()
"""What a transform makes of a value that it removes."""
UNCHANGED: Any = type("Unchanged", (), {"__repr__": lambda self: "UNCHANGED"})()
"""What a transform gives where its path led nowhere."""


class OracleError(Exception):
    """The program fails here, as its microbatch would."""


def is_true(value: Any) -> bool:
    """None and False are false; 0, "" and empty collections are true."""
    return not (value is None or value is False)


class IndexedMap:
    """A map whose entries are stored one by one; in the order of its keys."""

    def __init__(self, entries: Iterable[tuple[Any, Any]] = (), nullable: bool = False) -> None:
        self.nullable = nullable
        self.entries = {key_token(key): (object_key(key), value) for key, value in entries}

    def items(self) -> list[tuple[Any, Any]]:
        return sorted(self.entries.values(), key=lambda entry: sort_key(entry[0]))

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"IndexedMap({self.items()})"


class IndexedSet:
    """A set whose elements are stored one by one; in their order."""

    def __init__(self, elements: Iterable[Any] = (), nullable: bool = False) -> None:
        self.nullable = nullable
        self.elements = {key_token(element): object_key(element) for element in elements}

    def __iter__(self) -> Any:
        return iter(sorted(self.elements.values(), key=sort_key))

    def __contains__(self, element: Any) -> bool:
        return key_token(element) in self.elements

    def __len__(self) -> int:
        return len(self.elements)

    def __repr__(self) -> str:
        return f"IndexedSet({list(self)})"


class IndexedList(list[Any]):
    """A list whose elements are stored one by one."""


INDEXED = (IndexedMap, IndexedSet, IndexedList)


# --- maps ------------------------------------------------------------------------------------------------------------


def _found(held: Iterable[Any], key: Any) -> Any:
    """The key as a plain structure holds it; VOID if it does not, an error if Python alone takes it for another one."""
    key = plain_key(key)
    for other in held:
        if key_token(other) == key_token(key):
            return other
    return VOID


def _admitted(held: Iterable[Any], key: Any) -> Any:
    key = plain_key(key)
    if any(other == key and key_token(other) != key_token(key) for other in held):
        raise OracleError(f"{key!r} is another key than the one that Python takes it for")
    return key


def entries(value: Any, shuffled: Callable[[list[Any]], list[Any]] = lambda items: items) -> list[tuple[Any, Any]]:
    """The entries of a map, a record or nothing; those of a plain dict have no promised order."""
    if value is None:
        return []
    if isinstance(value, IndexedMap):
        return value.items()
    if isinstance(value, dict):
        return shuffled(list(value.items()))
    raise OracleError(f"{value!r} is no map")


def is_there(value: Any, key: Any) -> bool:
    """Whether a map has this key."""
    return get(value, key, VOID) is not VOID


def _is_no_key(key: Any) -> bool:
    try:
        object_key(key)
    except BadInput:
        return True
    return False


def get(value: Any, key: Any, default: Any = None) -> Any:
    """What is at a key of a map, or at an index of a list."""
    if value is None or (_is_no_key(key) and not isinstance(value, list)):
        return default
    if isinstance(value, IndexedMap):
        return value.entries.get(key_token(key), (None, default))[1]
    if isinstance(value, dict):
        found = _found(value, key)
        return default if found is VOID else value[found]
    if isinstance(value, (list, tuple)):
        return value[key] if type(key) is int and 0 <= key < len(value) else default
    raise OracleError(f"{value!r} has no keys")


def put(value: Any, key: Any, item: Any) -> Any:
    """The map, or the list, with this at its key."""
    if isinstance(value, IndexedMap):
        return IndexedMap([*value.items(), (key, item)], value.nullable)
    if isinstance(value, (list, tuple)):
        if type(key) is not int or not 0 <= key < len(value):
            raise OracleError(f"no place {key!r} in {value!r}")
        return type(value)([*value[:key], item, *value[key + 1 :]])
    held = value or {}
    found = _found(held, key)
    return {**held, (_admitted(held, key) if found is VOID else found): item}


def delete(value: Any, key: Any) -> Any:
    """The map, or the list, without what is at the key."""
    if isinstance(value, IndexedMap):
        if key is None and not value.nullable:
            raise OracleError("None is no key here")
        return IndexedMap([entry for entry in value.items() if key_token(entry[0]) != key_token(key)], value.nullable)
    if not is_there(value, key):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)([*value[:key], *value[key + 1 :]])
    found = _found(value, key)
    return {other: item for other, item in value.items() if other is not found}


# --- sets ------------------------------------------------------------------------------------------------------------


def elements(value: Any) -> list[Any]:
    """The elements of a set or of nothing, in their order."""
    if value is None:
        return []
    if not isinstance(value, (set, frozenset, IndexedSet)):
        raise OracleError(f"{value!r} is no set")
    return sorted(value, key=sort_key)


def has(value: Any, element: Any) -> bool:
    """Whether a set has this element."""
    return any(key_token(other) == key_token(element) for other in elements(value))


def add(value: Any, element: Any) -> Any:
    """The set with one element more."""
    if isinstance(value, IndexedSet):
        return IndexedSet([*value, element], value.nullable)
    held = set(elements(value))
    return held if _found(held, element) is not VOID else {*held, _admitted(held, element)}


def discard(value: Any, element: Any) -> Any:
    """The set without an element."""
    kept = [other for other in elements(value) if key_token(other) != key_token(element)]
    if isinstance(value, IndexedSet):
        if element is None and not value.nullable:
            raise OracleError("None is no element here")
        return IndexedSet(kept, value.nullable)
    return set(kept)


# --- schemas ---------------------------------------------------------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "bytes": (bytes,),
    "list": (list, tuple), "dict": (dict,), "set": (set, frozenset),
}  # fmt: skip


def is_empty(value: Any) -> bool:
    """Whether it is an indexed structure that holds nothing, which is as if it were not there."""
    return isinstance(value, INDEXED) and not len(value)


def shaped(value: Any, schema: sc.Schema, is_top: bool = False) -> Any:
    """The value as a PState of this schema holds it.

    Raises:
        OracleError: it does not fit.
    """
    if value is None:
        return None
    if isinstance(schema, sc.Leaf):
        return _leaf(value, schema.type)
    if isinstance(schema, sc.MapSchema):
        return _map(value, schema, is_top)
    if isinstance(schema, sc.FixedKeysSchema):
        return _record(value, schema)
    if isinstance(schema, sc.SetSchema):
        for element in elements(value):
            _check_key(element, schema.element, schema.nullable)
        return IndexedSet(elements(value), schema.nullable) if schema.subindexed else set(elements(value))
    if not isinstance(value, (list, tuple)):
        raise OracleError(f"{value!r} is no list")
    items = [shaped(item, schema.element) for item in value]
    return IndexedList(items) if schema.subindexed else items


def _leaf(value: Any, kind: str) -> Any:
    if kind != "object" and kind != "datetime":
        fits = isinstance(value, _TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))
        if not fits:
            raise OracleError(f"{value!r} is no {kind}")
    check_data(value)
    return float(value) if kind == "float" else value


def _check_key(key: Any, kind: str, nullable: bool) -> None:
    if key is None:
        if not nullable:
            raise OracleError("None is no key here")
        return
    if isinstance(key, dict):
        raise OracleError("a dict is no key")
    _leaf(key, kind)


def _is_absent(value: Any, schema: sc.Schema) -> bool:
    """Whether nothing of a structure that is stored element by element is there."""
    return sc.has_indexed(schema) and not value


def _map(value: Any, schema: sc.MapSchema, is_top: bool) -> Any:
    made = []
    for key, item in entries(value):
        _check_key(key, schema.key, schema.nullable)
        inner = shaped(item, schema.value)
        if not _is_absent(inner, schema.value):
            made.append((key, inner))
    if is_top or schema.subindexed:
        return IndexedMap(made, schema.nullable)
    plain: dict[Any, Any] = {}
    for key, item in made:
        plain = put(plain, key, item)
    return plain


def _record(value: Any, schema: sc.FixedKeysSchema) -> Any:
    made = {}
    for key, item in entries(value):
        field = schema.field(key)
        if field is None:
            raise OracleError(f"there is no field {key!r}")
        inner = shaped(item, field)
        if not _is_absent(inner, field):
            made[key] = inner
    return made


# --- comparing -------------------------------------------------------------------------------------------------------


def settled(value: Any, is_ordered: bool = True) -> Any:
    """A form of a value that is equal (as text) for equal values: numbers compare as numbers, tuples are lists.

    Without order, lists are taken for bags of their elements.
    """
    if isinstance(value, bool) or value is None or isinstance(value, (str, bytes)):
        return value
    if isinstance(value, (int, float)):
        return int(value) if value == value and abs(value) != float("inf") and value == int(value) else value
    if isinstance(value, (IndexedMap, dict)):
        pairs = [[settled(key), settled(item, is_ordered)] for key, item in entries(value)]
        return {"map": sorted(pairs, key=repr)}
    if isinstance(value, (IndexedSet, set, frozenset)):
        return {"set": sorted((settled(element) for element in value), key=repr)}
    if isinstance(value, (list, tuple)):
        items = [settled(item, is_ordered) for item in value]
        return items if is_ordered else {"bag": sorted(items, key=repr)}
    return value
