"""A graph that one version of Python began and another goes on with: data are for all, code is for the one alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Pass, results

from tidemill import Executor, TaskGraph
from tidemill.graphs import pickled_code
from tidemill.values.errors import BadInput

FRAMES = [pl.DataFrame({"k": [n % 3], "n": [n]}) for n in range(12)]


class Calls(Executor):
    """Has a function in its state."""

    def __init__(self) -> None:
        self.rules: list[Callable[[int], int]] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> pl.DataFrame:
        self.rules.append(lambda n: n)
        return batches[0]


def graph(store: Path, executor: Any, **options: Any) -> TaskGraph:
    made = TaskGraph(store, id="job", checkpoint_waves=1)
    source = made.new_input_frames(FRAMES, 1, **options)
    made.new_blocking_node({0: source}, executor, 1, {0: "k"})
    return made


def stopped_by_an_older_python(monkeypatch: pytest.MonkeyPatch, graph: TaskGraph) -> None:
    graph.observe(lambda waves: graph.stop() if waves.wave == 3 else None)
    with monkeypatch.context() as older:
        older.setattr(pickled_code, "PYTHON", "2.7")
        graph.run()
    assert not graph.is_finished


def test_a_graph_is_not_resumed_when_another_python_saved_its_lambdas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_by_an_older_python(monkeypatch, graph(tmp_path, Pass(), batch_func=lambda batch: batch))

    with pytest.raises(BadInput, match="saved by Python 2.7, and this is Python 3"):
        TaskGraph.resume("job", tmp_path)


def test_a_graph_goes_on_when_its_program_is_started_with_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_by_an_older_python(monkeypatch, graph(tmp_path, Count("k"), batch_func=lambda batch: batch))

    again = graph(tmp_path, Count("k"), batch_func=lambda batch: batch)
    again.run()

    assert results(*again.datasets().values()) == [[(0, 4), (1, 4), (2, 4)]]


def test_a_graph_is_resumed_when_another_python_saved_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_by_an_older_python(monkeypatch, graph(tmp_path, Count("k")))

    again = TaskGraph.resume("job", tmp_path)
    again.run()

    assert results(*again.datasets().values()) == [[(0, 4), (1, 4), (2, 4)]]


def test_a_graph_does_not_go_on_when_its_state_has_code_of_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_by_an_older_python(monkeypatch, graph(tmp_path, Calls()))

    with pytest.raises(BadInput, match="go on with Python 2.7"):
        graph(tmp_path, Calls()).run()
    with monkeypatch.context() as older:
        older.setattr(pickled_code, "PYTHON", "2.7")
        graph(tmp_path, Calls()).run()


def test_code_is_loaded_when_this_python_saved_it() -> None:
    program = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())(20))"
    pickled = pickled_code.dump_code(lambda n: [n + each for each in (1, 2)])
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)

    assert done.stdout == b"[21, 22]\n"
