"""A graph whose process is killed at any durable step goes on from its last checkpoint, with a clean run's result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Join, Killed, Pass, results

from tidemill import Dataset, Executor, Fenced, TaskGraph, UnknownName, UserCodeError
from tidemill.graphs import checkpoints, run, run_log
from tidemill.graphs.inputs.csv_input import CsvInput
from tidemill.graphs.run_log import RunLog
from tidemill.graphs.saved_graphs import check_graphs
from tidemill.store.local import LocalStore
from tidemill.store.log import Log
from tidemill.store.urls import open_store
from tidemill.values.errors import StoreUnavailable

ROWS = 120


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 200)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        pl.DataFrame({"k": [n % 17 for n in range(ROWS)], name: range(ROWS)}).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def joined(folder: Any, store: Any, every: int | None = 1, stride: int = 100) -> tuple[TaskGraph, Dataset, Dataset]:
    graph = TaskGraph(store, id="job", checkpoint_waves=every)
    a = graph.new_input_csv(folder, "a.csv", None, 2, header=True, stride=stride * 3 // 2)
    b = graph.new_input_csv(folder, "b.csv", None, 2, header=True, stride=stride)
    rows = graph.new_non_blocking_node({0: a, 1: b}, Join("k"), 2, {0: "k", 1: "k"})
    counted = graph.new_blocking_node({0: rows}, Count("k"), 2, {0: "k"})
    kept = graph.new_blocking_node({0: rows}, Pass(), 1, {0: None})
    return graph, counted, kept


class Killer:
    """Kills at one create or delete, before it or after it; from then on nothing is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self.left, self.after, self.is_dead = at, after, False
        self.lock = threading.Lock()
        for verb in ("create", "delete"):
            self.wrap(monkeypatch, verb, getattr(LocalStore, verb))

    def wrap(self, monkeypatch: pytest.MonkeyPatch, verb: str, real: Any) -> None:
        def call(store: LocalStore, *arguments: Any) -> None:
            with self.lock:
                if self.is_dead:
                    raise Killed
                self.left -= 1
                self.is_dead = self.left == 0
                if self.is_dead and self.after:
                    real(store, *arguments)
                if self.is_dead:
                    raise Killed
                real(store, *arguments)

        monkeypatch.setattr(LocalStore, verb, call)


def kill_points(store: Path, sources: Path, after: bool) -> Iterator[Path]:
    """Runs the graph in a new store for each place at which it can be killed, until it is not."""
    for at in range(1, 1000):
        folder = store / f"{at}-{after}"
        open_store(str(folder))
        with pytest.MonkeyPatch.context() as patch:
            killer = Killer(patch, at, after)
            with suppress(Killed):
                joined(sources, folder, 1, 500)[0].run()
        if not killer.is_dead:
            return
        yield folder


@pytest.mark.parametrize("after", [False, True])
def test_the_result_is_that_of_a_clean_run_when_a_process_dies_at_any_write(sources: Path, after: bool) -> None:
    graph, *clean = joined(sources, sources / "clean", 1, 500)
    graph.run()
    expected, points, resumed = results(*clean), 0, 0
    for folder in kill_points(sources / "stores", sources, after):
        points += 1
        assert check_graphs(open_store(str(folder)))[1] == []
        try:
            TaskGraph.resume("job", folder).run()
            resumed += 1
        except UnknownName:  # it died before it began, or when all was done
            joined(sources, folder, 1, 500)[0].run()
        _, *found = joined(sources, folder)
        assert results(*found) == expected, folder
        left = {path.relative_to(folder).parts[1:4] for path in (folder / "_tidemill").rglob("*") if path.is_file()}
        named = {tuple(each.key.split("/")[1:4]) for dataset in found for each in dataset.record.objects}
        assert {parts for parts in left if parts[0] == "datasets" and parts[2] != "dataset.json"} == named
        assert {parts[2] for parts in left if parts[0] == "graphs"} == {"log"}
    assert points > 20
    assert resumed > points / 2


def test_only_missing_strides_are_read_when_a_graph_is_resumed(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    real = CsvInput.read

    def watched(self: CsvInput, cursor: Any) -> Any:
        read.append((self.files[0].path, cursor))
        return real(self, cursor)

    monkeypatch.setattr(CsvInput, "read", watched)
    joined(sources, sources / "clean")[0].run()
    clean, read[:] = list(read), []
    graph, *_ = joined(sources, sources / "store")

    def stop(waves: Any) -> None:
        if waves.wave == 3:
            raise Killed

    graph.observe(stop)
    with pytest.raises(Killed):
        graph.run()
    before, read[:] = list(read), []
    TaskGraph.resume("job", sources / "store").run()

    # The third wave was done, and no checkpoint was taken behind it: its strides, and no others, are read again.
    again = [each for each in before if each in read]
    assert len(again) == 4
    assert sorted({*before, *read}) == sorted(clean)
    assert len(before) + len(read) == len(clean) + 4


def test_a_graph_goes_on_when_it_failed_and_the_cause_is_gone(sources: Path, tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    flag.touch()

    class Fragile(Pass):
        def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
            if batch["a"].max() > 60 and flag.exists():
                raise OSError("disk full")
            return batch

    graph = TaskGraph(tmp_path / "store", id="job", checkpoint_waves=1)
    source = graph.new_input_csv(sources, "a.csv", None, 1, header=True, stride=100)
    out = graph.new_blocking_node({0: source}, Fragile(), 1, {0: None})
    with pytest.raises(UserCodeError, match="disk full"):
        graph.run()
    log = RunLog(open_store(str(tmp_path / "store")), "job")
    assert [entry.kind for entry in log.all()][-1] == "fail"
    assert not out.is_complete

    flag.unlink()
    again = TaskGraph.resume("job", tmp_path / "store")
    again.run()

    assert again.datasets()[1].to_polars()["a"].sort().to_list() == list(range(ROWS))
    with pytest.raises(UnknownName):
        TaskGraph.resume("job", tmp_path / "store")


def test_a_graph_goes_on_when_the_store_did_not_take_an_entry(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry that tells the failure comes into its place: what it names must be there."""
    monkeypatch.setattr(run_log, "Log", partial(Log, patience=()))
    graph, *clean = joined(sources, sources / "clean", 1, 500)
    graph.run()
    entries = RunLog(open_store(str(sources / "clean")), "job").all()
    create = LocalStore.create
    for number in range(1, len(entries) + 1):
        folder, refused = sources / "stores" / f"{number}", list[str]()

        def refuse(store: LocalStore, key: str, data: Any, number: int = number, refused: list[str] = refused) -> None:
            if key.endswith(f"/log/{number:020d}.json") and not refused:
                refused.append(key)
                raise StoreUnavailable("the disk is full")
            create(store, key, data)

        graph, *found = joined(sources, folder, 1, 500)
        with monkeypatch.context() as patch, pytest.raises(StoreUnavailable, match="the disk is full"):
            patch.setattr(LocalStore, "create", refuse)
            graph.run()
        assert check_graphs(open_store(str(folder)))[1] == []
        joined(sources, folder, 1, 500)[0].run()
        assert results(*found) == results(*clean), number
    assert [entry.kind for entry in entries].count("checkpoint") > 1


@pytest.mark.s3
def test_a_graph_goes_on_when_its_store_and_its_files_are_in_a_bucket(sources: Path, s3_url: str) -> None:
    store = open_store(s3_url)
    for name in ("a", "b"):
        store.create(f"in/{name}.csv", (sources / f"{name}.csv").read_bytes())
    found = {}
    for folder, where in ((sources, str(sources / "clean")), (s3_url.replace("?", "/in?"), s3_url)):
        graph, *made = joined(folder, where, 1, 400)

        def stop(waves: Any, wave: int = 2) -> None:
            if waves.wave == wave:
                raise Killed

        if where == s3_url:
            graph.observe(stop)
            with pytest.raises(Killed):
                graph.run()
            TaskGraph.resume("job", where).run()
        else:
            graph.run()
        found[where] = results(*made)
    assert found[s3_url] == found[str(sources / "clean")]


def test_a_process_stops_when_another_one_resumed_its_graph(sources: Path) -> None:
    graph, *found = joined(sources, sources / "store")
    store = sources / "store"

    def take_over(waves: Any) -> None:
        if waves.wave == 2:
            TaskGraph.resume("job", store).run()

    graph.observe(take_over)
    with pytest.raises(Fenced, match="Another process resumed"):
        graph.run()
    joined(sources, sources / "clean")[0].run()
    _, *clean = joined(sources, sources / "clean")
    assert results(*found) == results(*clean)


def test_state_that_grows_is_written_once_when_checkpoints_are_frequent(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = checkpoints.write_frame
    monkeypatch.setattr(checkpoints, "write_frame", lambda *each: (written.append(each[2].height), real(*each)))
    graph = TaskGraph(sources / "store", checkpoint_waves=1)
    source = graph.new_input_csv(sources, "a.csv", None, 1, header=True, stride=100)

    graph.new_blocking_node({0: source}, Keeps(), 1, {0: None})
    graph.run()

    assert len(written) > 5
    assert sum(written) <= 2 * ROWS  # once on their way, and once as state


class Keeps(Executor):
    """Keeps all, and sends the number of rows."""

    def __init__(self) -> None:
        self.kept: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.kept += batches

    def done(self, channel: int) -> Any:
        return pl.DataFrame({"rows": [sum(batch.height for batch in self.kept)]})


PROGRAM = """
import os, signal, sys
import polars as pl
from tidemill import StatelessExecutor, TaskGraph
from tidemill.graphs import run
run.CHECKPOINT_SHARE = 1e9

class Slow(StatelessExecutor):
    def execute(self, batch, stream_id, channel):
        if batch["a"].max() >= int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

graph = TaskGraph(sys.argv[1] + "/store", id="job", checkpoint_waves=1)
source = graph.new_input_csv(sys.argv[1], "a.csv", None, 2, header=True, stride=100)
out = graph.new_blocking_node({0: source}, Slow(), 2, {0: "k"})
graph.run()
print(out.to_polars()["a"].sum())
"""


def test_the_same_program_goes_on_when_its_process_was_killed(sources: Path) -> None:
    def start(limit: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(sources), str(limit)], capture_output=True, text=True, check=False
        )

    for limit in (20, 40):
        assert start(limit).returncode == -signal.SIGKILL
    done = start(10_000)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(range(ROWS))
    entries = RunLog(open_store(str(sources / "store")), "job").all()
    kinds = [entry.kind for entry in entries]
    assert kinds.count("begin") == 3
    assert kinds[-1] == "finish"
    waves = [entry.wave for entry in entries if entry.kind == "checkpoint"]
    assert waves == sorted(waves)  # no state went back behind a checkpoint


def test_a_graph_stops_between_waves_when_ctrl_c_is_pressed(sources: Path) -> None:
    graph, *found = joined(sources, sources / "store", every=None)

    def press(waves: Any) -> None:
        if waves.wave == 3:
            os.kill(os.getpid(), signal.SIGINT)

    graph.observe(press)
    with pytest.raises(KeyboardInterrupt) as caught:
        graph.run()
    assert "TaskGraph.resume('job'" in caught.value.__notes__[0]
    assert not found[0].is_complete

    again = TaskGraph.resume("job", sources / "store")
    waves: list[int] = []
    again.observe(lambda state: waves.append(state.wave))
    again.run()
    assert waves[0] == 4
    assert found[1].num_rows == sum(n % 17 == m % 17 for n in range(ROWS) for m in range(ROWS))
