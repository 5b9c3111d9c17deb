"""Logs: numbered objects, each created only if it does not exist, followed by probing the next number.

The rules that keep this safe when logs are trimmed and answers are lost are marked here. The floor, which is recorded
before anything is deleted, tells entries from void objects. That the predecessor exists would not: a second stalled
writer may have put a void object there. It is looked for all the same, in the listing that tells the floor: a
predecessor that is gone, though it was never trimmed, means that somebody put back an older copy of the store.
A restore closes the logs that it replaces (`close`), a deletion marks those that it empties (`mark_deleted`): whoever
still has one open learns it from that same listing. The mark of a deletion stays for ever: a writer may sleep for any
time, and no folder is used again.
Numbers begin at 1; 0 stands for "nothing yet".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from tidemill.store.objects import AlreadyExists, Buffer, NotFound, ObjectStore
from tidemill.values.errors import (
    CorruptState,
    Deleted,
    InvariantViolation,
    OutcomeUnknown,
    StoreRestored,
    StoreUnavailable,
    TidemillError,
    reading_object,
)

FIRST = 1
_DIGITS = 20
_FLOOR_FOLDER = "floor"
_CLOSED = "closed"
_DELETED = "deleted"
_PROBES_MAX = 16
_LISTINGS_MAX = 10
_T = TypeVar("_T")
PATIENCE = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Seconds to wait before each further try of an unanswered request."""


class Lost(TidemillError):
    """Another writer's entry stands in this slot; what was to be appended is not in the log."""

    code = "Lost"


class SlotTrimmed(Lost):
    """The slot was trimmed: this writer slept through it, and its object counts for nothing.

    A writer that slept between its create and the check cannot distinguish this from an entry that was in the
    log and has been trimmed since.
    """

    code = "SlotTrimmed"


def wait_for(seconds: float) -> None:
    """Wait so many seconds; tests pass another function in its place."""
    threading.Event().wait(seconds)


def _nobody(content: bytes, key: str) -> str:
    return ""


@dataclass(frozen=True)
class Log:
    """A log below the folder `prefix`; its objects are `<zero-padded number><suffix>`.

    `read_nonce` finds in the bytes of an entry the nonce that its writer put there, by which a writer knows its own; it
    raises CorruptState if they were not written for this key; who appends nothing needs none. The slots of a log that
    is not `is_dense` are filled in any order.
    """

    store: ObjectStore
    prefix: str
    suffix: str
    read_nonce: Callable[[bytes, str], str] = _nobody
    patience: tuple[float, ...] = PATIENCE
    wait: Callable[[float], None] = wait_for
    is_dense: bool = True

    # --- names -------------------------------------------------------------------------------------------------------

    def key(self, number: int) -> str:
        """The key of entry `number`: 20 digits, so that keys sort like numbers."""
        return f"{self.prefix}/{number:0{_DIGITS}d}{self.suffix}"

    def _list(self) -> list[int]:
        """The numbers in use, ascending; those below the floor are void or about to be deleted."""
        numbers = []
        for key in self.store.list(self.prefix):
            name = key.removeprefix(f"{self.prefix}/")
            number = name.removesuffix(self.suffix)
            # What people or their tools put there is no entry.
            if len(number) == _DIGITS and number.isdecimal() and name.endswith(self.suffix):
                numbers.append(int(number))
        return sorted(numbers)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, number: int) -> bytes:
        """The entry's bytes. Raises NotFound where it is trimmed or not written yet."""
        return self.store.get(self.key(number))

    def has(self, number: int) -> bool:
        """Whether this slot holds an object; below the floor it may be a void one. Raises StoreUnavailable."""
        return self.store.exists(self.key(number))

    def is_entry(self, number: int) -> bool:
        """Whether what was read from this slot before, or put there, is an entry: what was never trimmed is no void."""
        return self.floor() <= number

    def floor(self) -> int:
        """The lowest number that was never trimmed; recorded before the first deletion. Costs one short listing.

        Raises:
            StoreRestored: the log is closed.
            Deleted: the log was deleted.
        """
        return max(self._floors(), default=FIRST)

    def _floors(self) -> list[int]:
        return self._floors_in(self.store.list(f"{self.prefix}/{_FLOOR_FOLDER}"))

    def _floors_in(self, keys: Iterable[str]) -> list[int]:
        """The recorded floors among the keys of this log."""
        folder = f"{self.prefix}/{_FLOOR_FOLDER}/"
        names = [key.removeprefix(folder) for key in keys if key.startswith(folder)]
        if _CLOSED in names:
            text = (
                f"{self.store.url} was restored from a backup while this process had it open: start the process anew. "
                "If that does not help, the restore was cut off: repeat it."
            )
            raise StoreRestored(text, key=self.prefix)
        if _DELETED in names:
            text = f"{self.prefix} in {self.store.url} was deleted: its module was destroyed, or an update deleted it."
            raise Deleted(text, key=self.prefix)
        return [int(name) for name in names if name.isdecimal()]

    def span(self) -> tuple[int, int]:
        """The first and the last entry there are, by listing; (1, 0) for an empty log.

        Raises:
            CorruptState: the log has a hole. A listing that writers overtake may seem so, hence several are made.
            StoreUnavailable: trims overtook each of them.
        """
        floor = 0
        for _ in range(_LISTINGS_MAX):
            numbers = self._list()
            before, floor = floor, self.floor()
            last = max(numbers, default=0)
            if last < floor == FIRST:
                return (FIRST, 0)
            if last >= floor and set(numbers).issuperset(range(floor, last + 1)):
                return (floor, last)
        if floor > before:
            raise self._overtaken()
        last = max(last, floor)
        missing = next(number for number in range(floor, last + 1) if number not in numbers)
        text = f"{self.key(missing)} is missing, though the log goes from entry {floor} to {last}."
        raise CorruptState(text, floor=floor, last=last, key=self.key(missing))

    def newest(self, known: int = 0) -> int:
        """The number of the last entry, 0 if there is none; `known` is the last that the caller saw.

        What was appended before this call is seen. Costs two probes when nothing is new, a listing where `known` is 0
        or gone.
        """
        number = known
        while number and number - known < _PROBES_MAX and self.has(number + 1):
            number += 1
        # Rule: a follower that fell behind the floor lists again; what it met at the next number may be a void object.
        if number == 0 or number - known == _PROBES_MAX or not self.is_entry(known + 1):
            return self.span()[1]
        return number

    def read_newest(self, known: int, read: Callable[[int], _T]) -> tuple[int, _T] | None:
        """The last entry and its number; None where it is `known`, as for `newest`. `read` raises NotFound.

        Between the look for it and `read`, others may append and trim so much that it is gone: then it is looked for
        again.

        Raises:
            StoreUnavailable: it was gone each time; ask again.
        """
        for _ in range(_LISTINGS_MAX):
            number = self.newest(known)
            if number <= known:
                return None
            with suppress(NotFound):
                return number, read(number)
        key = self.key(number)
        text = f"{key} was not found {_LISTINGS_MAX} times in a row, though the log goes so far: try again."
        raise StoreUnavailable(text, key=key)

    def follow(self, known: int) -> Iterator[tuple[int, bytes]]:
        """The entries after `known` up to the end, in order; those trimmed meanwhile are left out."""
        number, is_anchored = known, known > 0
        for _ in range(_LISTINGS_MAX):
            if not is_anchored:
                first, last = self.span()
                if last <= number:
                    return
                number = max(number, first - 1)
            data = self._read_or_none(number + 1)
            while data is not None and self.is_entry(number + 1):
                number, is_anchored = number + 1, True
                yield number, data
                data = self._read_or_none(number + 1)
            if is_anchored and self.is_entry(number + 1):
                return
            is_anchored = False
        raise self._overtaken()

    def _overtaken(self) -> StoreUnavailable:
        return StoreUnavailable(f"The log {self.prefix} is trimmed faster than it can be read: try again.")

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, number: int, data: Buffer, nonce: str) -> None:
        """Make `data` the entry `number`, whose predecessor the caller has seen; durable and unique when this returns.

        Raises:
            Lost: another writer has the slot; follow the log and decide anew.
            SlotTrimmed: this writer slept through a trim.
            StoreRestored: the store is another one now; nothing was appended to it.
            Deleted: the log was deleted; nothing was appended to it.
            StoreUnavailable: nothing was written.
            OutcomeUnknown: the store could not be asked; the entry may be there or appear later.
        """
        self._create(number, data, nonce)
        # Rule: an entry counts only if its slot was never trimmed, asked after its creation.
        try:
            floor, has_predecessor = self._asked_patiently(lambda: self._below(number), number)
        except Deleted:
            with suppress(StoreUnavailable):  # nobody reads it: it would only take space
                self.store.delete(self.key(number))
            raise
        if floor > number:
            raise SlotTrimmed(f"The log {self.prefix} was trimmed beyond entry {number}.", number=number)
        if not has_predecessor and floor < number and self.is_dense:
            self._check_predecessor(number)

    def _below(self, number: int) -> tuple[int, bool]:
        """The floor, and whether the predecessor of an entry is there: one listing, where objects are no files."""
        if number == FIRST:
            return self.floor(), True
        before = self.key(number - 1)
        if self.store.local_path(before) is not None:
            has_predecessor = self.has(number - 1)  # before the floor: a trim in between must be seen
            return self.floor(), has_predecessor
        keys = list(self.store.list(self.prefix, after=self.key(number - 2)))
        return max(self._floors_in(keys), default=FIRST), before in keys

    def _check_predecessor(self, number: int) -> None:
        """The predecessor was not seen, and no trim took it.

        Raises:
            StoreRestored: it is gone indeed. The entry is taken back, so that the log that was put back has no hole.
        """
        if self.has(number - 1) or number - 1 in self._list() or self._read_or_none(number - 1) is not None:
            return
        self.store.delete(self.key(number))
        text = (
            f"{self.key(number - 1)} is gone, though it was never trimmed: an older copy of {self.store.url} was put "
            "back while this process had it open. Nothing was appended. Stop everything that uses this store, run "
            "`tidemill check`, and start anew."
        )
        raise StoreRestored(text, key=self.prefix, number=number)

    def _create(self, number: int, data: Buffer, nonce: str) -> None:
        """Rule: every answer but success is settled by reading the slot; an empty one gets the same bytes again."""
        last: TidemillError | None = None
        is_unknown = False
        for pause in (0.0, *self.patience):
            if pause:
                self.wait(pause)
            try:
                self.store.create(self.key(number), data)
                return
            except (AlreadyExists, StoreUnavailable, OutcomeUnknown) as error:
                last = error
                is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
            found = self._asked_patiently(lambda: self._read_or_none(number), number)
            if found is not None:
                self._own(number, found, nonce)
                return
        self._give_up(number, last, is_unknown)

    def _own(self, number: int, found: bytes, nonce: str) -> None:
        with reading_object(self.key(number)):
            theirs = self._nonce_of(found, self.key(number))
        if theirs != nonce:
            raise Lost(f"Entry {number} of {self.prefix} is another writer's.", number=number)

    def _nonce_of(self, found: bytes, key: str) -> str:
        try:
            return self.read_nonce(found, key)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CorruptState(f"this entry of a log cannot be read: {error!r}") from error

    def _give_up(self, number: int, last: TidemillError | None, is_unknown: bool) -> NoReturn:
        if not is_unknown and isinstance(last, StoreUnavailable):
            raise last
        text = f"The create of entry {number} of {self.prefix} was never answered and its slot is empty: {last}"
        raise OutcomeUnknown(text, number=number) from last

    def _read_or_none(self, number: int) -> bytes | None:
        try:
            return self.read(number)
        except NotFound:
            return None

    def _asked_patiently(self, ask: Callable[[], _T], number: int) -> _T:
        """The answer to a question about a slot that this writer tried to fill; asked until the patience ends."""
        for pause in (*self.patience, None):
            try:
                return ask()
            except StoreUnavailable as error:
                if pause is None:
                    text = f"Entry {number} of {self.prefix} may have been written: the store does not answer: {error}"
                    raise OutcomeUnknown(text, number=number) from error
                self.wait(pause)
        raise InvariantViolation("unreachable: the last pause is None")

    # --- trimming ----------------------------------------------------------------------------------------------------

    def trim(self, below: int) -> int:
        """Delete the entries before `below`, lowest first, never the last two; returns the first that is left.

        The floor is recorded first, so that a void object which a stalled writer leaves behind is never taken
        for an entry.
        """
        floors = sorted(self._floors())
        first, last = self.span()
        below = min(below, last - 1)
        if below <= first:
            return first
        self._record_floor(below)
        for number in self._list():
            if number < below:
                self.store.delete(self.key(number))
        for floor in floors[:-1]:  # the newest two stay: a listing that a trim overtakes must see one of them
            self.store.delete(self._floor_key(floor))
        return below

    def begin_at(self, first: int) -> None:
        """Let the log of a copied store begin at an entry: those before it were not copied."""
        self._record_floor(first)

    def close(self) -> None:
        """Let everybody who has this log open know that it goes on elsewhere; nothing is deleted.

        Raises:
            StoreUnavailable, OutcomeUnknown: ask again.
        """
        with suppress(AlreadyExists):
            self.store.create(f"{self.prefix}/{_FLOOR_FOLDER}/{_CLOSED}", b"")

    def mark_deleted(self) -> None:
        """Let everybody who has this log open know that it is gone for good; comes before its objects are deleted.

        Raises:
            StoreUnavailable, OutcomeUnknown: ask again.
        """
        with suppress(AlreadyExists):
            self.store.create(deletion_mark(self.prefix), b"")

    def _record_floor(self, number: int) -> None:
        try:
            self.store.create(self._floor_key(number), b"")
        except AlreadyExists:
            return

    def _floor_key(self, number: int) -> str:
        return f"{self.prefix}/{_FLOOR_FOLDER}/{number:0{_DIGITS}d}"


def deletion_mark(prefix: str) -> str:
    """The object that says that a log was deleted, and outlives it."""
    return f"{prefix}/{_FLOOR_FOLDER}/{_DELETED}"


def is_deletion_mark(key: str) -> bool:
    """Whether this key says that its log was deleted."""
    return key.endswith(f"/{_FLOOR_FOLDER}/{_DELETED}")
