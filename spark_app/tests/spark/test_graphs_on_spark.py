"""Task graphs on Spark: the results of `local`, workers that die, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Adds, Count, First, Join, Killed, Pass, results
from waiting import eventually

from tidemill import Dataset, Depot, Executor, InProcessCluster, LaunchConfig, Module, TaskGraph, UserCodeError
from tidemill.graphs import run
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark
ROWS = 150


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        pl.DataFrame({"k": [n % 17 for n in range(ROWS)], name: range(ROWS)}).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def joined(folder: Path, engine: str, **options: Any) -> tuple[TaskGraph, Dataset, Dataset]:
    graph = TaskGraph(folder / f"store-{engine}", engine=engine, id="job", **options)
    a = graph.new_input_csv(folder, "a.csv", None, 2, header=True, stride=300)
    b = graph.new_input_csv(folder, "b.csv", None, 2, header=True, stride=400)
    rows = graph.new_non_blocking_node({0: a, 1: b}, Join("k"), 2, {0: "k", 1: "k"})
    counted = graph.new_blocking_node({0: rows}, Count("k"), 3, {0: "k"})
    kept = graph.new_blocking_node({0: rows}, Pass(), 1, {0: None})
    return graph, counted, kept


def scratch(folder: Path) -> list[Path]:
    return [path for path in (folder / "_tidemill/graphs/job").rglob("*") if path.is_file() and "log" not in path.parts]


@pytest.mark.parametrize("every", [1, None])
def test_results_are_those_of_threads_when_a_graph_runs_on_spark(
    spark: Session, sources: Path, monkeypatch: pytest.MonkeyPatch, every: int | None
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    found = {}
    for engine in ("local", "spark"):
        graph, *made = joined(sources, engine, checkpoint_waves=every)
        graph.run()
        # Waves are planned from what batches hold alone, so even the order of rows is the same.
        found[engine] = [results(*made), made[1].to_polars().rows(), [row.rows_out for row in graph.metrics()]]
        assert scratch(sources / f"store-{engine}") == []
    assert found["spark"] == found["local"]


class Ticks(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*ticks", Depot.random())
        setup.declare_depot("*out", Depot.random())


def test_a_graph_without_end_goes_on_on_spark_when_it_was_stopped(
    spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    with InProcessCluster.create(store=tmp_path / "store") as cluster:
        cluster.launch_module(Ticks(), LaunchConfig(2, 1))
        for first in (0, 20):
            cluster.cluster_depot("Ticks", "*ticks").append_many([{"at": n} for n in range(first, first + 20)])
            graph = TaskGraph(tmp_path / "store", engine="spark", id="job")
            ticks = graph.new_input_depot("Ticks", "*ticks", 2, endless=True)
            graph.new_output_depot({0: ticks}, "Ticks", "*out", 1, {0: None})
            graph.observe(lambda waves, stop=graph.stop: stop() if waves.is_idle and not waves.staged_rows else None)
            graph.run()
        out = cluster.cluster_depot("Ticks", "*out")
        ends = [out.get_partition_info(number).end_offset for number in range(2)]
        assert sorted(row["at"] for n, end in enumerate(ends) for row in out.read(n, 0, end)) == list(range(40))


def test_a_graph_goes_on_on_spark_when_its_driver_died_between_waves(
    spark: Session, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    clean = joined(sources, "local")
    clean[0].run()
    for wave in (1, 4):
        graph, *made = joined(sources, "spark", checkpoint_waves=2)
        graph.store += f"-{wave}"

        def stop(waves: Any, wave: int = wave) -> None:
            if waves.wave == wave:
                raise Killed

        graph.observe(stop)
        with pytest.raises(Killed):
            graph.run()
        again = TaskGraph.resume("job", graph.store)
        again.run()
        assert results(*again.datasets().values()) == results(*clean[1:])
        assert scratch(Path(graph.store)) == []


class Dies(Executor):
    """Kills its process once, in the middle of its work."""

    def __init__(self, flag: str) -> None:
        self.flag = flag
        self.rows = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.rows += sum(batch.height for batch in batches)
        if self.rows > 60:
            with suppress(FileNotFoundError):  # another channel was first
                os.unlink(self.flag)
                os.kill(os.getpid(), signal.SIGKILL)

    def done(self, channel: int) -> Any:
        return pl.DataFrame({"rows": [self.rows]})


def test_only_its_wave_is_done_again_when_a_worker_dies(spark: Session, sources: Path, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    graph = TaskGraph(tmp_path / "store", engine="spark")
    source = graph.new_input_csv(sources, "a.csv", None, 1, header=True, stride=200)
    out = graph.new_blocking_node({0: source}, Dies(str(flag)), 2, {0: "k"})
    steps: list[list[int]] = []
    graph.observe(lambda waves: steps.append([progress.steps for progress in waves.channels.values()]))
    graph.run()

    assert not flag.exists()
    assert out.to_polars()["rows"].sum() == ROWS
    for before, after in zip(steps, steps[1:], strict=False):
        assert all(one <= other <= one + 1 for one, other in zip(before, after, strict=True))


class Named(Executor):
    """Says in a file which process did a step of which channel."""

    def __init__(self, file: str) -> None:
        self.file = file

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        with open(self.file, "a") as file:
            file.write(f"{channel}:{os.getpid()}\n")

    def done(self, channel: int) -> Any:
        return pl.DataFrame({"channel": [channel]})


def test_a_channel_stays_with_its_worker_when_it_has_many_steps(spark: Session, sources: Path, tmp_path: Path) -> None:
    file = tmp_path / "steps"
    graph = TaskGraph(tmp_path / "store", engine="spark")
    source = graph.new_input_csv(sources, "a.csv", None, 1, header=True, stride=100)
    graph.new_blocking_node({0: source}, Named(str(file)), 4, {0: "a"})
    graph.run()

    steps = [step.split(":") for step in file.read_text().split()]
    workers = {channel: [worker for each, worker in steps if each == channel] for channel in "0123"}
    moves = sum(one != other for found in workers.values() for one, other in pairwise(found))
    assert len(steps) > 20
    assert moves < len(steps) / 8  # a step that a busy machine makes long may move a channel
    assert len({worker for _, worker in steps}) == 2


class Survivor(Executor):
    """Says in a file what it does. Channel 2 kills its process once, and channel 1 waits in its step until it did."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rows = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        flag = os.path.join(self.folder, "flag")
        with open(os.path.join(self.folder, "steps"), "a") as file:
            file.write(f"{channel}:{batches[0]['a'][0]}\n")
        self.rows += sum(batch.height for batch in batches)
        if self.rows > 10 and os.path.exists(flag):
            if channel == 2:
                os.unlink(flag)
                os.kill(os.getpid(), signal.SIGKILL)
            if channel == 1:
                eventually(lambda: not os.path.exists(flag))

    def done(self, channel: int) -> Any:
        return pl.DataFrame({"rows": [self.rows]})


def test_one_step_of_one_channel_is_done_again_when_a_worker_dies(
    spark: Session, sources: Path, tmp_path: Path
) -> None:
    (tmp_path / "flag").touch()
    graph = TaskGraph(tmp_path / "store", engine="spark")
    source = graph.new_input_csv(sources, "a.csv", None, 1, header=True, stride=200)
    out = graph.new_blocking_node({0: source}, Survivor(str(tmp_path)), 4, {0: "a"})
    graph.run()

    steps = (tmp_path / "steps").read_text().split()
    again = {each for each in steps if steps.count(each) > 1}
    # Channel 0 had done its step in the same task, channel 1 was in the midst of its own in another one.
    assert len(again) == 1 and len(steps) == len(set(steps)) + 1
    assert again.pop().startswith("2:")
    assert out.to_polars()["rows"].sum() == ROWS
    records = graph.metrics()
    assert [record.repeats for record in records] == [0, 1]
    assert 0 < records[1].repeated_seconds <= records[1].seconds


def test_what_raised_is_said_when_user_code_fails_on_spark(spark: Session, tmp_path: Path) -> None:
    class Bad(Executor):
        def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
            raise ValueError("no good")

    graph = TaskGraph(tmp_path, engine="spark")
    graph.new_blocking_node({0: graph.new_input_frames(pl.DataFrame({"k": [1]}), 1)}, Bad(), 1, {0: None})
    with pytest.raises(UserCodeError, match=r"node 1 .* channel 0, raised ValueError: no good .*'k': 1") as caught:
        graph.run()
    assert 'raise ValueError("no good")' in caught.value.trace


def test_a_limit_ends_its_inputs_and_a_second_graph_reads_on_when_both_run_on_spark(
    spark: Session, sources: Path, tmp_path: Path
) -> None:
    first = TaskGraph(tmp_path, engine="spark")
    source = first.new_input_csv(sources, "a.csv", None, 1, header=True, stride=50)
    some = first.new_blocking_node({0: source}, First(10), 1, {0: None})
    first.run()
    assert first.metrics()[0].rows_in < ROWS

    second = TaskGraph(tmp_path, engine="spark")
    stream = second.new_input_from_dataset(some, {"localhost": 2})
    out = second.new_blocking_node({0: stream}, None, Pass(), {"localhost": 2}, {0: "k"})
    second.run()
    assert sorted(out.to_polars()["a"]) == list(range(10))


PROGRAM = """
import os, signal, sys
import polars as pl
from tidemill import CountExecutor, TaskGraph

def kill(waves):
    from pyspark import SparkContext
    if waves.wave == 3:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

if __name__ == "__main__":
    graph = TaskGraph(sys.argv[1], engine="spark")
    source = graph.new_input_frames([pl.DataFrame({"k": [n, n % 3]}) for n in range(6)], 1)
    out = graph.new_blocking_node({0: source}, CountExecutor(), 2, {0: "k"})
    graph.observe(kill)
    graph.run()
    print(out.to_polars().sum_horizontal().sum(), graph.metrics()[0].steps)
"""


def test_a_graph_goes_on_when_the_jvm_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False,
        env=os.environ | {"TIDEMILL_SPARK_MASTER": "local[2]"},
    )  # fmt: skip

    assert done.stdout.split() == ["12", "6"], done.stderr  # no stride was taken twice


def test_a_graph_goes_on_with_the_mended_code_on_spark(
    spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)

    def adding(number: int, is_mended: bool) -> tuple[TaskGraph, Dataset]:
        graph = TaskGraph(tmp_path / "store", engine="spark", id="job", checkpoint_waves=1, memory_bytes=1)
        rows = graph.new_input_frames([pl.DataFrame({"n": [n]}) for n in range(5)], 1)
        return graph, graph.new_blocking_node({0: rows}, Adds(number, is_mended), 1, {0: None})

    with pytest.raises(UserCodeError, match="not this one"):
        adding(100, is_mended=False)[0].run()
    graph, out = adding(200, is_mended=True)
    graph.run()

    assert out.to_polars()["n"].to_list() == [100, 101, 102, 203, 204]
    assert scratch(tmp_path / "store") == []
