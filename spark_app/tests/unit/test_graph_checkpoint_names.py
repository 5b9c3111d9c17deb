"""A checkpoint says in its first line which objects it needs, so that it can be copied without running its pickle."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from graph_executors import Killed, Pass

from tidemill import SortExecutor, TaskGraph
from tidemill.graphs import checkpoints, dataset_writer, run
from tidemill.graphs.checkpoints import names_of
from tidemill.graphs.run_log import RunLog
from tidemill.graphs.sealed import unsealed
from tidemill.store.urls import open_store


def test_all_objects_are_named_when_a_state_needs_frames_and_written_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 10)
    monkeypatch.setattr(dataset_writer, "OBJECT_ROWS", 10)
    graph = TaskGraph(tmp_path, id="job", checkpoint_waves=1)
    source = graph.new_input_frames([pl.DataFrame({"n": range(10 * i, 10 * i + 10)}) for i in range(8)], 1)
    graph.new_blocking_node({0: source}, SortExecutor("n"), 1, {0: None})
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})

    def stop(waves: run.Waves) -> None:
        if waves.wave == 5:
            raise Killed

    graph.observe(stop)
    with pytest.raises(Killed):
        graph.run()

    store = open_store(str(tmp_path))
    newest = RunLog(store, "job").newest()
    assert newest is not None
    names = names_of(unsealed(newest.checkpoint, store.get(newest.checkpoint)))
    assert {name.rpartition(".")[2] for name in names} == {"arrow", "parquet"}
    assert all(map(store.exists, names))
    TaskGraph.resume("job", tmp_path).run()
