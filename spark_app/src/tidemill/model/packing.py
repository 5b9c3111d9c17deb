"""Faithful MessagePack of data values: what comes back is equal to what went in, key order of dicts included.

Not for routing or sorting: those use the canonical form of `model.values`. Tuples come back as lists, datetimes
as aware UTC ones. Nothing here executes what it reads, so bytes from anywhere may be unpacked.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgpack

EXT_DATETIME = 1
EXT_SET = 2
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def datetime_to_micros(value: datetime.datetime) -> int:
    """Microseconds since 1970 in UTC; a naive datetime is taken as UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // _MICROSECOND


def micros_to_datetime(micros: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=micros)


def _default(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return msgpack.ExtType(EXT_DATETIME, datetime_to_micros(value).to_bytes(8, "big", signed=True))
    if isinstance(value, (set, frozenset)):
        return msgpack.ExtType(EXT_SET, pack(list(value)))
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return value.item()
    allowed = "None, bool, int, float, str, bytes, datetime, list, dict or set"
    raise TypeError(f"{type(value).__name__} is not data: use {allowed}")


def _ext_hook(code: int, data: bytes) -> Any:
    if code == EXT_DATETIME:
        return micros_to_datetime(int.from_bytes(data, "big", signed=True))
    if code == EXT_SET:
        return {_hashable(item) for item in unpack(data)}
    return msgpack.ExtType(code, data)


def pack(value: Any) -> bytes:
    """The value as MessagePack.

    Raises:
        TypeError: the value, or something inside it, is no data.
        OverflowError: an integer needs more than 64 bits.
    """
    packed: bytes = msgpack.packb(value, default=_default, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """The value that `pack` was given; tuples inside dict keys and sets stay tuples, since lists cannot stand there."""
    try:
        return msgpack.unpackb(data, ext_hook=_ext_hook, raw=False, strict_map_key=False)
    except TypeError:  # a list as a dict key: rare, and the hook makes every dict slower
        return msgpack.unpackb(
            data, ext_hook=_ext_hook, raw=False, strict_map_key=False, object_pairs_hook=_dict_of_pairs
        )


def _dict_of_pairs(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(key): value for key, value in pairs}


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return frozenset(value) if isinstance(value, set) else value
