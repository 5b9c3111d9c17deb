"""Which keys are the same: one rule for routing, for indexed and plain structures, for sets and for `group_by`.

Numbers are compared as numbers (1 is 1.0, 0.0 is -0.0), a bool is no number (True is not 1), NaN is equal to itself,
and lists, tuples and sets are compared element by element. Python's own dicts and sets differ in two points: each NaN
object is a key of its own there, and True is 1. So plain structures hold one NaN object, and refuse a bool beside a
number that Python takes for the same key. Only floats and keys of type `object` can be concerned.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any, Final

from tidemill.values.errors import BadInput

NAN: Final = float("nan")
"""The NaN of plain structures: Python finds a key that is the same object."""

NAN_BYTES: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""What MessagePack of a NaN looks like (other bytes may, too)."""

FLAG_BYTES: Final = re.compile(rb"[\xc2\xc3]")
"""What MessagePack of a bool looks like (other bytes may, too)."""

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_APART: Final = frozenset({str, bytes, type(None), datetime.datetime})
"""Types whose keys Python never takes for keys of other types."""
_SIMPLE: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types of keys that are themselves in plain structures."""


def plain_key(key: Any) -> Any:
    """The key as it stands in a plain map or set: NaN and -0.0 in one form, tuples for lists, frozensets for sets.

    Raises:
        BadInput: a dict, which cannot be a key.
    """
    kind = type(key)
    if kind in _SIMPLE:
        return key
    if kind is float:
        return key + 0.0 if key == key else NAN
    if isinstance(key, (list, tuple)):
        return tuple(map(plain_key, key))
    if isinstance(key, (set, frozenset)):
        return frozenset(map(plain_key, key))
    if isinstance(key, dict):
        raise BadInput(f"A dict cannot be a key of a map or an element of a set: {key!r}. Use a list.", key=key)
    return key


def object_key(key: Any) -> Any:
    """`plain_key` of a key of type `object`: of equal numbers it is the int."""
    kind = type(key)
    if kind in _SIMPLE:
        return key
    if kind is float:
        if key != key:
            return NAN
        return int(key) if key.is_integer() and _INT_MIN <= key <= _INT_MAX else key
    if isinstance(key, (list, tuple)):
        return tuple(map(object_key, key))
    if isinstance(key, (set, frozenset)):
        return frozenset(map(object_key, key))
    return plain_key(key)


def routed_key(key: Any) -> Any:
    """A key of any kind, dicts too, in the form that equal keys share."""
    if isinstance(key, dict):
        return {object_key(name): routed_key(item) for name, item in key.items()}
    if isinstance(key, (list, tuple)):
        return tuple(map(routed_key, key))
    return object_key(key)


def key_token(key: Any) -> Any:
    """A stand-in for a key, or any other data, that can be hashed and is equal for equal keys only."""
    kind = type(key)
    if kind in (str, int, bytes):
        return key
    if kind is bool:
        return "bool", key
    if kind is float:
        return key if key == key else ("NaN",)
    if isinstance(key, (list, tuple)):
        return "list", tuple(map(key_token, key))
    if isinstance(key, (set, frozenset)):
        return "set", frozenset(map(key_token, key))
    if isinstance(key, dict):
        return "dict", frozenset((key_token(name), key_token(item)) for name, item in key.items())
    return key


def same_key(a: Any, b: Any) -> bool:
    """Whether these are one key, by the rules at the head of this file."""
    return bool(key_token(a) == key_token(b))


# --- plain structures ------------------------------------------------------------------------------------------------

Plain = dict[Any, Any] | set[Any] | frozenset[Any]


def _may_be_flag(key: Any) -> bool:
    """Whether Python could take this key for another one: numbers that are equal to a bool, and what holds elements."""
    if isinstance(key, (int, float)):
        return key in (0, 1)
    return isinstance(key, (tuple, frozenset)) and any(map(_may_be_flag, key))


def has_key(held: Plain, key: Any) -> bool:
    """Whether a plain structure holds this key (of `plain_key`), and not one that only Python takes for it."""
    if key not in held:
        return False
    return not _may_be_flag(key) or same_key(next(found for found in held if found == key), key)


def admit(held: Plain, key: Any) -> Any:
    """The key (in the form of `plain_key`), to be put into a plain structure.

    Raises:
        BadInput: the structure holds a key that Python takes for this one.
    """
    if _may_be_flag(key) and key in held and not has_key(held, key):
        found = next(found for found in held if found == key)
        raise BadInput(
            f"{found!r} and {key!r} are two keys, but Python takes them for one, so one plain map or set cannot hold "
            "both. Use .subindexed(), or keys of one type.",
            key=key,
        )
    return key


def admit_all(held: Plain, added: Plain) -> None:
    """`admit` of all keys of another plain structure."""
    kinds = set(map(type, added))
    if kinds <= _APART:
        return
    for number in (0, 1):
        if number in added and number in held and bool in kinds.union(map(type, held)):
            admit(held, next(found for found in added if found == number))
    if tuple in kinds or frozenset in kinds:
        for key in added:
            admit(held, key)


def plain_map(entries: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Entries of any structure as a dict.

    Raises:
        BadInput: a dict cannot hold these keys.
    """
    made: dict[Any, Any] = {}
    for key, item in entries:
        made[admit(made, plain_key(key))] = item
    return made


def plain_set(elements: Iterable[Any]) -> set[Any]:
    """Elements of any structure as a set.

    Raises:
        BadInput: a set cannot hold these elements.
    """
    made: set[Any] = set()
    for element in elements:
        made.add(admit(made, plain_key(element)))
    return made


def with_plain_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    """The dict itself if all of its keys are texts, else one with its keys in plain form."""
    if all(type(key) is str for key in value):
        return value
    return {plain_key(key): item for key, item in value.items()}
