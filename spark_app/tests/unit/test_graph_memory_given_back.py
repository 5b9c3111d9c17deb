"""What a graph over files holds: one piece of a file for each channel, and threads that the next graph has again."""

from __future__ import annotations

import re
import threading
import weakref
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Pass

from tidemill import TaskGraph
from tidemill.graphs.executor import Output
from tidemill.graphs.freed_memory import MUCH_BYTES, give_back_memory
from tidemill.graphs.inputs import csv_input
from tidemill.graphs.inputs.csv_input import CsvInput


def own_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_memory_goes_back_when_it_was_freed_between_objects_that_stay() -> None:
    blocks = [b"x" * 60_000 for _ in range(500)]
    stays, freed = blocks[::50], 490 * 60_000
    before = own_bytes()
    del blocks
    give_back_memory(behind=MUCH_BYTES - 1)
    little = own_bytes()
    give_back_memory(behind=MUCH_BYTES)

    assert little - own_bytes() > freed // 2 and before > 0 and len(stays) == 10


def test_a_piece_of_a_file_is_gone_when_the_next_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("1,2\n" * 1_000)
    monkeypatch.setattr(csv_input, "PIECE", 400)
    read, before, held = CsvInput.read, list[weakref.ref[Any]](), list[int]()

    def watched(*arguments: Any) -> Any:
        held.append(sum(each() is not None for each in before))
        batch, cursor = read(*arguments)
        before.append(weakref.ref(batch))
        return batch, cursor

    monkeypatch.setattr(CsvInput, "read", watched)
    graph = TaskGraph(tmp_path / "store")
    source = graph.new_input_csv(tmp_path, "a.csv", ["a", "b"], 1, stride=2_000)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    graph.run()
    assert len(held) > 5 and max(held) == 0


def rows(store: Path, seen: set[int]) -> list[Any]:
    """What a graph makes of a row; the threads that it used go into `seen`."""

    def noted(batch: pl.DataFrame) -> pl.DataFrame:
        if batch.height:
            seen.add(threading.get_ident())
        return batch

    graph = TaskGraph(store, checkpoint_waves=None)
    source = graph.new_input_frames([pl.DataFrame({"a": [1]}) for _ in range(8)], 2, batch_func=noted)
    out = graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    graph.run()
    return out.to_polars().rows()


def test_a_graph_has_the_threads_of_the_one_before_when_that_has_ended(tmp_path: Path) -> None:
    first, second = set[int](), set[int]()
    rows(tmp_path, first)
    alive = threading.active_count()
    rows(tmp_path, second)
    assert (first | second) <= {each.ident for each in threading.enumerate()} and threading.active_count() <= alive + 1


class Runs(Pass):
    """Runs another graph for each batch."""

    store = Path()

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return pl.DataFrame({"a": [len(rows(Runs.store, set()))]})


def test_a_graph_ends_when_each_of_its_steps_runs_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runs, "store", tmp_path / "inner")
    graph = TaskGraph(tmp_path / "store", checkpoint_waves=None)
    source = graph.new_input_frames([pl.DataFrame({"a": [1]}) for _ in range(4)], 4)
    out = graph.new_blocking_node({0: source}, Runs(), 4, {0: "a"})
    graph.run()
    assert out.to_polars()["a"].to_list() == [8] * 4
