"""Verifies invariant S8 on a store: what committed microbatches appended is in its depots once, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from tidemill.definition.definition import StoredDefinition, StoredDepot
from tidemill.depot.header import LastSequence
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import producer_of
from tidemill.depot.record_reader import find_produced, produced_back
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import QUARANTINE, SEGMENTS_MAX, AppendIdentity, Entry, StagedAppend
from tidemill.journal.settlements import SettlementLog, quarantine_prefix, retries_of
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.store.urls import store_at
from tidemill.tables.stored_parts import read_part
from tidemill.values.errors import CorruptState, Deleted, RetryableError, TidemillError

Listed = Mapping[AppendIdentity, StagedAppend]
"""All appends that the entries of a log name, as far back as it goes."""


def listing_faults(before: Entry, entry: Entry) -> Iterator[str]:
    """What an entry may not name: only a commit names more appends, and only its own."""
    known = {append.identity for append in before.appends}
    for append in entry.appends:
        is_own = entry.kind == "commit" and append.microbatch_id == entry.last_id
        if append.identity not in known and not is_own:
            yield f"names the append {append.sequence} to {append.depot}, which no commit named before"
        if append.sequence // SEGMENTS_MAX != append.microbatch_id:
            yield f"names the append {append.sequence} to {append.depot} as one of microbatch {append.microbatch_id}"


def append_faults(
    store: ObjectStore, definition: StoredDefinition, topology: str, log: CommitLog, listed: Listed
) -> Iterator[tuple[str, str]]:
    """(place, text) of what is wrong with a topology's appends in the depots that there are."""
    own = (name for name, depot in definition.depots.items() if depot.has_log)
    mirrored = (name for name, mirror in definition.mirrors.items() if isinstance(mirror.item, StoredDepot))
    prefix = definition.topology_prefix(topology)
    depots = {
        name: DepotLog(
            store_at(store, definition.store_of(name)), definition.depot_prefix(name), definition.partitions(name)
        )
        for name in (*own, *mirrored)
    }
    for name, depot in depots.items():
        with suppress(CorruptState, Deleted):
            faults = _decision_faults(store, prefix, depot, "the records")
            yield from ((f"{topology} retries to {name}", text) for text in faults)
    depots[QUARANTINE] = DepotLog(store, quarantine_prefix(prefix), 1)
    with suppress(CorruptState, Deleted):
        faults = _decision_faults(store, prefix, depots[QUARANTINE], "notes")
        yield from ((f"{topology} quarantine", text) for text in faults)
    for name, depot in depots.items():
        check = _DepotCheck(store, prefix, depot)
        appends = [append for append in listed.values() if append.depot == check.folder]
        try:
            texts = list(check.faults(log, appends))
        except (CorruptState, Deleted):
            continue  # the check of the depot says so
        yield from ((f"{topology} appends to {name}", text) for text in texts)


def _decision_faults(store: ObjectStore, prefix: str, depot: DepotLog, what: str) -> Iterator[str]:
    """No depot knows of a decision that the topology does not know: what it retried would be retried again. The depot
    first: who decides meanwhile is no fault.
    """
    last = depot.last_of(retries_of(prefix))
    newest = SettlementLog(store, prefix).newest()
    if last is None:
        return
    if last.sequence > newest.number:
        yield f"{what} of decision {last.sequence} are there, but the last one that was made is {newest.number}"
    elif last.sequence == newest.number and last.digest != newest.nonce:
        yield f"{what} of another decision {newest.number} than the one that was made are there"


class _DepotCheck:
    """The appends of the topology below `prefix` to one depot."""

    def __init__(self, store: ObjectStore, prefix: str, depot: DepotLog) -> None:
        self.folder = depot.files.prefix.rpartition("/")[2]
        self._store = store
        self._topology_prefix = prefix
        self._producer = producer_of(prefix)
        self._depot = depot

    def faults(self, log: CommitLog, appends: list[StagedAppend]) -> Iterator[str]:
        """First what the log named, then the depot, and the log's head last: who is late is no fault."""
        last = self._depot.last_of(self._producer)
        head = log.head()
        if head is None:
            return
        yield from self._published_faults(last, head[1])
        waiting = {each.identity for each in head[1].appends}
        for append in appends:
            if last is not None and append.sequence <= last.sequence:
                yield from self._content_faults(append, last)
            elif append.identity in waiting:
                yield from self._staged_faults(append, log)
            else:
                yield f"the append {append.sequence} of microbatch {append.microbatch_id} is missing"

    def _published_faults(self, last: LastSequence | None, head: Entry) -> Iterator[str]:
        """Nothing is there that was not committed, and nothing twice."""
        if last is None:
            return
        if last.sequence >= (head.last_id + 1) * SEGMENTS_MAX:
            yield f"microbatch {last.sequence // SEGMENTS_MAX} is there, but the last committed one is {head.last_id}"
        above = last.sequence + 1
        with suppress(NotFound):
            for _, mine in produced_back(self._depot.files, last.segment, self._producer):
                for append in reversed(mine):
                    if append.sequence >= above:
                        yield f"the append {append.sequence} is there twice, or in the wrong order"
                    above = append.sequence

    def _content_faults(self, append: StagedAppend, last: LastSequence) -> Iterator[str]:
        found = find_produced(self._depot.files, last.segment, self._producer, append.sequence)
        if found is None:
            return
        if found.digest != append.digest:
            yield f"the append {append.sequence} has other records than microbatch {append.microbatch_id} committed"
        count = sum(end - start for _, start, end in found.offsets)
        if count != append.records:
            yield f"the append {append.sequence} has {count} records, {append.records} were committed"

    def _staged_faults(self, append: StagedAppend, log: CommitLog) -> Iterator[str]:
        """What is not published yet must be there to be published."""
        for part in append.parts:
            try:
                part.check(read_part(self._store, self._topology_prefix, part.name))
            except RetryableError:
                raise
            except (NotFound, TidemillError) as error:
                head = log.head()
                if head is not None and append.identity in {each.identity for each in head[1].appends}:
                    yield f"what is to be published, {part.name}, cannot be read: {error}"
