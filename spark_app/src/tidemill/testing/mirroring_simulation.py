"""Two modules at once: one has the depot and deletes its records, the other one reads a mirror of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tidemill.cluster.mirrors import found_mirrors
from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.mirrors import bound
from tidemill.depot.log import DepotLog
from tidemill.journal.clock import ManualClock
from tidemill.journal.entries import Entry
from tidemill.language.dataflow import Location, MirrorDeclaration, ModuleDeclaration
from tidemill.leader.readers import FOLDER, register
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.program import Program
from tidemill.store.objects import ObjectStore
from tidemill.testing.auditor import Auditor
from tidemill.testing.simulation import DEPOT, MODULE, TASKS, TOPOLOGY, Chances, CrashAt, Simulation
from tidemill.values.columns import to_values
from tidemill.values.ids import Ids

KEPT_RECORDS: Final = 3

CHANCES: Final = Chances(clock_jump=0)
"""Who is silent for longer than a reader may be loses records, so time does not jump."""


class DepotMemory:
    """The records of a depot by partition and offset, also those that are deleted since."""

    def __init__(self, depot: DepotLog) -> None:
        self._depot = depot
        self.rows: list[list[int]] = [[] for _ in range(TASKS)]

    def learn(self) -> None:
        """Reads what was appended since; before anything of it can be deleted."""
        self._depot.follow()
        for known, (partition, end) in zip(self.rows, enumerate(self._depot.ends()), strict=True):
            known += map(int, to_values(self._depot.read_columns(partition, len(known), end)))


class RememberingAuditor(Auditor):
    """Knows the records of a depot that is trimmed."""

    memory: DepotMemory

    def records(self, entry: Entry) -> list[int]:
        """The records from each source's start to its progress."""
        return [
            row
            for progress in entry.progress.values()
            for known, start, end in zip(self.memory.rows, progress.start_from, progress.offsets, strict=True)
            for row in known[start:end]
        ]


class OwningSimulation(Simulation):
    """A simulation whose depot keeps few records longer than they are needed."""

    def _declare(self) -> None:
        super()._declare()
        options = self.options_log(self.seed + 1)
        options.set("depot", DEPOT, "depot.max.entries.per.partition", KEPT_RECORDS)
        options.set("depot", DEPOT, "depot.excess.proportion", 0.0)
        self.memory = DepotMemory(self.depot())

    def _auditor(self) -> Auditor:
        auditor = RememberingAuditor(self.store, self.definition, TOPOLOGY, self.depot())
        auditor.memory = self.memory
        return auditor

    def _spoil(self, verb: str, key: str, answer: Any) -> Any:
        """Who reads the depot is found by one listing and reads of what it names; that they are whole is assumed."""
        return answer if f"/{FOLDER}" in key else super()._spoil(verb, key, answer)

    def _append(self) -> None:
        super()._append()
        self.memory.learn()


class MirroringSimulation(Simulation):
    """A simulation whose source is a mirror; `owner` is the module that has the depot, with a runner of its own."""

    module = "Reader"

    def __init__(
        self, seed: int, chances: Chances = CHANCES, crash_at: CrashAt | None = None, runners: int = 2
    ) -> None:
        self.owner = OwningSimulation(seed + 1_000_000, chances, runners=1)
        super().__init__(seed, chances, crash_at, runners)
        self.appended, self.uncertain = self.owner.appended, self.owner.uncertain
        self.owner.trace = self.trace

    def _open_store(self) -> ObjectStore:
        return self.owner.store

    def _open_clock(self) -> ManualClock:
        return self.owner.clock

    def _declaration(self) -> ModuleDeclaration:
        declared = super()._declaration()
        mirror = MirrorDeclaration(DEPOT, "depot", MODULE, DEPOT, Location())
        return replace(declared, name=self.module, depots=(), mirrors=(mirror,))

    def _launched(self) -> StoredDefinition:
        """As a launch does it: the mark of the reader is there before its definition."""
        found = found_mirrors(self.store, self.declaration)
        made = definitions.launch(self.declaration, TASKS, 1, Ids(self.seed), found)
        self._compiled = compile_topology(bound(self.declaration, found), TOPOLOGY)
        register(self.store, made, 1, self.clock.now_ms())
        return self._definition_log().append(made, self.clock.now_ms())

    def _program(self) -> Program:
        return self._compiled

    def depot(self, store: ObjectStore | None = None) -> DepotLog:
        """A new handle of the other module's depot."""
        return self.owner.depot(store)

    def _auditor(self) -> Auditor:
        auditor = RememberingAuditor(self.store, self.definition, TOPOLOGY, self.depot())
        auditor.memory = self.owner.memory
        return auditor

    def _append(self) -> None:
        self.owner._append()

    def step(self) -> None:
        """One thing happens in one of the two modules."""
        if self.random.randrange(2):
            self.owner.step()
        else:
            super().step()

    def finish(self) -> None:
        """The module that has the depot comes to its end first, and deletes what it may."""
        self.owner.finish()
        super().finish()
