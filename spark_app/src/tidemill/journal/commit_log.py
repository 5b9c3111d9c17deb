"""A topology's commit log: which entry is the newest, what an entry says, and the one way to add to it.

Fencing is a collision: entries are created at the next number only if it is free, so of two leaders one loses,
learns it at once and stops (invariant S4).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.journal import entries
from tidemill.journal.entries import ENTRY_BYTES_MAX, ENTRY_MEMBER, Entry
from tidemill.store.log import PATIENCE, Log
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import asked_twice, check_place, invariant, reading_object

LOG_FOLDER = "log"


class CommitLog:
    """The commit log of the topology below `prefix`; knows the newest entry that it saw."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        patience: tuple[float, ...] = PATIENCE,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        more: dict[str, Any] = {} if wait is None else {"wait": wait}
        self.log = Log(store, f"{prefix}/{LOG_FOLDER}", ".zip", _read_nonce, patience, **more)
        self._head: tuple[int, Entry] | None = None

    def head(self) -> tuple[int, Entry] | None:
        """The newest entry and its number; None while there is none. Two probes where nothing is new."""
        found = self.log.read_newest(self._head[0] if self._head else 0, self.read)
        self._head = found or self._head
        return self._head

    def newest_number(self) -> int:
        """The number of the newest entry, 0 before any."""
        return self.log.newest(self._head[0] if self._head else 0)

    def read(self, number: int) -> Entry:
        """One entry. Raises NotFound where it is trimmed or not written yet."""
        return asked_twice(lambda: self._read(number))

    def _read(self, number: int) -> Entry:
        content = self.log.read(number)
        with reading_object(self.log.key(number)):
            return entries.from_bytes(content, self.log.key(number))

    def read_kept(self, number: int) -> Entry:
        """One entry for a reader that nobody keeps it for; costs one short listing more than `read`.

        Raises:
            NotFound: it is trimmed or not written yet; what a writer that slept put there since counts for nothing.
        """
        entry = self.read(number)
        if not self.log.is_entry(number):
            raise NotFound(f"Entry {number} of {self.log.prefix} was trimmed.", number=number)
        return entry

    def tail(self, count: int) -> list[tuple[int, Entry]]:
        """The newest entries, oldest of them first; fewer where the log is trimmed."""
        newest, found = self.newest_number(), []
        for number in range(newest, max(0, newest - count), -1):
            try:
                found.append((number, self.read(number)))
            except NotFound:
                break
        return found[::-1]

    def append(self, number: int, entry: Entry, parts: Mapping[str, bytes]) -> None:
        """Make this the entry `number`.

        Raises:
            Lost: another leader was first; this one is fenced.
            StoreUnavailable, OutcomeUnknown: call again with the same entry before anything else.
        """
        known = self._head
        invariant(known is None or number <= known[0] + 1, "S4: an entry follows the last one", number=number)
        content = entries.to_bytes(entry, parts, self.log.key(number))
        size = len(content) - sum(len(part) for part in parts.values())
        invariant(size <= 4 * ENTRY_BYTES_MAX, "entries of the commit log stay small", bytes=size, number=number)
        self.log.append(number, content, entry.nonce)
        self._head = (number, entry)


def _read_nonce(content: bytes, key: str) -> str:
    data = json.loads(entries.member(content, ENTRY_MEMBER))
    check_place(data["key"], key)
    nonce: str = data["nonce"]
    return nonce
