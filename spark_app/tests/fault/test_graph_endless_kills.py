"""A graph over an endless depot whose process is killed anywhere goes on: each record and window exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from graph_executors import Killed

from tidemill import Depot, InProcessCluster, LaunchConfig, Module, TaskGraph, TumblingWindowExecutor, WindowedDataset
from tidemill.graphs import checkpoints, run
from tidemill.graphs.waves import Waves
from tidemill.store.local import LocalStore
from tidemill.store.urls import open_store

PARTITIONS, RECORDS = 2, 60


class Ticks(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*ticks", Depot.random())
        setup.declare_depot("*out", Depot.random())


def store_with(folder: Path, first: int, last: int) -> str:
    with InProcessCluster.create(store=folder) as cluster:
        cluster.launch_module(Ticks(), LaunchConfig(PARTITIONS, 1))
        for at in range(first, last, 10):
            cluster.cluster_depot("Ticks", "*ticks").append_many([{"at": n, "k": n % 3} for n in range(at, at + 10)])
    return str(folder)


def out(store: str) -> list[int]:
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(Ticks(), LaunchConfig(PARTITIONS, 1))
        depot = cluster.cluster_depot("Ticks", "*out")
        ends = [depot.get_partition_info(number).end_offset for number in range(PARTITIONS)]
        return sorted(row["at"] for number, end in enumerate(ends) for row in depot.read(number, 0, end))


def flowing(store: str, idle: timedelta | None = None) -> tuple[TaskGraph, WindowedDataset]:
    """Copies a depot and counts by windows; stops when it has nothing to do, and has ended what `idle` says."""
    graph = TaskGraph(store, id="flow", checkpoint_waves=1)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    graph.new_output_depot({0: ticks}, "Ticks", "*out", 1)
    counted = {"n": ("at", "count")}
    sums = TumblingWindowExecutor("at", 10, "k", aggregations=counted, allowed_lateness=0, idle_after=idle)
    windows = graph.new_blocking_node({0: ticks}, sums, 1, {0: None}, kind=WindowedDataset, key="window_start")

    def look(waves: Waves) -> None:
        waits = bool(idle and waves.untold)
        if (
            waves.is_idle
            and not waits
            and not waves.staged_rows
            and not any(w.windows for w in waves.channels.values())
        ):
            graph.stop()

    graph.observe(look)
    return graph, windows


class Killer:
    """Kills at one create or delete of a graph's objects, before it or after it; from then on nothing is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self.left, self.after, self.is_dead = at, after, False
        self.lock = threading.Lock()
        for verb in ("create", "delete"):
            self.wrap(monkeypatch, verb, getattr(LocalStore, verb))

    def wrap(self, monkeypatch: pytest.MonkeyPatch, verb: str, real: Any) -> None:
        def call(store: LocalStore, key: str, *arguments: Any) -> None:
            with self.lock:
                if not key.startswith("_tidemill/"):  # the depots' own writes have tests of their own
                    return real(store, key, *arguments)
                if self.is_dead:
                    raise Killed
                self.left -= 1
                self.is_dead = self.left == 0
                if self.is_dead and self.after:
                    real(store, key, *arguments)
                if self.is_dead:
                    raise Killed
                return real(store, key, *arguments)

        monkeypatch.setattr(LocalStore, verb, call)


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(run, "IDLE_SECONDS", (0.001, 0.001))
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 200)


def check(store: str, windows: WindowedDataset, last: int, ended: int | None = None) -> None:
    """The results are those of a clean run, and nothing else is left."""
    assert out(store) == list(range(last))
    assert [each.id.rpartition("/")[2] for each in windows.windows()] == [
        str(n) for n in range(0, ended or last - 10, 10)
    ]
    assert all(each.to_polars()["n"].sum() == 10 for each in windows.windows())
    named = {each.key for dataset in windows.windows() for each in dataset.record.objects}
    kept = [key for key in open_store(store).list("_tidemill/datasets") if not key.endswith("dataset.json")]
    assert set(kept) == named
    graphs = [key.split("/")[3] for key in open_store(store).list("_tidemill/graphs/flow")]
    assert graphs.count("checkpoints") == sum(name.startswith("program-") for name in graphs) == 1
    assert graphs.count("scratch") == 0


@pytest.mark.parametrize("idle", [None, timedelta(microseconds=1)])
@pytest.mark.parametrize("after", [False, True])
def test_each_record_and_window_comes_once_when_a_process_dies_at_any_write(
    tmp_path: Path, after: bool, idle: timedelta | None
) -> None:
    points, at = 0, 0
    while True:
        at += 2  # to die before a write is to die after the one before it, so both cases together try each point
        store = store_with(tmp_path / f"{at}", 0, 30)
        with pytest.MonkeyPatch.context() as patch:
            killer = Killer(patch, at - after, after)
            with suppress(Killed):
                flowing(store, idle)[0].run()
        if not killer.is_dead:
            break
        points += 1
        store_with(tmp_path / f"{at}", 30, RECORDS)
        graph, windows = flowing(store, idle)
        graph.run()
        check(store, windows, RECORDS, RECORDS if idle else None)
    assert points >= 7


PROGRAM = """
import os, signal, sys
sys.path[:0] = [sys.argv[1]]
import test_graph_endless_kills as flows
from tidemill.graphs import run
from tidemill.store.local import LocalStore
run.CHECKPOINT_SHARE, run.IDLE_SECONDS = 1e9, (0.001, 0.001)
left, real = [int(sys.argv[3])], LocalStore.create

def create(store, key, *arguments):
    real(store, key, *arguments)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

LocalStore.create = create
flows.flowing(sys.argv[2])[0].run()
"""


def test_the_same_program_goes_on_when_its_process_was_killed_again_and_again(tmp_path: Path) -> None:
    here = Path(__file__).parent
    unit = str(here.parent / "unit")

    def start(store: str, writes: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(here), store, str(writes)],
            capture_output=True, text=True, check=False, env={"PYTHONPATH": unit, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode

    store, codes = "", []
    for number, writes in enumerate((7, 13, 10_000)):
        store = store_with(tmp_path / "store", 20 * number, 20 * number + 20)
        codes.append(start(store, writes))

    assert codes == [-signal.SIGKILL] * 2 + [0]
    check(store, flowing(store)[1], 60)
