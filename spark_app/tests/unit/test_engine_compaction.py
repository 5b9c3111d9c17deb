"""Compaction through the local runner leaves every value as it is."""

from __future__ import annotations

from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, CompoundAgg, Depot, Module, Path, PState
from tidemill.engine.compact import compact_thread
from tidemill.engine.work import CompactionWork
from tidemill.journal.snapshot import Level, Part, Snapshot
from tidemill.local.runner import LocalRunner


class Counted(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*w").hash_partition("*w")
        rows.compound_agg("$$p", CompoundAgg.map("*w", Agg.count()))


def each_thread(work: CompactionWork) -> tuple[Part, ...]:
    """As Spark does it: a task a thread."""
    parts = (compact_thread(work, thread) for thread in range(work.threads))
    return tuple(part for part in parts if part is not None)


@pytest.mark.parametrize("threads", [1, 2])
def test_values_stay_when_levels_are_merged(tmp_path: Any, threads: int) -> None:
    attempts = Attempts(tmp_path, Counted(), 4, threads)
    for _ in range(3):
        attempts.feed("*d", [f"w{i % 5}" for i in range(20)])
        attempts.attempt()
    before = sorted(attempts.everywhere("$$p", Path.all()))
    levels = attempts.snapshot.levels
    work = CompactionWork(
        attempts.url, "Counted", "m/topologies/t", attempts.program, 4, threads, attempts.microbatch_id, levels, True
    )
    parts = LocalRunner().compact(work) if threads == 1 else each_thread(work)
    assert len(levels) == 3 and len(parts) == threads
    attempts.snapshot = Snapshot((Level("run", 1, 3, parts, True),))
    assert sorted(attempts.everywhere("$$p", Path.all())) == before == [[f"w{i}", 12] for i in range(5)]
    attempts.feed("*d", ["w1"])
    attempts.attempt()
    assert dict(attempts.everywhere("$$p", Path.all()))["w1"] == 13
