"""Apply, data in, results out: the flights module on Spark and MinIO, compared with Polars over the same files."""

from __future__ import annotations

import time
from typing import Any

import pytest
from examples.flights import data, truth

from e2e.harness import modules, timeouts
from e2e.harness.rows import Gateway
from e2e.harness.story import Story
from e2e.harness.waiting import until
from tidemill import Path

CHUNK_RECORDS = 5_000
MODULE = "FlightsModule"


@pytest.mark.quick
def test_a_year_of_flights_comes_out_right_when_a_module_is_applied(story: Story) -> None:
    base = {**modules.FLIGHTS, "engine": "Spark", "spark": modules.SMALL_SPARK}
    applied = story.apply(story.module("flights", base))
    gateway = story.gateway("flights")
    first = until("the first microbatch is committed", lambda: _first_commit(gateway), timeouts.FIRST_COMMIT, pause=0.1)
    figure = story.figure("Module applied to first committed microbatch", first - applied, "s", 60.0)
    story.wait_ready("flights")
    began = time.monotonic()
    records = _append_all(gateway)
    _wait_for_all(gateway, timeouts.CAUGHT_UP * 3)
    story.figure("flights in to results out", records / (time.monotonic() - began), "records/s")
    _compare(gateway)
    assert figure.is_borne, str(figure)


def _first_commit(gateway: Gateway) -> float:
    """Appends one airline until it can be read back; when that was."""
    gateway.append(MODULE, "*airlines", [{"carrier": "ZZ", "name": "First of all"}], "first")
    return time.monotonic() if gateway.select_one(MODULE, "$$airlineNames", Path.key("ZZ")) == "First of all" else 0.0


def _append_all(gateway: Gateway) -> int:
    total = 0
    for table in data.TABLES:
        records = data.read(table)
        for start in range(0, records.height, CHUNK_RECORDS):
            piece = records.slice(start, CHUNK_RECORDS)
            gateway.append(MODULE, f"*{table}", piece, f"{table}-{start}")
            total += piece.height
    return total


def _wait_for_all(gateway: Gateway, seconds: float) -> None:
    expected = truth.compute()["$$carriers"]

    def look() -> bool:
        seen = {key: (gateway.select_one(MODULE, "$$carriers", Path.key(key)) or {}).get("flights") for key in expected}
        return seen == {key: row["flights"] for key, row in expected.items()}

    until("all flights are counted", look, seconds, pause=1.0)
    airports = truth.compute()["$$airportNames"]
    last = list(airports)[-1]
    until(
        "all airports are known",
        lambda: gateway.select_one(MODULE, "$$airportNames", Path.key(last)),
        timeouts.CAUGHT_UP,
    )


def _compare(gateway: Gateway) -> None:
    """Every PState, every key, against the truth."""
    wrong: dict[str, Any] = {}
    for pstate, expected in truth.compute().items():
        if pstate == "$$topRoutes":
            seen: Any = gateway.select_one(MODULE, pstate, Path.stay())
        elif pstate in ("$$days", "$$weather"):
            seen = {key: dict(gateway.select(MODULE, pstate, Path.key(key).all())) for key in expected}
        else:
            seen = {key: gateway.select_one(MODULE, pstate, Path.key(key)) for key in expected}
        if seen != expected:
            wrong[pstate] = seen
    assert not wrong, {name: str(value)[:300] for name, value in wrong.items()}
