"""Task graphs run on threads: order, early ends, waiting for a build side, bounded memory, failures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, First, Join, Log, Pass

from tidemill import Dataset, Executor, StatelessExecutor, TaskGraph, UserCodeError
from tidemill.graphs.executor import Output
from tidemill.values.errors import BadInput, DefinitionError, UnknownName


def frames(count: int, rows: int = 10) -> list[pl.DataFrame]:
    return [pl.DataFrame({"k": range(n * rows, n * rows + rows), "batch": n}) for n in range(count)]


def run(graph: TaskGraph) -> None:
    graph.initialize()
    graph.run()


@pytest.fixture
def graph(tmp_path: Path) -> TaskGraph:
    return TaskGraph(tmp_path / "store", parallelism=2)


def test_rows_of_a_stream_keep_their_order_when_several_nodes_pass_them_on(graph: TaskGraph) -> None:
    source = graph.new_input_frames(frames(9), 1)
    passed = graph.new_non_blocking_node({0: source}, Pass(), 1, {0: None})
    both = graph.new_blocking_node({0: source, 1: passed}, Log("k"), 1, {0: None, 1: None})
    run(graph)

    found = both.to_polars()
    for stream in (0, 1):
        assert found.filter(pl.col("stream") == stream)["value"].to_list() == [str(n) for n in range(90)]


def test_rows_of_each_sender_keep_their_order_when_a_node_has_channels(graph: TaskGraph) -> None:
    source = graph.new_input_frames(frames(12), 3)
    out = graph.new_blocking_node({0: source}, Log("k"), 1, {0: None})
    run(graph)

    values = [int(value) for value in out.to_polars()["value"]]
    for channel in range(3):
        own = [value for value in values if value // 10 % 3 == channel]
        assert own == sorted(own)
        assert len(own) == 40


def test_a_limit_returns_when_its_input_has_no_end(graph: TaskGraph) -> None:
    given: list[int] = []

    def endless() -> Iterator[pl.DataFrame]:
        for number in itertools.count():
            given.append(number)
            yield pl.DataFrame({"k": [number]})

    source = graph.new_input_frames(endless(), 1)
    passed = graph.new_non_blocking_node({0: source}, Pass(), 1, {0: None})
    out = graph.new_blocking_node({0: passed}, First(5), 1, {0: None})
    run(graph)

    assert out.to_polars()["k"].to_list() == [0, 1, 2, 3, 4]
    assert len(given) < 12


def test_an_input_goes_on_when_only_one_of_its_takers_has_ended(graph: TaskGraph) -> None:
    source = graph.new_input_frames(frames(20), 1)
    first = graph.new_blocking_node({0: source}, First(3), 1, {0: None})
    count = graph.new_blocking_node({0: source}, Count("batch"), 2, {0: "batch"})
    run(graph)

    assert first.num_rows == 3
    assert count.to_polars()["n"].sum() == 200


def test_all_rows_meet_when_a_stream_joins_itself_and_a_diamond_closes(graph: TaskGraph) -> None:
    source = graph.new_input_frames(frames(6), 2)
    left = graph.new_non_blocking_node({0: source}, Pass(), 2, {0: "k"})
    joined = graph.new_non_blocking_node({0: left, 1: source}, Join("k"), 3, {0: "k", 1: "k"})
    again = graph.new_blocking_node({0: joined, 1: source}, Join("k"), 2, {0: "k", 1: "k"})
    twice = graph.new_blocking_node({0: source, 1: source}, Join("k"), 2, {0: "k", 1: "k"})
    run(graph)

    assert again.to_polars()["k"].sort().to_list() == list(range(60))
    assert twice.num_rows == 60


class Probe(Executor):
    """Refuses a build batch after the first probe batch."""

    def __init__(self) -> None:
        self.build = 0
        self.has_probed = False

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        if stream_id == 1:
            assert not self.has_probed, "a build batch came after a probe batch"
            self.build += sum(batch.height for batch in batches)
            return None
        self.has_probed = True
        return [pl.DataFrame({"seen": self.build})]


@pytest.mark.parametrize("steps", [0, 3])
def test_the_build_side_is_whole_when_the_probe_side_begins(graph: TaskGraph, steps: int) -> None:
    build = graph.new_input_frames(frames(7), 2)
    probe = graph.new_input_frames(frames(3), 2, dependents=[build])
    for _ in range(steps):
        build = graph.new_non_blocking_node({0: build}, Pass(), 2, {0: "k"})
    counted = graph.new_non_blocking_node({0: build}, Pass(), 1, {0: None})
    out = graph.new_blocking_node({0: probe, 1: counted}, Probe(), 1, {0: None, 1: None})
    run(graph)

    assert set(out.to_polars()["seen"]) == {70}


def test_the_build_side_is_whole_when_it_ends_with_an_aggregation(graph: TaskGraph) -> None:
    build = graph.new_input_frames(frames(7), 2)
    counted = graph.new_non_blocking_node({0: build}, Count("batch"), 2, {0: "batch"})
    probe = graph.new_input_frames(frames(3), 2, dependents=[build])
    out = graph.new_blocking_node({0: probe, 1: counted}, Probe(), 1, {0: None, 1: None})
    run(graph)

    assert set(out.to_polars()["seen"]) == {7}


class Later(StatelessExecutor):
    """Sends on one of its streams."""

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return batch if stream_id == 1 else None


def test_an_input_waits_when_streams_part_and_meet_many_times_before(graph: TaskGraph) -> None:
    build = node = graph.new_input_frames(frames(2), 1)
    probe = graph.new_input_frames(frames(3), 1, dependents=[build])
    for _ in range(40):
        node = graph.new_non_blocking_node({0: node, 1: node}, Later(), 1, {0: None, 1: None})
    out = graph.new_blocking_node({0: probe, 1: node}, Probe(), 1, {0: None, 1: None})
    run(graph)

    assert set(out.to_polars()["seen"]) == {20}


class Grows(StatelessExecutor):
    """Sends each batch many times."""

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return [batch] * 50


def test_inputs_wait_when_much_is_under_way(tmp_path: Path) -> None:
    def most(memory: int) -> int:
        graph = TaskGraph(tmp_path / str(memory), memory_bytes=memory, checkpoint_waves=None)
        source = graph.new_input_frames(frames(40, 100), 8)
        grown = graph.new_non_blocking_node({0: source}, Grows(), 2, {0: "k"})
        out = graph.new_blocking_node({0: grown}, Count("batch"), 2, {0: "batch"})
        graph.initialize()
        seen = []
        graph.observe(lambda waves: seen.append(waves.backlog))
        graph.run()
        assert out.to_polars()["n"].sum() == 40 * 100 * 50
        return max(seen)

    wide = most(1 << 30)
    assert most(1) < wide / 4


def test_what_raised_is_said_with_node_channel_and_batch_when_user_code_fails(graph: TaskGraph) -> None:
    class Bad(Executor):
        def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
            raise ValueError("no good")

    source = graph.new_input_frames(frames(1, 2), 1)
    out = graph.new_blocking_node({0: source}, Bad(), 1, {0: None})
    with pytest.raises(UserCodeError) as caught:
        run(graph)

    text = str(caught.value)
    assert "execute of node 1 (new_blocking_node at" in text
    assert __file__ in text
    assert "channel 0, raised ValueError: no good" in text
    assert "{'k': 0, 'batch': 0}" in text
    assert 'raise ValueError("no good")' in caught.value.trace
    assert "channel.py" not in caught.value.trace
    assert not out.is_complete
    assert not list((Path(graph.store) / "_tidemill/datasets").glob("*/*"))


@pytest.mark.parametrize(
    ("output", "said"), [(5, "it gave int"), ("x", "it gave str"), ([3], "a Polars frame or an Arrow table, not int")]
)
def test_a_result_is_refused_when_it_is_no_frame(graph: TaskGraph, output: Any, said: str) -> None:
    class Odd(Executor):
        def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
            return output  # type: ignore[no-any-return]  # the test is about wrong ones

    graph.new_blocking_node({0: graph.new_input_frames(frames(1), 1)}, Odd(), 1, {0: None})
    with pytest.raises(UserCodeError, match=said):
        run(graph)


def test_state_is_refused_when_an_executor_says_that_it_has_none(graph: TaskGraph) -> None:
    class Sneaky(StatelessExecutor):
        def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
            self.seen = batch
            return batch

    graph.new_blocking_node({0: graph.new_input_frames(frames(1), 1)}, Sneaky(), 1, {0: None})
    with pytest.raises(UserCodeError, match="set seen, and a StatelessExecutor keeps no state"):
        run(graph)


def test_a_missing_key_is_said_when_only_the_batches_show_it(graph: TaskGraph) -> None:
    passed = graph.new_non_blocking_node({0: graph.new_input_frames(frames(1), 1)}, Pass(), 1, {0: None})
    graph.new_blocking_node({0: passed}, Pass(), 2, {0: "x"})
    with pytest.raises(BadInput, match=r"A batch of node 1 .* the partition key x is no column"):
        run(graph)


def test_each_channel_has_an_executor_of_its_own_when_a_node_has_several(graph: TaskGraph) -> None:
    count = Count("batch")
    source = graph.new_input_frames(frames(4), 2)
    out = graph.new_blocking_node({0: source}, count, 3, {0: None})
    run(graph)

    assert out.to_polars()["n"].sum() == 3 * 40
    assert count.parts == []


def test_batches_pass_the_function_before_they_are_dealt_when_an_input_has_one(graph: TaskGraph) -> None:
    source = graph.new_input_frames(
        frames(3), 2, batch_func=lambda batch: batch.filter(pl.col("k") % 2 == 0).rename({"k": "even"})
    )
    out = graph.new_blocking_node({0: source}, Pass(), 2, {0: "even"})
    run(graph)

    assert out.to_polars()["even"].sort().to_list() == list(range(0, 30, 2))


@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_batch_function_gives_the_same_when_it_works_on_rows_that_are_not_read_yet(
    tmp_path: Path, is_lazy: bool
) -> None:
    def function(batch: Any) -> Any:
        kinds.append(type(batch))
        small = batch.filter(pl.col("k") < 9).select(pl.col("v") + 1)
        return small if is_lazy or small.height else small.head(0)

    kinds: list[type] = []
    (tmp_path / "a.csv").write_text("".join(f"{n % 30},{n},x\n" for n in range(300)))
    graph = TaskGraph(tmp_path / "store")
    source = graph.new_input_csv(tmp_path, "a.csv", ["k", "v", "t"], 2, batch_func=function, stride=200)
    out = graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    graph.run()

    assert sorted(out.to_polars()["v"]) == [n + 1 for n in range(300) if n % 30 < 9]
    assert (pl.DataFrame in kinds[1:]) is not is_lazy  # the first call is the check of the graph
    assert graph.metrics()[0].bytes_read == (tmp_path / "a.csv").stat().st_size


def test_a_graph_runs_once_when_its_id_is_used_again(tmp_path: Path) -> None:
    def made(rows: int) -> tuple[TaskGraph, Dataset]:
        graph = TaskGraph(tmp_path, id="nightly")
        source = graph.new_input_frames(frames(1, rows), 1)
        return graph, graph.new_blocking_node({0: source}, Pass(), 1, {0: None})

    first, second = made(5), made(5)
    first[0].run()
    second[0].run()
    assert second[1].num_rows == 5
    with pytest.raises(BadInput, match="is another one than this"):
        made(6)[0].run()


def test_what_nodes_did_is_counted_when_a_graph_has_run(graph: TaskGraph) -> None:
    source = graph.new_input_frames(frames(4), 2)
    graph.new_blocking_node({0: source}, Count("batch"), 2, {0: "batch"})
    assert graph.metrics() == []
    run(graph)

    read, counted = graph.metrics()
    assert (read.rows_in, read.rows_out, read.channels) == (40, 40, 2)
    assert (counted.rows_in, counted.rows_out) == (40, 4)
    assert counted.seconds > 0


def test_a_dataset_is_unknown_when_its_graph_has_not_run(graph: TaskGraph) -> None:
    out = graph.new_blocking_node({0: graph.new_input_frames(frames(1), 1)}, Pass(), 1, {0: None})
    with pytest.raises(UnknownName, match="has not run to its end"):
        out.to_polars()
    with pytest.raises(DefinitionError, match="not complete"):
        second = TaskGraph(graph.store)
        second.new_blocking_node({0: second.new_input_from_dataset(out)}, Pass(), 1, {0: None})
        second.run()
