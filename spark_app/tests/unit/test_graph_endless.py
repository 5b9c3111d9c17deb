"""Task graphs over depots that grow for ever: all goes through once, they stop and go on, windows are Datasets."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Pass
from graph_ticks import PARTITIONS, Flow, flowing, on_idle, totals, when_told
from typer.testing import CliRunner

from tidemill import (
    BadInput,
    Dataset,
    DefinitionError,
    Executor,
    HoppingWindowExecutor,
    LimitExecutor,
    MicrobatchSourceOptions,
    OffsetAgo,
    TaskGraph,
    TumblingWindowExecutor,
    UnknownName,
    WindowedDataset,
)
from tidemill.cli.main import app
from tidemill.graphs import run, run_log
from tidemill.graphs.dataset_collection import collect_datasets
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.graphs.idleness import Idleness
from tidemill.graphs.inputs import depot_input
from tidemill.graphs.messages import StepResult
from tidemill.graphs.progress import GraphProgress
from tidemill.graphs.run_log import RunLog, graph_folder
from tidemill.graphs.waves import Waves
from tidemill.journal.clock import SystemClock
from tidemill.store.urls import open_store


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    with flowing(tmp_path, monkeypatch) as made:
        yield made


def copying(store: str, begin: Any = None, **options: Any) -> TaskGraph:
    graph = TaskGraph(store, id="copy", checkpoint_waves=4, **options)
    ticks = graph.new_input_depot("Ticks", "*ticks", 2, endless=True, options=begin)
    graph.new_output_depot({0: ticks}, "Ticks", "*out", 2, {0: "k"})
    return graph


def summing(store: str, channels: int = 1) -> tuple[TaskGraph, WindowedDataset]:
    graph = TaskGraph(store, id="sums", checkpoint_waves=1)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    sums = TumblingWindowExecutor("at", 10, "k", aggregations={"n": ("at", "count")}, allowed_lateness=0)
    windows = graph.new_blocking_node(
        {0: ticks}, sums, channels, {0: "k"}, kind=WindowedDataset, key="window_start"
    )  # fmt: skip
    return graph, windows


def counts(dataset: Any) -> dict[int, int]:
    return dict(dataset.to_polars().select("k", "n").rows())


def test_what_is_appended_while_a_graph_runs_goes_through_it_once(flow: Flow) -> None:
    flow.append(0, 50)
    graph = copying(flow.store)
    on_idle(graph, lambda: flow.append(50, 80), lambda: flow.append(80, 81))
    graph.run()

    assert flow.out() == list(range(81))
    assert not graph.is_finished


def test_a_graph_goes_on_when_it_was_stopped(flow: Flow) -> None:
    flow.append(0, 20)
    graph = copying(flow.store)
    graph.stop()  # after the first wave, before anything is in the other depot
    graph.run()
    assert flow.out() == []

    on_idle(graph)
    graph.run()
    assert flow.out() == list(range(20))

    flow.append(20, 30)
    again = TaskGraph.resume("copy", flow.store)
    on_idle(again)
    again.run()
    flow.append(30, 40)
    same_program = copying(flow.store)
    on_idle(same_program)
    same_program.run()

    assert flow.out() == list(range(40))
    entry = RunLog(open_store(flow.store), "copy").newest()
    assert entry is not None
    assert (entry.kind, entry.starts) == ("stop", 4)


def test_a_graph_without_end_goes_on_when_unfinished_runs_were_collected(flow: Flow) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    late = SystemClock().now_ms() + 1_000_000
    flow.append(0, 20)
    graph = copying(flow.store)
    on_idle(graph, die)
    with pytest.raises(Killed):
        graph.run()
    assert collect_datasets(open_store(flow.store), late, unfinished_ms=1).runs == []

    flow.append(20, 30)
    again = copying(flow.store)
    on_idle(again)
    again.run()
    assert flow.out() == list(range(30))


def test_a_stopped_graph_goes_on_when_unfinished_runs_were_collected(tmp_path: Path) -> None:
    def made() -> tuple[TaskGraph, Dataset]:
        graph = TaskGraph(tmp_path, id="some", checkpoint_waves=1)
        rows = graph.new_input_frames([pl.DataFrame({"v": [n]}) for n in range(5)], 1)
        return graph, graph.new_blocking_node({0: rows}, Pass(), 1, {0: None})

    graph, _ = made()
    graph.stop()
    graph.run()
    late = SystemClock().now_ms() + 1_000_000
    assert not graph.is_finished
    assert collect_datasets(open_store(str(tmp_path)), late, unfinished_ms=1).runs == []

    again, rows = made()
    again.run()
    assert sorted(rows.to_polars()["v"]) == list(range(5))


def test_a_graph_that_waits_stops_when_ctrl_c_is_pressed(flow: Flow) -> None:
    flow.append(0, 5)
    graph = copying(flow.store)
    on_idle(graph, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as caught:
        graph.run()

    assert "TaskGraph.resume('copy'" in caught.value.__notes__[0]
    assert flow.out() == list(range(5))


def test_a_limit_ends_a_graph_when_its_input_has_no_end(flow: Flow) -> None:
    flow.append(0, 50)
    graph = TaskGraph(flow.store)
    ticks = graph.new_input_depot("Ticks", "*ticks", 2, endless=True)
    some = graph.new_blocking_node({0: ticks}, LimitExecutor(7), 1, {0: None})
    graph.run()

    assert some.num_rows == 7
    assert graph.is_finished


def test_a_window_is_a_dataset_when_it_has_ended(flow: Flow) -> None:
    graph, windows = summing(flow.store)
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([each.id.rpartition("/")[2] for each in windows.windows()])

    def append(first: int, last: int) -> Callable[[], None]:
        return lambda: (look(), flow.append(first, last))[0]

    flow.append(0, 5)
    on_idle(graph, append(5, 12), append(12, 45), look)
    graph.run()

    assert seen == [[], ["0"], ["0", "10", "20", "30"]]
    assert counts(windows.window(20)) == {0: 3, 1: 3, 2: 4}
    assert windows.window(20).num_rows == 3
    assert windows.num_rows == 12  # all that have ended
    with pytest.raises(UnknownName):
        windows.window(40).to_polars()
    assert isinstance(TaskGraph.resume("sums", flow.store).datasets()[1], WindowedDataset)


def test_no_window_is_lost_or_comes_twice_when_a_graph_goes_on(flow: Flow) -> None:
    for end in range(10, 60, 9):
        flow.append(end - 9, end)
        graph, windows = summing(flow.store)
        on_idle(graph)
        graph.run()

    assert [each.id.rpartition("/")[2] for each in windows.windows()] == ["0", "10", "20", "30", "40"]
    assert [each.to_polars()["n"].sum() for each in windows.windows()] == [9, 10, 10, 10, 10]


def test_a_window_waits_for_all_channels_when_a_node_has_several(flow: Flow) -> None:
    graph, windows = summing(flow.store, 3)
    depot = flow.cluster.cluster_depot("Ticks", "*ticks")
    found: list[int] = []
    depot.append_many([{"at": n, "k": n % 2} for n in range(25)])  # no row for channel 2

    def append() -> None:
        found.append(len(windows.windows()))
        for at in (5, 30):  # one by one: records of one append stand by partition, and the later one might come first
            depot.append_many([{"at": at, "k": 2}])

    on_idle_of_windows = [append, lambda: (found.append(len(windows.windows())), graph.stop())]

    def look(waves: Waves) -> None:
        if waves.is_idle and waves.wave and on_idle_of_windows:
            on_idle_of_windows.pop(0)()

    graph.observe(look)
    graph.run()
    assert found == [0, 1]  # channel 2 ended the first one
    assert counts(windows.window(0)) == {0: 5, 1: 5, 2: 1}


# --- inputs that idle -------------------------------------------------------------------------------------------------


def ending_idle(store: str, channels: int = 1, after: timedelta = timedelta(microseconds=1)) -> Any:
    graph = TaskGraph(store, id="sums", checkpoint_waves=1)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    counted = {"n": ("at", "count")}
    sums = TumblingWindowExecutor("at", 10, "k", aggregations=counted, allowed_lateness=0, idle_after=after)
    windows = graph.new_blocking_node(
        {0: ticks}, sums, channels, {0: "k"}, kind=WindowedDataset, key="window_start"
    )  # fmt: skip
    return graph, windows


def test_the_last_windows_end_when_their_input_idles(flow: Flow) -> None:
    flow.append(0, 25)
    graph, windows = ending_idle(flow.store)
    when_told(graph, lambda: flow.append(25, 45), lambda: flow.append(45, 46))
    graph.run()

    assert totals(windows) == {"0": 10, "10": 10, "20": 5, "30": 10, "40": 5}  # rows for windows that ended are late


def test_windows_stay_open_when_an_input_idles_for_less_than_was_said(flow: Flow) -> None:
    flow.append(0, 25)
    graph, windows = ending_idle(flow.store, after=timedelta(hours=1))
    on_idle(graph, lambda: None, lambda: None, lambda: flow.append(25, 31))
    graph.run()

    assert totals(windows) == {"0": 10, "10": 10, "20": 10}


def test_a_channel_without_rows_holds_no_window_back_when_inputs_idle(flow: Flow) -> None:
    graph, windows = ending_idle(flow.store, 3)
    depot = flow.cluster.cluster_depot("Ticks", "*ticks")
    depot.append_many([{"at": n, "k": n % 2} for n in range(25)])  # no row for channel 2
    found: list[dict[str, int]] = []

    def late() -> None:
        found.append(totals(windows))
        for at in (5, 24, 33):  # to channel 2, which never ended the first windows
            depot.append_many([{"at": at, "k": 2}])

    when_told(graph, late)
    graph.run()

    assert found == [{"0": 10, "10": 10, "20": 5}]
    assert totals(windows) == {"0": 10, "10": 10, "20": 5, "30": 1}
    assert not [key for key in open_store(flow.store).list("_tidemill/graphs/sums") if "scratch" in key]


class Dies(BaseException):
    """The process of a graph is gone."""


class Busy:
    """Counts by tens in three channels, a second for each wave. Each has a row of time 1; then two of them get a row
    each second, and the third one (5 and 205, where the others are at 200) only then. No input idles for 5 seconds.
    """

    def __init__(self, flow: Flow, patch: pytest.MonkeyPatch) -> None:
        self.flow, self.now = flow, 0.0
        self.depot = flow.cluster.cluster_depot("Ticks", "*ticks")
        self.depot.append_many([{"at": 1, "k": k} for k in range(3)])
        self.times = iter(range(10, 401, 10))
        patch.setattr(run, "Idleness", lambda graph: Idleness(graph, lambda: self.now))

    def run(self, seconds: int) -> WindowedDataset:
        """Until the last row, or dead after so many seconds."""
        graph, windows = ending_idle(self.flow.store, 3, timedelta(seconds=5))
        end = self.now + seconds

        def look(waves: Waves) -> None:
            self.now += 1
            if self.now == end:
                raise Dies
            at = next(self.times, None)
            if at is None:
                graph.stop()
                return
            self.depot.append_many([{"at": at, "k": k} for k in range(2)])
            for each in (5, 205) if at == 200 else ():
                self.depot.append_many([{"at": each, "k": 2}])

        graph.observe(look)
        graph.run()
        return windows


@pytest.mark.parametrize("dies_at", [None, 4, 7, 9, 21, 22, 24, 27])
def test_a_quiet_channel_follows_the_others_when_these_stay_busy(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, dies_at: int | None
) -> None:
    busy = Busy(flow, monkeypatch)
    with suppress(Dies):
        busy.run(dies_at or 0)
    found = totals(busy.run(0) if dies_at else WindowedDataset(flow.store, "sums-1"))

    assert found | {"0": 3, "200": 3} == found  # what came late is in none, what was on time is in its window
    assert [name for name, rows in found.items() if rows != 2] == ["0", "200"]
    assert list(found)[:36] == [str(at) for at in range(0, 360, 10)]


def test_a_channel_without_rows_of_one_input_follows_when_others_have_rows_of_both(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    depots = [flow.cluster.cluster_depot("Ticks", name) for name in ("*ticks", "*out")]
    graph = TaskGraph(flow.store, id="two", checkpoint_waves=1)
    inputs = {at: graph.new_input_depot("Ticks", depot.name, 1, endless=True) for at, depot in enumerate(depots)}
    tens = TumblingWindowExecutor(
        "at", 10, aggregations={"n": "len"}, allowed_lateness=0, streams=2, idle_after=timedelta(seconds=5)
    )
    keys = {0: "k", 1: "k"}
    windows = graph.new_blocking_node(inputs, tens, 2, keys, kind=WindowedDataset, key="window_start")
    times = iter(range(0, 300, 10))
    seconds = itertools.count()
    monkeypatch.setattr(run, "Idleness", lambda graph: Idleness(graph, lambda: float(next(seconds))))

    def look(waves: Waves) -> None:
        at = next(times, None)
        if at is None:
            graph.stop()
            return
        depots[0].append_many([{"at": at, "k": k} for k in range(2)])
        depots[1].append_many([{"at": at, "k": 0}])  # never one for the other channel

    graph.observe(look)
    graph.run()

    assert totals(windows) == {str(at): 3 for at in range(0, 270, 10)}


def test_windows_of_windows_end_in_turn_when_an_input_idles(flow: Flow) -> None:
    flow.append(0, 45)
    graph = TaskGraph(flow.store, id="twice", checkpoint_waves=1)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    after = timedelta(microseconds=1)
    tens = TumblingWindowExecutor(
        "at", 10, aggregations={"n": ("at", "count")}, allowed_lateness=0, idle_after=after
    )  # fmt: skip
    small = graph.new_non_blocking_node({0: ticks}, tens, 1, {0: None})
    fifties = TumblingWindowExecutor(
        "window_start", 50, aggregations={"n": ("n", "sum")}, allowed_lateness=0, idle_after=after
    )  # fmt: skip
    windows = graph.new_blocking_node({0: small}, fifties, 1, {0: None}, kind=WindowedDataset, key="window_start")
    when_told(graph)
    graph.run()

    assert totals(windows) == {"0": 45}


def test_idle_time_begins_anew_when_rows_come() -> None:
    now = [0.0]
    graph = TaskGraph()
    rows = graph.new_input_frames([pl.DataFrame({"at": [1]})], 1)
    sums = TumblingWindowExecutor(
        "at", 10, aggregations={"n": ("at", "count")}, idle_after=timedelta(seconds=5)
    )  # fmt: skip
    graph.new_blocking_node({0: rows}, sums, 1, {0: None}, kind=WindowedDataset, key="window_start")
    graph.initialize()
    idleness = Idleness(graph._definition, lambda: now[0])
    waves = Waves(graph._definition, {0: [0]})
    waves.untold.add(1)
    told = []
    for second, read in ((0, 0), (4, 0), (5, 3), (6, 0), (10, 0), (11, 0)):
        now[0] = second
        idleness.look([StepResult((0, 0), 0, False, rows_in=read)])
        told.append(idleness.due(waves))
    assert told == [None, None, None, None, None, 1]


def test_windows_are_named_by_dates_and_times_when_these_tell_them_apart(flow: Flow) -> None:
    begin = datetime(2026, 1, 31, 23, tzinfo=UTC)
    times = [begin + timedelta(minutes=20 * n) for n in range(9)]
    graph = TaskGraph(flow.store, id="hours")
    rows = graph.new_input_frames(pl.DataFrame({"at": times}), 1)
    hour, counted = timedelta(hours=1), {"n": ("at", "count")}
    hours = HoppingWindowExecutor("at", hour, hour / 2, aggregations=counted, allowed_lateness=timedelta(0))
    windows = graph.new_blocking_node({0: rows}, hours, 1, {0: None}, kind=WindowedDataset, key="window_start")
    graph.run()

    names = [each.id.rpartition("/")[2] for each in windows.windows()]
    assert names[:3] == ["20260131T223000", "20260131T230000", "20260131T233000"]
    assert names == sorted(names) and len(names) == 7
    assert windows.window(begin).to_polars()["n"].to_list() == [3]


class Repeats(Executor):
    """Gives one window twice."""

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        return pl.DataFrame({"w": [self.window(batches)]})

    def window(self, batches: list[pl.DataFrame]) -> Any:
        return 7


class NoWindow(Repeats):
    def window(self, batches: list[pl.DataFrame]) -> Any:
        return None


class Text(Repeats):
    def window(self, batches: list[pl.DataFrame]) -> Any:
        return "monday"


@pytest.mark.parametrize(
    ("executor", "said"),
    [(Repeats(), "comes when the channel has ended 7"), (NoWindow(), "has no w"), (Text(), "not by 'monday'")],
)
def test_windows_are_refused_when_they_are_not_whole(tmp_path: Path, executor: Executor, said: str) -> None:
    graph = TaskGraph(tmp_path)
    rows = graph.new_input_frames([pl.DataFrame({"a": [n]}) for n in range(2)], 1)
    graph.new_blocking_node({0: rows}, executor, 1, {0: None}, kind=WindowedDataset, key="w")
    with pytest.raises(BadInput, match=said):
        graph.run()


def test_a_window_stays_deleted_when_the_process_that_published_it_was_killed(flow: Flow) -> None:
    flow.append(0, 25)
    graph, windows = summing(flow.store)
    on_idle(graph)
    graph.run()  # the last checkpoint may still name what was published behind it
    ids = [each.id for each in windows.windows()]
    for each in ids:
        delete_dataset(open_store(flow.store), each)
    again = TaskGraph.resume("sums", flow.store)
    again.stop()
    again.run()

    assert len(ids) == 2
    assert windows.windows() == []


def test_the_lag_is_told_when_a_graph_is_behind(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 10)
    monkeypatch.setattr("tidemill.graphs.progress.LINE_SECONDS", 0)
    flow.append(0, 100)
    graph = copying(flow.store)
    stream, lags = io.StringIO(), list[int]()
    shown = GraphProgress(graph._definition, stream)
    graph.observe(shown.update)
    graph.observe(lambda waves: lags.append(waves.node_records()[0].lag))
    graph.stop()
    graph.run()

    assert 0 < lags[0] == graph.metrics()[0].lag < 100
    assert f"{lags[0]} records behind" in stream.getvalue()
    listed = json.loads(CliRunner().invoke(app, ["graphs", "--store", flow.store, "--json"]).stdout)
    assert [(row["state"], row["lag"]) for row in listed] == [("stopped", lags[0])]

    on_idle(graph)
    graph.run()
    assert graph.metrics()[0].lag == 0
    assert lags == sorted(lags, reverse=True)


def test_rows_that_are_left_out_are_counted_when_they_are_late(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.graphs.progress.LINE_SECONDS", 0)
    flow.append(100, 130)
    for late in (20, 5):
        graph, _ = summing(flow.store, 2)
        stream = io.StringIO()
        graph.observe(GraphProgress(graph._definition, stream).update)
        on_idle(graph, lambda late=late: flow.append(0, late))  # type: ignore[misc]
        graph.run()

    assert [node.dropped_rows for node in graph.metrics()] == [0, 25]
    assert "25 rows dropped" in stream.getvalue()
    (listed,) = json.loads(CliRunner().invoke(app, ["graphs", "--store", flow.store, "--json"]).stdout)
    assert (listed["dropped_rows"], listed["nodes"][1]["dropped_rows"]) == (25, 25)


def test_batches_are_small_and_in_order_when_a_depot_has_many_records(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 8)
    for first in range(0, 60, 3):
        flow.append(first, first + 3)
    flow.append(60, 160)  # one segment with more than a batch
    reader = depot_input.depot_input(flow.store, "Ticks", "*ticks", None)
    (cursor,), times, heights = reader.plan(1), list[int](), list[int]()
    while cursor is not None:
        before = reader.behind(cursor)
        frame, cursor = reader.read(cursor)
        assert frame is not None and before - reader.behind(cursor) == frame.height
        times += frame["at"].to_list()
        heights.append(frame.height)

    assert sorted(times) == list(range(160))
    assert [n // 3 for n in times[:60]] == [n // 3 for n in range(60)]  # as they were appended, across partitions
    assert max(heights) <= 8 * (PARTITIONS + 1) and sorted(heights[:6])[0] >= 8


def test_the_record_of_a_run_stays_small_when_the_run_never_ends(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "ENTRIES_KEPT", 4)
    graph, windows = summing(flow.store)
    sizes: list[int] = []
    store = open_store(flow.store)

    def more(number: int) -> None:
        flow.append(10 * number, 10 * number + 10)
        keys = [key for key in store.list(graph_folder("sums")) if "/checkpoints/" in key]
        sizes.append(sum(len(store.get(key)) for key in keys))

    more(0)
    on_idle(graph, *(lambda number=number: more(number) for number in range(1, 25)))
    graph.run()

    log = RunLog(store, "sums")
    assert len(log.all()) <= 8
    assert len(list(store.list(graph_folder("sums")))) < 16
    newest = log.newest()
    assert newest is not None
    assert newest.checkpoints > 20 and newest.starts == 1 and newest.began_ms < newest.time_ms
    assert max(sizes[-5:]) <= 1.1 * max(sizes[5:10])
    assert len(windows.windows()) == 24


def test_an_endless_input_is_refused_when_the_graph_could_not_go_on(flow: Flow) -> None:
    graph = TaskGraph(flow.store, checkpoint_waves=None)
    ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
    late = graph.new_input_frames(iter([pl.DataFrame({"at": [1]})]), 1, dependents=[ticks])
    graph.new_blocking_node({0: ticks, 1: late}, Pass(), 1, {0: None, 1: None})
    graph.new_blocking_node({0: ticks}, Count("at"), 1, {0: None}, kind=WindowedDataset, key=["a", "b"])
    with pytest.raises(DefinitionError) as caught:
        graph.run()

    text = str(caught.value)
    assert "an endless input needs checkpoints" in text
    assert "which is endless" in text
    assert "one column for a WindowedDataset" in text


# --- where it begins -------------------------------------------------------------------------------------------------


FROM = MicrobatchSourceOptions


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (FROM.start_from_beginning(), range(30)),
        (FROM.create(), range(20, 30)),
        (FROM.start_from_offset_ago(2, OffsetAgo.RECORDS), None),
        (FROM.start_from_offset_ago(1, OffsetAgo.DAYS), range(30)),
        (FROM.start_from_offset_after_timestamp(2**42), range(20, 30)),
    ],
)
def test_a_graph_begins_where_it_is_told_to(flow: Flow, options: Any, expected: Any) -> None:
    flow.append(0, 20)
    graph = copying(flow.store, options)
    on_idle(graph, lambda: flow.append(20, 30), first_wave=0)
    graph.run()

    out = flow.out()
    if expected is None:  # so many of each partition
        assert set(range(20, 30)) < set(out) and len(out) == 10 + 2 * PARTITIONS
    else:
        assert out == list(expected)


def test_a_graph_goes_on_from_where_it_began_when_it_was_killed_before_it_read_anything(flow: Flow) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    flow.append(0, 20)
    graph = copying(flow.store, FROM.create())
    on_idle(graph, die, first_wave=0)
    with pytest.raises(Killed):
        graph.run()
    flow.append(20, 30)
    again = copying(flow.store, FROM.create())  # the end is elsewhere now
    on_idle(again)
    again.run()
    assert flow.out() == list(range(20, 30))


def test_a_start_is_refused_when_it_is_none(flow: Flow) -> None:
    graph = TaskGraph(flow.store)
    wrong = FROM.start_from_offset_ago(-1, OffsetAgo.RECORDS).source_id("again")
    rows = graph.new_input_depot("Ticks", "*ticks", 1, endless=True, options=wrong)
    graph.new_blocking_node({0: rows}, Pass(), 1, {0: None})
    with pytest.raises(DefinitionError) as caught:
        graph.run()
    assert "whole number of 0 or more" in str(caught.value)
    assert "an input has no ID" in str(caught.value)
