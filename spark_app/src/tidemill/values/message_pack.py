"""Faithful MessagePack of data values: what comes back is equal to what went in, key order of dicts included.

The one place that knows how datetimes and sets are written. Not for routing or sorting: those use the canonical form of
`values.data`, which `unpack` reads, too. A value gives the same bytes in each process: elements of sets are in the
order of their bytes. Tuples come back as lists, datetimes as aware UTC ones. Nothing here executes what it reads, and
its time, memory and stack are bounded, so bytes from anywhere may be unpacked.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgpack

from tidemill.values.errors import BadInput
from tidemill.values.keys import FLAG_BYTES, NAN_BYTES, plain_key, plain_map, plain_set

EXT_DATETIME = 1
EXT_SET = 2
EXT_INT = 3
"""An integer beyond 64 bits: in messages alone, as it is no data that can be stored."""

INT_BYTES_MAX = 1024 * 1024
"""Bytes of an integer in a message."""

DEPTH_MAX = 32
"""Sets in sets beyond this are refused: each level takes about 40 KB of a stack, which may have as little as 2 MB."""

NESTED_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a set in a set, times how many sets it is in: each level holds a copy of what is below it."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROS_BYTES = 8
_SMALL = 512
"""Bytes with which a packer begins; it takes 256 KB unless it is told."""

Count = Callable[[list[Any] | dict[Any, Any]], None]
_MICROSECOND = datetime.timedelta(microseconds=1)


def datetime_to_micros(value: datetime.datetime) -> int:
    """Microseconds since 1970 in UTC; a naive datetime is taken as UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // _MICROSECOND


def micros_to_datetime(micros: int) -> datetime.datetime:
    """The UTC time of so many microseconds since 1970."""
    return _EPOCH + datetime.timedelta(microseconds=micros)


def packed_set(elements: Iterable[bytes]) -> bytes:
    """The content of a set's extension, from its packed elements."""
    ordered = sorted(elements)
    header: bytes = msgpack.Packer(buf_size=_SMALL).pack_array_header(len(ordered))
    return header + b"".join(ordered)


def _default(depth: int, in_message: bool, value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return msgpack.ExtType(EXT_DATETIME, datetime_to_micros(value).to_bytes(8, "big", signed=True))
    if isinstance(value, (set, frozenset)):
        packer = msgpack.Packer(default=partial(_default, depth + 1, in_message), buf_size=_SMALL)
        data = packed_set(map(packer.pack, value))
        _check_nested(depth + 1, len(data))
        return msgpack.ExtType(EXT_SET, data)
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return value.item()
    if in_message and isinstance(value, int):
        return msgpack.ExtType(EXT_INT, _int_bytes(value))
    allowed = "None, bool, int, float, str, bytes, datetime, list, dict or set"
    raise TypeError(f"{type(value).__name__} is not data: use {allowed}")


def _int_bytes(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    if size > INT_BYTES_MAX:
        raise BadInput(f"An int of {size:,} bytes cannot be in a message; {INT_BYTES_MAX:,} are allowed.")
    return value.to_bytes(size, "big", signed=True)


def _ext_hook(depth: int, in_message: bool, count: Count | None, code: int, data: bytes) -> Any:
    if code == EXT_DATETIME and len(data) == _MICROS_BYTES:
        return micros_to_datetime(int.from_bytes(data, "big", signed=True))
    if code == EXT_SET:
        _check_nested(depth + 1, len(data))
        # A dict cannot be in a set: nothing here needs a second try, which would double the time with each level.
        items = msgpack.unpackb(data, **_hooks(depth + 1, count, in_message) | {"object_hook": _refuse_dict})
        if not isinstance(items, list):
            raise BadInput("A set holds its elements as a list.")
        made = set(map(plain_key, items))
        return made if len(made) == len(items) else plain_set(items)
    if in_message and code == EXT_INT:
        return int.from_bytes(data, "big", signed=True)
    raise BadInput(f"There is no extension {code} of {len(data)} bytes.")


def _hooks(depth: int, count: Count | None, in_message: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"strict_map_key": False, "timestamp": 3}
    found["ext_hook"] = partial(_ext_hook, depth, in_message, count)
    if count is not None:
        found |= {"list_hook": partial(_counted, count), "object_hook": partial(_counted, count)}
    return found


def _counted(count: Count, made: Any) -> Any:
    count(made)
    return made


def _check_nested(depth: int, size: int) -> None:
    if depth > DEPTH_MAX:
        raise BadInput(f"Sets are nested deeper than {DEPTH_MAX} levels.")
    if depth > 1 and depth * size > NESTED_BYTES_MAX:
        raise BadInput(
            f"A set of {size:,} bytes is inside {depth - 1} others; {NESTED_BYTES_MAX // depth:,} are allowed."
        )


def pack(value: Any) -> bytes:
    """The value as MessagePack.

    Raises:
        TypeError: the value, or something inside it, is no data.
        OverflowError: an integer needs more than 64 bits.
        BadInput: sets are nested too deep for their size.
    """
    packed: bytes = msgpack.packb(value, default=_DEFAULT, use_bin_type=True)
    return packed


def pack_message(value: Any) -> bytes:
    """The value of a variable for another thread: as `pack`, and integers may be of `INT_BYTES_MAX` bytes.

    Raises:
        TypeError: the value, or something inside it, is no data.
        BadInput: an integer is larger, or sets are nested too deep for their size.
    """
    packed: bytes = msgpack.packb(value, default=_DEFAULT_IN_MESSAGE, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """The value that `pack` was given; tuples inside dict keys and sets stay tuples, since lists cannot stand there.

    Raises:
        BadInput: these bytes are no value that `pack` writes.
    """
    return _unpacked(data, None, False, False)


def unpack_foreign(data: bytes, count: Count | None = None) -> Any:
    """As `unpack`, of bytes that may be no work of `pack`: dicts with keys that Python takes for one are refused.

    `count` is called with each list and dict as soon as it is made; what it raises ends the unpacking.
    """
    return _unpacked(data, count, False, FLAG_BYTES.search(data) is not None)


def unpack_message(data: bytes) -> Any:
    """The value that `pack_message` was given; otherwise as `unpack`."""
    return _unpacked(data, None, True, False)


def _unpacked(data: bytes, count: Count | None, in_message: bool, has_flags: bool) -> Any:
    """With `has_flags` keys that are texts or bytes are tried first: no two of them are one for Python."""
    try:
        try:
            if NAN_BYTES.search(data) is None:
                if count is None and not has_flags:  # written out: arguments in a dict take as long as a small value
                    return msgpack.unpackb(data, strict_map_key=False, timestamp=3, ext_hook=_EXT_HOOKS[in_message])
                return msgpack.unpackb(data, **_hooks(0, count, in_message) | {"strict_map_key": has_flags})
        except TypeError:  # a list as a dict key: rare, and the hook makes every dict slower
            pass
        except BadInput:
            raise
        except ValueError:
            if not has_flags:
                raise
        pairs = partial(_dict_of_pairs, count)
        return msgpack.unpackb(data, **_hooks(0, count, in_message) | {"object_pairs_hook": pairs, "object_hook": None})
    except BadInput:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise BadInput(f"Not MessagePack of data: {error or type(error).__name__}") from error


def _refuse_dict(value: dict[Any, Any]) -> Any:
    raise BadInput("A dict cannot be in a set.")


def _dict_of_pairs(count: Count | None, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = {plain_key(key): value for key, value in pairs}
    if len(made) < len(pairs):
        made = plain_map(pairs)
    if count is not None:
        count(made)
    return made


_DEFAULT = partial(_default, 0, False)
_DEFAULT_IN_MESSAGE = partial(_default, 0, True)
_EXT_HOOKS = partial(_ext_hook, 0, False, None), partial(_ext_hook, 0, True, None)
