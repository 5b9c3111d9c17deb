"""Task graphs that read depots and append to depots: each record once, also when the process dies between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Killed, Pass

from tidemill import (
    BadInput,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    SequenceUnknown,
    TaskGraph,
    UnknownName,
    UserCodeError,
)
from tidemill.clients.module import ModuleClient
from tidemill.depot import appender
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import retain
from tidemill.graphs import run
from tidemill.graphs.depot_output import DepotOutput
from tidemill.graphs.inputs import depot_input
from tidemill.graphs.nodes import DepotSink
from tidemill.store.urls import forget_stores, open_store


class Flows(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*rows", Depot.random())
        setup.declare_depot("*numbers", Depot.random())
        setup.declare_depot("*odd", Depot.random())
        setup.declare_depot("*out", Depot.random())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    with InProcessCluster.create(store=tmp_path / "store") as cluster:
        cluster.launch_module(Flows(), LaunchConfig(4, 2))
        cluster.cluster_depot("Flows", "*rows").append_many([{"k": n % 3, "n": n} for n in range(100)])
        cluster.cluster_depot("Flows", "*numbers").append_many(list(range(50)))
    return str(tmp_path / "store")


def appended(store: str) -> list[Any]:
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(Flows(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("Flows", "*out")
        return [
            record
            for partition in range(4)
            for record in depot.read(partition, 0, depot.get_partition_info(partition).end_offset)
        ]


def copying(store: str) -> TaskGraph:
    graph = TaskGraph(store, id="copy", checkpoint_waves=1)
    numbers = graph.new_input_depot("Flows", "*numbers", 2)
    graph.new_output_depot({0: numbers}, "Flows", "*out", 2, {0: "value"})
    return graph


def test_records_are_rows_when_a_graph_reads_a_depot(store: str) -> None:
    graph = TaskGraph(store)
    rows = graph.new_input_depot("Flows", "*rows", 3)
    counted = graph.new_blocking_node({0: rows}, Count("k"), 2, {0: "k"})
    kept = graph.new_blocking_node({0: rows}, Pass(), 1, {0: None})
    graph.run()

    assert sorted(counted.to_polars().rows()) == [(0, 34), (1, 33), (2, 33)]
    assert sorted(kept.to_polars()["n"]) == list(range(100))


def test_records_are_values_when_they_are_no_dicts_in_both_directions(store: str) -> None:
    copying(store).run()
    assert sorted(appended(store)) == list(range(50))


def passed_on(store: str, records: list[Any], **options: Any) -> list[Any]:
    """What another depot gets of records, in one batch."""
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(Flows(), LaunchConfig(4, 2))
        cluster.cluster_depot("Flows", "*odd").append_many(records)
    graph = TaskGraph(store)
    odd = graph.new_input_depot("Flows", "*odd", 1, **options)
    graph.new_output_depot({0: odd}, "Flows", "*out")
    graph.run()
    return appended(store)


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "records",
    [
        [{"a": 1}, {"a": "x"}], [{"a": {"b": 1}}, {"a": 2}], [{"a": 1}, {"a": NOON}], [{"a": [1, "x"]}], [1, "x"],
        [{"a": 1}, 2], [{"a": {"b": 1}}, {"a": {"b": "x"}}], [b"x", "x"], [{}, {}], [[{"b": 1}], [{"b": None}, 2]],
        [2**53 + 1, 0.5], [{"a": [2**53 + 1, 0.5]}], [{"a": {1, 2}}],
    ],
)  # fmt: skip
def test_records_are_refused_when_a_column_would_change_their_values(store: str, records: list[Any]) -> None:
    with pytest.raises(BadInput, match="make no columns"):
        passed_on(store, records)


@pytest.mark.parametrize("records", [["x", 1], [2**40], [{"a": 1}]])
def test_values_are_refused_when_they_are_not_of_the_type_that_was_said(store: str, records: list[Any]) -> None:
    with pytest.raises(BadInput, match="make no columns"):
        passed_on(store, [*records, None], schema={"value": pl.Int32})


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([["x"], [1]], pl.List(pl.Int64)), ([[300]], pl.List(pl.Int8)), ([1.5], pl.Int64), ([[1.5]], pl.List(pl.Int64)),
        ([{"value": {"b": 300}}], pl.Struct({"b": pl.Int8})), ([{"value": ["x"]}], pl.List(pl.Int64)),
    ],
)  # fmt: skip
def test_values_are_refused_when_a_part_is_not_of_the_type_that_was_said(
    store: str, records: list[Any], kind: Any
) -> None:
    with pytest.raises(BadInput, match="has values that are no"):
        passed_on(store, records, schema={"value": kind})


@pytest.mark.parametrize(
    "records",
    [
        [{"a": [1, None, 2.5]}, {"a": [None]}, {"a": []}], [{"a": {"b": [1, 2.5]}}], [2**53, 0.5],
        [{"a": None, "b": [1, None]}, {"a": NOON, "b": []}, {"a": None, "b": None}], [None, [1], [None, 2.5]],
        [{"a": {"b": None}}, {"a": None}, {"a": {"b": "x"}}], [b"x", None], [1, 2.5, None],
    ],
)  # fmt: skip
def test_records_pass_through_when_each_column_has_one_kind(store: str, records: list[Any]) -> None:
    assert sorted(passed_on(store, records), key=repr) == sorted(records, key=repr)


def test_rows_become_dicts_when_a_graph_appends_them(store: str) -> None:
    graph = TaskGraph(store)
    source = graph.new_input_frames(pl.DataFrame({"a": [1, None], "b": ["x", "y"]}), 1)
    graph.new_output_depot({0: source}, "Flows", "*out")
    graph.run()
    assert sorted(appended(store), key=repr) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_each_record_is_appended_once_when_the_process_dies_around_an_append(
    store: str, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    real, left = DepotOutput._append, [at]
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 10)  # so that there are several appends

    def dying(*arguments: Any) -> int:
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Killed
        sequence = real(*arguments)
        if left[0] == 0:
            raise Killed
        return sequence

    monkeypatch.setattr(DepotOutput, "_append", staticmethod(dying))
    with pytest.raises(Killed):
        copying(store).run()
    TaskGraph.resume("copy", store).run()

    assert sorted(appended(store)) == list(range(50))


def publish(store: str, numbers: int) -> int:
    """Appends of two records at a time, by a process of their own."""
    forget_stores()
    output = DepotOutput(open_store(store), "copy")
    try:
        sink = DepotSink("Flows", "*out")
        return output.append_all(sink, 1, 0, 0, output.columns(sink, [pl.DataFrame({"value": range(numbers)})]))
    finally:
        output.close()


def forget(store: str) -> DepotLog:
    """The depot after all but its newest records were deleted."""
    definition = ModuleClient(open_store(store), "Flows").definition()
    depot = DepotLog(open_store(store), definition.depot_prefix("*out"), 4)
    for _ in range(2):
        depot.append([(partition, [-1]) for partition in range(4)])
    retain(depot, 1, depot.ends(), grace_millis=-1)
    return depot


def test_a_graph_goes_on_when_retention_deleted_what_it_appended_since_its_checkpoint(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "_VALUES_CHUNK_RECORDS", 2)
    assert publish(store, 6) == 3
    depot = forget(store)
    ends = depot.ends()

    assert publish(store, 6) == 3  # as one that is resumed from there
    depot.follow()
    assert depot.ends() == ends


def test_rows_are_refused_when_the_depot_knows_later_ones_of_the_graph(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "_VALUES_CHUNK_RECORDS", 2)
    publish(store, 6)
    forget(store)

    with pytest.raises(SequenceUnknown):
        publish(store, 4)  # begun anew: another run had this ID


def test_a_depot_is_refused_when_there_is_none(store: str) -> None:
    graph = TaskGraph(store)
    source = graph.new_input_depot("Flows", "*nothing", 1)
    graph.new_output_depot({0: source}, "Nobody", "*out")
    with pytest.raises(DefinitionError) as caught:
        graph.run()
    assert ["nothing" in str(fault) or "Nobody" in str(fault) for fault in caught.value.faults] == [True, True]
    with pytest.raises(UnknownName):
        TaskGraph.resume("copy", store)


def from_iterator(store: str, stop_at: int) -> TaskGraph:
    """A graph that takes a checkpoint with each row that waits for the depot, and fails at a row."""

    def numbers() -> Iterator[pl.DataFrame]:
        for number in range(6):
            yield pl.DataFrame({"value": [number]})

    def checked(batch: pl.DataFrame) -> pl.DataFrame:
        if stop_at in batch["value"]:
            raise ValueError("stop")
        return batch

    graph = TaskGraph(store, id="from-iterator")
    graph.new_output_depot({0: graph.new_input_frames(numbers(), 1, batch_func=checked)}, "Flows", "*out")
    return graph


def test_a_graph_is_refused_when_it_would_read_an_iterator_anew_whose_rows_a_depot_has(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "STAGED_ROWS_MAX", 1)
    graph = from_iterator(store, stop_at=4)
    with pytest.raises(UserCodeError, match="stop"):
        graph.run()
    before = sorted(appended(store))

    for again in (graph, from_iterator(store, stop_at=9)):
        with pytest.raises(BadInput, match="reads an iterator, which gives no row again"):
            again.run()
    assert before and sorted(appended(store)) == before == list(range(len(before)))


def test_a_graph_is_refused_when_its_iterator_has_given_rows_to_a_run_that_failed(store: str) -> None:
    graph = from_iterator(store, stop_at=4)
    with pytest.raises(UserCodeError, match="stop"):
        graph.run()
    with pytest.raises(BadInput, match="reads an iterator"):
        graph.run()  # what it gave before is nowhere

    from_iterator(store, stop_at=9).run()  # nothing of the run that failed is anywhere, so it begins anew
    assert sorted(appended(store)) == list(range(6))


def test_a_graph_goes_on_with_its_iterator_when_it_was_stopped(store: str) -> None:
    graph = from_iterator(store, stop_at=9)
    graph.observe(lambda waves: graph.stop() if waves.wave == 3 else None)
    graph.run()
    with pytest.raises(BadInput, match="reads an iterator"):
        from_iterator(store, stop_at=9).run()
    graph.run()
    assert sorted(appended(store)) == list(range(6))
