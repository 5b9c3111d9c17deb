"""Who may try to lead. A lease only keeps processes from disturbing each other; what keeps state right is the log.

A lease can be wrong (a paused process, skewed clocks): two holders at once cost a fenced leader, never a wrong commit.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tidemill.store.json_codec import JsonCodec
from tidemill.store.local import LocalStore
from tidemill.store.objects import AlreadyExists, NotFound, ObjectStore
from tidemill.store.standbys import BeatingStandbys, LockedStandbys, describe_process
from tidemill.store.watched import WatchedStore
from tidemill.values.errors import OutcomeUnknown, StoreUnavailable
from tidemill.values.ids import nonce
from tidemill.values.stored import Stored

TTL_MILLIS = 10_000


@dataclass(frozen=True)
class LeasePace:
    """How often a holder renews, how often others ask, and how long a fresh claim of another process is left in peace
    (no longer than a holder needs to notice that it holds the lease no more), in milliseconds.
    """

    renew_ms: float = 3_000.0
    poll_ms: float = 200.0
    claim_wait_ms: int = 0


@dataclass(frozen=True)
class LeaderNotes(Stored):
    """What the holder of a lease says, for people: where its attempts run, the address of Spark's page ("": none), and
    the processes that wait for the lease.
    """

    engine: str = ""
    spark_ui: str = ""
    standbys: tuple[str, ...] = ()


class LeaderLease(Protocol):
    """The right to try to lead one module. `holder` says who holds it, for people; "" is nobody known."""

    @property
    def pace(self) -> LeasePace:
        """How often to renew and to ask."""

    def try_acquire(self) -> bool:
        """Take the lease, or renew it where it is held; whether it is held now. Call it every third of the TTL."""

    def is_held(self) -> bool:
        """Whether this instance still has the right, as far as it can know without asking."""

    def release(self) -> None:
        """Give the lease up, so that another one need not wait."""

    @property
    def holder(self) -> str:
        """Who holds the lease as far as this instance knows, for people; "" is nobody known. `peek` looks anew."""

    def peek(self) -> str:
        """Who holds the lease now, by looking only; "" is nobody. A dead holder of a heartbeat shows for one TTL."""

    def stand_by(self) -> None:
        """Say that this process waits for the lease. As of `tell`, nothing depends on it, and it never raises."""

    def tell(self, engine: str, spark_ui: str) -> None:
        """Let others read these notes of the holder, and who stands by; it shows after some seconds."""


class StoreLease(LeaderLease, Protocol):
    """A lease that lives in the store of what is led."""

    @property
    def notes(self) -> LeaderNotes:
        """What the holder says that the last `peek` found."""

    @property
    def lost(self) -> str:
        """The process that held the lease last and went without giving it up; "": the last `peek` found no such."""

    def claim(self) -> bool:
        """Hold it as the process that another authority chose, whoever held it before; whether it is held now.

        Only the lock of a live process cannot be taken from it.
        """


def lease_for(store: ObjectStore, prefix: str, now_millis: Callable[[], int]) -> StoreLease:
    """A file lock on a local folder, heartbeat objects elsewhere; `prefix` is a folder of the lease's own.

    `now_millis` is a clock that is never set: only what passed on it counts.
    """
    if isinstance(store, WatchedStore):
        store = store.watched
    if isinstance(store, LocalStore):
        return FileLease(store.folder / prefix / "leader.lock", store.make_folder)
    return HeartbeatLease(store, prefix, now_millis)


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


class FileLease:
    """A lock on a file of a local folder. The system frees it when its process dies, however it dies.

    The lock belongs to the open file, so that two holders within one process exclude each other as well.
    """

    pace = LeasePace()

    def __init__(self, path: Path, make_folder: Callable[[Path], None] = _make_folder) -> None:
        self._path, self._make_folder = path, make_folder
        self._file: int | None = None
        self._lock = threading.Lock()
        self._standbys = LockedStandbys(path.parent)
        self._told, self._lost = LeaderNotes(), ""

    def try_acquire(self) -> bool:
        with self._lock:
            if self._file is not None:
                return True
            handle = self._open()
            try:
                if not _lock_file(handle):
                    return False
                _write_holder(handle, LeaderNotes())
                self._file, self._told = handle, LeaderNotes()
            finally:
                if self._file is None:
                    os.close(handle)
            self._standbys.leave()
            return True

    def claim(self) -> bool:
        return self.try_acquire()

    def _open(self) -> int:
        try:
            if not self._path.parent.is_dir():
                self._make_folder(self._path.parent)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnavailable(f"The lease file {self._path} cannot be opened: {error.strerror}") from error

    def is_held(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        with self._lock:
            self._standbys.leave()
            if self._file is not None:
                with suppress(OSError):  # the lock falls with the file, whatever its text says
                    os.ftruncate(self._file, 0)
                os.close(self._file)
                self._file = None

    @property
    def holder(self) -> str:
        return self._text().partition("\n")[0]

    @property
    def notes(self) -> LeaderNotes:
        try:
            return msgspec.json.decode(self._text().partition("\n")[2], type=LeaderNotes)
        except (ValueError, TypeError):
            return LeaderNotes()

    @property
    def lost(self) -> str:
        return self._lost

    def peek(self) -> str:
        holder, self._lost = self.holder, ""
        if self._file is not None or not holder:
            return holder
        # The text of a process that died stays behind, its lock does not. A process of that number says nothing: it
        # may be another one, or a killed one that its parent has not noticed yet.
        if self._is_locked():
            return self.holder
        self._lost = holder
        return ""

    def stand_by(self) -> None:
        self._standbys.enter()

    def tell(self, engine: str, spark_ui: str) -> None:
        with self._lock, suppress(StoreUnavailable):
            notes = LeaderNotes(engine, spark_ui, self._standbys.look())
            if self._file is not None and notes != self._told:
                _write_holder(self._file, notes)
                self._told = notes

    def _text(self) -> str:
        try:
            return self._path.read_text(errors="replace")
        except OSError:
            return ""

    def _is_locked(self) -> bool:
        """Whether a process holds the lock, without changing what the file says."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _lock_file(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)


def _lock_file(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    """`flock`, not `lockf`: the latter belongs to the process and falls when any copy of the file is closed."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN):
            return False
        raise StoreUnavailable(f"The lease file cannot be locked: {error}") from error
    return True


def _write_holder(handle: int, notes: LeaderNotes) -> None:
    """A line with the holder, and its notes. Whoever looks at a lock without a holder's name would take it for free: so
    the text is written over the one before, and is never gone in between.
    """
    text = f"{describe_process()}\n".encode() + msgspec.json.encode(notes)
    try:
        os.pwrite(handle, text, 0)
        os.ftruncate(handle, len(text))
    except OSError as error:
        raise StoreUnavailable(f"The lease file cannot be written: {error.strerror}") from error


@dataclass(frozen=True)
class Heartbeat(Stored):
    """What a holder says: who it is, by a nonce and for people, whether it gives the lease up, and its notes."""

    nonce: str = ""
    holder: str = ""
    is_release: bool = False
    notes: LeaderNotes = field(default_factory=LeaderNotes)


_JSON: Final[JsonCodec[Heartbeat]] = JsonCodec(Heartbeat)


class HeartbeatLease:
    """A chain of small objects, each created only if it does not exist; who creates the newest holds it for a while.

    A holder creates the next one in time. Anyone else may create it once the newest has not changed for `ttl_millis` on
    its own clock, so no clocks are compared. Creating the same object excludes all but one.
    """

    pace = LeasePace(claim_wait_ms=3_000)

    def __init__(
        self, store: ObjectStore, prefix: str, now_millis: Callable[[], int], ttl_millis: int = TTL_MILLIS
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._now = now_millis
        self._ttl = ttl_millis
        self._nonce = nonce()
        self._number = 0
        self._holder = ""
        self._seen_at = 0
        self._is_ours = False
        self._is_free = False
        self._standbys = BeatingStandbys(store, prefix, now_millis)
        self._told, self._seen = LeaderNotes(), LeaderNotes()

    def try_acquire(self) -> bool:
        asked_at = self._now()
        self._look(asked_at)
        is_expired = asked_at - self._seen_at >= self._ttl
        if self._number and not (self._is_ours or self._is_free or is_expired):
            return False
        return self._renewed(asked_at)

    def claim(self) -> bool:
        asked_at = self._now()
        self._look(asked_at)
        return self._renewed(asked_at)

    def _renewed(self, asked_at: int) -> bool:
        if self._is_ours and asked_at - self._seen_at < self._ttl // 3:
            return True
        return self._beat(asked_at, is_release=False)

    def is_held(self) -> bool:
        return self._is_ours and self._now() - self._seen_at < self._ttl

    def release(self) -> None:
        self._standbys.leave()
        if self._is_ours:
            with suppress(StoreUnavailable, OutcomeUnknown):
                self._beat(self._now(), is_release=True)
            self._is_ours = False

    @property
    def holder(self) -> str:
        return "" if self._is_free else self._holder

    def peek(self) -> str:
        now = self._now()
        self._look(now)
        return self.holder if self._number and now - self._seen_at < self._ttl else ""

    @property
    def notes(self) -> LeaderNotes:
        return self._seen

    @property
    def lost(self) -> str:
        return self.holder if self._now() - self._seen_at >= self._ttl else ""

    def stand_by(self) -> None:
        self._standbys.enter()

    def tell(self, engine: str, spark_ui: str) -> None:
        """The next heartbeat says it: nothing is written for it alone."""
        self._standbys.leave()
        self._told = LeaderNotes(engine, spark_ui, self._standbys.look())

    def _look(self, asked_at: int) -> None:
        """See the newest heartbeat; its time is when this instance saw it first, or made it."""
        number = self._number
        while self._store.exists(self._key(number + 1)):
            number += 1
        if number == 0 or not self._store.exists(self._key(self._number or number)):
            names = (key.rpartition("/")[2] for key in self._store.list(self._prefix))
            # A folder that was copied into a bucket brings the file of its lock along.
            number = max((int(name) for name in names if name.isdigit()), default=0)
        if number != self._number:
            self._adopt(number, asked_at)

    def _adopt(self, number: int, seen_at: int) -> None:
        beat, key = Heartbeat(), self._key(number)
        with suppress(NotFound):
            beat = _JSON.decode(self._store.get(key), key) if number else beat
        self._number, self._seen_at = number, seen_at
        self._holder, self._is_free, self._seen = beat.holder, beat.is_release, beat.notes
        self._is_ours = beat.nonce == self._nonce and not beat.is_release

    def _beat(self, asked_at: int, is_release: bool) -> bool:
        number = self._number + 1
        notes = LeaderNotes() if is_release else self._told
        beat, key = Heartbeat(self._nonce, describe_process(), is_release, notes), self._key(number)
        try:
            self._store.create(key, _JSON.encode(beat, key))
        except (AlreadyExists, OutcomeUnknown):
            self._look(asked_at)
            return self.is_held()
        if number > 1 and not self._store.exists(self._key(number - 1)):  # slept while others went on, as in store.log
            self._look(asked_at)
            return False
        self._number, self._seen_at, self._is_ours, self._is_free = number, asked_at, not is_release, is_release
        self._holder, self._seen = beat.holder if not is_release else "", notes
        self._forget_before(number - 1)
        return not is_release

    def _forget_before(self, number: int) -> None:
        """The last two stay: a follower that slept finds the end by listing."""
        if number > 1:
            with suppress(StoreUnavailable):
                self._store.delete(self._key(number - 1))

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:020d}"
