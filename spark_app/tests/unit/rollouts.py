"""Revisions of a module as drivers write them: update, rollback, stability, with a clock that tests move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, PState
from tidemill import Path as TidemillPath
from tidemill.api.declaration import record_module
from tidemill.clients.depot import DepotHandle
from tidemill.clients.hub import AppendHub
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.cluster.launch import RunningModule, programs
from tidemill.definition.definition import StoredDefinition
from tidemill.engine.work import AttemptRunner
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.leadership import topology_lease
from tidemill.kubernetes.revision_gate import RevisionGate, RevisionPlan
from tidemill.leader.collection import collect
from tidemill.leader.deletions import Deletions
from tidemill.leader.log_closure import held
from tidemill.leader.topology_store import TopologyStore
from tidemill.local.runner import LocalRunner
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store

SECONDS = 20.0
BEGINNING = MicrobatchSourceOptions.start_from_beginning()
DELETED = ("$$old", "$$audited", "*returns")


def counting(stream: Any, *pstates: str) -> None:
    """Counts each record of a source in each of these PStates."""
    stream = stream.out("*m").explode_microbatch("*m").out("*record").hash_partition("*record")
    for pstate in pstates:
        stream = stream.compound_agg(pstate, CompoundAgg.map("*record", Agg.count()))


class Shop(Module):
    """Counts orders in two PStates, and orders and returns in a topology of its own."""

    def module_name(self) -> str:
        return "Shop"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*orders", Depot.random())
        setup.declare_depot("*visits", Depot.random())
        setup.declare_depot("*returns", Depot.random())
        count = topologies.microbatch("count")
        for name in ("$$counts", "$$old", "$$visits"):
            count.pstate(name, PState.map_schema(str, int))
        counting(count.source("*orders", BEGINNING), "$$counts", "$$old")
        counting(count.source("*visits", BEGINNING), "$$visits")
        audit = topologies.microbatch("audit")
        audit.pstate("$$audited", PState.map_schema(str, int))
        counting(audit.source("*orders", BEGINNING), "$$audited")
        counting(audit.source("*returns", BEGINNING), "$$audited")


class Smaller(Shop):
    """Without a PState, a depot, a whole topology, and without reading the visits."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*orders", Depot.random())
        setup.declare_depot("*visits", Depot.random())
        count = topologies.microbatch("count")
        for name in ("$$counts", "$$visits"):
            count.pstate(name, PState.map_schema(str, int))
        counting(count.source("*orders", BEGINNING), "$$counts")


class Clock(SystemClock):
    """Wall time that a test moves on."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Rollouts:
    """One store; `run` writes the next revision as its drivers do and leads with it."""

    module = "Shop"

    def __init__(self, folder: Path, runner: AttemptRunner | None = None) -> None:
        self.runner = runner or LocalRunner()
        self.store = open_store(folder.as_uri())
        self.hub, self.clock = AppendHub(), Clock()
        self.client = ModuleClient(self.store, self.module, self.hub, self.clock)
        self.definitions = DefinitionLog(self.store, self.module)
        self.running: RunningModule | None = None

    def plan(self, module: Module, *deleted: str, restores: bool = False) -> RevisionPlan:
        base = DefinitionLog(self.store, self.module).newest_number()
        return RevisionPlan(record_module(module), base + 1, base, 2, 1, deleted, restores)

    def turn(
        self, module: Module, *deleted: str, restores: bool = False, store: ObjectStore | None = None
    ) -> RevisionGate:
        return RevisionGate(store or self.store, self.plan(module, *deleted, restores=restores), self.clock)

    def run(self, module: Module, *deleted: str, restores: bool = False) -> StoredDefinition:
        turn = self.turn(module, *deleted, restores=restores)
        turn.write()
        return self.lead(module, turn)

    def lead(self, module: Module, turn: RevisionGate) -> StoredDefinition:
        verdict, definition = turn.look()
        assert verdict == "mine"
        assert definition is not None
        self.stop()
        self.running = RunningModule(
            self.store, record_module(module), definition, self.runner, hub=self.hub, clock=self.clock
        )
        self.running.start(SECONDS)
        return definition

    def stop(self) -> None:
        if self.running is not None:
            self.running.close()
            self.running = None

    # --- the stream --------------------------------------------------------------------------------------------------

    def append(self, depot: str, *records: str) -> None:
        DepotHandle(self.client, depot).append_many(list(records))

    def processed(self, topology: str, count: int) -> None:
        assert self.running is not None
        self.running.topologies[topology].wait_for(lambda state: state.processed >= count, SECONDS)

    def counts(self, pstate: str, keys: str) -> dict[str, int]:
        handle = PStateHandle(self.client, pstate)
        found = {key: handle.select_one(TidemillPath.key(key)) for key in keys}
        return {key: count for key, count in found.items() if count is not None}

    # --- maintenance -------------------------------------------------------------------------------------------------

    @property
    def definition(self) -> StoredDefinition:
        found = DefinitionLog(self.store, self.module).newest()
        assert found is not None
        return found

    def confirm(self, store: ObjectStore | None = None) -> bool:
        """As the leaders of a stable revision do."""
        return Deletions(store or self.store, self.module).confirm(self.definition, self.clock.now_ms())

    def collect(self, module: Module, definition: StoredDefinition, store: ObjectStore | None = None) -> None:
        """One collection of each topology, with nothing kept for readers of the past."""
        for name, program in programs(record_module(module), definition).items():
            lease = topology_lease(self.store, definition.topology_prefix(name), self.clock)
            collect(TopologyStore(store or self.store, definition, name, program, lease, self.clock), 0)

    def keys(self, folder: str) -> list[str]:
        """What is in the folder of a depot or a topology, but for the mark of its deletion."""
        return held(self.store, folder)

    def tables(self, definition: StoredDefinition, topology: str = "count") -> set[str]:
        """The PStates, by id, that have rows in the newest state of a topology."""
        head = CommitLog(self.store, definition.topology_prefix(topology)).head()
        assert head is not None
        return {name.partition("/")[0] for part in head[1].snapshot.parts() for name in part.rows}

    def compacted(self, definition: StoredDefinition) -> None:
        """Append until a compaction has entered that began after this."""
        log = CommitLog(self.store, definition.topology_prefix("count"))
        before = log.newest_number()

        def step() -> bool:
            head = log.head()
            assert head is not None
            self.append("*orders", "z")
            self.processed("count", head[1].processed + 1)
            return head[1].compacted > before + 32

        eventually(step, SECONDS)
