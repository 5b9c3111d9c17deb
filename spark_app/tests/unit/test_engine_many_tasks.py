"""A microbatch that runs in one process costs the same however many tasks and threads the module has."""

from __future__ import annotations

import sys
import threading
from pathlib import Path as Folder
from types import FrameType
from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Path, PState
from tidemill.engine.work import CompactionWork
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.local.runner import LocalRunner
from tidemill.spark.placement import FUSED_ROWS_MAX, compaction_threads

RECORDS = 20_000


class Numbers(Module):
    """Counts by key; a few thousand keys outgrow a log entry."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(int, PState.map_schema(int, int)))
        rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*k").hash_partition("*k")
        rows.compound_agg("$$p", CompoundAgg.map("*k", CompoundAgg.map("*k", Agg.count())))


def calls_of(attempts: Attempts) -> int:
    """How many functions and generators of Python are entered by an attempt on a few hundred records."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    attempts.feed("*d", list(range(200)))
    attempts.runner = LocalRunner()
    sys.setprofile(seen)
    try:
        attempts.attempt()
    finally:
        sys.setprofile(None)
    return count


def test_an_attempt_takes_the_same_steps_when_it_has_many_tasks_and_threads(tmp_path: Folder) -> None:
    few = Attempts(tmp_path / "few", Numbers(), 4, 2)
    many = Attempts(tmp_path / "many", Numbers(), 1_024, 64)
    for attempts in (few, few, many):
        calls_of(attempts)  # what is imported late does not count
    assert calls_of(many) <= 1.1 * calls_of(few) + 2 * 1_024  # the fixture itself looks at each partition


@pytest.mark.parametrize(("tasks", "threads"), [(2, 2), (512, 64), (256, 256)])
def test_one_object_holds_all_changes_when_a_microbatch_runs_in_one_process(
    tmp_path: Folder, tasks: int, threads: int
) -> None:
    with InProcessCluster.create(engine="local", store=tmp_path) as cluster:
        cluster.launch_module(Numbers(), LaunchConfig(tasks, threads))
        cluster.cluster_depot("Numbers", "*d").append_many(list(range(RECORDS)))
        cluster.wait_for_microbatch_processed_count("Numbers", "mb", RECORDS)
        counts = cluster.cluster_pstate("Numbers", "$$p")
        assert [counts.select_one(Path.key(k, k)) for k in range(0, RECORDS, 2_000)] == [1] * 10
    assert len(list(tmp_path.glob("Numbers/topologies/*/deltas/*.zip"))) == 1


def test_a_level_becomes_one_object_when_it_is_compacted_in_one_process(tmp_path: Folder) -> None:
    attempts = Attempts(tmp_path, Numbers(), 64, 32)
    for _ in range(2):
        attempts.feed("*d", list(range(100)))
        attempts.attempt(threading.Event())  # as 32 threads, which leave a part each
    before = sorted(attempts.everywhere("$$p", Path.all()))
    levels = attempts.snapshot.levels
    assert len(levels[0].parts) > 16
    work = CompactionWork(attempts.url, "N", "m/topologies/t", attempts.program, 64, 32, 3, levels, True)
    (part,) = LocalRunner().compact(work)
    assert part.tasks == TaskSet(1, 0)
    attempts.snapshot = Snapshot((Level("run", 1, 2, (part,), True),))
    assert sorted(attempts.everywhere("$$p", Path.all())) == before


@pytest.mark.parametrize(("rows", "threads"), [(10, 1), (FUSED_ROWS_MAX, 1), (FUSED_ROWS_MAX + 1, 64)])
def test_a_compaction_on_spark_is_one_task_when_few_rows_are_merged(rows: int, threads: int) -> None:
    level = Level("delta", 1, 1, (Part("a", TaskSet(1, 0), {"p/0": rows}),))
    work = CompactionWork("", "N", "", None, 64, 64, 2, (level,), True)  # type: ignore[arg-type]
    assert compaction_threads(work) == threads
