"""Keys of type `object` as bytes that sort like the keys: by (type rank, value), numbers as numbers.

Each key is a rank byte and a body. Numbers are the bits of their float, made sortable, and what an int64 loses by
that; text and bytes are escaped and ended by two zeros, so that a key never is a prefix of another. An int and a
float that are equal are one key, as they are in a dict; it comes back as the int.
"""

from __future__ import annotations

import datetime as _datetime
import struct
from typing import Any

from tidemill.values.data import INT_MAX, INT_MIN, check_data, datetime_micros
from tidemill.values.errors import BadInput, CorruptState
from tidemill.values.keys import NAN
from tidemill.values.message_pack import micros_to_datetime

_NONE, _BOOL, _NUMBER, _STR, _BYTES, _DATETIME, _TUPLE, _SET = range(1, 9)
_END = b"\x00\x00"
_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def encode_object_key(key: Any) -> bytes:
    """The sortable bytes of a key.

    Raises:
        BadInput: the key is not data, or a dict.
    """
    check_data(key)
    return _encode(key)


def _encode(key: Any) -> bytes:
    if isinstance(key, str):
        return bytes([_STR]) + _escape(key.encode())
    if key is None:
        return bytes([_NONE])
    if isinstance(key, bool):
        return bytes([_BOOL, key])
    if isinstance(key, (int, float)):
        return bytes([_NUMBER]) + _encode_number(key)
    if isinstance(key, bytes):
        return bytes([_BYTES]) + _escape(key)
    if isinstance(key, _datetime.datetime):
        return struct.pack(">BQ", _DATETIME, datetime_micros(key) + _SIGN)
    if isinstance(key, (tuple, list)):
        return bytes([_TUPLE]) + b"".join(map(_encode, key)) + b"\x00"
    if isinstance(key, (set, frozenset)):
        return bytes([_SET]) + b"".join(sorted(set(map(_encode, key)))) + b"\x00"
    raise BadInput(f"{type(key).__name__} cannot be a key")


def _escape(data: bytes) -> bytes:
    return data.replace(b"\x00", b"\x00\xff") + _END


def _encode_number(key: float) -> bytes:
    if key != key:
        return b"\xff" * 16
    approximate = float(key)
    bits = int.from_bytes(struct.pack(">d", approximate + 0.0), "big")
    sortable = (bits ^ _MASK) if bits & _SIGN else bits | _SIGN
    rest = key - int(approximate) if isinstance(key, int) else 0
    return struct.pack(">QQ", sortable, rest + _SIGN)


def decode_object_key(data: bytes) -> Any:
    """The key of `encode_object_key`; tuples for lists.

    Raises:
        CorruptState: these bytes are no key.
    """
    try:
        key, end = _decode(data, 0)
    except (IndexError, struct.error, ValueError) as error:
        raise CorruptState(f"A stored key cannot be decoded: {error}") from error
    if end != len(data):
        raise CorruptState("A stored key has bytes after its end")
    return key


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    rank, at = data[at], at + 1
    if rank == _STR:
        text, at = _unescape(data, at)
        return text.decode(), at
    if rank == _NONE:
        return None, at
    if rank == _BOOL:
        return bool(data[at]), at + 1
    if rank == _NUMBER:
        return _decode_number(data[at : at + 16]), at + 16
    if rank == _BYTES:
        return _unescape(data, at)
    if rank == _DATETIME:
        return micros_to_datetime(struct.unpack_from(">Q", data, at)[0] - _SIGN), at + 8
    if rank in (_TUPLE, _SET):
        items, at = _decode_items(data, at)
        return (tuple(items) if rank == _TUPLE else frozenset(items)), at
    raise ValueError(f"rank {rank}")


def _decode_items(data: bytes, at: int) -> tuple[list[Any], int]:
    items = []
    while data[at] != 0:
        item, at = _decode(data, at)
        items.append(item)
    return items, at + 1


def _unescape(data: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while True:
        end = data.index(b"\x00", end)
        if data[end + 1] == 0:
            return data[at:end].replace(b"\x00\xff", b"\x00"), end + 2
        end += 2


def _decode_number(data: bytes) -> Any:
    sortable, rest = struct.unpack(">QQ", data)
    if sortable == _MASK:
        return NAN
    bits = sortable & ~_SIGN if sortable & _SIGN else sortable ^ _MASK
    number: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    if number.is_integer() and INT_MIN <= int(number) + rest - _SIGN <= INT_MAX:
        return int(number) + rest - _SIGN
    return number
