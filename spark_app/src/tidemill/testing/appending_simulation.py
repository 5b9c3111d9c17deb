"""The simulation with a topology that appends each record to a second depot: exactly once, in order (invariant S8)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidemill.definition.definition import StoredDefinition
from tidemill.depot.header import Header, SegmentSummary
from tidemill.depot.log import DepotLog
from tidemill.depot.rows import PartitionedRows, split_by_partition
from tidemill.depot.segment import encode_segment
from tidemill.engine.resources import read_records
from tidemill.engine.work import AttemptOutcome, AttemptRunner, AttemptWork, DeltaPart
from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Part
from tidemill.language.dataflow import DepotDeclaration, Location, ModuleDeclaration
from tidemill.store.objects import ObjectStore
from tidemill.testing.auditor import Auditor
from tidemill.testing.counting_runner import ALL_TASKS, CountingRunner
from tidemill.testing.simulation import PATIENCE, TASKS, TOPOLOGY, Simulation
from tidemill.values.columns import to_values
from tidemill.values.errors import invariant
from tidemill.values.ids import Ids
from tidemill.values.offsets import OffsetRanges

OUT: Final = "*out"


class AppendingRunner(CountingRunner):
    """Counts, and appends each record to `*out` in its partition: in one part or two, inline or not."""

    def __init__(self, store: ObjectStore, chance: random.Random, ids: Ids, fails: Callable[[], bool]) -> None:
        super().__init__(store, chance, ids, fails)
        self._parts = 0

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Raises: as `CountingRunner.run`."""
        outcome = super().run(work, cancel)
        (source,) = work.sources.values()
        if not source.records:
            return outcome
        depot = DepotLog(self._store, source.depot_prefix, len(source.ranges), patience=())
        column, partitions = read_records(depot, source)
        cut = self._random.randrange(len(partitions) + 1)
        rows = to_values(column)
        pieces = [(rows[:cut], partitions[:cut]), (rows[cut:], partitions[cut:])]
        parts = [self._part(work, split_by_partition(held, at)) for held, at in pieces if held]
        return replace(outcome, appends=tuple(parts))

    def _part(self, work: AttemptWork, rows: PartitionedRows) -> DeltaPart:
        ends = dict(rows.counts)
        none = (0,) * TASKS
        summary = SegmentSummary(1, self._ids.nonce(), 0, tuple(ends.get(p, 0) for p in range(TASKS)))
        content = bytes(encode_segment(Header((summary,), none, none), rows.column))
        part = Part("", ALL_TASKS, {OUT: rows.length}).sealed(content)
        if self._random.randrange(2):
            return DeltaPart(part, content)
        name = f"appends/{work.microbatch_id}-{work.version}-0-{self._ids.nonce()}.arrow"
        self._store.create(f"{work.prefix}/{name}", content)
        return DeltaPart(replace(part, name=name), None)


class AppendingAuditor(Auditor):
    """Compares `*out` with the records that are committed, partition by partition."""

    def __init__(
        self, store: ObjectStore, definition: StoredDefinition, topology: str, depot: DepotLog, out: DepotLog
    ) -> None:
        super().__init__(store, definition, topology, depot)
        self._out = out

    def check_reader(self) -> None:
        """S8, besides what every simulation checks: what is published is the beginning of what is committed."""
        super().check_reader()
        head = self._log.head()
        self._out.follow()
        for partition, (committed, missing) in enumerate(self._committed_rows(head[1]) if head is not None else ()):
            published = to_values(self._out.read_columns(partition, 0, self._out.ends()[partition]))
            text = "S8: each append of a committed microbatch is there once, in order"
            invariant(published == committed[: len(published)], text, published=published, committed=committed)
            invariant(len(published) >= missing, "S8: what an entry leaves out is published", partition=partition)

    def _committed_rows(self, entry: Entry) -> list[tuple[list[int], int]]:
        """Of each partition the committed records in their order, and how many of them must be published."""
        found = []
        for progress in entry.progress.values():
            self._depot.follow()
            ranges = OffsetRanges(progress.start_from, progress.offsets)
            rows, partitions = self._depot.read_rows(ranges)
            waiting = sum(append.records for append in entry.appends)
            for partition in range(TASKS):
                held = [row for row, at in zip(to_values(rows), partitions.tolist(), strict=True) if at == partition]
                found.append((held, max(0, len(held) - waiting)))
        return found

    def is_finished(self) -> bool:
        """Whether everything is processed, and what it appended is published."""
        if not super().is_finished():
            return False
        self._out.follow()
        return self._out.ends() == self._depot.ends()


class AppendingSimulation(Simulation):
    """A simulation whose topology appends what it reads."""

    def _declaration(self) -> ModuleDeclaration:
        declared = super()._declaration()
        return replace(declared, depots=(*declared.depots, DepotDeclaration(OUT, "disallow", Location())))

    def _engine(self, store: ObjectStore, ids: Ids) -> AttemptRunner:
        return AppendingRunner(store, self.random, ids, lambda: self._happens(self.chances.user_error))

    def _auditor(self) -> Auditor:
        prefix = self.definition.depot_prefix(OUT)
        out = DepotLog(self.store, prefix, TASKS, self.clock.now_ms, PATIENCE)
        return AppendingAuditor(self.store, self.definition, TOPOLOGY, self.depot(), out)
