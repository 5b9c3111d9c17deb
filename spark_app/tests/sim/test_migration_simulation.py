"""An update migrates the balances of a bank in the middle of a run, in which anything fails at any time: each balance
goes through the migration exactly once, whoever dies at whichever write.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from simulation_runs import run

from tidemill.api.aggregators import Agg, CompoundAgg
from tidemill.api.declaration import record_module
from tidemill.api.depots import Depot
from tidemill.api.module import Module
from tidemill.api.schemas import PState
from tidemill.api.topology import MicrobatchSourceOptions
from tidemill.definition import definition as definitions
from tidemill.definition.migration_steps import known_migrations, steps_of, with_steps
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Snapshot
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.language.operations import Ops
from tidemill.leader.check import check_module
from tidemill.leader.maintenance import Maintenance
from tidemill.leader.waiting_migrations import waiting_migrations
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.program import Program
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.tables.migration_progress import generations
from tidemill.tables.parts import PartLoader
from tidemill.tables.stored_parts import read_part
from tidemill.testing.bank_simulation import BankAuditor, BankSimulation
from tidemill.testing.simulation import CALM, DEPOT, FINISH_TURNS, MODULE, TASKS, TOPOLOGY, Chances, CrashAt
from tidemill.values.errors import invariant
from tidemill.values.ids import Ids

SEEDS = int(os.environ.get("TIDEMILL_MIGRATION_SEEDS", "8"))
FACTOR = 100
FAULTY = Chances()


def in_cents(balance: int) -> int:
    return balance * FACTOR


def in_mills(balance: int) -> int:
    return balance * 10


class CentBank(Module):
    """The bank of the simulation, whose balances are in cents now."""

    balances = PState.migrated(int, "cents", in_cents)
    factor = FACTOR

    def module_name(self) -> str:
        return MODULE

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(DEPOT, Depot.random())
        mb = topologies.microbatch(TOPOLOGY)
        mb.pstate("$$seen", PState.map_schema(int, int))
        mb.pstate("$$balances", PState.map_schema(int, self.balances))
        (
            mb.source(DEPOT, MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
            .explode_microbatch("*microbatch").out("*transfer")
            .each(Ops.EXPAND, "*transfer").out("*giver", "*taker", "*amount", "*number")
            .hash_partition("*number")
            .compound_agg("$$seen", CompoundAgg.map("*number", Agg.count()))
            .each(Ops.TIMES, "*amount", self.factor).out("*cents")
            .each(Ops.MINUS, 0, "*cents").out("*loss")
            .hash_partition("*giver")
            .compound_agg("$$balances", CompoundAgg.map("*giver", Agg.sum("*loss")))
            .hash_partition("*taker")
            .compound_agg("$$balances", CompoundAgg.map("*taker", Agg.sum("*cents")))
        )  # fmt: skip


class MillBank(CentBank):
    """The same after a second update."""

    balances = CentBank.balances.migrated(int, "mills", in_mills)
    factor = 10 * FACTOR


UPDATES = ((record_module(CentBank()), CentBank.factor), (record_module(MillBank()), MillBank.factor))


class CentAuditor(BankAuditor):
    """Compares each balance with what the transfers that count come to."""

    factor = 1
    transfers: dict[int, tuple[int, int, int]]

    def counts(self, snapshot: Snapshot) -> Counter[int]:
        seen = super().counts(snapshot)
        if self.factor > 1:
            expected: Counter[int] = Counter()
            for number in seen:
                giver, taker, amount = self.transfers[number]
                expected[giver] -= amount * self.factor
                expected[taker] += amount * self.factor
            found = self._balances(snapshot)
            same = {k: v for k, v in expected.items() if v} == {k: v for k, v in found.items() if v}
            invariant(same, "each balance is migrated once", expected=expected, found=found)
        return seen

    def _balances(self, snapshot: Snapshot) -> dict[int, int]:
        def read(name: str) -> bytes:
            return read_part(self._store, self._prefix, name)

        reader = SnapshotReader(self.infos, snapshot, PartLoader(read, None))
        return {key: value for task in range(TASKS) for key, value in reader.root("$$balances", task).items()}


class MigratingSimulation(BankSimulation):
    """After so many steps another definition follows; runners of the old one notice it whenever they look."""

    def __init__(
        self, seed: int, chances: Chances = FAULTY, crash_at: CrashAt | None = None, update_after: int = 60,
        again_after: int = 0,
    ) -> None:  # fmt: skip
        self.transfers: dict[int, tuple[int, int, int]] = {}
        self._steps, self._updates = 0, {update_after: UPDATES[0], again_after: UPDATES[1]}
        super().__init__(seed, chances, crash_at)

    def step(self) -> None:
        self._steps += 1
        if self._steps in self._updates:
            self._update(*self._updates[self._steps])
        super().step()

    def _update(self, declared: ModuleDeclaration, factor: int) -> None:
        waiting = waiting_migrations(self.store, self.definition)
        new = definitions.update(self.definition, declared, (), Ids(self.seed + self._steps), waiting=waiting)
        self.definition = self._definition_log().append(new)
        self.declaration = with_steps(declared, self.definition)
        pstates = self.definition.topology(TOPOLOGY).pstates.values()
        known = known_migrations(declared)
        self.auditor.infos = {p.name: PStateInfo(p.name, p.id, p.schema, steps=steps_of(p, known)) for p in pstates}
        self.auditor.factor = factor

    def _program(self) -> Program:
        pstates = self.definition.topology(TOPOLOGY).pstates
        return compile_topology(self.declaration, TOPOLOGY, {name: p.id for name, p in pstates.items()})

    def _auditor(self) -> CentAuditor:
        plain = super()._auditor()
        auditor = CentAuditor(self.store, self.definition, TOPOLOGY, self.depot())
        auditor.infos, auditor.transfers = plain.infos, self.transfers
        return auditor

    def _record(self, number: int) -> Any:
        giver, taker, amount, _ = record = super()._record(number)
        self.transfers[number] = giver, taker, amount
        return record

    @property
    def is_migrated(self) -> bool:
        """Whether a leader of the new definition has claimed, and no row waits."""
        head = CommitLog(self.store, self.definition.topology_prefix(TOPOLOGY)).head()
        wanted = generations(self.definition.topology(TOPOLOGY).pstates.values())
        if head is None or head[1].definition < self.definition.number:
            return False
        return head[1].snapshot.migrated_from(wanted) == 0

    def finish(self) -> None:
        """Beyond that of a simulation: the migration comes to its end."""
        self.chances = CALM
        super().finish()
        for _ in range(FINISH_TURNS):
            if not self.processes:
                self._start_process()
            if self.is_migrated:
                break
            if self.desk.holder_name not in [process.name for process in self.processes]:
                self.desk.holder_name = ""
            self._turn(self.random.choice(self.processes))
            self.clock.advance(50)
        else:
            invariant(False, "a migration without faults finishes", seed=self.seed, trace=self.trace[-12:])
        self.auditor.check_end(self.appended, self.uncertain)
        invariant(not check_module(self.store, MODULE), "a migrated store has no fault")


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_balances_are_migrated_once_when_anything_fails_at_any_time(seed: int) -> None:
    run(MigratingSimulation(seed), 150)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Migrations are cut; how many pieces were done in the entries that were written."""
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 1)
    done: list[int] = []
    with_compaction = Maintenance.with_compaction

    def noted(self: Maintenance, entry: Entry, number: int) -> Entry:
        made = with_compaction(self, entry, number)
        done.extend(pending.done for pending in made.pending if pending.is_cut)
        return made

    monkeypatch.setattr(Maintenance, "with_compaction", noted)
    return done


def test_balances_are_migrated_once_when_pieces_are_lost_at_any_time(pieces: list[int]) -> None:
    for seed in range(1, SEEDS + 1):
        run(MigratingSimulation(seed + 1_000), 150)
    assert 1 in pieces


def test_balances_go_through_both_migrations_when_the_second_comes_among_the_pieces_of_the_first(
    pieces: list[int],
) -> None:
    for seed in range(1, SEEDS + 1):
        run(MigratingSimulation(seed + 2_000, again_after=61 + 5 * seed % 40), 160)
    assert 1 in pieces


def test_balances_are_migrated_once_when_a_runner_dies_between_pieces(pieces: list[int]) -> None:
    die_at_each_write("after write")
    assert 1 in pieces


@pytest.mark.parametrize("moment", ["before write", "after write"])
def test_balances_are_migrated_once_when_a_runner_dies_at_each_write_after_the_update(moment: Any) -> None:
    die_at_each_write(moment)


def die_at_each_write(moment: Any) -> None:
    """Runs the same simulation once for each write after the update, at which its runner dies."""
    calm = run(MigratingSimulation(5, CALM, update_after=40), 60)
    at_update = MigratingSimulation(5, CALM, update_after=40)
    with at_update._folder:
        for _ in range(39):
            at_update.step()
        first = at_update.writes + 1
    crashes = 0
    for number in range(first, calm.writes + 1):
        crashes += run(MigratingSimulation(5, CALM, CrashAt(number, moment), update_after=40), 60).crashes
    assert crashes == calm.writes + 1 - first
    assert crashes > 5
