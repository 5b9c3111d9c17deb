"""When levels are merged: few levels to read, and few rewrites of old rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.tables.compaction_plan import AGE_MAX, DELTAS_MAX, level_rows, plan


def level(kind: str, first: int, last: int, rows: int) -> Level:
    return Level(kind, first, last, (Part(f"{kind}{last}", TaskSet(1, 0), {"1/0": rows}),))


def delta(number: int, rows: int = 10) -> Level:
    return level("delta", number, number, rows)


def deltas(first: int, stop: int, rows: int = 10) -> tuple[Level, ...]:
    return tuple(delta(number, rows) for number in range(first, stop))


@dataclass
class Course:
    """What so many microbatches of random keys came to."""

    written: int = 0
    levels_max: int = 0
    base_rewrites: int = 0
    oldest_delta: int = 0


def run_microbatches(count: int, rows: int, keys: int, *, is_full: bool) -> Course:
    """Merges as soon as there is a plan; sizes are what random keys leave on average."""

    def distinct(draws: int) -> int:
        return int(keys * (1 - math.exp(-draws / keys)))

    course = Course()
    levels = [level("run", 0, 0, keys)] if is_full else []
    draws = {0: keys * 20}
    for number in range(1, count + 1):
        levels.append(delta(number, distinct(rows)))
        draws[number] = rows
        while (chosen := plan(Snapshot(tuple(levels)), number)) is not None:
            merged = levels[chosen[0] : chosen[1]]
            total = min(keys * 20, sum(draws[each.last] for each in merged))
            draws[merged[-1].last] = total
            course.written += distinct(total)
            course.base_rewrites += chosen[0] == 0 and is_full
            levels[chosen[0] : chosen[1]] = [level("run", merged[0].first, merged[-1].last, distinct(total))]
        course.levels_max = max(course.levels_max, len(levels))
        ages = [number - each.first for each in levels if each.kind == "delta"]
        course.oldest_delta = max(course.oldest_delta, max(ages, default=0))
    return course


def test_nothing_is_merged_when_there_are_few_young_deltas() -> None:
    assert plan(Snapshot(deltas(1, DELTAS_MAX)), DELTAS_MAX) is None
    assert plan(Snapshot((level("run", 1, 9, 5), level("run", 10, 19, 5))), 10**6) is None
    assert plan(Snapshot(), 10**6) is None


@pytest.mark.parametrize(
    ("rows", "keys", "write_cost_max", "levels_max"),
    [
        (800_000, 1_000_000, 0.1, 16),
        (800_000, 30_000_000, 1.4, 18),
        (20_000, 1_000_000, 2, 18),
        (1_000, 1_000_000, 4, 23),
        (1_000, 30_000_000, 4.5, 23),
    ],
)
def test_rows_are_rewritten_rarely_and_levels_stay_few_at_any_size(
    rows: int, keys: int, write_cost_max: float, levels_max: int
) -> None:
    """Rows that compaction writes for each row that microbatches wrote, on a state that holds all keys already."""
    count = 3_000 if rows == 1_000 else 500
    course = run_microbatches(count, rows, keys, is_full=True)
    assert course.written / (count * rows) < write_cost_max
    assert course.levels_max <= levels_max


def test_a_large_base_is_rewritten_only_after_as_many_small_rows() -> None:
    course = run_microbatches(3_000, 1_000, 1_000_000, is_full=True)
    assert 1 <= course.base_rewrites <= 4


def test_levels_stay_few_when_a_state_grows_for_ever() -> None:
    course = run_microbatches(20_000, 1_000, 10**10, is_full=False)
    assert course.levels_max <= DELTAS_MAX + math.log(20_000 / DELTAS_MAX, 1.5)
    assert course.oldest_delta < AGE_MAX


def test_a_delta_is_merged_when_it_is_old_even_if_nothing_follows_it() -> None:
    snapshot = Snapshot((level("run", 1, 5, 10**6), delta(6)))
    assert plan(snapshot, 5 + AGE_MAX) is None
    assert plan(snapshot, 6 + AGE_MAX) == (1, 2)


def test_a_large_base_stays_when_small_deltas_above_it_are_merged() -> None:
    base = level("run", 1, 5, 10**9)
    assert plan(Snapshot((base, *deltas(6, 24))), 23) == (1, 19)


def test_a_run_is_drawn_in_when_it_is_no_larger_than_what_is_merged() -> None:
    levels = (level("run", 1, 5, 10**9), level("run", 6, 8, 160), *deltas(9, 25))
    assert plan(Snapshot(levels), 24) == (1, 18)


def test_what_was_committed_meanwhile_stays_above_when_a_merge_ends() -> None:
    levels = deltas(1, 17)
    assert plan(Snapshot(levels), 16) == (0, 16)
    later = Snapshot((*levels, delta(17)))
    applied = later.with_run(level("run", 1, 16, 160))
    assert [(each.kind, each.first, each.last) for each in applied.levels] == [("run", 1, 16), ("delta", 17, 17)]
    assert level_rows(applied.levels[1]) == 10
