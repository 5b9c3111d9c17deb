"""Crashes at every store request and between any two events of two modules, of which one reads the other's depot."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from simulation_runs import crashes_and_places, is_caught, run

from tidemill.leader import collection
from tidemill.testing import mirroring_simulation
from tidemill.testing.mirroring_simulation import MirroringSimulation

SEEDS = int(os.environ.get("TIDEMILL_SIM_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_FIRST_SEED", "1"))
SEED_OF_CRASHES = 3
STEPS = 200


@pytest.mark.parametrize("block", range(4))
def test_each_record_counts_once_in_both_modules_when_anything_fails_at_any_time(block: int) -> None:
    for seed in range(FIRST_SEED + block, FIRST_SEED + SEEDS, 4):
        run(MirroringSimulation(seed), STEPS)


@pytest.mark.parametrize("moment", ["before write", "after write"])
def test_each_record_counts_once_when_a_reader_of_a_mirror_dies_at_each_write(moment: Any) -> None:
    crashes, places = crashes_and_places(MirroringSimulation, SEED_OF_CRASHES, moment, STEPS // 4)
    assert crashes == places


def test_records_are_deleted_while_a_mirror_reads_when_a_depot_keeps_few() -> None:
    depots = [run(MirroringSimulation(seed), STEPS).depot() for seed in range(1, 6)]
    for depot in depots:
        depot.follow()
    assert sum(start for depot in depots for start in depot.newest().starts) > 0


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (collection, "readers_of", lambda old: lambda *args: []),
        (mirroring_simulation, "register", lambda old: lambda *args: None),
        (collection, "needed_by", lambda old: lambda reader, store, log, *rest: iter([log.ends()])),
    ],
    ids=["collection asks nobody", "a reader leaves no mark", "a reader counts as done"],
)
def test_mistake_with_mirrors_is_caught_when_made_on_purpose(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mistake(getattr(place, name)))
    assert is_caught(MirroringSimulation, range(1, 100))
