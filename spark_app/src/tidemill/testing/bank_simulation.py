"""The simulation with a real module on the real local engine: transfers between accounts, whose total never changes."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidemill.api.aggregators import Agg, CompoundAgg
from tidemill.api.declaration import record_module
from tidemill.api.depots import Depot
from tidemill.api.module import Module
from tidemill.api.schemas import PState
from tidemill.api.topology import MicrobatchSourceOptions
from tidemill.engine.work import AttemptOutcome, AttemptRunner, AttemptWork
from tidemill.journal.snapshot import Snapshot
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.language.operations import Ops
from tidemill.local.runner import LocalRunner
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.program import Program
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.tables.parts import PartLoader
from tidemill.tables.stored_parts import read_part
from tidemill.testing.auditor import Auditor
from tidemill.testing.simulation import DEPOT, TASKS, TOPOLOGY, Simulation
from tidemill.values.errors import UserCodeError, invariant
from tidemill.values.ids import Ids

ACCOUNTS = 5


class Bank(Module):
    """Each transfer is noted, taken from one account and given to another, on three tasks in three supersteps."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(DEPOT, Depot.random())
        mb = topologies.microbatch(TOPOLOGY)
        mb.pstate("$$seen", PState.map_schema(int, int))
        mb.pstate("$$balances", PState.map_schema(int, int))
        (
            mb.source(DEPOT, MicrobatchSourceOptions.start_from_beginning())
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*transfer")
            .each(Ops.EXPAND, "*transfer")
            .out("*giver", "*taker", "*amount", "*number")
            .hash_partition("*number")
            .compound_agg("$$seen", CompoundAgg.map("*number", Agg.count()))
            .hash_partition("*giver")
            .each(Ops.MINUS, 0, "*amount")
            .out("*loss")
            .compound_agg("$$balances", CompoundAgg.map("*giver", Agg.sum("*loss")))
            .hash_partition("*taker")
            .compound_agg("$$balances", CompoundAgg.map("*taker", Agg.sum("*amount")))
        )


@lru_cache(maxsize=1)
def _declared() -> ModuleDeclaration:
    return record_module(Bank())


class _FailingRunner(LocalRunner):
    """The local engine, where the module's code raises at times: before anything happened, or after everything did."""

    def __init__(self, fails: Callable[[], bool]) -> None:
        self._fails = fails

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        if self._fails():
            raise UserCodeError("the first record is not liked")
        outcome = super().run(work, cancel)
        if self._fails():
            raise UserCodeError("the last record is not liked")
        return outcome


class BankAuditor(Auditor):
    """Reads `$$seen` for how often each transfer counts; balances must add up to nothing."""

    infos: dict[str, PStateInfo]

    def number(self, row: Any) -> int:
        return int(row[3])

    def counts(self, snapshot: Snapshot) -> Counter[int]:
        def read(name: str) -> bytes:
            return read_part(self._store, self._prefix, name)

        reader = SnapshotReader(self.infos, snapshot, PartLoader(read, None))
        seen: Counter[int] = Counter()
        total = 0
        for task in range(TASKS):
            seen.update(dict(reader.root("$$seen", task).items()))
            total += sum(balance for _, balance in reader.root("$$balances", task).items())
        invariant(total == 0, "transfers keep the total", total=total)
        return seen


class BankSimulation(Simulation):
    """A simulation whose attempts are real ones; the store is a folder that goes away with it."""

    def run(self, steps: int = 200) -> None:
        with self._folder:
            super().run(steps)

    def _open_store(self) -> ObjectStore:
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-simulation-")
        return open_store(Path(self._folder.name).as_uri())

    def _declaration(self) -> ModuleDeclaration:
        return _declared()

    def _program(self) -> Program:
        pstates = self.definition.topology(TOPOLOGY).pstates
        return compile_topology(self.declaration, TOPOLOGY, {name: p.id for name, p in pstates.items()})

    def _engine(self, store: ObjectStore, ids: Ids) -> AttemptRunner:
        return _FailingRunner(lambda: self._happens(self.chances.user_error))

    def _auditor(self) -> Auditor:
        auditor = BankAuditor(self.store, self.definition, TOPOLOGY, self.depot())
        pstates = self.definition.topology(TOPOLOGY).pstates.values()
        auditor.infos = {p.name: PStateInfo(p.name, p.id, p.schema) for p in pstates}
        return auditor

    def _record(self, number: int) -> Any:
        giver, taker = self.random.sample(range(ACCOUNTS), 2)
        return [giver, taker, self.random.randrange(1, 100), number]
