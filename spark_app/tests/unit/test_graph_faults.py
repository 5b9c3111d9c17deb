"""All that is wrong with a task graph is said before anything runs, with the place in the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Pass

from tidemill import (
    DefinitionError,
    Executor,
    KVDataset,
    RangePartition,
    SessionWindowExecutor,
    TaskGraph,
    TumblingWindowExecutor,
    WindowedDataset,
)
from tidemill.values.errors import BadInput

FRAME = pl.DataFrame({"k": [1, 2], "v": ["a", "b"]})


class OddSignature(Executor):
    def execute(self, batches: Any) -> None:  # type: ignore[override]  # the fault that the test is about
        return None


class NoExecute(Executor):
    pass


def faults(graph: TaskGraph) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        graph.initialize()
    assert all(fault.location.startswith(__file__) or fault.location == "graph" for fault in caught.value.faults)
    return [f"{fault.text} {fault.advice}" for fault in caught.value.faults]


@pytest.fixture
def graph(tmp_path: Path) -> TaskGraph:
    return TaskGraph(tmp_path / "store")


def test_all_faults_are_said_at_once_when_a_graph_has_several(graph: TaskGraph, tmp_path: Path) -> None:
    missing = graph.new_input_csv(tmp_path, "none.csv", ["a"], 2)
    source = graph.new_input_frames(FRAME, 2)
    graph.new_blocking_node({0: source}, Pass(), 2, {0: "x"})
    graph.new_blocking_node({0: source, 1: missing}, Pass, 2, {0: "k", 1: None})
    graph.new_blocking_node({0: source}, OddSignature(), 0, {0: "k"})

    found = faults(graph)

    assert [text for text in found if "no file" in text]
    assert [text for text in found if "'x' of stream 0 is no column of node 1" in text and "It has k, v" in text]
    assert [text for text in found if "is the class Pass" in text]
    assert [text for text in found if "OddSignature.execute has other arguments" in text]
    assert [text for text in found if "has 0 channels" in text]
    assert len(found) == 5


@pytest.mark.parametrize(
    ("sources", "executor", "keys", "said"),
    [
        ({0: 7}, Pass(), {0: None}, "comes from 7, which is no node"),
        ({0: 1}, Pass(), {0: None}, "a cycle"),
        ({0: True}, Pass(), {0: None}, "comes from True"),
        ({}, Pass(), {}, "has no sources"),
        ({0: 0}, NoExecute(), {0: None}, "NoExecute has no execute"),
        ({0: 0}, object(), {0: None}, "object is no executor"),
        ({0: 0}, Pass(), {}, "partition_key says nothing of stream 0"),
        ({0: 0}, Pass(), {0: None, 1: "k"}, "names stream 1, which is none of the sources"),
        ({0: 0}, Pass(), {0: 5}, "the partition key of stream 0 is 5"),
        ({0: 0}, Pass(), {0: RangePartition("k", [1, 2, 3])}, "3 bounds for 2 channels"),
        ({0: 0}, Pass(), {0: ["k", "w"]}, "'w' of stream 0 is no column"),
    ],
)
def test_a_node_is_refused_when_something_is_wrong_with_it(
    graph: TaskGraph, sources: Any, executor: Any, keys: Any, said: str
) -> None:
    graph.new_input_frames(FRAME, 2)
    graph.new_blocking_node(sources, executor, 2, keys)

    assert any(said in text for text in faults(graph))


def test_a_stream_is_refused_when_it_comes_from_a_blocking_node(graph: TaskGraph) -> None:
    source = graph.new_input_frames(FRAME, 1)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    graph.new_blocking_node({0: 1}, Pass(), 1, {0: None})

    assert any("is blocking" in text and "new_input_from_dataset" in text for text in faults(graph))


def test_an_open_end_is_refused_when_nothing_takes_what_a_node_sends(graph: TaskGraph) -> None:
    graph.new_non_blocking_node({0: graph.new_input_frames(FRAME, 1)}, Pass(), 1, {0: None})

    assert faults(graph) == [
        "nothing takes what new_non_blocking_node sends. End the graph with new_blocking_node, which gives a Dataset, "
        "or with new_output_depot."
    ]


def test_an_empty_graph_is_refused(graph: TaskGraph) -> None:
    assert faults(graph) == ["has no node. Begin with an input, as new_input_csv."]


def test_columns_of_a_batch_function_are_known_when_it_works_without_rows(graph: TaskGraph) -> None:
    source = graph.new_input_frames(FRAME, 1, batch_func=lambda batch: batch.rename({"k": "key"}))
    graph.new_blocking_node({0: source}, Pass(), 2, {0: "k"})

    assert any("It has key, v" in text for text in faults(graph))


def test_dependents_are_refused_when_they_are_no_earlier_inputs(graph: TaskGraph) -> None:
    first = graph.new_input_frames(FRAME, 1, dependents=[1])
    second = graph.new_input_frames(FRAME, 1, dependents=[9])
    graph.new_blocking_node({0: first, 1: second}, Pass(), 1, {0: None, 1: None})

    found = faults(graph)
    assert any("they wait for each other" in text for text in found)
    assert any("name 9, which is no node" in text for text in found)


def test_a_dataset_is_refused_when_its_key_does_not_fit_its_kind(graph: TaskGraph) -> None:
    source = graph.new_input_frames(FRAME, 1)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None}, kind=KVDataset)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None}, key="k")

    assert len([text for text in faults(graph) if "Give key= for a KVDataset" in text]) == 2


def test_windows_are_refused_when_they_wait_for_other_streams_than_the_node_has(graph: TaskGraph) -> None:
    source = graph.new_input_frames(FRAME, 1)
    one = TumblingWindowExecutor("k", 10, aggregations={"n": "len"}, allowed_lateness=0, streams=1)
    graph.new_blocking_node({0: source, 1: source}, one, 1, {0: None, 1: None})
    sessions = SessionWindowExecutor("k", 10, aggregations={"n": "len"}, allowed_lateness=0, streams=3)
    graph.new_blocking_node({0: source}, sessions, 1, {0: None}, kind=WindowedDataset, key="window_start")

    few, many, kept = faults(graph)
    assert "TumblingWindowExecutor waits for 1 streams, and the node has 2 sources. Leave streams= out" in few
    assert "SessionWindowExecutor waits for 3 streams, and the node has 1 sources." in many
    assert "a WindowedDataset of SessionWindowExecutor" in kept


def test_both_orders_of_arguments_give_the_same_graph(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path, parallelism=3)
    source = graph.new_input_frames(FRAME, {"localhost": 1, "other": 1})
    for node in (
        graph.new_task_node({0: source}, Pass(), 2, {0: "k"}),
        graph.new_task_node({0: source}, None, Pass(), {"localhost": 2}, {0: "k"}),
        graph.new_task_node({0: source}, [], Pass(), 2, {0: "k"}, "localhost"),
        graph.new_task_node({0: source}, Pass(), 2, {0: "k"}, ip="localhost"),
        graph.new_non_blocking_node({0: source}, functionObject=Pass(), parallelism=2, partition_key={0: "k"}),
    ):
        graph.new_blocking_node({0: node}, Count("v"), partition_key={0: "v"})
    graph.initialize()

    lines = graph.explain().splitlines()
    assert lines[0] == "0: input_frames, 2 channels"
    assert len([line for line in lines if line.endswith("Pass, 2 channels")]) == 5
    assert len([line for line in lines if line.endswith("Count, 3 channels")]) == 5
    assert lines.count("   stream 0 from 0, by k") == 5


@pytest.mark.parametrize("arguments", [{"engine": "ray"}, {"id": "a/b"}, {"id": ""}])
def test_a_graph_is_refused_when_its_engine_or_id_is_none(tmp_path: Path, arguments: Any) -> None:
    with pytest.raises(BadInput):
        TaskGraph(tmp_path, **arguments)


def test_unknown_arguments_are_a_fault_when_a_node_is_made(graph: TaskGraph) -> None:
    source = graph.new_input_frames(FRAME, 1)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None}, colour="red")
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None}, executor=Pass())

    assert len([text for text in faults(graph) if "does not know or knows twice" in text]) == 2


def test_no_node_is_added_when_the_graph_is_initialized(graph: TaskGraph) -> None:
    source = graph.new_input_frames(FRAME, 1)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    graph.initialize()
    with pytest.raises(BadInput, match="nodes can be added to it no more"):
        graph.new_input_frames(FRAME, 1)
