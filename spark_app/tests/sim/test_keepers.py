"""Every kind of store write is cut off: of runners, appenders, people and keepers. S1-S7 hold each time."""

from __future__ import annotations

import os
from typing import Any

import pytest
from keepers import KeeperSimulation, kinds_of_writes
from simulation_runs import run

from tidemill.depot import producers
from tidemill.testing.simulation import CALM, CrashAt

FIRST = int(os.environ.get("TIDEMILL_SIM_FIRST_SEED", "1"))
SEEDS = int(os.environ.get("TIDEMILL_SIM_SEEDS", "800"))
STEPS = 150


@pytest.fixture(autouse=True)
def _tables_of_producers_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "TABLE_EVERY", 4)
    monkeypatch.setattr(producers, "SMALL_TABLE", 1)


@pytest.mark.parametrize("block", range(10))
def test_invariants_hold_when_any_write_of_anybody_fails(block: int) -> None:
    for seed in range(FIRST + block, FIRST + SEEDS, 10):
        run(KeeperSimulation(seed), STEPS)


def test_same_trace_when_the_seed_is_the_same() -> None:
    first, second = run(KeeperSimulation(11), STEPS), run(KeeperSimulation(11), STEPS)
    assert first.trace == second.trace
    assert len(first.trace) > 50


@pytest.mark.parametrize("moment", ["before write", "after write"])
def test_invariants_hold_when_each_write_of_a_run_is_cut_off(moment: Any) -> None:
    calm = run(KeeperSimulation(5, CALM), STEPS)
    for number in range(1, calm.writes + 1):
        run(KeeperSimulation(5, CALM, CrashAt(number, moment)), STEPS)


def test_all_kinds_of_writes_happen_when_simulations_are_many() -> None:
    runs = [run(KeeperSimulation(seed), STEPS) for seed in range(1, 31)]
    assert set.union(*(one.done for one in runs)) == {"_set", "_pause", "_update", "_roll", "_retain", "_send"}
    kinds = set.union(*map(kinds_of_writes, runs))
    assert kinds >= {"definition", "options", "log", "floor", "rolled", "deltas", "runs"}
