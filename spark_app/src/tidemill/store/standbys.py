"""Who waits for a lease, for people: nothing depends on it, and none of it raises.

A standby says so beside the lease, and the lease's holder looks: it tells of those that it sees, and removes what dead
ones left. In a folder a standby locks a file of its own, which the system lets go of when the process dies; elsewhere
it writes an object anew every `BEAT_MS`, and one that stays as it is for `GONE_MS` is of a dead one.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemill.store.json_codec import JsonCodec
from tidemill.store.objects import AlreadyExists, NotFound, ObjectStore
from tidemill.values.errors import CorruptState, OutcomeUnknown, StoreUnavailable
from tidemill.values.ids import nonce
from tidemill.values.stored import Stored

PREFIX: Final = "standby-"
BEAT_MS: Final = 10_000
GONE_MS: Final = 30_000
STANDBYS_MAX: Final = 16
"""Of more, the others are not told."""

ASKED_MAX: Final = 2 * STANDBYS_MAX
"""Objects that one look reads, and that it deletes: the lease must be renewed in time, however many were left."""

HOST_CHARS_MAX: Final = 200
_TEXT_BYTES_MAX: Final = 1_000
_LOOKING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would keep who opens it waiting


def describe_process() -> str:
    """This process for people: host and process ID."""
    return f"{host_name()} process {os.getpid()}"


def host_name() -> str:
    """This machine for people: in one line that can be stored, whatever it is called."""
    return "".join(letter if letter.isprintable() else "?" for letter in socket.gethostname())[:HOST_CHARS_MAX]


class LockedStandbys:
    """The standbys of a lease in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{PREFIX}{nonce()}"
        self._file: int | None = None

    def enter(self) -> None:
        """Wait for the lease."""
        if self._file is not None:
            return
        with suppress(OSError):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The text comes with the lock: a file without a lock and with a text is of a dead process.
                os.pwrite(handle, describe_process().encode(), 0)
                self._file = handle
            finally:
                if self._file is None:  # such as on a disk that is full: nobody else would remove it
                    os.close(handle)
                    self._path.unlink()

    def leave(self) -> None:
        """Wait no more."""
        if self._file is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = None

    def look(self) -> tuple[str, ...]:
        """Those that wait now, sorted; files of dead ones are removed."""
        found: list[str] = []
        with suppress(OSError):
            for path in self._folder.glob(f"{PREFIX}*"):
                with suppress(OSError):
                    found += _living(path)
        return tuple(sorted(found)[:STANDBYS_MAX])


def _living(path: Path) -> list[str]:
    """The process that locks the file; none where nobody does."""
    handle = os.open(path, _LOOKING)
    try:
        text = os.pread(handle, _TEXT_BYTES_MAX, 0).decode(errors="replace")
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return [text] if text else []
        if text:
            path.unlink()
        return []
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Standby(Stored):
    """What an object of a standby says: which process it is, for people."""

    process: str = ""


_JSON: Final[JsonCodec[Standby]] = JsonCodec(Standby)


class BeatingStandbys:
    """The standbys of a lease in a store without locks; `now_millis` is a clock that is never set."""

    def __init__(self, store: ObjectStore, prefix: str, now_millis: Callable[[], int]) -> None:
        self._store, self._prefix, self._now = store, prefix, now_millis
        self._name, self._number, self._beat_at = f"{PREFIX}{nonce()}", 0, 0
        self._looked_at: int | None = None
        self._seen: dict[str, tuple[str, int, str]] = {}

    def enter(self) -> None:
        """Wait for the lease, or go on to wait."""
        now = self._now()
        if self._number and now - self._beat_at < BEAT_MS:
            return
        self._beat_at, self._number = now, self._number + 1
        key = self._key(self._number)
        with suppress(StoreUnavailable, OutcomeUnknown, AlreadyExists):
            self._store.create(key, _JSON.encode(Standby(describe_process()), key))
            self._delete(self._key(self._number - 1))

    def leave(self) -> None:
        """Wait no more."""
        for number in range(max(1, self._number - 1), self._number + 1):
            self._delete(self._key(number))
        self._number = 0

    def look(self) -> tuple[str, ...]:
        """Those that were seen at the last look, which is at most `BEAT_MS` old, sorted; objects of dead ones go."""
        now = self._now()
        if self._looked_at is None or now - self._looked_at >= BEAT_MS:
            self._looked_at = now
            with suppress(StoreUnavailable, OutcomeUnknown):  # the first request that fails ends the look
                self._see(now)
        alive = (who for _, since, who in self._seen.values() if now - since < GONE_MS)
        return tuple(sorted(alive)[:STANDBYS_MAX])

    def _see(self, now: int) -> None:
        newest: dict[str, str] = {}
        dead: list[str] = []
        for key in self._store.list(self._prefix):
            name, _, number = key.removeprefix(f"{self._prefix}/").rpartition("-")
            if name.startswith(PREFIX) and number.isdigit() and name != self._name:
                if name in newest:  # one whose create, or whose delete of this one, had no answer
                    dead.append(newest[name])
                newest[name] = key  # they come in ascending order
        known = [name for name in newest if name in self._seen]
        new = [name for name in newest if name not in self._seen][:ASKED_MAX]  # a later look sees the others
        self._seen = {name: self._adopted(name, newest[name], now) for name in (*known, *new)}
        dead += [key for key, since, _ in self._seen.values() if now - since >= GONE_MS]
        for key in dead[:ASKED_MAX]:
            self._store.delete(key)

    def _adopted(self, name: str, key: str, now: int) -> tuple[str, int, str]:
        """(its newest object, since when that stands, who it is)."""
        known = self._seen.get(name)
        if known is not None:
            return known if known[0] == key else (key, now, known[2])
        who = "unknown"
        with suppress(NotFound, CorruptState):
            who = _JSON.decode(self._store.get(key), key).process
        return key, now, who

    def _delete(self, key: str) -> None:
        with suppress(StoreUnavailable, OutcomeUnknown):
            self._store.delete(key)

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{self._name}-{number:010d}"
