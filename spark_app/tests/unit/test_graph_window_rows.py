"""Rows that an endless graph reads: each is in its window, or is counted as one that was left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_ticks import PARTITIONS, Flow, flowing, on_idle, totals, when_told

from tidemill import AsOfJoinExecutor, Executor, TaskGraph, TumblingWindowExecutor, WindowedDataset
from tidemill.clients.module import ModuleClient
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.graphs import run
from tidemill.graphs.channel import LiveChannel
from tidemill.graphs.executor import Output
from tidemill.graphs.idleness import Idleness
from tidemill.graphs.inputs import depot_input
from tidemill.graphs.messages import StepWork
from tidemill.graphs.waves import Waves
from tidemill.store.urls import forget_stores, open_store


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    with flowing(tmp_path, monkeypatch) as made:
        yield made


def dropped(graph: TaskGraph) -> int:
    return sum(node.dropped_rows for node in graph.metrics())


# --- depots whose segments were made one object ----------------------------------------------------------------------


def rolled(store: str) -> None:
    """Make one object of most segments of the depot; others must read it anew, as another process does."""
    definition = ModuleClient(open_store(store), "Ticks").definition()
    log = DepotLog(open_store(store), definition.depot_prefix("*ticks"), PARTITIONS)
    log.follow()
    assert roll(log, RollingLimits(segments_min=2)) > 30
    forget_stores()


@pytest.mark.parametrize("is_rolled", [False, True])
def test_no_row_is_late_when_records_were_appended_in_order(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, is_rolled: bool
) -> None:
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 16)
    for n in range(41):
        flow.append(n, n + 1)
    if is_rolled:
        rolled(flow.store)
    graph = TaskGraph(flow.store, id="sums", checkpoint_waves=1)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    tens = TumblingWindowExecutor("at", 10, aggregations={"n": "len"}, allowed_lateness=0)
    windows = graph.new_blocking_node({0: ticks}, tens, 1, {0: None}, kind=WindowedDataset, key="window_start")
    on_idle(graph)
    graph.run()

    assert dropped(graph) == 0
    assert totals(windows) == {"0": 10, "10": 10, "20": 10, "30": 10}


def test_a_sorted_join_takes_a_depot_when_its_segments_were_rolled(flow: Flow) -> None:
    for n in range(41):
        flow.append(n, n + 1)
    rolled(flow.store)
    graph = TaskGraph(flow.store)
    left, right = (graph.new_input_depot("Ticks", "*ticks", 1) for _ in range(2))
    join = AsOfJoinExecutor("at", is_sorted=True)
    joined = graph.new_blocking_node({0: left, 1: right}, join, 1, {0: None, 1: None})
    graph.run()

    assert joined.to_polars()["at"].to_list() == list(range(41))


# --- inputs that end -------------------------------------------------------------------------------------------------


def with_an_end(flow: Flow, times: list[int], channels: int) -> tuple[TaskGraph, WindowedDataset]:
    """Tens of the depot and of an input that has these times and ends."""
    graph = TaskGraph(flow.store, id="sums", checkpoint_waves=1)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    few = graph.new_input_frames(pl.DataFrame({"at": times, "k": times}, {"at": pl.Int64, "k": pl.Int64}), 1)
    tens = TumblingWindowExecutor("at", 10, "k", aggregations={"n": "len"}, allowed_lateness=0, streams=2)
    windows = graph.new_blocking_node(
        {0: ticks, 1: few}, tens, channels, {0: "k", 1: "k"}, kind=WindowedDataset, key="window_start"
    )
    return graph, windows


@pytest.mark.parametrize("times", [[], [0, 1, 2]])
@pytest.mark.parametrize("channels", [1, 3])
def test_windows_end_when_another_input_has_ended(flow: Flow, times: list[int], channels: int) -> None:
    for at in (5, 25):
        flow.append_rows([{"at": at, "k": k} for k in range(3)])
    graph, windows = with_an_end(flow, times, channels)
    on_idle(graph)
    graph.run()
    assert totals(windows) == {"0": 3 + len(times)}

    flow.append_rows([{"at": 31, "k": k} for k in range(3)])
    again, windows = with_an_end(flow, times, channels)
    on_idle(again)
    again.run()
    assert totals(windows) == {"0": 3 + len(times), "20": 3}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_restored_channel_knows_which_streams_ended(tmp_path: Path, is_old: bool) -> None:
    graph, times = TaskGraph(tmp_path), pl.DataFrame({"at": [5, 25]})
    inputs = {stream: graph.new_input_frames(times, 1) for stream in range(2)}
    executor = TumblingWindowExecutor("at", 10, aggregations={"n": "len"}, allowed_lateness=0)
    graph.new_blocking_node(inputs, executor, 1, {0: None, 1: None}, kind=WindowedDataset, key="window_start")
    store = open_store(str(tmp_path))
    channel = LiveChannel(graph._definition, 2, 0, store)
    assert channel.step(StepWork((2, 0), ended=(1,))).windows == ()
    kept, *more = channel.state()
    if is_old:
        del kept["_over"]
    again = LiveChannel(graph._definition, 2, 0, store)
    again.restore((kept, *more))
    found = again.step(StepWork((2, 0), inbox=((0, (times,)),), ended=(1,)))
    assert [window for window, _ in found.windows] == [0]


def test_a_channel_follows_others_when_one_of_three_inputs_has_ended(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = TaskGraph(flow.store, id="three", checkpoint_waves=1)
    first, second = (graph.new_input_depot("Ticks", name, 1, endless=True) for name in ("*ticks", "*out"))
    none = graph.new_input_frames(pl.DataFrame({"at": [0], "k": [0]}), 1)
    tens = TumblingWindowExecutor(
        "at", 10, aggregations={"n": "len"}, allowed_lateness=0, streams=3, idle_after=timedelta(seconds=5)
    )
    sources, keys = {0: first, 1: second, 2: none}, {0: "k", 1: "k", 2: "k"}
    windows = graph.new_blocking_node(sources, tens, 2, keys, kind=WindowedDataset, key="window_start")
    times, seconds = iter(range(0, 300, 10)), itertools.count()
    monkeypatch.setattr(run, "Idleness", lambda graph: Idleness(graph, lambda: float(next(seconds))))

    def look(waves: Waves) -> None:
        at = next(times, None)
        if at is None:
            graph.stop()
            return
        for k in range(2):
            flow.append_rows([{"at": at, "k": k}])
        flow.append_rows([{"at": at, "k": 0}], "*out")  # never one for the other channel

    graph.observe(look)
    graph.run()

    assert totals(windows) == {"0": 4} | {str(at): 3 for at in range(10, 270, 10)}


# --- windows that an idle input ended in other channels --------------------------------------------------------------


class Starts(Executor):
    """Gives each row at once, as a window that begins at its time, and ends nothing else where the input idles."""

    idle_after = timedelta(microseconds=1)

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        return pl.concat(batches).select("at", n=pl.lit(1))


def tens(**more: Any) -> TumblingWindowExecutor:
    idle = timedelta(microseconds=1)
    return TumblingWindowExecutor("at", 10, "k", aggregations={"n": "len"}, allowed_lateness=0, idle_after=idle, **more)


@pytest.mark.parametrize(
    ("executor", "key", "left_out"),
    [(tens(), "window_start", 2), (tens(), "window_end", 2), (Starts(), "at", 2)],
)
def test_rows_are_counted_when_other_channels_ended_their_windows(
    flow: Flow, executor: Executor, key: str, left_out: int
) -> None:
    def made() -> tuple[TaskGraph, WindowedDataset]:
        graph = TaskGraph(flow.store, id="sums", checkpoint_waves=1)
        ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
        return graph, graph.new_blocking_node({0: ticks}, executor, 3, {0: "k"}, kind=WindowedDataset, key=key)

    def late() -> None:
        for at in (5, 24, 33):  # to channel 2, which never ended the first windows
            flow.append_rows([{"at": at, "k": 2}])

    flow.append_rows([{"at": n, "k": n % 2} for n in range(25)])
    graph, windows = made()
    when_told(graph, late)
    graph.run()
    assert sum(totals(windows).values()) == 28 - left_out
    assert dropped(graph) == left_out

    again, windows = made()
    late()
    when_told(again)
    again.run()
    assert sum(totals(windows).values()) + dropped(again) == 31


# --- several inputs --------------------------------------------------------------------------------------------------


def test_each_row_counts_once_when_nobody_says_how_many_streams_there_are(flow: Flow) -> None:
    graph = TaskGraph(flow.store, id="two", checkpoint_waves=1)
    inputs = {at: graph.new_input_depot("Ticks", name, 1, endless=True) for at, name in enumerate(("*ticks", "*out"))}
    executor = TumblingWindowExecutor("at", 10, aggregations={"n": "len"}, allowed_lateness=0)
    windows = graph.new_blocking_node(inputs, executor, 1, {0: None, 1: None}, kind=WindowedDataset, key="window_start")

    def other() -> None:
        assert totals(windows) == {}
        for n in range(25):
            flow.append_rows([{"at": n, "k": 0}], "*out")

    for n in range(25):
        flow.append(n, n + 1)
    on_idle(graph, other)
    graph.run()
    assert totals(windows) == {"0": 20, "10": 20}
    assert dropped(graph) == 0
