"""Crashes at every store request and between any two events; invariants S1-S7 after each run."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tidemill.testing.simulation import CALM, CrashAt, Simulation

SEEDS = int(os.environ.get("TIDEMILL_SIM_SEEDS", "1000"))
SEED_OF_CRASHES = 3
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_FIRST_SEED", "1"))


def run(simulation: Simulation, steps: int = 200) -> None:
    try:
        simulation.run(steps)
    except BaseException as error:
        error.add_note(f"seed {simulation.seed}, crash {simulation.crash_at}; the last events:")
        error.add_note("\n".join(simulation.trace[-25:]))
        raise


@pytest.mark.parametrize("block", range(10))
def test_invariants_hold_when_anything_fails_at_any_time(block: int) -> None:
    for seed in range(FIRST_SEED + block, FIRST_SEED + SEEDS, 10):
        run(Simulation(seed))


def test_same_trace_when_the_seed_is_the_same() -> None:
    first, second = Simulation(7), Simulation(7)
    run(first)
    run(second)
    assert first.trace == second.trace
    assert len(first.trace) > 50


@pytest.mark.parametrize("moment", ["before write", "after write", "before event"])
def test_invariants_hold_when_a_runner_dies_at_each_write_and_event(moment: Any) -> None:
    calm = Simulation(SEED_OF_CRASHES, CALM)
    run(calm)
    places = calm.turns if moment == "before event" else calm.writes
    crashes = 0
    for number in range(1, places + 1):
        simulation = Simulation(SEED_OF_CRASHES, CALM, CrashAt(number, moment))
        run(simulation)
        crashes += simulation.crashes
    assert crashes == places


def test_faults_really_happen_when_a_simulation_is_not_calm() -> None:
    runs = [Simulation(seed) for seed in range(1, 31)]
    for simulation in runs:
        run(simulation)
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
