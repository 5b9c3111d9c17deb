"""Rows that an endless graph reads: each is in its window, or is counted as one that was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from graph_ticks import PARTITIONS, Flow, flowing, on_idle, totals

from tidemill import AsOfJoinExecutor, TaskGraph, TumblingWindowExecutor, WindowedDataset
from tidemill.clients.module import ModuleClient
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.graphs.inputs import depot_input
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
