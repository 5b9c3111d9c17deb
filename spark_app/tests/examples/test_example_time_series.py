"""examples/time_series: a range gives the same whether it is read in minutes or in the largest buckets."""

from __future__ import annotations

import random
from typing import Any

import pytest
from examples.time_series.module import MINUTES, TimeSeries, cover
from hypothesis import given
from hypothesis import strategies as st
from running import Running

from tidemill import MockOutputCollector

MINUTE_MILLIS = 60_000


def render(minute: int, millis: int, url: str = "/home") -> dict[str, Any]:
    return {"url": url, "at": minute * MINUTE_MILLIS + minute % 60_000, "millis": millis}


def covered(start: int, end: int) -> list[tuple[str, int, int]]:
    return [tuple(emit) for emit in MockOutputCollector().run(cover, start, end).get_emits()]


def expected(renders: list[dict[str, Any]], start: int, end: int) -> dict[str, Any]:
    found = [each["millis"] for each in renders if start <= each["at"] // MINUTE_MILLIS < end]
    if not found:
        return {"count": 0, "min": None, "max": None, "mean": None}
    return {"count": len(found), "min": min(found), "max": max(found), "mean": sum(found) / len(found)}


def test_windows_of_all_granularities_hold_the_same_renders(engine: str) -> None:
    with Running(TimeSeries(), engine) as series:
        series.send("*renders", render(0, 10), render(59, 30), render(60, 50), render(1_500, 70), render(7, 1, "/docs"))

        assert series.entries("$$windows", "/home", "hour") == {
            0: {"count": 2, "sum": 40, "min": 10, "max": 30},
            1: {"count": 1, "sum": 50, "min": 50, "max": 50},
            25: {"count": 1, "sum": 70, "min": 70, "max": 70},
        }
        assert series.get("$$windows", "/home", "30 days", 0) == {"count": 4, "sum": 160, "min": 10, "max": 70}
        assert series.ask("range", "/home", 0, 61) == {"count": 3, "min": 10, "max": 50, "mean": 30.0}
        assert series.ask("range", "/docs", 0, 61) == {"count": 1, "min": 1, "max": 1, "mean": 1.0}
        assert series.ask("range", "/none", 0, 61) == {"count": 0, "min": None, "max": None, "mean": None}


def test_a_range_gives_what_its_renders_say_when_it_crosses_granularities() -> None:
    drawn = random.Random(1)
    renders = [render(drawn.randrange(100_000), drawn.randrange(1, 500)) for _ in range(1_000)]
    ranges = [sorted(drawn.sample(range(100_001), 2)) for _ in range(30)] + [[0, 100_000], [43_200, 86_400], [5, 5]]
    with Running(TimeSeries()) as series:
        series.send("*renders", *renders, {"url": "/home", "at": 5}, {"url": None, "at": 5, "millis": 5})

        for start, end in ranges:
            assert series.ask("range", "/home", start, end) == expected(renders, start, end), (start, end)


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_each_minute_is_covered_once_and_by_few_buckets(start: int, end: int) -> None:
    minutes = sorted(
        (first * MINUTES[granularity], last * MINUTES[granularity]) for granularity, first, last in covered(start, end)
    )

    edges = [start, *(last for _, last in minutes)]
    assert [first for first, _ in minutes] == edges[:-1]
    assert edges[-1] == max(start, end)
    counts = {granularity: sum(last - first for g, first, last in covered(start, end) if g == granularity)
              for granularity in MINUTES}  # fmt: skip
    assert counts["minute"] < 120
    assert counts["hour"] < 48
    assert counts["day"] < 60


def test_large_buckets_are_taken_when_they_fit() -> None:
    assert covered(6 * 60 + 58, 20 * 60 + 3) == [("minute", 418, 420), ("minute", 1200, 1203), ("hour", 7, 20)]
    assert covered(5, 5) == []


@pytest.mark.parametrize("start, end", [(0, 43_200), (43_200, 129_600)])
def test_one_kind_of_bucket_is_enough_when_the_range_is_round(start: int, end: int) -> None:
    assert covered(start, end) == [("30 days", start // 43_200, end // 43_200)]
