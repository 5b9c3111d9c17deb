"""Crashes at each store request and between any two events, of runners and of people who decide, with poison."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulation_runs import crashes_and_places, is_caught, run

from tidemill.clients import quarantine
from tidemill.journal.settlements import Settlement
from tidemill.leader import events, transitions
from tidemill.testing.quarantine_simulation import QuarantineSimulation
from tidemill.testing.simulation import Chances

SEEDS = int(os.environ.get("TIDEMILL_SIM_SEEDS", "60"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_FIRST_SEED", "1"))
SEED_OF_CRASHES = 3
STEPS, STEPS_OF_CRASHES = 120, 40


@pytest.mark.parametrize("block", range(10))
def test_poison_is_in_quarantine_once_when_anything_fails_at_any_time(block: int) -> None:
    for seed in range(FIRST_SEED + block, FIRST_SEED + SEEDS, 10):
        run(QuarantineSimulation(seed), STEPS)


@pytest.mark.parametrize("moment", ["before write", "after write", "before event"])
def test_poison_is_in_quarantine_once_when_somebody_dies_at_each_write_and_event(moment: Any) -> None:
    crashes, places = crashes_and_places(QuarantineSimulation, SEED_OF_CRASHES, moment, STEPS_OF_CRASHES)
    assert crashes == places


def test_records_are_retried_and_dropped_when_a_simulation_is_not_calm() -> None:
    text = "\n".join(line for seed in range(1, 21) for line in run(QuarantineSimulation(seed), STEPS).trace)
    assert "ProbeStarted" in text
    assert "retry [" in text
    assert "drop [" in text
    assert "the person who decides dies" in text


def forget_poison(old: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: None if (kept := old(*args)) is None else replace(kept, poisons=())


def number_anew(old: Callable[..., Any]) -> Callable[..., Any]:
    """A person whose retry is not known again when it is repeated."""
    names = iter(range(1_000_000))
    return lambda prefix: f"{old(prefix)}-{next(names)}"


def blame_the_first(old: Callable[..., Any]) -> Callable[..., Any]:
    """Another record of the partition goes to the quarantine than the one that was left out."""

    def wrong(attempt: Any, number: int, found: events.FoundPoison) -> Any:
        poison = replace(found.poison, offset=attempt.ranges[found.poison.source_id].starts[found.poison.partition])
        return old(attempt, number, replace(found, poison=poison))

    return wrong


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (transitions, "_kept_attempt", forget_poison),
        (quarantine, "retries_of", number_anew),
        (transitions, "with_poison", blame_the_first),
        (Settlement, "open", lambda old: lambda self, first, end: iter([(first, end)] if first < end else [])),
    ],
    ids=["claim forgets poison", "retry not known again", "another record is left out", "settled records come back"],
)
def test_mistake_with_poison_is_caught_when_made_on_purpose(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mistake(getattr(place, name)))
    assert is_caught(lambda seed: QuarantineSimulation(seed, Chances(wrong_lease=0.1)), range(1, 60))
