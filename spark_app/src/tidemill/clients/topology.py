"""Reading a topology's committed state: the newest entry of its commit log, and the PStates that it names."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.definition.definition import StoredDefinition, StoredPState, StoredTopology
from tidemill.definition.migration_steps import Known, steps_of
from tidemill.journal.clock import Clock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Snapshot
from tidemill.paths.compiled import CompiledPath
from tidemill.pstate.changes import ChangedKeys
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.tables.parts import PartLoader
from tidemill.tables.stored_parts import part_loader
from tidemill.values.errors import BadInput, SnapshotExpired
from tidemill.values.numbers import MicrobatchId

PINNED_MAX = 8


class Reading:
    """The PStates of a topology as of one entry; several threads may read at once."""

    def __init__(self, number: int, reader: SnapshotReader) -> None:
        self.number = number
        self.reader = reader

    @property
    def snapshot(self) -> Snapshot:
        """The levels of the entry that is read."""
        return self.reader.snapshot

    def select(self, pstate: str, task: int, path: CompiledPath, values: Sequence[Any]) -> list[Any]:
        """What the path selects in a task's partition, as plain copies; `values` are the path's arguments.

        Raises:
            BadPath: the path does not suit the values that it meets.
            NotSelectable: it ends at an indexed structure.
        """
        return path.select(self.reader.root(pstate, task), values)


class TopologyReader:
    """Follows one topology's commit log for all handles of a process; it never goes back to an older entry."""

    def __init__(
        self,
        log: CommitLog,
        pstates: Mapping[str, PStateInfo],
        loader: PartLoader,
        pinned_loader: PartLoader,
        clock: Clock,
    ) -> None:
        self._log = log
        self._pstates = pstates
        self._loader = loader
        self._pinned_loader = pinned_loader
        self._clock = clock
        self._lock = threading.Lock()
        self._newest = self._reading(0, Snapshot())
        self._probed_at = float("-inf")
        self._pinned: OrderedDict[int, Reading] = OrderedDict()
        self._compared: tuple[str, Snapshot, Snapshot, ChangedKeys] | None = None

    def newest(self, max_staleness_ms: float) -> Reading:
        """The newest reading; asks the log's end unless it did so within `max_staleness_ms`."""
        if max_staleness_ms > 0 and self._clock.monotonic_ms() - self._probed_at <= max_staleness_ms:
            return self._newest
        began = self._clock.monotonic_ms()
        head = self._log.head()
        with self._lock:
            if head is not None and head[0] > self._newest.number:
                self._newest = self._after(*head)
            self._probed_at = max(self._probed_at, began)
            return self._newest

    def _after(self, number: int, entry: Entry) -> Reading:
        """An entry that changed no state (a claim, a begin) keeps what is cached."""
        if entry.snapshot == self._newest.snapshot:
            self._newest.number = number
            return self._newest
        self._loader.note(entry.snapshot)
        return self._reading(number, entry.snapshot)

    def entry(self, number: int) -> Entry | None:
        """An entry of the log; None where it was trimmed, or never was."""
        try:
            return self._log.read(number) if number else None
        except NotFound:
            return None

    def pinned(self, number: int) -> Reading:
        """The state as of one entry; 0: before the first one.

        Raises:
            SnapshotExpired: the entry was trimmed, or never was.
        """
        if number == 0:
            return Reading(0, SnapshotReader(self._pstates, Snapshot(), self._pinned_loader))
        with self._lock:
            found = self._pinned.get(number)
        if found is None:
            text = f"The commit log has no entry {number}, or no longer; read at a newer one."
            try:
                entry = self._log.read_kept(number)
            except NotFound as error:
                raise SnapshotExpired(text) from error
            found = Reading(number, SnapshotReader(self._pstates, entry.snapshot, self._pinned_loader))
        with self._lock:
            self._pinned[number] = found
            while len(self._pinned) > PINNED_MAX:
                self._pinned.popitem(last=False)
        return found

    def entry_of(self, microbatch_id: MicrobatchId) -> int:
        """The entry that committed a microbatch, found in some twenty reads; 0 for microbatch 0, before the first.

        Raises:
            BadInput: it is not committed yet.
            SnapshotExpired: its entry was trimmed.
        """
        if microbatch_id == 0:
            return 0
        head = self._log.head()
        newest = 0 if head is None else head[1].last_id
        if head is None or microbatch_id > newest:
            raise BadInput(f"Microbatch {microbatch_id} is not committed yet; the newest one is {newest}.")
        numbers = range(1, head[0] + 1)
        number = numbers[bisect_left(numbers, microbatch_id, key=self._last_id)]
        if self._last_id(number) != microbatch_id:
            text = f"The commit log has nothing of microbatch {microbatch_id} any more; ask for a newer one."
            raise SnapshotExpired(text)
        return number

    def _last_id(self, number: int) -> MicrobatchId:
        """The microbatch that was the newest at an entry; -1 where the entry is trimmed, as only old ones are."""
        try:
            return self._log.read(number).last_id
        except NotFound:
            return MicrobatchId(-1)

    def changed_keys(self, pstate: str, before: Snapshot, after: Snapshot) -> ChangedKeys:
        """Where a PState may differ between two snapshots."""
        asked = self._compared
        if asked is None or asked[:3] != (pstate, before, after):
            found = ChangedKeys(before, after, self._pinned_loader, self._pstates[pstate])
            asked = self._compared = (pstate, before, after, found)
        return asked[3]

    def forget(self) -> None:
        """Open the newest state anew: something that it names was collected."""
        with self._lock:
            self._newest = self._reading(self._newest.number, self._newest.snapshot)
            self._probed_at = float("-inf")

    def _reading(self, number: int, snapshot: Snapshot) -> Reading:
        return Reading(number, SnapshotReader(self._pstates, snapshot, self._loader))


def opened_reader(
    store: ObjectStore,
    definition: StoredDefinition,
    topology: StoredTopology,
    clock: Clock,
    known: Known | None = None,
) -> TopologyReader:
    """A reader of the committed state of a topology. `known` are migrations with their functions: while values wait for
    one, it takes them through it.
    """
    infos = {name: info_of(stored, known) for name, stored in topology.pstates.items()}
    return reader_at(store, definition.topology_prefix(topology.name), infos, clock)


def info_of(stored: StoredPState, known: Known | None) -> PStateInfo:
    """What reading of a PState needs to know of it; `known` as in `opened_reader`."""
    return PStateInfo(stored.name, stored.id, stored.schema, stored.initial_value, steps=steps_of(stored, known))


def reader_at(store: ObjectStore, prefix: str, infos: Mapping[str, PStateInfo], clock: Clock) -> TopologyReader:
    """A reader of these PStates of the topology below `prefix`."""
    loaders = part_loader(store.url, prefix), part_loader(store.url, prefix, True)
    return TopologyReader(CommitLog(store, prefix), infos, *loaders, clock)
