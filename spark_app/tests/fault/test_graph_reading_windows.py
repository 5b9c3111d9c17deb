"""Windows as the input of another graph: each row comes once, whatever windows come and go meanwhile."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Killed, Pass

from tidemill import TaskGraph, WindowedDataset
from tidemill.graphs import run
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.store.urls import open_store


def windows(store: Path, starts: range) -> WindowedDataset:
    """A Dataset for each of these, of one row."""
    graph = TaskGraph(store, id="made", retention=timedelta(days=1))
    source = graph.new_input_frames(pl.DataFrame({"at": list(starts)}), 1)
    made = graph.new_blocking_node({0: source}, Pass(), 1, kind=WindowedDataset, key="at")
    graph.run()
    return made


def reading(store: Path, made: WindowedDataset) -> tuple[TaskGraph, Any]:
    graph = TaskGraph(store, id="reader", checkpoint_waves=1)
    return graph, graph.new_blocking_node({0: graph.new_input_from_dataset(made, 1)}, Pass(), 1, {0: None})


@pytest.mark.parametrize("is_killed", [False, True])
def test_each_row_of_the_windows_comes_once_when_one_is_deleted_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    made = windows(tmp_path, range(6))
    graph, read = reading(tmp_path, made)

    def delete(waves: Any) -> None:
        if waves.wave == 2:
            assert delete_dataset(open_store(str(tmp_path)), made.window(0).id) == 0  # the graph reads it
        if waves.wave == 2 and is_killed:
            raise Killed

    graph.observe(delete)
    if is_killed:
        with pytest.raises(Killed):
            graph.run()
        assert not made.window(0).is_complete  # it went with its reader, which had read it
        graph = TaskGraph.resume("reader", tmp_path)
    graph.run()
    assert read.to_polars()["at"].to_list() == list(range(6))
    assert [each.id for each in made.windows()] == [made.window(at).id for at in range(1, 6)]
