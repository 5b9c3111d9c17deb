"""Whole modules on Spark: the same results wherever supersteps run, and right ones whatever dies or hangs."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as Folder
from typing import Any

import pytest
import spark_modules as modules
from waiting import eventually

from tidemill import InProcessCluster, LaunchConfig, Path
from tidemill.clients.history import topology_history
from tidemill.clients.status_reader import topology_status
from tidemill.journal.definition_log import DefinitionLog
from tidemill.spark import runner
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark
PLACEMENTS = ("spread", "fused", "inline")
WORDS = [[f"k{number % 37}", number] for number in range(1, 301)]
SUMS = {key: (count, total) for key, count, total in (
    (key, sum(k == key for k, _ in WORDS), sum(v for k, v in WORDS if k == key)) for key in {k for k, _ in WORDS}
)}  # fmt: skip


@contextmanager
def launched(module: Any) -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="spark") as cluster:
        cluster.launch_module(module, LaunchConfig(4, 2))
        yield cluster


def append(cluster: InProcessCluster, module: Any, records: list[Any]) -> None:
    cluster.cluster_depot(type(module).__name__, "*words").append_many(records)


def wait(cluster: InProcessCluster, module: Any, count: int, topology: str = "mb") -> None:
    cluster.wait_for_microbatch_processed_count(type(module).__name__, topology, count, 60_000)


def sums(cluster: InProcessCluster, module: Any) -> dict[str, tuple[int, int]]:
    handle = cluster.cluster_pstate(type(module).__name__, "$$counts")
    found = {key: handle.select_one(Path.key(key)) for key in SUMS}
    return {key: (value["count"], value["sum"]) for key, value in found.items() if value is not None}


def walked() -> Counter[int]:
    visits: Counter[int] = Counter()
    for _, number in WORDS:
        visits[number] += 1
        while number > 1:
            number = modules.halve(number)
            visits[number] += 1
    return visits


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_counts_are_right_when_supersteps_run(spark: Session, placement: str) -> None:
    module = modules.Counts(placement)
    with launched(module) as cluster:
        for part in range(3):
            append(cluster, module, WORDS[part::3])
        wait(cluster, module, len(WORDS))

        assert sums(cluster, module) == SUMS


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_a_microbatch_ran_is_told_when_it_is_committed(spark: Session, placement: str) -> None:
    module = modules.Counts(placement)
    with launched(module) as cluster:
        append(cluster, module, WORDS)
        wait(cluster, module, len(WORDS))
        definition = DefinitionLog(cluster.store, "Counts").newest()
        assert definition is not None
        lines = topology_history(cluster.store, definition, "mb")

        assert {line["placement"] for line in lines if line["kind"] == "commit"} == {placement}
        assert topology_status(cluster.store, definition, "mb").placement == placement
        eventually(lambda: topology_status(cluster.store, definition, "mb").engine == spark.facts.name)
        assert spark.facts.name.endswith(", local[2]") and spark.facts.spark_ui == ""


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_loops_end_when_only_the_data_knows_their_length(spark: Session, placement: str) -> None:
    module = modules.Walks(placement)
    with launched(module) as cluster:
        append(cluster, module, WORDS)
        wait(cluster, module, len(WORDS))

        handle = cluster.cluster_pstate("Walks", "$$visits")
        assert {n: handle.select_one(Path.key(n)) for n in range(1, 302)} == {
            **dict.fromkeys(range(1, 302)),
            **walked(),
        }


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("kind", [modules.Shares, modules.RepeatedShares])
def test_rows_are_joined_with_their_sums_when_supersteps_run(spark: Session, kind: Any, placement: str) -> None:
    module = kind(placement)
    with launched(module) as cluster:
        append(cluster, module, WORDS)
        wait(cluster, module, len(WORDS))

        handle = cluster.cluster_pstate(type(module).__name__, "$$shares")
        found = {key: dict(handle.select(Path.key(key).all())) for key in SUMS}
        assert found == {key: {v: total for k, v in WORDS if k == key} for key, (_, total) in SUMS.items()}


@pytest.mark.parametrize("placement", ["spread", "fused"])
def test_the_attempt_starts_again_when_a_worker_dies(spark: Session, tmp_path: Folder, placement: str) -> None:
    module = modules.Kills(placement, tmp_path)
    with launched(module) as cluster:
        append(cluster, module, [*WORDS, ["kill", 1]])
        wait(cluster, module, len(WORDS) + 1)

        assert int((tmp_path / "process").read_text()) != os.getpid()
        assert cluster.microbatch_state("Kills", "mb") == (1, 2)
        assert sums(cluster, module) == SUMS


@pytest.mark.parametrize("placement", ["spread", "fused"])
def test_a_hanging_function_is_ended_when_the_phase_is_over(spark: Session, tmp_path: Folder, placement: str) -> None:
    module = modules.Hangs(placement, tmp_path, **{modules.TIMEOUT: 6.0})
    with launched(module) as cluster:
        append(cluster, module, [*WORDS, ["hang", 1]])
        wait(cluster, module, len(WORDS) + 1)

        last, version = cluster.microbatch_state("Hangs", "mb")
        assert last == 1
        assert version >= 2
        assert sums(cluster, module) == SUMS
    assert is_gone(int((tmp_path / "process").read_text()))


PLACES = {
    "spread": "superstep 1 of 2 \\(explode_microbatch at .*spark_modules.py:[0-9]+, .*each\\(HangOnce\\) at",
    "fused": "one Spark task with all steps; set topology.microbatch.placement to spread or inline",
    "inline": "each\\(HangOnce\\) at .*spark_modules.py:[0-9]+",
}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_an_attempt_hangs_is_told_when_it_is_late(spark: Session, tmp_path: Folder, placement: str) -> None:
    module = modules.Hangs(placement, tmp_path, **{modules.TIMEOUT: 4.0})
    with launched(module) as cluster:
        append(cluster, module, [["hang", 1]])
        runner = cluster._running["Hangs"].topologies["mb"]
        failure = runner.wait_for(lambda now: now.report.failure is not None, 30).report.failure

        assert failure is not None
        assert failure.code == "PhaseTimeout"
        assert re.match(PLACES[placement], failure.step)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_failing_function_is_told_and_tried_again_when_it_raises(
    spark: Session, tmp_path: Folder, placement: str
) -> None:
    module = modules.Fails(placement, tmp_path)
    with launched(module) as cluster:
        append(cluster, module, [*WORDS, ["bad", 1]])
        runner = cluster._running["Fails"].topologies["mb"]
        failure = runner.wait_for(lambda now: now.report.failure is not None, 30).report.failure
        assert failure is not None and "this key is bad" in failure.message
        (tmp_path / "fixed").touch()
        wait(cluster, module, len(WORDS) + 1)

        assert sums(cluster, module) == SUMS


@pytest.mark.parametrize("placement", ["spread", "fused"])
def test_two_topologies_come_to_the_same_when_they_share_spark(spark: Session, placement: str) -> None:
    module = modules.Twins(placement)
    with launched(module) as cluster:
        for part in range(10):
            append(cluster, module, WORDS[part::10])
        for topology in ("mb", "twin"):
            wait(cluster, module, len(WORDS), topology)
            handle = cluster.cluster_pstate("Twins", f"$${topology}")
            assert {key: handle.select_one(Path.key(key)) for key in SUMS} == {
                k: total for k, (_, total) in SUMS.items()
            }


@pytest.mark.slow
def test_shuffle_files_do_not_pile_up_when_200_microbatches_ran(spark: Session) -> None:
    module = modules.Counts("spread")
    with launched(module) as cluster:
        for number in range(200):
            append(cluster, module, [["k1", number]])
            wait(cluster, module, number + 1)

        assert cluster.microbatch_state("Counts", "mb")[0] == 200
        assert shuffle_files(spark) <= 20


def shuffle_files(spark: Session) -> int:
    return sum(name.startswith("shuffle_") for _, _, names in os.walk(spark.folder) for name in names)


def is_gone(process: int) -> bool:
    pace = threading.Event()
    for _ in range(500):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        pace.wait(0.02)
    return False


def test_the_attempt_starts_again_when_outputs_are_lost_between_its_jobs(
    spark: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, module = runner._Attempt._run_superstep, modules.Walks("spread")
    lost = []

    def run_and_lose(attempt: Any, stage: Any, number: int, superstep: Any) -> Any:
        result = run(attempt, stage, number, superstep)
        if number == 2 and not lost:
            lost.append(number)
            attempt._stages.forget(result[0])  # as Spark does when the executor that has them is lost
        return result

    monkeypatch.setattr(runner._Attempt, "_run_superstep", run_and_lose)
    with launched(module) as cluster:
        append(cluster, module, WORDS)
        wait(cluster, module, len(WORDS))

        handle = cluster.cluster_pstate("Walks", "$$visits")
        assert {n: handle.select_one(Path.key(n)) for n in walked()} == walked()
        assert lost and cluster.microbatch_state("Walks", "mb") == (1, 2)
