"""What endless graphs published stays whole where clocks are put back, windows deleted, and runs saved or collected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from graph_executors import Killed, Pass
from typer.testing import CliRunner

from tidemill import (
    BadInput,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    TaskGraph,
    TumblingWindowExecutor,
    WindowedDataset,
)
from tidemill.cli.main import app
from tidemill.graphs import run, saved_graphs
from tidemill.graphs.dataset_collection import collect_datasets
from tidemill.graphs.dataset_readers import DatasetReader, delete_dataset
from tidemill.graphs.waves import Waves
from tidemill.journal.clock import SystemClock
from tidemill.store.urls import forget_stores, open_store

DAY = 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")
HALF_HOURS = pl.datetime_range(
    datetime(2024, 10, 26, 22), datetime(2024, 10, 27, 5), "30m", time_zone="UTC", eager=True
).dt.convert_time_zone("Europe/Berlin")
"""Half hours of a night in which 02:00 comes twice."""


class Clicks(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.random())


class Clicked:
    """A store with the depots, and what comes of them."""

    def __init__(self, cluster: InProcessCluster, store: str) -> None:
        self.cluster, self.store = cluster, store

    def append(self, first: int, last: int) -> None:
        self.cluster.cluster_depot("Clicks", "*in").append_many([{"at": n} for n in range(first, last)])

    def out(self) -> list[int]:
        depot = self.cluster.cluster_depot("Clicks", "*out")
        return sorted(row["at"] for row in depot.read(0, 0, depot.get_partition_info(0).end_offset))

    def counting(self) -> tuple[TaskGraph, WindowedDataset]:
        """Rows by ten, a Dataset for each."""
        graph = TaskGraph(self.store, id="tens", checkpoint_waves=1)
        clicks = graph.new_input_depot("Clicks", "*in", 1, endless=True)
        tens = TumblingWindowExecutor("at", 10, aggregations={"n": ("at", "count")}, allowed_lateness=0)
        return graph, graph.new_blocking_node({0: clicks}, tens, 1, kind=WindowedDataset, key="window_start")

    def run_on(self, graph: TaskGraph, kill: bool = False) -> None:
        """Until all is published; then stop, or die."""

        def look(waves: Waves) -> None:
            published = not waves.staged_rows and not any(each.windows for each in waves.channels.values())
            if waves.is_idle and published:
                graph.stop()
                if kill:
                    raise Killed

        graph.observe(look)
        with pytest.raises(Killed) if kill else nullcontext():
            graph.run()


@pytest.fixture
def clicked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clicked]:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(run, "IDLE_SECONDS", (0.001, 0.001))
    with InProcessCluster.create(store=tmp_path / "store") as cluster:
        cluster.launch_module(Clicks(), LaunchConfig(1, 1))
        yield Clicked(cluster, str(tmp_path / "store"))


def told(*arguments: Any) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    forget_stores()
    return json.loads(done.stdout)


# --- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 100])
def test_windows_hold_all_rows_when_the_clock_is_put_back(tmp_path: Path, batch: int) -> None:
    rows = pl.DataFrame({"at": HALF_HOURS})
    graph = TaskGraph(tmp_path, id="night", checkpoint_waves=1)
    source = graph.new_input_frames([rows.slice(at, batch) for at in range(0, rows.height, batch)], 1)
    hours = TumblingWindowExecutor(
        "at", timedelta(hours=1), aggregations={"n": ("at", "count")}, allowed_lateness=timedelta(0)
    )
    night = graph.new_blocking_node({0: source}, hours, 1, kind=WindowedDataset, key="window_start")
    graph.run()

    assert (len(night.windows()), night.to_polars()["n"].sum()) == (8, rows.height)
    for fold in (0, 1):
        hour = night.window(datetime(2024, 10, 27, 2, tzinfo=BERLIN, fold=fold)).to_polars()
        assert hour["window_start"].to_list() == [datetime(2024, 10, 27, 2, tzinfo=BERLIN, fold=fold)]
        assert hour["window_start"].dt.convert_time_zone("UTC").to_list() == [datetime(2024, 10, 27, fold, tzinfo=UTC)]


def test_a_run_fails_when_two_windows_have_one_name(tmp_path: Path) -> None:
    starts = pl.DataFrame({"at": pl.Series([1_000, 1_001], dtype=pl.Datetime("ns"))})
    graph = TaskGraph(tmp_path, id="nanos")
    source = graph.new_input_frames([starts], 1)
    graph.new_blocking_node({0: source}, Pass(), 1, kind=WindowedDataset, key="at")
    with pytest.raises(BadInput, match="microsecond"):
        graph.run()


def test_the_other_windows_can_be_read_when_one_waits_to_be_deleted(clicked: Clicked) -> None:
    clicked.append(0, 45)
    graph, tens = clicked.counting()
    clicked.run_on(graph)
    store = open_store(clicked.store)
    reader = DatasetReader([tens.window(0)], "reader", SystemClock())
    reader.begin()
    assert delete_dataset(store, tens.window(0).id) == 0  # it waits for the reader

    assert tens.to_polars()["window_start"].to_list() == [10, 20, 30]
    assert [each.id for each in tens.windows()] == [tens.window(at).id for at in (10, 20, 30)]


# --- backups and checks ----------------------------------------------------------------------------------------------


def test_a_store_is_saved_and_is_sound_when_a_window_of_its_last_checkpoint_was_deleted(
    clicked: Clicked, tmp_path: Path
) -> None:
    clicked.append(0, 45)
    graph, tens = clicked.counting()
    clicked.run_on(graph, kill=True)  # its last checkpoint names what it published behind it
    delete_dataset(open_store(clicked.store), tens.window(10).id)

    assert told("check", "--store", clicked.store)["findings"] == []
    saved = told("backup", tmp_path / "backups", "--store", clicked.store)
    assert saved["datasets"] == [tens.window(at).id for at in (0, 20, 30)]


def test_a_backup_has_each_window_once_when_the_graph_goes_on_meanwhile(
    clicked: Clicked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicked.append(0, 25)
    clicked.run_on(clicked.counting()[0])
    looks: list[int] = []
    look = saved_graphs.list_datasets

    def looked(store: Any) -> Any:
        """The graph ends windows behind the first look of the backup, and before the second."""
        looks.append(1)
        if len(looks) == 2:
            clicked.append(45, 65)
            clicked.run_on(clicked.counting()[0])
        found = look(store)
        if len(looks) == 1:
            clicked.append(25, 45)
            clicked.run_on(clicked.counting()[0])
        return found

    monkeypatch.setattr(saved_graphs, "list_datasets", looked)
    told("backup", tmp_path / "backups", "--store", clicked.store)
    assert len(looks) == 2
    told("restore", tmp_path / "backups", "--store", clicked.store, "--replace")
    with InProcessCluster.create(store=clicked.store):
        graph, tens = clicked.counting()
        clicked.run_on(graph)
        assert tens.to_polars()["window_start"].to_list() == list(range(0, 60, 10))
        assert set(tens.to_polars()["n"]) == {10}
    assert told("check", "--store", clicked.store)["findings"] == []


# --- collection ------------------------------------------------------------------------------------------------------


def copying(store: str) -> TaskGraph:
    graph = TaskGraph(store, id="copy", checkpoint_waves=1)
    source = graph.new_input_frames([pl.DataFrame({"at": range(at, at + 10)}) for at in range(0, 60, 10)], 1)
    graph.new_output_depot({0: source}, "Clicks", "*out", 1)
    return graph


def test_a_collected_graph_does_not_begin_again_when_depots_have_what_it_published(clicked: Clicked) -> None:
    graph = copying(clicked.store)

    def die(waves: Waves) -> None:
        if any(progress.published for progress in waves.channels.values()):
            raise Killed

    graph.observe(die)
    with pytest.raises(Killed):
        graph.run()
    published = clicked.out()
    assert published
    store = open_store(clicked.store)
    assert collect_datasets(store, SystemClock().now_ms() + 8 * DAY, unfinished_ms=7 * DAY).runs == ["copy"]

    with pytest.raises(BadInput, match="collected"):
        copying(clicked.store).run()
    assert clicked.out() == published
