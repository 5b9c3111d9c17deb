"""The simulation is worth something only if it notices mistakes: each mistake here is caught by some seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulation_runs import is_caught

from tidemill.journal.entries import Attempt, Entry
from tidemill.journal.snapshot import Part
from tidemill.leader import collection, maintenance, transitions
from tidemill.leader.machine import Machine
from tidemill.store import json_codec
from tidemill.store.log import Log
from tidemill.testing.simulation import CALM, Chances, Simulation

SEEDS = 200
CONTROL_SEEDS = 40
QUARREL = Chances(wrong_lease=0.1)
"""Leaders that often overlap: what a lease allows and the log must forbid."""


BAD_DISK = replace(CALM, spoiled_read=0.1, crash=0.005)
"""Reads fail: what comes back is cut, or another object. Processes begin anew at times, and so read what they knew."""


@pytest.mark.parametrize("chances", [QUARREL, BAD_DISK], ids=["quarrel", "bad disk"])
def test_no_seed_is_caught_when_no_mistake_is_made(chances: Chances) -> None:
    """Without this, a simulation that always fails would catch every mistake below."""
    for seed in range(1, CONTROL_SEEDS):
        Simulation(seed, chances).run()


def forget_the_previous_state(old: Callable[..., Any]) -> Callable[..., Any]:
    return lambda log, number, entry, cutoff: old(log, number, replace(entry, previous=entry.snapshot), cutoff)


def drop_the_attempt(old: Callable[..., Entry]) -> Callable[..., Entry]:
    return lambda *args: replace(old(*args), attempt=None)


def count_the_third_version_twice(old: Callable[..., Any]) -> Callable[..., Any]:
    def advance(progress: Any, attempt: Attempt, exploded: frozenset[str]) -> tuple[Any, int]:
        moved, records = old(progress, attempt, exploded)
        return moved, records * (2 if attempt.version > 2 else 1)

    return advance


def register_no_compaction(old: Callable[..., Entry]) -> Callable[..., Entry]:
    return lambda self, entry, number: replace(old(self, entry, number), pending=())


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (collection, "_is_over", lambda old: lambda name, entry: True),
        (collection, "_reach", forget_the_previous_state),
        (transitions, "claim", drop_the_attempt),
        (transitions, "advance", count_the_third_version_twice),
        (maintenance.Maintenance, "with_compaction", register_no_compaction),
        (Log, "_own", lambda old: lambda self, number, found, nonce: None),
    ],
    ids=["collects too early", "forgets the previous state", "claim drops the attempt", "counts a retry twice",
         "compaction not registered", "collision not noticed"],
)  # fmt: skip
def test_mistake_is_caught_when_made_on_purpose(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mistake(getattr(place, name)))
    assert is_caught(lambda seed: Simulation(seed, QUARREL), range(1, SEEDS))


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (Part, "check", lambda self, content: None),
        (json_codec, "check_place", lambda written, key: None),
        (Machine, "_is_stale", lambda self, look: False),
    ],
    ids=["parts", "entries", "options"],
)
def test_spoiled_reads_give_wrong_results_when_nobody_compares_what_was_read(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mistake)
    assert is_caught(lambda seed: Simulation(seed, BAD_DISK), range(1, SEEDS))
