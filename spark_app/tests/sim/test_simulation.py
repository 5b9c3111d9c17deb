"""Crashes at every store request and between any two events; invariants S1-S7 after each run."""

from __future__ import annotations

import os
from typing import Any

import pytest
from simulation_runs import crashes_and_places, run

from tidemill.testing.simulation import Simulation

SEEDS = int(os.environ.get("TIDEMILL_SIM_SEEDS", "1000"))
SEED_OF_CRASHES = 3
STEPS = 200
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_FIRST_SEED", "1"))


@pytest.mark.parametrize("block", range(10))
def test_invariants_hold_when_anything_fails_at_any_time(block: int) -> None:
    for seed in range(FIRST_SEED + block, FIRST_SEED + SEEDS, 10):
        run(Simulation(seed), STEPS)


def test_same_trace_when_the_seed_is_the_same() -> None:
    first, second = run(Simulation(7), STEPS), run(Simulation(7), STEPS)
    assert first.trace == second.trace
    assert len(first.trace) > 50


@pytest.mark.parametrize("moment", ["before write", "after write", "before event"])
def test_invariants_hold_when_a_runner_dies_at_each_write_and_event(moment: Any) -> None:
    crashes, places = crashes_and_places(Simulation, SEED_OF_CRASHES, moment, STEPS)
    assert crashes == places


def test_faults_really_happen_when_a_simulation_is_not_calm() -> None:
    runs = [run(Simulation(seed), STEPS) for seed in range(1, 31)]
    text = "\n".join(line for simulation in runs for line in simulation.trace)
    assert sum(simulation.crashes for simulation in runs) > 10
    assert sum(simulation.spoiled for simulation in runs) > 10
    reads = ("lost read", "torn read", "misdirected read")
    for word in (
        "AttemptFailed",
        "EntryLost",
        "StoreFailed",
        "CompactionDone",
        "CollectionDone",
        "dies: fenced",
        *reads,
    ):
        assert word in text
