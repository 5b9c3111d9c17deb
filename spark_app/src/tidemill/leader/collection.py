"""Deleting what nothing names any more: objects of state, entries of the commit log, records past their retention.

Safe without any lease: only names of microbatches that are committed are deleted, and only those that no entry within
the retention, nor the last two commits, nor a compaction under way can reach (invariant S5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.clients.status import met_sources
from tidemill.definition.stored import StoredSource, StoredTopology, topology_folder
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import GRACE_MILLIS, retain, roll
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import QUARANTINE, Entry, SourceProgress
from tidemill.journal.snapshot import Part
from tidemill.language.options import Values, resolve
from tidemill.leader.garbage import remove_garbage
from tidemill.leader.readers import LivingReader, needed_by, readers_of
from tidemill.leader.topology_store import TopologyStore
from tidemill.store.local import sweep_unfinished
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.tables.stored_parts import entry_of
from tidemill.values.errors import invariant

FOLDERS: Final = ("deltas", "runs", "appends")
UNFINISHED_MS: Final = 3_600_000
"""A create that began so long ago belongs to a process that died."""


@dataclass(frozen=True)
class Collected:
    """What a collection deleted."""

    objects: int
    entries: int


def collect(topology_store: TopologyStore, retention_ms: int) -> Collected:
    """Delete what nothing reaches in one topology, and what retention gives up of its depots.

    Depots that it appends to and that nobody reads are rolled, too: each microbatch makes a segment.
    """
    old = topology_store.old("commit log", topology_store.commit_log.newest_number(), retention_ms)
    cutoff_ms = topology_store.clock.now_ms() - retention_ms
    found = collect_topology(topology_store.commit_log, topology_store.store, topology_store.prefix, cutoff_ms, old)
    remove_garbage(topology_store, retention_ms)
    _sweep(topology_store, topology_store.prefix)
    _sweep(topology_store, topology_store.definition.options_prefix)
    now_ms = topology_store.clock.now_ms()
    others = readers_of(topology_store.store, topology_store.definition.module, now_ms)
    for name, depot in topology_store.definition.depots.items():
        if depot.has_log and _is_keeper(topology_store, name, others):
            _keep_depot(topology_store, name, others)
            _sweep(topology_store, topology_store.definition.depot_prefix(name))
    _keep_quarantine(topology_store)
    for name in sorted(topology_store.program.targets.keys() & topology_store.definition.depots.keys()):
        if topology_store.definition.depots[name].has_log and not _readers(topology_store, name):
            roll(topology_store.opened_depot(name))
            _sweep(topology_store, topology_store.definition.depot_prefix(name))
    return found


def _sweep(topology_store: TopologyStore, prefix: str) -> None:
    """Processes that were killed leave unfinished creates in a store that is a folder."""
    folder = topology_store.store.local_path(prefix)
    if folder is not None:
        sweep_unfinished(folder, topology_store.clock.now_ms() - UNFINISHED_MS)


def collect_topology(log: CommitLog, store: ObjectStore, prefix: str, cutoff_ms: int, old: int = 0) -> Collected:
    """Delete what no entry written since `cutoff_ms` reaches, and the entries before all of those.

    Entries up to `old` were written before it whatever their times say.
    """
    head = log.head()
    if head is None:
        return Collected(0, 0)
    number, entry = head
    reached, floor = _reach(log, number, entry, max(_first_since(log, number, cutoff_ms), old + 1))
    _check_kept(entry, reached, floor)
    objects = 0
    for name in list(_names(store, prefix)):
        if name not in reached and _is_over(name, entry):
            store.delete(f"{prefix}/{name}")
            objects += 1
    before = log.log.span()[0]
    return Collected(objects, log.log.trim(floor) - before)


def _check_kept(entry: Entry, reached: set[str], floor: int) -> None:
    """S5, before anything is deleted: both states and both commits of the last two IDs stay."""
    needed = {part.name for part in entry.named_parts()}
    invariant(needed <= reached, "S5, S8: collection keeps the last two states, and appends", missing=needed - reached)
    kept = all(floor <= committed.entry for committed in entry.committed)
    invariant(kept, "S5: collection keeps the last two commits", floor=floor)


def _reach(log: CommitLog, number: int, entry: Entry, since: int) -> tuple[set[str], int]:
    """The names that must stay, and the first entry that must; those from `since` on are within the retention."""
    parts = list(entry.named_parts())
    floor = min([committed.entry for committed in entry.committed], default=number)
    for compacted in _compactions(log, entry, since):
        # Between two compactions a snapshot only grows: the last one before a compaction reaches all the others.
        parts += log.read(compacted - 1).snapshot.parts()
        floor = min(floor, compacted - 1)
    floor = min(floor, min(since, number) - 1)
    return {part.name for part in parts}, min([floor, *inline_entries(parts)])


def _compactions(log: CommitLog, entry: Entry, since: int) -> Iterator[int]:
    """The entries from `since` on in which a compaction's result entered, newest first."""
    number = entry.compacted
    while number > 1 and number >= since:
        try:
            before = log.read(number - 1)
        except NotFound:
            return
        yield number
        number = before.compacted


def _first_since(log: CommitLog, newest: int, cutoff_ms: int) -> int:
    """The first entry written since the cutoff, or the next; times never go back, so it is found by halving."""
    low, high = log.log.span()[0], newest + 1
    while low < high:
        middle = (low + high) // 2
        if log.read(middle).written_ms < cutoff_ms:
            low = middle + 1
        else:
            high = middle
    return low


def inline_entries(parts: Iterable[Part]) -> Iterator[int]:
    """The entries in which small parts among these ride."""
    return (number for part in parts if (number := entry_of(part.name)) is not None)


def _names(store: ObjectStore, prefix: str) -> Iterator[str]:
    for folder in FOLDERS:
        for key in store.list(f"{prefix}/{folder}"):
            yield key.removeprefix(f"{prefix}/")


def _is_over(name: str, entry: Entry) -> bool:
    """Whether an object's microbatch is committed, so that whoever could still name it would have done so."""
    microbatch_id = int(name.rpartition("/")[2].partition("-")[0])
    is_pending = any(pending.microbatch_id == microbatch_id for pending in entry.pending)
    return microbatch_id <= entry.last_id and not is_pending


# --- depots ----------------------------------------------------------------------------------------------------------


def _is_keeper(topology_store: TopologyStore, depot: str, others: Sequence[LivingReader]) -> bool:
    """One topology of the module looks after a depot: the first that reads it, or where only other modules do, the
    first of all.
    """
    readers = _readers(topology_store, depot)
    identity = topology_store.definition.depot(depot).id
    if not readers and any(identity in other.mark.objects for other in others):
        readers = sorted(topology_store.definition.topologies)
    return bool(readers) and readers[0] == topology_store.topology


def _readers(topology_store: TopologyStore, depot: str) -> list[str]:
    topologies = topology_store.definition.topologies.values()
    return sorted(t.name for t in topologies if any(source.depot == depot for source in t.sources))


def _keep_depot(topology_store: TopologyStore, name: str, others: Sequence[LivingReader]) -> None:
    log = topology_store.depots.get(name) or topology_store.opened_depot(name)
    roll(log)
    values = topology_store.options.read().values
    records_max = resolve("depot.max.entries.per.partition", values, name)
    needed = _needed(topology_store, name, log, others) if records_max is not None else None
    # A process that slept through an update does not know who else reads; its successor does.
    is_newest = topology_store.definitions.newest_number() <= topology_store.definition.number
    if records_max is not None and needed is not None and is_newest:
        log.follow()
        old = topology_store.old(name, log.newest().number, GRACE_MILLIS)
        retain(log, records_max, needed, _excess(values, name), old=old)


def _keep_quarantine(topology_store: TopologyStore) -> None:
    """Finish the newest decision, and delete the records that are settled up to the first that is not."""
    head = topology_store.commit_log.head()
    if head is None or not head[1].quarantined:
        return
    newest = topology_store.quarantine.finish()
    depot = topology_store.opened_depot(QUARANTINE)
    roll(depot)
    needed = min([newest.start, *(first for first, _ in newest.chosen)])
    depot.follow()
    old = topology_store.old(QUARANTINE, depot.newest().number, GRACE_MILLIS)
    retain(depot, 0, [min(needed, *depot.ends())], old=old)
    for prefix in (depot.files.prefix, topology_store.settlements.log.prefix):
        _sweep(topology_store, prefix)


def _excess(values: Values, name: str) -> float:
    return float(resolve("depot.excess.proportion", values, name))


def _needed(
    topology_store: TopologyStore, depot: str, log: DepotLog, others: Sequence[LivingReader]
) -> list[int] | None:
    """The lowest offset of each partition that a topology of the module still reads, or will after a rollback, or that
    one of another module reads; None if one of its own has not begun.
    """
    needed = _needed_elsewhere(topology_store, depot, log, others)
    for progress in [*_live_sources(topology_store, depot), *_retired_sources(topology_store, depot)]:
        if progress is None:
            return None
        offsets = progress.offsets
        needed = list(offsets) if needed is None else [min(p) for p in zip(needed, offsets, strict=True)]
    return needed


def _needed_elsewhere(
    topology_store: TopologyStore, depot: str, log: DepotLog, others: Sequence[LivingReader]
) -> list[int] | None:
    """The lowest offsets that modules which mirror the depot still need; None where none does."""
    identity = topology_store.definition.depot(depot).id
    seconds = resolve("depot.trim.coordinate.remote.seconds", topology_store.options.read().values, depot)
    since_ms = topology_store.clock.now_ms() - 1000 * int(seconds)
    needed: list[int] | None = None
    for other in others:
        for offsets in needed_by(other, topology_store.store, log, identity, since_ms):
            needed = list(offsets) if needed is None else [min(p) for p in zip(needed, offsets, strict=True)]
    return needed


def _live_sources(topology_store: TopologyStore, depot: str) -> Iterator[SourceProgress | None]:
    for topology in _readers(topology_store, depot):
        head = CommitLog(topology_store.store, topology_store.definition.topology_prefix(topology)).head()
        met = met_sources(topology_store.definition, topology, head[1] if head is not None else None)
        for source in topology_store.definition.topology(topology).sources:
            if source.depot == depot:
                yield met.get(source.source_id)


def _retired_sources(topology_store: TopologyStore, depot: str) -> Iterator[SourceProgress]:
    """Where one stands that a rollback may bring back, it needs what follows; one that never began needs nothing."""
    definition = topology_store.definition
    place = definition.depot_prefix(depot).rpartition("/")[2]
    folders = {topology.id: topology_folder(definition.module, topology) for topology in definition.topologies.values()}
    retired = topology_store.restorable()
    whole = [gone.item for gone in retired if isinstance(gone.item, StoredTopology)]
    folders |= {topology.id: topology_folder(definition.module, topology) for topology in whole}
    sources = [(topology.id, source) for topology in whole for source in topology.sources]
    sources += [(gone.topology, gone.item) for gone in retired if isinstance(gone.item, StoredSource)]
    for topology_id, source in sources:
        head = CommitLog(topology_store.store, folders[topology_id]).head() if topology_id in folders else None
        progress = head[1].progress.get(source.source_id) if head is not None else None
        if progress is not None and progress.depot == place:
            yield progress
