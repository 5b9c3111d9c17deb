"""When levels are merged: few levels to read, and few rewrites of old rows."""

from __future__ import annotations

from tidemill.model.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.state import compaction


def delta(number: int, rows: int) -> Level:
    return Level("delta", number, number, (Part(f"d{number}", TaskSet(1, 0), {"1/0": rows}),))


def run_microbatches(count: int, rows: int, keys: int) -> tuple[Snapshot, int, int]:
    """(snapshot, rows rewritten, most levels at any time) of so many deltas over so many distinct keys."""
    snapshot, rewritten, levels_max = Snapshot(), 0, 0
    for number in range(1, count + 1):
        snapshot = Snapshot((*snapshot.levels, delta(number, rows)))
        levels_max = max(levels_max, len(snapshot.levels))
        while (chosen := compaction.plan(snapshot)) is not None:
            merged = min(keys, sum(map(compaction.level_rows, chosen.levels)))
            rewritten += merged
            part = Part(f"r{number}", TaskSet(1, 0), {"1/0": merged})
            snapshot = compaction.apply(snapshot, chosen.levels, [part], is_base=chosen.is_base)
    return snapshot, rewritten, levels_max


def test_nothing_is_merged_when_there_are_few_deltas() -> None:
    assert compaction.plan(Snapshot(tuple(delta(n, 10) for n in range(1, 8)))) is None
    assert compaction.plan_range(Snapshot()) is None


def test_levels_stay_few_when_deltas_keep_coming() -> None:
    snapshot, _, levels_max = run_microbatches(2000, 1_000, 10**9)
    assert levels_max <= 24
    assert [level.first for level in snapshot.levels] == sorted(level.first for level in snapshot.levels)


def test_rows_are_rewritten_rarely_when_the_state_is_large() -> None:
    _, rewritten, _ = run_microbatches(500, 550_000, 30_000_000)
    assert rewritten / (500 * 550_000) < 2.5


def test_old_deltas_are_merged_when_they_are_few() -> None:
    levels = (delta(1, 10), delta(300, 10))
    assert compaction.plan_range(Snapshot(levels)) == (0, 2)


def test_a_run_is_a_base_only_when_nothing_is_older() -> None:
    base = Level("run", 1, 5, (Part("r", TaskSet(1, 0), {"1/0": 10**9}),), True)
    chosen = compaction.plan(Snapshot((base, *(delta(n, 10) for n in range(6, 20)))))
    assert chosen is not None
    assert not chosen.is_base
    assert len(chosen.levels) == 14


def test_what_was_committed_meanwhile_stays_above_when_a_merge_ends() -> None:
    snapshot = Snapshot(tuple(delta(n, 10) for n in range(1, 13)))
    chosen = compaction.plan(snapshot)
    assert chosen is not None
    later = Snapshot((*snapshot.levels, delta(13, 10)))
    applied = compaction.apply(later, chosen.levels, [], is_base=True)
    assert [(level.kind, level.first, level.last) for level in applied.levels] == [("run", 1, 12), ("delta", 13, 13)]
