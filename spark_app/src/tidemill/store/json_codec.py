"""Objects of the store that are JSON: each says where it stands and which format it has, and is read as it was written.

Fields are declared once, in the dataclass that is stored (`values.stored`): `msgspec` writes and reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from tidemill.values.errors import CorruptState, NewerFormat, check_place

SUFFIX: Final = ".json"
_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_T = TypeVar("_T")


class _Place(msgspec.Struct, frozen=True):
    """Where an object stands, and its format: read first, for the rest of a newer format may be anything."""

    key: str
    format: int


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
        added: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`added` has for each format after the first the fields that it added, with their values in older objects."""
        self._format, self._added = 1 + len(added), added
        self._to_stored, self._from_stored = to_stored, from_stored
        self._decoder = msgspec.json.Decoder(kind)

    def encode(self, value: _T, key: str) -> bytes:
        """The bytes of the object `key`; equal values give equal bytes, so that a create can be repeated."""
        place = msgspec.json.encode(_Place(key, self._format))
        return place[:-1] + b"," + msgspec.json.encode(self._to_stored(value))[1:]

    def decode(self, content: bytes, key: str) -> _T:
        """The value in the object that was found at `key`.

        Raises:
            CorruptState: it is no such object or that of another place: a field is missing, unknown or of another type.
            NewerFormat: a newer Tidemill wrote it.
        """
        try:
            place = msgspec.json.decode(content, type=_Place)
            check_place(place.key, key)
            if place.format > self._format:
                text = f"{key} has format {place.format}, this Tidemill reads {self._format}; use a newer one"
                raise NewerFormat(text, key=key)
            content = content if place.format == self._format else self._in_newest_format(content, place.format)
            value = self._from_stored(self._decoder.decode(content))
            again = self.encode(value, place.key)  # nothing is ignored: each field is one that is written
            is_whole = again == content or msgspec.json.decode(again) == msgspec.json.decode(content)
        except _UNREADABLE as error:
            raise CorruptState(f"{key}: this object cannot be read: {error!r}", key=key) from error
        if not is_whole:
            raise CorruptState(f"{key}: this object has other fields than those that are written", key=key)
        return value

    def _in_newest_format(self, content: bytes, number: int) -> bytes:
        """What an older format holds, with the fields that were added since. Raises ValueError: it has one of them."""
        if number < 1:
            raise ValueError(f"there is no format {number}")
        found: dict[str, Any] = msgspec.json.decode(content)
        for fields in self._added[number - 1 :]:
            if not fields.keys().isdisjoint(found):
                raise ValueError(f"format {number} has no {', '.join(fields)}")
            found |= fields
        return msgspec.json.encode(found | {"format": self._format})

    def read_nonce(self, content: bytes, key: str) -> str:
        """Who wrote these bytes to be the object `key`, in whatever format.

        Raises:
            CorruptState, ValueError: they are not that object.
        """
        found = msgspec.json.decode(content, type=_Signature)
        check_place(found.key, key)
        return found.nonce
