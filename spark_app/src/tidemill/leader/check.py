"""Verifies on a store, as far as it shows them, the invariants S1-S8 (docs/invariants.md): what `tidemill check` runs.

Only reads, and may run beside live runners: what a runner trims or collects meanwhile is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredPState, StoredTopology
from tidemill.definition.migration_steps import steps_of
from tidemill.depot.log import DepotLog
from tidemill.depot.mark import SegmentMark
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog, lost_definition, no_such_module, orphan
from tidemill.journal.entries import AppendIdentity, Entry, StagedAppend
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.settlements import SettlementLog, quarantine_prefix
from tidemill.journal.snapshot import Level, Part, Snapshot
from tidemill.leader.check_appends import append_faults, listing_faults
from tidemill.leader.deletions import DeletionDecision, Deletions
from tidemill.leader.ranges import all_reached
from tidemill.store.log import Log
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.store.urls import store_at
from tidemill.tables.stored_parts import read_part
from tidemill.tables.tables import Layout, layout_of
from tidemill.tables.verify import faults_of
from tidemill.values.errors import CorruptState, Deleted, NewerFormat, RetryableError, StoreRestored, TidemillError
from tidemill.values.offsets import OffsetRanges


@dataclass(frozen=True)
class Finding:
    """Something on the store that must not be: which invariant it breaks, where, and what was found."""

    invariant: str
    place: str
    text: str
    is_fault: bool = True

    def __str__(self) -> str:
        return f"{self.invariant} {self.place}: {self.text}"


def check_module(store: ObjectStore, module: str | StoredDefinition) -> list[Finding]:
    """Everything that is wrong with a module's stored state; empty if all is well.

    Raises:
        UnknownName: the store has no such module.
        NewerFormat: a newer Tidemill wrote it.
        StoreRestored: it is being restored; check it again afterwards.
    """
    try:
        definition = DefinitionLog(store, module).newest() if isinstance(module, str) else module
    except CorruptState as error:
        return [_unreadable("S3", "definition", error)]
    if definition is None:
        key = orphan(store, str(module))
        if key is not None:
            return [orphan_finding(str(module), key)]
        raise no_such_module(store, str(module))
    if definition.is_destroyed:
        return []
    found = [*_check_definitions(store, definition), *_check_options(store, definition)]
    for name in definition.topologies:
        found += check_topology(store, definition, name)
    for depot in definition.depots.values():
        if depot.has_log:
            found += check_depot(store, definition, depot.name)
    return found + _check_retired(store, definition)


def orphan_finding(module: str, key: str) -> Finding:
    """What is wrong with a module that has data, but no definition."""
    return Finding("S6", "definition", f"{lost_definition(module, key)}.")


def _check_retired(store: ObjectStore, definition: StoredDefinition) -> list[Finding]:
    """What a rollback may still bring back is as whole as what is there."""
    deletions = Deletions(store, definition.module)
    if not definition.retired or _is_done(deletions.decision(definition)):
        return []
    items = [gone.item for gone in sorted(definition.retired, key=lambda gone: -gone.by)]
    depots = {item.name: item for item in items if isinstance(item, StoredDepot)}
    topologies = {item.name: item for item in items if isinstance(item, StoredTopology)}
    view = replace(definition, depots={**definition.depots, **depots}, topologies=topologies)
    found = [finding for name in topologies for finding in check_topology(store, view, name)]
    for depot in depots.values():
        if depot.has_log:
            found += check_depot(store, view, depot.name)
    return [] if _is_done(deletions.decision(definition)) else found


def _is_done(decided: DeletionDecision | None) -> bool:
    return decided is not None and decided.is_done


def _unreadable(invariant: str, place: str, error: TidemillError) -> Finding:
    """The finding for an error about stored bytes; a store that does not answer, is newer or another one now, is none.

    Raises:
        NewerFormat, RetryableError, StoreRestored: the error itself.
    """
    if isinstance(error, (NewerFormat, RetryableError, StoreRestored)):
        raise error
    return Finding(invariant, place, str(error))


def _guarded(invariant: str, place: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Findings, the last of which may be that something is so damaged that no more can be found behind it."""
    try:
        yield from findings
    except TidemillError as error:
        yield _unreadable(invariant, place, error)


def _check_definitions(store: ObjectStore, definition: StoredDefinition) -> Iterator[Finding]:
    """A rollback and the log of the module read older ones."""
    log = DefinitionLog(store, definition.module)
    return _guarded("S3", "definition", _check_entries(log.log, "definition", log.read))


def _check_options(store: ObjectStore, definition: StoredDefinition) -> Iterator[Finding]:
    log = OptionsLog(store, definition.module)
    return _guarded("S3", "options", _check_entries(log.log, "options", log.change))


def _check_entries(log: Log, place: str, read: Callable[[int], object]) -> Iterator[Finding]:
    """All entries of a log of small objects can be read, as far as it is not trimmed."""
    first, last = log.span()
    for number in range(first, last + 1):
        try:
            read(number)
        except NotFound:
            if number >= log.span()[0]:
                yield Finding("S3", f"{place} {number}", "is missing, though later ones exist")
        except TidemillError as error:
            yield _unreadable("S3", f"{place} {number}", error)


# --- topologies ------------------------------------------------------------------------------------------------------


def check_topology(store: ObjectStore, definition: StoredDefinition, topology: str) -> list[Finding]:
    """What is wrong with one topology's log and state."""
    prefix = definition.topology_prefix(topology)
    log = CommitLog(store, prefix)
    try:
        head = log.head()
    except CorruptState as error:
        return [_unreadable("S3", topology, error)]
    if head is None:
        return []
    listed: dict[AppendIdentity, StagedAppend] = {}
    found = list(_guarded("S3", topology, _check_log(log, topology, head[0], listed)))
    head = log.head() or head
    appends = (Finding("S8", *fault) for fault in append_faults(store, definition, topology, log, listed))
    parts: list[tuple[str, Iterator[Finding]]] = [
        ("S3", _check_seen(store, definition, topology, head[1])),
        ("S3", _check_snapshot(store, log, definition, topology, *head)),
        ("S6", _check_progress(store, definition, topology, head[1])),
        ("S8", appends),
    ]
    for invariant, findings in parts:
        found += _guarded(invariant, topology, findings)
    return found + _check_quarantine(store, definition.topology_prefix(topology), topology)


def _check_seen(store: ObjectStore, definition: StoredDefinition, topology: str, entry: Entry) -> Iterator[Finding]:
    """The definition and the options that a leader saw are still there."""
    newest = DefinitionLog(store, definition.module).newest_number()
    if entry.definition > newest:
        text = f"was claimed with definition {entry.definition}, but the newest one is {newest}: definitions are lost"
        yield Finding("S4", topology, text)
    options = OptionsLog(store, definition.module).newest_number()
    if entry.paused_seen > options:
        text = f"saw a pause in entry {entry.paused_seen} of the options, but the newest one is {options}"
        yield Finding("S3", topology, f"{text}: some are lost")


def _check_log(
    log: CommitLog, topology: str, newest: int, listed: dict[AppendIdentity, StagedAppend]
) -> Iterator[Finding]:
    """Each entry must follow from the one before. Notes in `listed` the appends that entries name."""
    before: Entry | None = None
    for number in range(log.log.span()[0], newest + 1):
        place = f"{topology} entry {number}"
        try:
            entry = log.read(number)
        except NotFound:
            if number >= log.log.span()[0]:
                yield Finding("S3", place, "is missing, though later entries exist")
            before = None
            continue
        except TidemillError as error:
            yield _unreadable("S3", place, error)
            before = None
            continue
        listed.update((append.identity, append) for append in entry.appends)
        yield from (Finding(name, place, text) for name, text in _entry_faults(number, entry))
        if before is not None:
            yield from (Finding(name, place, text) for name, text in _step_faults(before, entry))
        before = entry


def _entry_faults(number: int, entry: Entry) -> Iterator[tuple[str, str]]:
    """What an entry says about itself."""
    ids = [committed.microbatch_id for committed in entry.committed]
    if len(ids) == 2 and ids[0] != ids[1] + 1:
        yield "S5", f"the last two committed IDs are {ids}"
    if entry.kind == "commit" and (not entry.committed or entry.committed[0].entry != number):
        yield "S4", "a commit must name itself as the newest commit"
    if any(committed.version < 1 for committed in entry.committed):
        yield "S4", "versions begin at 1"
    if entry.attempt is not None and entry.attempt.microbatch_id != entry.last_id + 1:
        yield "S2", f"attempt {entry.attempt.microbatch_id} is under way after commit {entry.last_id}"
    yield from (("S7", text) for text in _level_faults(entry))


def _level_faults(entry: Entry) -> Iterator[str]:
    """Levels cover disjoint IDs, oldest first, none of them beyond the last commit."""
    last = 0
    for index, level in enumerate(entry.snapshot.levels):
        if not last < level.first <= level.last <= entry.last_id:
            yield f"level {index} covers IDs {level.first}..{level.last} after {last}, last commit {entry.last_id}"
        if level.kind == "delta" and level.first != level.last:
            yield f"level {index} is a delta of more than one ID"
        if level.is_base and index > 0:
            yield f"level {index} is a base, but not the oldest"
        last = level.last


def _step_faults(before: Entry, entry: Entry) -> Iterator[tuple[str, str]]:
    """What changed from one entry to the next, and may not have."""
    claims = entry.kind == "claim"
    if entry.epoch != before.epoch + claims:
        yield "S4", f"the epoch goes from {before.epoch} to {entry.epoch} by a {entry.kind}"
    if entry.definition < before.definition:
        yield "S4", f"the definition goes back from {before.definition} to {entry.definition}"
    if entry.written_ms < before.written_ms:
        yield "S4", "time goes back"
    if entry.last_id != before.last_id + (entry.kind == "commit"):
        yield "S4", f"the last committed ID goes from {before.last_id} to {entry.last_id} by a {entry.kind}"
    if entry.kind == "commit":
        yield from _commit_faults(before, entry)
    elif not claims and entry.progress != before.progress:
        yield "S1", f"a {entry.kind} moved the progress"
    yield from (("S8", text) for text in listing_faults(before, entry))
    if entry.kind == "begin" and before.attempt is not None and entry.attempt is not None:
        yield from _retry_faults(before, entry)


def _retry_faults(before: Entry, entry: Entry) -> Iterator[tuple[str, str]]:
    assert before.attempt is not None and entry.attempt is not None
    if entry.attempt.ranges != before.attempt.ranges:
        yield "S2", f"a retry of ID {entry.attempt.microbatch_id} has other ranges than before"
    if entry.attempt.poisons[: len(before.attempt.poisons)] != before.attempt.poisons:
        yield "S2", f"a retry of ID {entry.attempt.microbatch_id} reads records that an attempt before left out"
    if entry.attempt.version != before.attempt.version + 1:
        yield "S2", f"version {entry.attempt.version} follows version {before.attempt.version}"


def _commit_faults(before: Entry, entry: Entry) -> Iterator[tuple[str, str]]:
    """A commit moves each source by the whole range that was begun, or not at all."""
    begun = before.attempt
    if begun is not None and (begun.microbatch_id, begun.version) != (entry.last_id, entry.last_version):
        yield "S4", f"ID {entry.last_id} version {entry.last_version} is committed, but another attempt was begun"
    counted = 0
    for source, progress in entry.progress.items():
        old = before.progress[source].offsets if source in before.progress else None
        if old is None:
            yield "S1", f"source {source} appears with a commit"
            continue
        ranges = begun.ranges.get(source, OffsetRanges()) if begun is not None else OffsetRanges()
        if progress.offsets != old and progress.offsets != ranges.ends:
            yield "S1", f"source {source} moves to {progress.offsets}, but {ranges} was begun"
        elif progress.offsets != old:
            counted += ranges.records
    left_out = begun.poisons if begun is not None else ()
    gone = [each for each in left_out if entry.progress.get(each.source_id) != before.progress.get(each.source_id)]
    if entry.quarantined - before.quarantined != len(gone):
        count = entry.quarantined - before.quarantined
        yield "S8", f"{count} records go to the quarantine, but {len(gone)} were left out of the microbatch"
    if entry.processed - before.processed != counted:
        yield "S1", f"{entry.processed - before.processed} records are counted, the ranges hold {counted}"


# --- state -----------------------------------------------------------------------------------------------------------


def _check_snapshot(
    store: ObjectStore, log: CommitLog, definition: StoredDefinition, topology: str, number: int, entry: Entry
) -> Iterator[Finding]:
    """Every object of the newest two states exists and is whole, and its rows are as readers expect them."""
    place = f"{topology} entry {number}"
    prefix, layouts = definition.topology_prefix(topology), _layouts(definition, topology)
    known: dict[tuple[str, str, bool], list[str]] = {}
    pieces = (Level("run", p.first, p.last, p.parts, is_base=True) for p in entry.pending)
    unread = [("S3", Snapshot((level,))) for level in pieces]
    for name, snapshot in (("S3", entry.snapshot), ("S5", entry.previous), *unread):
        for text in _snapshot_faults(store, prefix, snapshot, layouts, known):
            if log.newest_number() == number:
                yield Finding(name, place, text)
    if len(entry.committed) == 2:
        try:
            log.read(entry.committed[1].entry)
        except NotFound:
            if log.newest_number() == number:
                yield Finding("S5", place, f"the entry {entry.committed[1].entry} of the previous commit is gone")


def _layouts(definition: StoredDefinition, topology: str) -> dict[str, Layout]:
    """PState id -> layout, of all whose rows a topology holds for readers or for a rollback."""
    owner = definition.topology(topology)
    gone = [r.item for r in definition.retired if r.topology == owner.id and isinstance(r.item, StoredPState)]
    return {p.id: layout_of(p.schema, steps_of(p)) for p in (*gone, *owner.pstates.values())}


def _snapshot_faults(
    store: ObjectStore,
    prefix: str,
    snapshot: Snapshot,
    layouts: Mapping[str, Layout],
    known: dict[tuple[str, str, bool], list[str]],
) -> Iterator[str]:
    """What is wrong with the parts of a state; `known` are those that were looked at, so that each is read once."""
    for index, level in enumerate(snapshot.levels):
        for first, second in combinations(level.parts, 2):
            if first.tasks.overlaps(second.tasks):
                yield f"level {index} has the parts {first.name} and {second.name} for the same tasks"
        for part in level.parts:
            key = (part.name, part.checksum, level.is_base)
            if key not in known:
                known[key] = list(_part_faults(store, prefix, part, layouts, level.is_base))
            yield from known[key]


def _part_faults(
    store: ObjectStore, prefix: str, part: Part, layouts: Mapping[str, Layout], is_base: bool
) -> Iterator[str]:
    try:
        content = read_part(store, prefix, part.name)
        part.check(content)
        yield from (f"names {part.name}: {text}" for text in faults_of(part, content, layouts, is_base=is_base))
    except NotFound:
        yield f"names {part.name}, which does not exist"
    except RetryableError:
        raise
    except TidemillError as error:
        yield f"names {part.name}, which cannot be read: {error}"


def _check_progress(store: ObjectStore, definition: StoredDefinition, topology: str, entry: Entry) -> Iterator[Finding]:
    """No source is beyond the end of its depot, which holds what it read."""
    reached = all_reached(entry)
    for source in definition.topology(topology).sources:
        progress = entry.progress.get(source.source_id)
        is_here = progress is not None and definition.source_depot(source.depot).has_log
        if progress is None or not is_here or progress.depot != definition.depot_identity(source.depot):
            continue  # not met yet, another depot of this name was, or it is outside the store; ticks have no progress
        depot = _open_depot(store, definition, source.depot)
        try:
            ends = depot.ends()
        except (CorruptState, Deleted):
            continue  # the check of the depot says so
        place = f"{topology} source {source.source_id}"
        if len(ends) != len(progress.offsets):
            yield Finding("S1", place, f"has {len(progress.offsets)} partitions, its depot {len(ends)}")
        elif any(offset > end for offset, end in zip(progress.offsets, ends, strict=True)):
            yield Finding("S6", place, f"is at {progress.offsets}, but the depot ends at {ends}: records are lost")
        elif source.source_id in reached:
            yield from _reached_faults(depot, reached[source.source_id], place)


def _reached_faults(depot: DepotLog, reached: SegmentMark, place: str) -> Iterator[Finding]:
    try:
        depot.check_holds(reached)
    except CorruptState as error:
        yield Finding("S6", place, str(error))
    except Deleted:
        pass  # an update took the depot meanwhile


# --- depots ----------------------------------------------------------------------------------------------------------


def _open_depot(store: ObjectStore, definition: StoredDefinition, name: str) -> DepotLog:
    place = store_at(store, definition.store_of(name))
    return DepotLog(place, definition.depot_prefix(name), definition.partitions(name))


def check_depot(store: ObjectStore, definition: StoredDefinition, name: str) -> list[Finding]:
    """Segments follow each other without a hole, and every record from the logical start on can be read."""
    depot = _open_depot(store, definition, name)
    found: list[Finding] = []
    try:
        gate = depot.newest().gate
    except TidemillError as error:
        return [_unreadable("S6", name, error)]
    newest = DefinitionLog(store, definition.module).newest_number()
    if gate.definition > newest:
        text = f"was closed or opened by definition {gate.definition}, but the newest one is {newest}"
        found.append(Finding("S6", name, f"{text}: definitions are lost"))
    return found + _check_records(depot, name)


def _check_quarantine(store: ObjectStore, prefix: str, topology: str) -> list[Finding]:
    """Its records can be read, and no decision is on one that is not there."""
    depot, name = DepotLog(store, quarantine_prefix(prefix), 1), f"{topology} quarantine"
    try:
        settlements = SettlementLog(store, prefix)
        newest = settlements.newest()
        (end,) = depot.ends()
    except TidemillError as error:
        return [_unreadable("S6", name, error)]
    found = _check_records(depot, name) if end else []
    decisions = _check_entries(settlements.log, f"{topology} decision", settlements.read)
    found += _guarded("S3", f"{topology} decisions", decisions)
    if newest.settled and newest.settled[-1][1] > end:
        text = f"decision {newest.number} is on records up to {newest.settled[-1][1]}, but there are {end}"
        found.append(Finding("S8", name, f"{text}: records are lost"))
    return found


def _check_records(depot: DepotLog, name: str) -> list[Finding]:
    found: list[Finding] = []
    try:
        starts, ends = depot.starts(), depot.ends()
    except TidemillError as error:
        return [_unreadable("S6", name, error)]
    for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for first in range(start, end, _RECORDS_AT_ONCE):
            last = min(end, first + _RECORDS_AT_ONCE)
            try:
                depot.read_columns(partition, first, last)
            except TidemillError as error:
                if depot.starts()[partition] <= first:
                    found.append(_unreadable("S6", f"{name} partition {partition}, {first}..{last}", error))
    return found


_RECORDS_AT_ONCE = 100_000
