"""Crashes at every store request and between any two events of a topology that appends; S8 after each run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulation_runs import crashes_and_places, is_caught, run

from tidemill.journal.entries import StagedAppend
from tidemill.leader import collection, publisher, transitions
from tidemill.leader.publication import Publication
from tidemill.testing.appending_simulation import AppendingSimulation
from tidemill.testing.simulation import Chances

SEEDS = int(os.environ.get("TIDEMILL_SIM_SEEDS", "200"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_FIRST_SEED", "1"))
SEED_OF_CRASHES = 3
STEPS = 150


@pytest.mark.parametrize("block", range(10))
def test_appends_are_there_once_when_anything_fails_at_any_time(block: int) -> None:
    for seed in range(FIRST_SEED + block, FIRST_SEED + SEEDS, 10):
        run(AppendingSimulation(seed), STEPS)


@pytest.mark.parametrize("moment", ["before write", "after write", "before event"])
def test_appends_are_there_once_when_a_runner_dies_at_each_write_and_event(moment: Any) -> None:
    crashes, places = crashes_and_places(AppendingSimulation, SEED_OF_CRASHES, moment, STEPS)
    assert crashes == places


def test_publications_fail_and_are_repeated_when_a_simulation_is_not_calm() -> None:
    text = "\n".join(line for seed in range(1, 31) for line in run(AppendingSimulation(seed), STEPS).trace)
    assert "PublishAppends" in text
    assert "AppendsPublished" in text


def forget_the_first(old: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: old(*args)[1:]


def number_anew(old: Callable[..., Any]) -> Callable[..., Any]:
    """A producer that does not know its own appends again."""
    names = iter(range(1_000_000))
    return lambda prefix: f"{old(prefix)}-{next(names)}"


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (transitions, "_kept_appends", forget_the_first),
        (publisher, "producer_of", number_anew),
        (collection, "_is_over", lambda old: lambda name, entry: True),
        (StagedAppend, "digest", lambda old: property(lambda self: str(id(self)))),
        (Publication, "without_delivered", lambda old: lambda self, entry: replace(entry, appends=())),
    ],
    ids=["claim forgets appends", "producer not known again", "collects too early", "another digest each time",
         "an entry leaves out what is not published"],
)  # fmt: skip
def test_mistake_with_appends_is_caught_when_made_on_purpose(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mistake(getattr(place, name)))
    assert is_caught(lambda seed: AppendingSimulation(seed, Chances(wrong_lease=0.1)), range(1, 200))
