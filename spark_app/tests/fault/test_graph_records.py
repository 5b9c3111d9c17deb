"""Records of runs that ended go when somebody asks for it, and nothing goes that somebody may still need."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Killed, Pass
from test_dataset_readers import DAY, ROWS, crashed, killed_at_each_step, made, opened
from typer.testing import CliRunner

from tidemill import Dataset, Depot, InProcessCluster, LaunchConfig, Module, TaskGraph
from tidemill.cli.main import app
from tidemill.graphs.dataset_collection import collect_datasets
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.graphs.run_log import RunLog, list_graphs, log_prefix
from tidemill.journal.clock import SystemClock
from tidemill.values.errors import Deleted

LATE = SystemClock().now_ms() + 40 * DAY


def collected(store: Any, days: int = 30) -> list[str]:
    return collect_datasets(opened(store), LATE, records_ms=days * DAY).records


def names(store: Any) -> list[str]:
    return [name for name, _ in list_graphs(opened(store))]


def test_records_go_when_they_are_old_and_no_dataset_is_left(tmp_path: Path) -> None:
    first, _ = made(tmp_path, "first"), made(tmp_path, "second")
    made(tmp_path, "first-2")  # whose Dataset is named alike
    assert collected(tmp_path) == []
    delete_dataset(opened(tmp_path), first.id)
    assert collected(tmp_path, 50) == []
    assert collect_datasets(opened(tmp_path), LATE).records == []

    assert collected(tmp_path) == ["first"]

    assert names(tmp_path) == ["second", "first-2"]
    assert not any("/first/" in key for key in opened(tmp_path).list("_tidemill"))
    assert made(tmp_path, "first").to_polars().height == 80  # its ID is free again


@pytest.mark.parametrize("kind", ["crashed", "stopped"])
def test_records_stay_when_a_run_has_not_ended(tmp_path: Path, kind: str) -> None:
    graph = TaskGraph(tmp_path, id="half", checkpoint_waves=1, memory_bytes=1)
    graph.new_blocking_node(
        {0: graph.new_input_frames([pl.DataFrame({"n": [n]}) for n in range(4)], 1)}, Pass(), 1, {0: None}
    )

    def end(waves: Any) -> None:
        if kind == "crashed":
            raise Killed
        graph.stop()

    graph.observe(end)
    with suppress(Killed):
        graph.run()
    assert collected(tmp_path) == []
    TaskGraph.resume("half", tmp_path).run()


class Sink(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*out", Depot.random())


def test_the_record_stays_when_a_run_appended_to_a_depot(tmp_path: Path) -> None:
    def appending() -> TaskGraph:
        graph = TaskGraph(tmp_path, id="appends")
        graph.new_output_depot({0: graph.new_input_frames(pl.DataFrame({"n": [1, 2]}), 1)}, "Sink", "*out")
        return graph

    with InProcessCluster.create("local", store=tmp_path) as cluster:
        cluster.launch_module(Sink(), LaunchConfig(1, 1))
        appending().run()
        assert collected(tmp_path) == []
        appending().run()  # it has run to its end: nothing is appended a second time, or lost under known numbers
        assert cluster.cluster_depot("Sink", "*out").get_partition_info(0).end_offset == 2


def test_a_collected_run_leaves_no_record_when_it_is_old(tmp_path: Path) -> None:
    crashed(tmp_path)
    late, store = LATE, opened(tmp_path)
    assert collect_datasets(store, late, unfinished_ms=DAY).runs == ["half"]
    found = collect_datasets(store, late + 40 * DAY, unfinished_ms=DAY, records_ms=30 * DAY)
    assert found.records == ["half"]
    assert list(store.list("_tidemill/graphs")) == []


def test_a_deletion_of_records_goes_on_when_it_was_killed_at_any_step(tmp_path: Path) -> None:
    def ended(store: Path) -> Dataset:
        dataset = made(store)
        delete_dataset(opened(store), dataset.id)
        return dataset

    for store, _ in killed_at_each_step(tmp_path, ended, lambda s, d: collected(s) and None):
        assert names(store) in ([], ["first"])
        for name in names(store):  # nothing was deleted yet
            assert TaskGraph(store, id=name).id == name
        assert collected(store) in ([], ["first"])
        assert list(opened(store).list("_tidemill/graphs")) == []
        assert made(store).to_polars().height == 80


def test_nobody_begins_a_run_whose_record_is_half_deleted(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    delete_dataset(opened(tmp_path), dataset.id)
    RunLog(opened(tmp_path), "first")._entries.log.mark_deleted()
    assert names(tmp_path) == []
    with pytest.raises(Deleted, match="record of the graph first is being deleted"):
        made(tmp_path)
    assert collected(tmp_path) == ["first"]
    assert made(tmp_path).to_polars().height == 80


def test_a_run_that_began_again_stays_when_its_record_was_to_be_deleted(tmp_path: Path) -> None:
    """The mark stands, and the deleter was killed: somebody had gone on with the abandoned run just before."""
    crashed(tmp_path)
    store = opened(tmp_path)
    collect_datasets(store, LATE, unfinished_ms=DAY)
    graph = TaskGraph(tmp_path, id="half", checkpoint_waves=1, memory_bytes=1)
    out = graph.new_blocking_node({0: graph.new_input_frames([ROWS] * 6, 1)}, Pass(), 1, {0: None})
    graph.stop()
    graph.run()
    RunLog(store, "half")._entries.log.mark_deleted()

    assert collect_datasets(store, LATE + 40 * DAY, records_ms=30 * DAY).records == []
    assert not any(key.endswith("/deleted") for key in store.list(log_prefix("half")))
    graph.run()
    assert out.num_rows == 240


def test_the_command_deletes_records_when_it_is_told_an_age(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    delete_dataset(opened(tmp_path), dataset.id)
    words = ["datasets", "collect", "--store", str(tmp_path), "--runs"]
    assert json.loads(CliRunner().invoke(app, [*words, "1d", "--json"]).stdout)["records"] == []
    assert "records of 1 runs are deleted" in CliRunner().invoke(app, [*words, "0m"]).output
    assert names(tmp_path) == []
