"""A log whose entries are values of one type."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tidemill.store.log import Log
from tidemill.store.objects import NotFound
from tidemill.values.errors import CorruptState, InvariantViolation, asked_twice, check_place, reading_object


class Signed(Protocol):
    """An entry that holds what its writer knows it by."""

    @property
    def nonce(self) -> str:
        """Random text that no other writer chose, as `values.ids.nonce` gives it."""


_E = TypeVar("_E", bound=Signed)


class EntryLog(Generic[_E]):
    """Knows the newest entry that it saw, and never goes back behind it, whichever of its threads saw it.

    `decode` makes of the bytes found at a key the entry, and raises CorruptState where they are none; `number_of` tells
    the number that an entry says it has, where entries do.
    """

    def __init__(
        self, log: Log, decode: Callable[[bytes, str], _E], number_of: Callable[[_E], int] | None = None
    ) -> None:
        self.log = log
        self._decode, self._number_of = decode, number_of
        self._head: tuple[int, _E] | None = None
        self._noting = threading.Lock()

    @property
    def known(self) -> int:
        """The number of the newest entry that was read or written here, 0 before any."""
        return self._head[0] if self._head else 0

    def head(self) -> tuple[int, _E] | None:
        """The newest entry and its number; None while there is none. Two probes where nothing is new.

        Raises:
            CorruptState: it cannot be read.
            StoreUnavailable: it is there and is not there; ask again.
        """
        newest = self.log.read_newest(self.known, self.read)
        return self._noted(*newest) if newest is not None else self._head

    def _noted(self, number: int, entry: _E) -> tuple[int, _E]:
        """The newest entry that is known now: another thread may have met a newer one while this was on its way."""
        with self._noting:
            if self._head is None or self._head[0] < number:
                self._head = (number, entry)
            return self._head

    def newest_number(self) -> int:
        """The number of the newest entry, 0 before any."""
        return self.log.newest(self.known)

    def read(self, number: int) -> _E:
        """One entry. Raises NotFound where it is trimmed or not written yet, CorruptState where it cannot be read."""
        return asked_twice(lambda: self._read(number))

    def _read(self, number: int) -> _E:
        key = self.log.key(number)
        content = self.log.read(number)
        with reading_object(key):
            entry = self._decode(content, key)
            if self._number_of is not None:
                check_place(self.log.key(self._number_of(entry)), key)
            return entry

    def read_kept(self, number: int) -> _E:
        """One entry for a reader that nobody keeps it for; costs one short listing more than `read`.

        Raises:
            NotFound: it is trimmed or not written yet; what a writer that slept put there since counts for nothing.
        """
        entry = self.read(number)
        if not self.log.is_entry(number):
            raise NotFound(f"Entry {number} of {self.log.prefix} was trimmed.", number=number)
        return entry

    def tail(self, count: int, before: int | None = None) -> list[tuple[int, _E]]:
        """The newest entries, or those before entry `before`, oldest of them first; fewer where the log is trimmed.

        The newest one that is known is not read again.
        """
        head = self.head() if before is None else self._head
        newest = before - 1 if before is not None else head[0] if head is not None else 0
        found = [head] if head is not None and head[0] == newest and count > 0 else []
        for number in range(newest - len(found), max(0, newest - count), -1):
            try:
                found.append((number, self.read(number)))
            except NotFound:
                break
        return found[::-1]

    def put(self, number: int, entry: _E, content: bytes) -> None:
        """Make this the entry `number`, whose predecessor the caller has seen; `content` are its bytes.

        Raises:
            Lost, Deleted, StoreRestored: another writer was first, or this log goes on no more; look before anything.
            StoreUnavailable, OutcomeUnknown: call again with the same entry before anything else.
            InvariantViolation: nobody could read it: a value is not of the type of its field. Nothing was written.
        """
        key = self.log.key(number)
        try:
            self._decode(content, key)
        except CorruptState as error:
            raise InvariantViolation(f"What is to be written could not be read again: {error}", key=key) from error
        self.log.append(number, content, entry.nonce)
        self._noted(number, entry)
