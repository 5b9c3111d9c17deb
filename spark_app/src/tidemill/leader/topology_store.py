"""What a runner machine's questions come to on a real store: answers as events, attempts as work to hand out.

Everything here runs when it is called, in the caller's thread; `runner` adds threads, and the simulation adds crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tidemill.clients.quarantine import Quarantine
from tidemill.definition.definition import (
    Retirement,
    StoredDefinition,
    StoredDepot,
    StoredPState,
    StoredSource,
)
from tidemill.definition.migration_steps import steps_of
from tidemill.definition.mirrors import check_copies
from tidemill.definition.stored import depot_folder
from tidemill.depot.log import DepotLog
from tidemill.engine.work import AttemptWork, CompactionWork, Pinned, SourceWork
from tidemill.journal.clock import Clock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import QUARANTINE, Attempt
from tidemill.journal.mirrored_objects import MirroredObjects
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.settlements import SettlementLog, quarantine_prefix
from tidemill.journal.snapshot import Level, Snapshot
from tidemill.language.external import ExternalSink
from tidemill.language.objects import DeclaredObject
from tidemill.language.options import ModuleOptions, resolve, resolve_all
from tidemill.leader import events
from tidemill.leader.deletions import DeletionDecision, Deletions
from tidemill.leader.events import DepotEnds, SourceSpec, TopologySpec
from tidemill.leader.external_log import ExternalLog
from tidemill.leader.log_ages import LogAges
from tidemill.leader.transitions import entry_name
from tidemill.plan.program import Program
from tidemill.plan.traced import traced
from tidemill.store.lease import LeaderLease
from tidemill.store.log import PATIENCE, Lost
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.store.patient import PatientStore
from tidemill.store.urls import restored_at, store_at, store_id
from tidemill.tables.migration_progress import generations
from tidemill.tables.stored_parts import read_part
from tidemill.tables.tables import Layout, layout_of
from tidemill.values.errors import Deleted, NeedsCode, OutcomeUnknown, RetryableError, SchemaOutdated, SnapshotExpired
from tidemill.values.offsets import OffsetRanges


def topology_spec(definition: StoredDefinition, topology: str, reads: tuple[str, ...]) -> TopologySpec:
    """The topology as the machine sees it."""
    sources = []
    for source in definition.topology(topology).sources:
        depot = definition.source_depot(source.depot)
        identity, partitions = definition.depot_identity(source.depot), definition.partitions(source.depot)
        sources.append(
            SourceSpec(
                source.source_id, identity, source.depot, partitions, depot.tick_millis, source.since,
                is_external=depot.partitioner == "external",
            )
        )  # fmt: skip
    mirrored = [name for name, mirror in definition.mirrors.items() if isinstance(mirror.item, StoredDepot)]
    depots = {
        name: definition.depot_prefix(name).rpartition("/")[2]
        for name in (*(name for name, depot in definition.depots.items() if depot.takes_appends), *mirrored)
    }
    depots |= {f"former {mirror.place}": mirror.folder.rpartition("/")[2] for mirror in definition.former}
    depots[QUARANTINE] = QUARANTINE
    retired = [gone.item for gone in definition.retired if isinstance(gone.item, StoredDepot)]
    sinks = {depots[name] for name, depot in definition.depots.items() if depot.partitioner == "sink"}
    return TopologySpec(
        topology, definition.number, tuple(sources), reads, _retired_sources(definition, topology), depots,
        frozenset(depot_folder(definition.module, item).rpartition("/")[2] for item in retired if item.takes_appends),
        frozenset(sinks),
        generations([*definition.topology(topology).pstates.values(), *_retired_pstates(definition, topology)]),
        definition.tasks, definition.threads,
    )  # fmt: skip


def _retired_pstates(definition: StoredDefinition, topology: str) -> list[StoredPState]:
    mine = definition.topology(topology).id
    return [gone.item for gone in definition.retired if gone.topology == mine and isinstance(gone.item, StoredPState)]


def _retired_sources(definition: StoredDefinition, topology: str) -> frozenset[str]:
    mine = definition.topology(topology).id
    return frozenset(
        gone.name for gone in definition.retired if isinstance(gone.item, StoredSource) and gone.topology == mine
    )


class TopologyStore:
    """One topology's logs, depots and lease on a store."""

    def __init__(
        self,
        store: ObjectStore,
        definition: StoredDefinition,
        topology: str,
        program: Program,
        lease: LeaderLease,
        clock: Clock,
        patience: tuple[float, ...] = PATIENCE,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self.store = store
        self.definition = definition
        self.topology = topology
        self.program = program
        self.lease = lease
        self.clock = clock
        self.spec = topology_spec(definition, topology, program.pins)
        self.prefix = definition.topology_prefix(topology)
        self.commit_log = CommitLog(store, self.prefix, patience, wait)
        self.definitions = DefinitionLog(store, definition.module)
        self.deletions = Deletions(store, definition.module, patience=patience)
        self.emptied: set[str] = set()
        self.log_ages: dict[str, LogAges] = {}
        self._done: DeletionDecision | None = None
        self.options = OptionsLog(store, definition.module)
        check_copies(definition.mirrors.values())
        self.settlements = SettlementLog(store, self.prefix, patience)
        self.quarantine = Quarantine(store, lambda: definition, topology, clock, patience=patience)
        self.others = {name: self._other(name) for name in self.spec.reads}
        self.depots = {
            source.depot_name: DepotLog(
                PatientStore(self._store_of(source.depot_name)) if patience else self._store_of(source.depot_name),
                definition.depot_prefix(source.depot_name),
                source.partitions,
                clock.now_ms,
                patience,
            )
            for source in self.spec.sources
            if source.tick_millis is None and not source.is_external
        }
        self.externals = {
            source.depot_name: ExternalLog(program.objects[source.depot_name], clock)
            for source in self.spec.sources
            if source.is_external
        }
        self._mirrored = MirroredObjects(store, definition)
        self._patience = patience
        self._targets: dict[str, DepotLog] = {}
        self._written: Mapping[str, bytes] = {}

    def _store_of(self, depot: str) -> ObjectStore:
        return store_at(self.store, self.definition.store_of(depot))

    def _other(self, name: str) -> CommitLog:
        """The log of a topology whose PStates are read: of this module, or of another one."""
        for mirror in self.definition.mirrors.values():
            if name in mirror.places:
                return CommitLog(store_at(self.store, mirror.store), mirror.places[name])
        return CommitLog(self.store, self.definition.topology_prefix(name))

    def target(self, depot: str) -> DepotLog:
        """A depot that the topology appends to, by its name with its id; for one thread at a time."""
        if depot not in self._targets:
            former = {mirror.folder.rpartition("/")[2]: mirror for mirror in self.definition.former}
            if depot in former:
                gone = former[depot]
                store = store_at(self.store, gone.store)
                found = DepotLog(store, gone.folder, gone.partitions, self.clock.now_ms, self._patience)
            else:
                found = self.opened_depot(next(name for name, at in self.spec.depots.items() if at == depot))
            self._targets[depot] = found
        return self._targets[depot]

    def sink(self, depot: str) -> DeclaredObject | None:
        """The object behind a depot that is a sink, by its name with its id; None for any other."""
        name = next((name for name, at in self.spec.depots.items() if at == depot), "")
        found = self.program.objects.get(name)
        return found if found is not None and isinstance(found.value, ExternalSink) else None

    @cached_property
    def store_id(self) -> str:
        """The name of this copy of the store."""
        return store_id(self.store)

    @cached_property
    def restored_at(self) -> int:
        """The microbatch at which the topology was restored into this copy of the store; 0 if it began in it."""
        return restored_at(self.store, self.prefix)

    def opened_depot(self, name: str) -> DepotLog:
        """Another handle of a depot of the module, of one that it mirrors, or of the topology's quarantine."""
        if name == QUARANTINE:
            return DepotLog(self.store, quarantine_prefix(self.prefix), 1, self.clock.now_ms, self._patience)
        prefix, partitions = self.definition.depot_prefix(name), self.definition.partitions(name)
        return DepotLog(self._store_of(name), prefix, partitions, self.clock.now_ms, self._patience)

    def read_part(self, name: str) -> bytes:
        """The bytes of a part that an entry names; those of the newest commit are at hand. Raises NotFound."""
        return self._written.get(name) or read_part(self.store, self.prefix, name)

    def old(self, log: str, newest: int, millis: float) -> int:
        """The newest number of a log (by a name) that is at least so old as this process saw it; notes the newest."""
        now = self.clock.monotonic_ms()
        ages = self.log_ages.setdefault(log, LogAges())
        ages.note(newest, now)
        return ages.old(millis, now)

    # --- questions ---------------------------------------------------------------------------------------------------

    def answer(self, question: events.Question) -> events.Event:
        """What the store says; `StoreFailed` where it says nothing."""
        try:
            return self._answer_or_end(question)
        except (RetryableError, OutcomeUnknown) as error:
            return events.StoreFailed(str(error))

    def _answer(self, question: events.Question) -> events.Event:
        if isinstance(question, events.AskLease):
            return events.LeaseAnswered(self.lease.try_acquire())
        if isinstance(question, events.ReadHead):
            return self._read_head()
        if isinstance(question, events.ResolveStarts):
            return self._resolve_starts(question.source_ids)
        if isinstance(question, events.Look):
            return self._look(question)
        try:
            self.commit_log.append(question.number, question.entry, question.parts)
        except Lost:
            return events.EntryLost(question.number)
        if question.entry.appends and question.parts:
            self._written = {f"{entry_name(question.number)}#{name}": part for name, part in question.parts.items()}
        return events.EntryWritten(question.number)

    def _answer_or_end(self, question: events.Question) -> events.Event:
        """Where what this runner works on was deleted, the definition that did it replaced its own."""
        try:
            return self._answer(question)
        except Deleted:
            newest = self.definitions.newest_number()
            if newest <= self.definition.number:
                raise
            return events.HeadRead(0, None, newest)

    def _read_head(self) -> events.HeadRead:
        head = self.commit_log.head()
        newest = self.definitions.newest_number()
        return events.HeadRead(head[0], head[1], newest) if head else events.HeadRead(0, None, newest)

    def _resolve_starts(self, source_ids: tuple[str, ...]) -> events.StartsResolved:
        now_ms = self.clock.now_ms()
        return events.StartsResolved(
            {
                source.source_id: self._log(source.depot).resolve_start(source.start_from, now_ms)
                for source in self.definition.topology(self.topology).sources
                if source.source_id in source_ids
            }
        )

    def _log(self, depot: str) -> DepotLog | ExternalLog:
        return self.externals.get(depot) or self.depots[depot]

    def _look(self, question: events.Look) -> events.SourcesProbed:
        """The options come first: what was appended before a pause ended is seen by the look that sees its end."""
        options = self.options.read()
        for depot in self.depots.values():
            depot.follow()
        for source in self.spec.sources:
            if source.source_id in question.reached:
                self.depots[source.depot_name].check_holds(question.reached[source.source_id])
        for log in self.externals.values():
            log.follow()
        ends = {
            source.source_id: self._ends(source.depot_name)
            for source in self.spec.sources
            if source.tick_millis is None
        }
        reads = {name: log.newest_number() for name, log in self.others.items()}
        settled = self.settlements.newest().start if question.has_quarantine else 0
        return events.SourcesProbed(ends, options, self.definitions.newest_number(), reads, settled)

    def _ends(self, depot: str) -> DepotEnds:
        if depot in self.externals:
            return self.externals[depot].ends()
        newest = self.depots[depot].newest()
        return DepotEnds(newest.starts, newest.ends, newest.last.mark)

    def has_records(self) -> bool:
        """Whether any depot seems to have grown since the last look: one probe for each."""
        has_grown = any(depot.seems_longer() for depot in self.depots.values())
        return any(log.follow() for log in self.externals.values()) or has_grown

    def has_changes(self) -> bool:
        """Whether the options, the definition, or what `has_records` does not see of the depots, have changed since the
        last look.
        """
        before = self.options.number
        if self.options.read().number != before or self.definitions.newest_number() > self.definition.number:
            return True
        return any(depot.follow() for depot in self.depots.values())

    def decision(self) -> DeletionDecision | None:
        """What became of the deletions of this definition. Once they are done they are; only that is remembered.

        Raises:
            StoreUnavailable: ask again.
        """
        if self._done is None:
            found = self.deletions.decision(self.definition)
            self._done = found if found is not None and found.is_done else None
            return found
        return self._done

    def restorable(self) -> tuple[Retirement, ...]:
        """What a rollback may still bring back: nothing of it may go."""
        return self.definition.retired if self.definition.retired and not _is_done(self.decision()) else ()

    # --- work --------------------------------------------------------------------------------------------------------

    def attempt_work(self, start: events.StartAttempt) -> AttemptWork:
        """All that an attempt needs, as plain data.

        Raises:
            SnapshotExpired: what it reads of another topology was collected; it must be pinned anew.
            SchemaOutdated: what is mirrored of another module is otherwise by now.
        """
        sources = self._sources(start.attempt, start.options)
        depots = (each.depot for each in sources.values() if each.ranges.records)
        broken = self._mirrored.broken([*self.program.reads, *self.program.mirrored, *depots])
        if broken:
            raise SchemaOutdated(broken)
        return AttemptWork(
            store_url=self.store.url,
            module=self.definition.module,
            prefix=self.prefix,
            program=traced(self.program) if start.is_traced else self.program,
            tasks=self.definition.tasks,
            threads=self.definition.threads,
            microbatch_id=start.attempt.microbatch_id,
            version=start.attempt.version,
            snapshot=start.entry.snapshot,
            sources=sources,
            reads=self._reads(start.attempt),
            options=self._options(start.options),
            now_millis=self.clock.now_ms(),
        )

    def _sources(self, attempt: Attempt, options: ModuleOptions) -> dict[str, SourceWork]:
        """Of each source its records; a source that joined after the range was fixed has none."""
        found = {}
        for source in self.spec.sources:
            prefix = self.definition.depot_prefix(source.depot_name)
            if source.tick_millis is not None:
                is_due = source.source_id in attempt.ticks
                found[source.source_id] = SourceWork(source.source_id, prefix, is_due=is_due)
            elif source.is_external:
                ranges = attempt.ranges.get(source.source_id, OffsetRanges())
                found[source.source_id] = SourceWork(
                    source.source_id, prefix, ranges, depot=source.depot_name, is_external=True,
                    left_out=_left_out(attempt, source.source_id),
                )  # fmt: skip
            else:
                ranges = attempt.ranges.get(source.source_id, OffsetRanges.of([(0, 0)] * source.partitions))
                segments = self.depots[source.depot_name].locate(ranges)
                fetch = resolve("depot.max.fetch", options.values, source.depot_name)
                found[source.source_id] = SourceWork(
                    source.source_id, prefix, ranges, segments, depot=source.depot_name, fetch=fetch,
                    store_url=self._store_of(source.depot_name).url, left_out=_left_out(attempt, source.source_id),
                )  # fmt: skip
        return found

    def _reads(self, attempt: Attempt) -> dict[str, Pinned]:
        found = {}
        for name, log in self.others.items():
            number = attempt.reads.get(name, 0)
            try:
                snapshot = log.read_kept(number).snapshot if number else Snapshot()
            except NotFound as error:
                raise SnapshotExpired(f"entry {number} of topology {name} was collected", topology=name) from error
            found[name] = Pinned(log.log.prefix.rpartition("/")[0], snapshot, log.log.store.url)
        return found

    def _options(self, options: ModuleOptions) -> Mapping[str, Any]:
        return {
            **resolve_all("module", options.values),
            **resolve_all("depot", options.values),
            **resolve_all("topology", options.values, self.topology),
        }

    def compaction_work(self, start: events.StartCompaction) -> CompactionWork:
        """All that a compaction needs, as plain data."""
        return CompactionWork(
            store_url=self.store.url,
            module=self.definition.module,
            prefix=self.prefix,
            program=self.program,
            tasks=self.definition.tasks,
            threads=self.definition.threads,
            microbatch_id=start.microbatch_id,
            levels=start.levels,
            is_base=start.is_base,
            retired=self._retired_pstates(start.levels),
            pieces=start.pieces,
        )

    def _retired_pstates(self, levels: tuple[Level, ...]) -> dict[str, Layout]:
        """Those that a rollback may bring back. Raises NeedsCode: values of one wait in these levels for a migration,
        whose function went with it.
        """
        retired = _retired_pstates(self.definition, self.topology) if self.restorable() else []
        for pstate in retired:
            if Snapshot(levels).migrated_from(generations([pstate])):
                text = (
                    f"{pstate.name} was deleted while its values wait for a migration, and a rollback may bring it back"
                )
                raise NeedsCode(f"{text}: all values that wait are rewritten once this update is stable.")
        return {pstate.id: layout_of(pstate.schema, steps_of(pstate)) for pstate in retired}


def _left_out(attempt: Attempt, source_id: str) -> frozenset[tuple[int, int]]:
    """The records of a source that an attempt does not read."""
    mine = (poison for poison in attempt.poisons if poison.source_id == source_id)
    return frozenset((poison.partition, poison.offset) for poison in mine)


def _is_done(decided: DeletionDecision | None) -> bool:
    return decided is not None and decided.is_done
