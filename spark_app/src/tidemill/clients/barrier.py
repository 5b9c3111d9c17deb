"""Reading one's own writes: waiting until a topology has processed what was appended before."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.clients.source_ends import SourceEnd
from tidemill.clients.status import met_sources
from tidemill.clients.status_reader import unpublished_in
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry, SourceProgress
from tidemill.journal.failures import REPEATED, fails, failure_text, is_lasting
from tidemill.journal.leadership import LeaderWatch
from tidemill.journal.options_log import OptionsLog
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, Deleted, RetryableError
from tidemill.values.message_pack import pack, unpack

_LOOK_MILLIS: Final = 5.0
_LOOK_MILLIS_MAX: Final = 250.0

Place = tuple[int, int, int]
"""Where records of an append are: partition, first offset, offset behind the last."""


@dataclass(frozen=True)
class Barrier:
    """Source ID -> the offset of each partition up to which `topology` is to have processed it; 0 is any."""

    topology: str
    offsets: Mapping[str, tuple[int, ...]]

    def missing(self, met: Mapping[str, SourceProgress]) -> int:
        """How many records are not processed yet, by the sources that the topology has met; another one misses at
        least one.
        """
        missing = 0
        for source, wanted in self.offsets.items():
            progress = met.get(source)
            if progress is None:
                missing += max(1, sum(wanted))
            else:
                missing += sum(max(0, want - done) for want, done in zip(wanted, progress.offsets, strict=True))
        return missing


def barriers_text(barriers: Iterable[Barrier]) -> str:
    """Barriers as a text for a client that may come back with it."""
    return base64.urlsafe_b64encode(pack([[b.topology, dict(b.offsets)] for b in barriers])).decode()


def barriers_from(definition: StoredDefinition, text: str) -> list[Barrier]:
    """The barriers of a text.

    Raises:
        UnknownName: the module has no such topology (any more).
        BadInput: the text is none that was given, or is of another module.
    """
    try:
        found = [
            Barrier(topology, {source: tuple(wanted) for source, wanted in offsets.items()})
            for topology, offsets in unpack(base64.urlsafe_b64decode(text.encode()))
        ]
        is_whole = all(type(n) is int for barrier in found for wanted in barrier.offsets.values() for n in wanted)
        # One of each topology: what a client sends back is not to multiply the work of a look.
        is_whole = is_whole and len({barrier.topology for barrier in found}) == len(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput("barrier is the text of an earlier answer, as it was given.") from error
    if not is_whole or not all(_fits(definition, barrier) for barrier in found):
        raise BadInput("barrier is the text of an earlier answer of this module, as it was given.")
    return found


def _fits(definition: StoredDefinition, barrier: Barrier) -> bool:
    sources = {source.source_id: source.depot for source in definition.topology(barrier.topology).sources}
    return all(
        source in sources and len(wanted) == definition.partitions(sources[source])
        for source, wanted in barrier.offsets.items()
    )


def barrier_now(store: ObjectStore, definition: StoredDefinition, topology: str) -> Barrier:
    """All that is appended to the topology's depots by now.

    Raises:
        UnknownName: there is no such topology.
        Deleted: a depot that the topology mirrors is gone.
    """
    ends: dict[str, tuple[int, ...]] = {}
    offsets = {}
    for source in definition.topology(topology).sources:
        if not definition.source_depot(source.depot).has_log:
            continue
        if source.depot not in ends:
            ends[source.depot] = SourceEnd(store, definition, source.depot).ends()
        offsets[source.source_id] = ends[source.depot]
    return Barrier(topology, offsets)


def barrier_of(definition: StoredDefinition, topology: str, depot: str, places: Iterable[Place]) -> Barrier:
    """The records of one append, by what it answered. Raises UnknownName."""
    wanted = [0] * definition.partitions(depot)
    for partition, _, end in places:
        wanted[partition] = max(wanted[partition], end)
    sources = (source.source_id for source in definition.topology(topology).sources if source.depot == depot)
    return Barrier(topology, {source: tuple(wanted) for source in sources})


class ProcessedWatch:
    """Follows the commit logs of some topologies until their barriers are reached; cheap to ask again and again."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, barriers: Sequence[Barrier]) -> None:
        self._store = store
        self._definition = definition
        self._logs = {b.topology: CommitLog(store, definition.topology_prefix(b.topology)) for b in barriers}
        self._leaders = {b.topology: LeaderWatch(store, definition, b.topology, SystemClock()) for b in barriers}
        self._open = list(barriers)

    @classmethod
    def of_all(cls, store: ObjectStore, definition: StoredDefinition, topology: str | None) -> ProcessedWatch:
        """All that is appended by now, for one topology, or for each of the module's. Raises: as `barrier_now`."""
        names = [topology] if topology is not None else list(definition.topologies)
        return cls(store, definition, [barrier_now(store, definition, name) for name in names])

    def look(self) -> bool:
        """Whether every barrier is reached.

        Raises:
            MicrobatchFails: the module's code fails on each attempt.
        """
        self._open = [barrier for barrier in self._open if self._is_open(barrier)]
        return not self._open

    def _entry(self, barrier: Barrier) -> Entry | None:
        head = self._logs[barrier.topology].head()
        return head[1] if head is not None else None

    def _missing(self, barrier: Barrier, entry: Entry | None) -> int:
        return barrier.missing(met_sources(self._definition, barrier.topology, entry))

    def _unpublished(self, barrier: Barrier, entry: Entry | None) -> int:
        """What was processed is done when what it led to can be read in the store: who waits for that does not fail
        because another system is away.
        """
        if entry is None:
            return 0
        return unpublished_in(self._store, self._definition, barrier.topology, entry, with_sinks=False)

    def _is_open(self, barrier: Barrier) -> bool:
        entry = self._entry(barrier)
        if not self._missing(barrier, entry):
            return self._unpublished(barrier, entry) > 0
        failure = entry.failure if entry is not None and self._is_of_newest_code(entry) else None
        # Each further version is an attempt that failed: who begins to wait late need not see three of them.
        is_tried = entry is not None and entry.attempt is not None and entry.attempt.version > REPEATED
        if failure is not None and is_tried and is_lasting(failure) and self._is_tried_on(barrier, entry):
            text = f"{barrier.topology} fails on each attempt, {failure.version} so far"
            raise fails(failure, f"{text}: {failure_text(failure)}")
        return True

    def _is_of_newest_code(self, entry: Entry) -> bool:
        """Whether the failure that an entry tells is no older one, which an update may have mended.

        A claim still tells that of the leader before; the new leader's first attempt forgets it.
        """
        return entry.kind != "claim" and entry.definition >= self._definition.number

    def _is_tried_on(self, barrier: Barrier, entry: Entry | None) -> bool:
        """Whether the process that failed still leads, and with the options that hold now.

        One that ended may be started again with mended code, and an option may let the record go to the quarantine:
        the log tells of the failure until the next attempt has begun.
        """
        leader = self._leaders[barrier.topology].leader()
        if entry is None or not leader or not f"{entry.owner} ".startswith(f"{leader} "):
            return False
        options = OptionsLog(self._store, self._definition.module).newest(1)
        return not options or options[0].change.at_ms <= entry.written_ms

    def wait(self, seconds: float, clock: Clock, check: Callable[[str], None] = lambda topology: None) -> None:
        """Return when every barrier is reached; `check` is called between two looks with each topology that is still
        waited for, and may raise.

        Raises:
            TimeoutError: they were not in time; says how many records wait, and for whom.
            MicrobatchFails: the module's code fails on each attempt.
        """
        deadline, pause, never = clock.monotonic_ms() + 1000 * seconds, _LOOK_MILLIS, threading.Event()
        while not self.look():
            if clock.monotonic_ms() >= deadline:
                raise TimeoutError(self.late(seconds, clock))
            for barrier in self._open:
                check(barrier.topology)
            clock.wait(never, min(pause, max(0.0, deadline - clock.monotonic_ms())))
            pause = min(_LOOK_MILLIS_MAX, 1.5 * pause)

    def late(self, seconds: float, clock: Clock) -> str:
        """What still waits, and why as far as the store tells."""
        return f"After {round(seconds, 2):g} s: " + "; ".join(self._waiting(barrier, clock) for barrier in self._open)

    def _waiting(self, barrier: Barrier, clock: Clock) -> str:
        entry = self._entry(barrier)
        missing = self._missing(barrier, entry)
        text = f"{barrier.topology} has not processed {missing:,} of the records"
        if not missing:
            text = f"{barrier.topology} has not published {self._unpublished(barrier, entry):,} of its appends"
        if gone := self._gone(barrier):
            return f"{text}; {gone}"
        if barrier.topology in OptionsLog(self._store, self._definition.module).read().paused:
            return f"{text}; it is paused: resume it"
        if not LeaderWatch(self._store, self._definition, barrier.topology, clock).leader():
            return f"{text}; nobody runs it: start it with `tidemill run`"
        return text

    def _gone(self, barrier: Barrier) -> str:
        """What a mirrored depot says that was deleted while somebody waited for it; empty if none was."""
        with contextlib.suppress(RetryableError):
            try:
                barrier_now(self._store, self._definition, barrier.topology)
            except Deleted as error:
                return str(error)
        return ""
