"""Data values: which Python values are data, their one canonical encoding, their order and their text form.

Data is None, bool, signed 64-bit int, float, str, bytes, datetime with a time zone, and lists, tuples, dicts and
sets of data. The canonical encoding and the routing hash place keys for ever: golden vectors are committed, and a
change of one byte here makes stores unreadable.
"""

from __future__ import annotations

import datetime as _datetime
import json
import math
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import msgpack
import xxhash

from tidemill.values.errors import BadInput, CorruptState, RecordRefused
from tidemill.values.keys import routed_key
from tidemill.values.message_pack import EXT_DATETIME, EXT_SET, packed_set, unpack
from tidemill.values.texts import shortened

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
DEPTH_MAX: Final = 100
"""Structures nested deeper are refused: it is what a structure that contains itself looks like."""

_EPOCH: Final = _datetime.datetime(1970, 1, 1, tzinfo=_datetime.UTC)
_MICROSECOND: Final = _datetime.timedelta(microseconds=1)
_NAN: Final = struct.unpack(">d", bytes.fromhex("7ff8000000000000"))[0]


# --- what is data ----------------------------------------------------------------------------------------------------


def check_data(value: Any) -> None:
    """Refuse a value that is not data, before anything of it is stored.

    Raises:
        RecordRefused: says which part of the value it is, and what to put there instead.
    """
    if not _is_data(value, 0):
        _check(value, "", 0)


def detached(value: Any) -> Any:
    """Data as they are now, whoever changes lists, dicts and sets in them later; what is nested too deep, as it is."""
    try:
        return _detached(value, 0)
    except RecursionError:
        return value


def _detached(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind not in (list, tuple, dict, set):
        return value
    if depth >= DEPTH_MAX:
        raise RecursionError
    if kind is dict:
        return {key: _detached(item, depth + 1) for key, item in value.items()}
    return kind(value) if kind is set else kind([_detached(item, depth + 1) for item in value])


def _is_data(value: Any, depth: int) -> bool:
    """The same answer as `_check`, without the cost of knowing where."""
    kind = type(value)
    if kind is str:
        return value.isascii() or has_utf8(value)
    if kind is int:
        return bool(INT_MIN <= value <= INT_MAX)
    if value is None or kind is float or kind is bool or kind is bytes:
        return True
    if depth >= DEPTH_MAX:
        return False
    if kind is dict:
        return all(_is_data(key, depth + 1) and _is_data(item, depth + 1) for key, item in value.items())
    if kind in (list, tuple, set, frozenset):
        return all(_is_data(item, depth + 1) for item in value)
    return False  # perhaps of a subclass: let the slow way look


def _check(value: Any, where: str, depth: int) -> None:
    if value is None or isinstance(value, (bool, float, bytes)):
        return
    if isinstance(value, int):
        check_int(value, where)
    elif isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, _datetime.datetime):
        _check_datetime(value, where)
    elif depth >= DEPTH_MAX:
        _refuse(where, f"is nested deeper than {DEPTH_MAX} levels", "Does it contain itself?")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, f"{where}.key({key!r})", depth + 1)
            _check(item, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)
    elif isinstance(value, (set, frozenset)):
        for item in value:
            _check(item, f"{where}.element({item!r})", depth + 1)
    else:
        _refuse_type(value, where)


def check_int(value: int, where: str = "") -> None:
    """Refuse an int outside signed 64 bits; `where` is its place in the record. Raises RecordRefused."""
    if not INT_MIN <= value <= INT_MAX:
        _refuse(where, "is an int outside signed 64 bits", "Store it as a str, or as a float if digits may be lost.")


def _check_text(value: str, where: str) -> None:
    if not has_utf8(value):
        _refuse(where, "is a str with a lone surrogate, which has no UTF-8 form", "Store it as bytes.")


def has_utf8(text: str) -> bool:
    """Whether the text can be stored: one with a lone surrogate has no UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def with_utf8(text: str) -> str:
    r"""The text with lone surrogates written out, such as \ud800, so that it can be stored."""
    return text.encode(errors="backslashreplace").decode()


def _check_datetime(value: _datetime.datetime, where: str) -> None:
    if value.utcoffset() is None:
        _refuse(where, "is a datetime without a time zone", "Give it one: value.replace(tzinfo=datetime.timezone.utc).")


def _refuse_type(value: Any, where: str) -> NoReturn:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if callable(value):
        _refuse(where, f"is code ({name})", "Records are data: store what it returns, or its name.")
    if hasattr(value, "item") and kind.__module__ == "numpy":
        _refuse(where, f"is a {name}", "Make it a Python value with .item() or .tolist().")
    if isinstance(value, _datetime.date):
        _refuse(where, "is a date", "Store a datetime with a time zone, or value.isoformat().")
    _refuse(where, f"is a {name}", "Use None, bool, int, float, str, bytes, datetime, list, dict or set.")


def _refuse(where: str, text: str, advice: str) -> NoReturn:
    where = shortened(where)
    place = f"the part {where} of the value" if where else "the value"
    raise RecordRefused(f"Not data: {place} {text}. {advice}", where=where)


# --- canonical encoding ----------------------------------------------------------------------------------------------


def encode_canonical(value: Any) -> bytes:
    """The one MessagePack encoding of a value: equal values of one type give equal bytes.

    NaN and -0.0 are normalised, entries of dicts and elements of sets stand in the order of their encodings, datetimes
    are UTC microseconds (ext 1), sets ext 2; tuples are written as lists.

    Raises:
        RecordRefused: the value, or a part of it, is not data.
    """
    try:
        return _pack(_canonical(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        check_data(value)
        raise RecordRefused(f"Not data: the value cannot be encoded ({error}).") from error


def decode_canonical(data: bytes) -> Any:
    """The value of an encoding; lists for tuples, except inside dict keys and sets, where only tuples can stand.

    Raises:
        CorruptState: these bytes were not written by `encode_canonical`.
    """
    try:
        return unpack(data)
    except BadInput as error:
        raise CorruptState(f"A stored value cannot be decoded: {error}", bytes=len(data)) from error


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def _canonical(value: Any) -> Any:
    """A value that MessagePack's packer writes canonically."""
    convert = _CONVERTERS.get(type(value))
    if convert is None:
        convert = next((c for kind, c in _CONVERTERS.items() if isinstance(value, kind)), None)
    if convert is None:
        _refuse_type(value, "")
    return convert(value)


def _canonical_int(value: int) -> int:
    check_int(value)
    return int(value)


def _canonical_float(value: float) -> float:
    return _NAN if value != value else value + 0.0


def _canonical_list(value: Iterable[Any]) -> list[Any]:
    return [_canonical(item) for item in value]


def _canonical_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    # Tuples stand for list keys: Python's dict needs something hashable, the packer writes both alike.
    entries = [(_canonical(key), item) for key, item in value.items()]
    entries.sort(key=lambda entry: _pack(entry[0]))
    return {_hashable(key): _canonical(item) for key, item in entries}


def _canonical_set(value: Iterable[Any]) -> msgpack.ExtType:
    return msgpack.ExtType(EXT_SET, packed_set(_pack(_canonical(item)) for item in value))


def _canonical_datetime(value: _datetime.datetime) -> msgpack.ExtType:
    return msgpack.ExtType(EXT_DATETIME, struct.pack(">q", datetime_micros(value)))


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and not isinstance(value, msgpack.ExtType):
        return tuple(_hashable(item) for item in value)
    return frozenset(value) if isinstance(value, set) else value


_CONVERTERS: Final[dict[type, Callable[[Any], Any]]] = {
    type(None): lambda value: None,
    bool: bool,
    int: _canonical_int,
    str: str,
    float: _canonical_float,
    bytes: bytes,
    list: _canonical_list,
    tuple: _canonical_list,
    dict: _canonical_dict,
    set: _canonical_set,
    frozenset: _canonical_set,
    _datetime.datetime: _canonical_datetime,
}


def datetime_micros(value: _datetime.datetime) -> int:
    """Microseconds since 1970 in UTC.

    Raises:
        RecordRefused: the datetime has no time zone.
    """
    _check_datetime(value, "")
    return (value - _EPOCH) // _MICROSECOND


# --- order -----------------------------------------------------------------------------------------------------------


def sort_key(value: Any) -> tuple[Any, ...]:
    """What orders values of mixed types: (type rank, value); numbers compare as numbers, NaN after all of them.

    Ranks: None, bool, numbers, str, bytes, datetime, list, set, dict.
    """
    if isinstance(value, str):
        return (3, value)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, (int, float)):
        return (2, True, 0) if value != value else (2, False, value)
    if value is None:
        return (0,)
    if isinstance(value, bytes):
        return (4, value)
    if isinstance(value, _datetime.datetime):
        return (5, datetime_micros(value))
    return _structure_sort_key(value)


def in_order(values: Iterable[Any]) -> list[Any]:
    """Values of any types in the order of `sort_key`. Raises RecordRefused: one of them is no data."""
    found = list(values)
    if len(set(map(type, found))) <= 1 and (not found or type(found[0]) in (int, str, bytes)):
        return sorted(found)
    return sorted(found, key=sort_key)


def _structure_sort_key(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple)):
        return (6, tuple(map(sort_key, value)))
    if isinstance(value, (set, frozenset)):
        return (7, tuple(sorted(map(sort_key, value))))
    if isinstance(value, dict):
        return (8, tuple(sorted((sort_key(key), sort_key(item)) for key, item in value.items())))
    _refuse_type(value, "")


# --- text ------------------------------------------------------------------------------------------------------------


def to_text(value: Any) -> str:
    """A value in a short notation for people: `[["b" 2] ["c" 1]]`, `{"a" 1, "b" null}`, `#{1 2}`, `true`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(map(to_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_text(key)} {to_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (set, frozenset)):
        return "#{" + " ".join(map(to_text, sorted(value, key=sort_key))) + "}"
    if isinstance(value, bytes):
        return f'#bytes "{value.hex()}"'
    if isinstance(value, _datetime.datetime):
        return f'#inst "{value.isoformat()}"'
    return str(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


# --- routing ---------------------------------------------------------------------------------------------------------

GOLDEN: Final = 0x9E3779B97F4A7C15
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB
_MASK: Final = 2**64 - 1


def route(key: Any, tasks: int) -> int:
    """The task, or depot partition, that a key belongs to: its hash modulo `tasks`.

    The hash is splitmix64 for an int (and a float equal to one), xxh64 of the UTF-8 of a str and of bytes, and xxh64 of
    the canonical encoding of everything else, with equal numbers in one form (`values.keys`). A bool is not an int.
    `values.routing` is the same for a column.

    Raises:
        RecordRefused: the key is not data.
    """
    return key_hash(key) % tasks


def key_hash(key: Any) -> int:
    """The unsigned 64-bit routing hash of a key; it never changes (golden vectors are in the tests)."""
    if isinstance(key, str):
        return int(xxhash.xxh64_intdigest(utf8(key)))
    if isinstance(key, bytes):
        return int(xxhash.xxh64_intdigest(key))
    if isinstance(key, int) and not isinstance(key, bool):
        check_int(key)
        return _mix(key)
    if isinstance(key, float) and key.is_integer() and INT_MIN <= key <= INT_MAX:
        return _mix(int(key))
    return int(xxhash.xxh64_intdigest(encode_canonical(routed_key(key))))


def utf8(text: str) -> bytes:
    """The text in UTF-8. Raises RecordRefused for a lone surrogate, which has no UTF-8 form."""
    _check_text(text, "")
    return text.encode()


def _mix(number: int) -> int:
    z = (number + GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * MIX_2) & _MASK
    return z ^ (z >> 31)
