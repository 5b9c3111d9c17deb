"""How a blocking node writes its Dataset: as rows come, whatever the order of their columns."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Pass

from tidemill import Executor, TaskGraph
from tidemill.graphs import dataset_writer
from tidemill.graphs.dataset import write_object
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, StoreUnavailable

LEFT = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
RIGHT = pl.DataFrame({"b": ["z", None], "a": [3, 4]})
ROWS = [(1, "x"), (2, "y"), (3, "z"), (4, None)]


def kept(store: Path, *frames: pl.DataFrame, channels: int = 1, key: Any = None) -> Any:
    graph = TaskGraph(store)
    source = graph.new_input_frames(list(frames), len(frames))
    out = graph.new_blocking_node({0: source}, Pass(), channels, {0: key})
    graph.run()
    return out


def test_rows_are_one_frame_when_batches_have_their_columns_in_another_order(tmp_path: Path) -> None:
    out = kept(tmp_path, LEFT, RIGHT)

    assert sorted(out.to_polars().rows()) == ROWS
    assert len(out) == 1
    assert sorted(out.to_arrow().to_pylist(), key=lambda row: row["a"])[3] == {"a": 4, "b": None}


@pytest.mark.parametrize("reader", ["to_polars", "iterate", "stream", "frame"])
def test_batches_have_one_order_of_columns_when_their_objects_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    monkeypatch.setattr(dataset_writer, "OBJECT_ROWS", 2)
    out = kept(tmp_path, LEFT, RIGHT, channels=2, key=lambda batch: (batch["a"] > 2).cast(pl.Int64))
    assert len(out) == 2

    if reader == "stream":
        graph = TaskGraph(tmp_path)
        again = graph.new_blocking_node({0: graph.new_input_from_dataset(out, 1)}, Whole(), 1, {0: None})
        graph.run()
        found = again.to_polars()
    elif reader == "frame":
        found = TaskGraph(tmp_path).read_dataset(out).collect()
    else:
        found = out.to_polars() if reader == "to_polars" else pl.concat(list(out))

    assert sorted(found.select("a", "b").rows()) == ROWS


def test_executors_take_batches_whose_columns_are_in_another_order(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    source = graph.new_input_frames([LEFT, RIGHT], 2)
    from tidemill import SortExecutor

    out = graph.new_blocking_node({0: source}, SortExecutor("a"), 1, {0: None})
    graph.run()

    assert out.to_polars().select("a", "b").rows() == ROWS


def test_it_is_said_which_columns_differ_when_batches_are_no_one_frame(tmp_path: Path) -> None:
    out = kept(tmp_path, LEFT, RIGHT.rename({"b": "c"}))

    assert len(list(out)) == 2
    with pytest.raises(BadInput, match="a, b.*a, c|c, a"):
        out.to_polars()


class Whole(Executor):
    """All rows as one frame, in one piece."""

    def __init__(self) -> None:
        self.parts: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.parts += batches

    def done(self, channel: int) -> Any:
        return pl.concat(self.parts)


class Many(Executor):
    """Gives many batches at its end, one after the other; how many of them live at a time is counted."""

    living = [0, 0]  # now, and at most
    batches = 200

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        return None

    def done(self, channel: int) -> Any:
        for number in range(self.batches):
            frame = pl.DataFrame({"n": [number] * 10})
            self.living[0] += 1
            self.living[1] = max(self.living)
            weakref.finalize(frame, self.gone)
            yield frame
            del frame

    @classmethod
    def gone(cls) -> None:
        cls.living[0] -= 1


def test_few_batches_are_held_when_an_end_gives_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_writer, "OBJECT_ROWS", 50)
    counter = [0, 0]
    monkeypatch.setattr(Many, "living", counter)
    graph = TaskGraph(tmp_path)
    source = graph.new_input_frames(LEFT, 1)
    out = graph.new_blocking_node({0: source}, Many(), 1, {0: None})
    graph.run()

    assert out.to_polars()["n"].to_list() == [number for number in range(200) for _ in range(10)]
    assert counter[1] <= 10, counter


def test_python_tells_of_no_buffer_when_the_write_of_an_object_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since 3.13 it tells on stderr of each one that cannot be closed, for a view of it is there still."""
    told: list[object] = []
    taken: list[type] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(what.exc_value))
    store = open_store(str(tmp_path))

    def refuse(key: str, data: Any) -> None:
        taken.append(type(data))
        raise StoreUnavailable("full")

    def fail() -> None:
        try:
            write_object(store, "object", LEFT)
        except StoreUnavailable as error:
            circle: list[object] = [error]
            circle.append(circle)

    monkeypatch.setattr(store, "create", refuse)
    fail()
    gc.collect()

    assert (told, taken) == ([], [bytes])
