"""Objects of the store that are JSON: each says where it stands and which format it has, and is read as it was written.

One that is kept for long also has a checksum, since a bit that flips may make another value of the same type of it.

Fields are declared once, in the dataclass that is stored (`values.stored`): `msgspec` writes and reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
import xxhash

from tidemill.values.errors import CorruptState, NewerFormat, check_place

SUFFIX: Final = ".json"
FORMAT: Final = 1
"""Of all of them alike; the mark of a store says which formats it has (`store.urls`)."""

_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_T = TypeVar("_T")


class _Header(msgspec.Struct, frozen=True):
    """Where an object stands, and its format: read first, for the rest of a newer format may be anything."""

    key: str
    format: int
    checksum: str = ""


class _Signature(msgspec.Struct, frozen=True):
    key: str
    nonce: str


class JsonCodec(Generic[_T]):
    """Values of one type as JSON objects: their fields beside `key` and `format`.

    `to_stored` makes of a value the one of type `kind` that is written, `from_stored` is its inverse.
    """

    def __init__(
        self,
        kind: Any,
        to_stored: Callable[[_T], Any] = lambda value: value,
        from_stored: Callable[[Any], _T] = lambda stored: stored,
    ) -> None:
        self._to_stored, self._from_stored = to_stored, from_stored
        self._decoder = msgspec.json.Decoder(kind)

    def encode(self, value: _T, key: str) -> bytes:
        """The bytes of the object `key`; equal values give equal bytes, so that a create can be repeated."""
        return _header_of(key) + msgspec.json.encode(self._to_stored(value))[1:]

    def sealed(self, value: _T, key: str) -> bytes:
        """The same bytes, with their checksum behind the format: for what is not inside of anything that has one."""
        plain, header = self.encode(value, key), _header_of(key)
        return header + _checksum_field(xxhash.xxh3_64_hexdigest(plain)) + plain[len(header) :]

    def decode(self, content: bytes, key: str) -> _T:
        """The value in the object that was found at `key`.

        Raises:
            CorruptState: it is no such object or that of another place: a field is missing, unknown or of another type,
                or it has another checksum than it says, if it says one.
            NewerFormat: a newer Tidemill wrote it.
        """
        try:
            header = msgspec.json.decode(content, type=_Header)
            check_place(header.key, key)
            if header.format > FORMAT:
                text = f"{key} has format {header.format}, this Tidemill reads {FORMAT}; use a newer one"
                raise NewerFormat(text, key=key)
            plain = _without_checksum(content, header)
            value = self._from_stored(self._decoder.decode(plain))
            again = self.encode(value, header.key)  # nothing is ignored: each field is one that is written
            is_whole = again == plain or msgspec.json.decode(again) == msgspec.json.decode(plain)
        except _UNREADABLE as error:
            raise CorruptState(f"{key}: this object cannot be read: {error!r}", key=key) from error
        if not is_whole:
            raise CorruptState(f"{key}: this object has other fields than those that are written", key=key)
        return value

    def read_nonce(self, content: bytes, key: str) -> str:
        """Who wrote these bytes to be the object `key`, in whatever format.

        Raises:
            CorruptState, ValueError: they are not that object.
        """
        found = msgspec.json.decode(content, type=_Signature)
        check_place(found.key, key)
        return found.nonce


def _header_of(key: str) -> bytes:
    """How an object begins, up to its own fields."""
    text: bytes = msgspec.json.encode({"key": key, "format": FORMAT})
    return text[:-1] + b","


def _checksum_field(checksum: str) -> bytes:
    return f'"checksum":"{checksum}",'.encode()


def _without_checksum(content: bytes, header: _Header) -> bytes:
    """The bytes of which an object says the checksum, all where it says none. Raises ValueError: they have another."""
    if not header.checksum:
        return content
    plain = content.replace(_checksum_field(header.checksum), b"", 1)
    if xxhash.xxh3_64_hexdigest(plain) != header.checksum:
        raise ValueError("it has another checksum than it says: its bytes changed")
    return plain
