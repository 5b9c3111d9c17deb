"""`run(check_confluence=True)` tries executors on samples of what they get, in other orders and batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Join, Pass

from tidemill import (
    AggExecutor,
    Executor,
    JoinExecutor,
    LimitExecutor,
    OutputCSVExecutor,
    PublishExecutor,
    SortExecutor,
    TaskGraph,
)
from tidemill.graphs import live_confluence
from tidemill.graphs.confluence import NotConfluent
from tidemill.graphs.run_log import RunLog
from tidemill.store.urls import open_store


def frames(batches: int, rows: int = 5) -> list[pl.DataFrame]:
    return [pl.DataFrame({"k": [(n * rows + i) % 7 for i in range(rows)], "v": n}) for n in range(batches)]


class BuildProbe(Executor):
    """Joins stream 0 to what came of stream 1 so far."""

    def __init__(self) -> None:
        self.built: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        if stream_id == 1:
            self.built += batches
            return None
        return [left.join(right, on="k") for left in batches for right in self.built]


def probing(store: Path, batches: int, depends: bool) -> TaskGraph:
    graph = TaskGraph(store, id="probe")
    build = graph.new_input_frames(frames(batches), 1)
    probe = graph.new_input_frames(frames(batches), 1, dependents=[build] if depends else ())
    graph.new_blocking_node({0: probe, 1: build}, BuildProbe(), 2, {0: "k", 1: "k"})
    return graph


@pytest.mark.parametrize("batches", [2, 30])
def test_an_order_is_found_that_shows_when_an_executor_depends_on_it(tmp_path: Path, batches: int) -> None:
    graph = probing(tmp_path, batches, depends=False)
    with pytest.raises(NotConfluent) as caught:
        graph.run(check_confluence=True)

    text = str(caught.value)
    assert text.startswith("node 2 (new_blocking_node at ")
    assert "depend on the order in which batches of several streams come" in caught.value.reason
    assert "The rows of each stream:" in text
    assert text.count("'k':") <= 6  # one row a side, and what came of them
    newest = RunLog(open_store(str(tmp_path)), "probe").newest()
    assert newest is not None and newest.kind == "fail"
    assert not graph.datasets()[2].is_complete


def test_nothing_is_found_when_inputs_wait_for_each_other(tmp_path: Path) -> None:
    graph = probing(tmp_path, 30, depends=True)
    graph.run(check_confluence=True)
    assert graph.is_finished


def test_nothing_is_found_when_executors_are_those_of_the_library(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path / "store")
    left, right = (graph.new_input_frames(frames(8), 2) for _ in range(2))
    joined = graph.new_non_blocking_node({0: left, 1: right}, Join("k"), 2, {0: "k", 1: "k"})
    again = graph.new_non_blocking_node({0: joined, 1: left}, JoinExecutor("k"), 2, {0: "k", 1: "k"})
    sums = AggExecutor("k", {"v": "sum"})
    graph.new_blocking_node({0: again}, sums, 2, {0: "k"})
    graph.new_blocking_node({0: joined}, SortExecutor("v"), 1, {0: None})
    graph.new_blocking_node({0: left, 1: right}, LimitExecutor(3), 1, {0: None, 1: None})
    graph.run(check_confluence=True)
    assert graph.is_finished


def test_files_are_written_once_when_executors_are_checked(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path / "store")
    rows = graph.new_input_frames(frames(20), 1)
    parts = graph.new_non_blocking_node({0: rows}, OutputCSVExecutor(tmp_path / "out"), 2, {0: "k"})
    graph.new_blocking_node({0: parts}, PublishExecutor(tmp_path / "out"), 1, {0: None})
    graph.run(check_confluence=True)
    assert len(list((tmp_path / "out").glob("*.csv"))) == 2
    assert not list(tmp_path.glob(".out*"))


class Runs(Count):
    """Counts how often an executor is started, beside the graph and in it."""

    def initialize(self, datasets: Any, channel: int) -> None:
        with self.path.open("a") as file:
            file.write(".")

    def __init__(self, key: str, path: Path) -> None:
        super().__init__(key)
        self.path = path


def test_checks_are_few_and_samples_small_when_a_run_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = live_confluence.check_confluence

    def watched(executor: Any, inputs: Any, **more: Any) -> None:
        sizes.append(max(rows.height for rows in inputs.values()))
        real(executor, inputs, **more)

    monkeypatch.setattr(live_confluence, "check_confluence", watched)
    graph = TaskGraph(tmp_path / "store")
    rows = graph.new_input_frames(frames(130, 90), 1)
    graph.new_blocking_node({0: rows}, Runs("k", tmp_path / "runs"), 1, {0: "k"})
    graph.run(check_confluence=True)

    assert 3 <= len(sizes) <= 6  # after 8, 16, 32, 64 and 128 waves, and at the end
    assert max(sizes) == live_confluence.SAMPLE_ROWS
    # Each trial starts one, and restarts it at most at each step.
    assert len((tmp_path / "runs").read_text()) <= 1 + 6 * live_confluence.TRIALS * 40


def test_keys_of_two_streams_meet_in_a_sample_when_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_confluence, "SAMPLE_ROWS", 20)
    graph = TaskGraph(tmp_path)
    for_left = [pl.DataFrame({"k": range(start, start + 50), "a": 1}) for start in range(0, 1000, 50)]
    for_right = [pl.DataFrame({"k": range(start, start + 50), "b": 1}) for start in range(950, -50, -50)]
    left, right = graph.new_input_frames(for_left, 1), graph.new_input_frames(for_right, 1)
    graph.new_blocking_node({0: left, 1: right}, BuildProbe(), 1, {0: "k", 1: "k"})
    with pytest.raises(NotConfluent):
        graph.run(check_confluence=True)


def test_a_frame_is_checked_too_when_it_asks_for_it(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    rows = graph.new_input_frames(frames(4), 1)
    out = graph.new_blocking_node({0: rows}, Pass(), 1, {0: None})
    graph.run(check_confluence=True)
    assert out.num_rows == 20
