"""Frames of a graph whose program is started again with others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Killed, Pass

from tidemill import Dataset, TaskGraph
from tidemill.graphs.inputs.frame_marks import mark_of
from tidemill.values.errors import BadInput


def made(store: Path, numbers: Sequence[int]) -> tuple[TaskGraph, Dataset]:
    graph = TaskGraph(store, id="nightly", checkpoint_waves=1)
    frames = [pl.DataFrame({"k": [number] * 10}) for number in numbers]
    return graph, graph.new_blocking_node({0: graph.new_input_frames(frames, 1)}, Pass(), 1, {0: None})


def die_in_wave(graph: TaskGraph, wave: int) -> None:
    def die(waves: Any) -> None:
        if waves.wave == wave:
            raise Killed

    graph.observe(die)
    with pytest.raises(Killed):
        graph.run()


@pytest.mark.parametrize("others", [[1, 1, 1, 2], [2, 1, 1, 1], [1, 2, 1, 1]])
def test_a_graph_does_not_go_on_when_its_frames_are_others(tmp_path: Path, others: list[int]) -> None:
    die_in_wave(made(tmp_path, [1, 1, 1, 1])[0], 3)

    with pytest.raises(BadInput, match="its files were others, or its frames"):
        made(tmp_path, others)[0].run()
    TaskGraph.resume("nightly", tmp_path).run()  # with those of the beginning

    assert made(tmp_path, [])[1].to_polars()["k"].to_list() == [1] * 40


def test_a_graph_goes_on_when_its_frames_were_made_anew(tmp_path: Path) -> None:
    die_in_wave(made(tmp_path, [1, 2, 3, 4])[0], 3)
    graph, out = made(tmp_path, [1, 2, 3, 4])
    graph.run()
    assert sorted(out.to_polars()["k"]) == sorted([1, 2, 3, 4] * 10)


def test_a_graph_goes_on_with_the_rows_it_had_when_its_one_frame_is_another(tmp_path: Path) -> None:
    die_in_wave(made(tmp_path, [1])[0], 2)
    graph, out = made(tmp_path, [2])  # as a table that its program looks up at each start
    graph.run()
    assert out.to_polars()["k"].to_list() == [1] * 10


def test_marks_differ_when_a_value_a_null_a_name_or_a_type_does() -> None:
    frames = [
        pl.DataFrame({"c": ["a", "b"]}), pl.DataFrame({"c": ["ab", ""]}), pl.DataFrame({"c": ["a", None]}),
        pl.DataFrame({"c": ["a", ""]}), pl.DataFrame({"d": ["a", "b"]}), pl.DataFrame({"c": [b"a", b"b"]}),
        pl.DataFrame({"c": [["a"], ["b"]]}), pl.DataFrame({"c": [["a", "b"], []]}), pl.DataFrame({"c": ["a"]}),
    ]  # fmt: skip
    assert len({mark_of([frame]) for frame in frames}) == len(frames)
