"""A share of a wave that was lost is begun again: steps that were done are found, and no others are done twice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import polars as pl
import pytest
from graph_executors import Killed

from tidemill import CorruptState, Executor, TaskGraph
from tidemill.graphs import checkpoints
from tidemill.graphs.messages import StepResult, StepWork
from tidemill.graphs.nodes import StoredGraph
from tidemill.graphs.run_log import graph_folder
from tidemill.graphs.sealed import sealed
from tidemill.graphs.spark_channels import _Bench, _StepObject
from tidemill.store.local import LocalStore
from tidemill.store.urls import open_store

CHANNELS = 3


class Keeps(Executor):
    """Keeps what comes and sends it on; says in a file what it does."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.kept: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        with self.file.open("a") as file:
            file.write(f"{channel}\n")
        self.kept += batches
        return batches


class Workers:
    """A graph in a store, and the works of a wave for its second node."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "done"
        self.url = str(folder / "store")
        graph = TaskGraph(self.url, id="job", engine="spark")
        rows = graph.new_input_frames([pl.DataFrame({"k": range(9)})], 1)
        kept = graph.new_non_blocking_node({0: rows}, Keeps(self.file), CHANNELS, {0: "k"})
        graph.new_blocking_node({0: kept}, Keeps(folder / "last"), 1, {0: None})
        program = StoredGraph(graph._definition, "spark", 1, 1, None)
        self.store = open_store(self.url)
        self.program = f"{graph_folder('job')}/program-1"
        self.store.create(self.program, sealed(self.program, cloudpickle.dumps(program)))
        made = _StepObject(f"{graph_folder('job')}/scratch/first")
        batches = [made.add_batch(pl.DataFrame({"k": [number, 3 + number]})) for number in range(CHANNELS)]
        result = StepResult((0, 0), None, True)
        self.store.create(f"{graph_folder('job')}/scratch/first", made.ended(result))
        self.works = [StepWork((1, number), inbox=((0, (batches[number],)),)) for number in range(CHANNELS)]

    def steps(self, name: str = "a", is_again: bool = False) -> list[StepResult]:
        """By a worker that knows nothing."""
        return _Bench(self.url, "job", self.program).steps(name, self.works, is_again)

    def shown(self, results: list[StepResult]) -> list[Any]:
        return [[sent.payload.frame(self.store)["k"].to_list() for sent in each.messages] for each in results]

    def done(self) -> list[int]:
        return [int(line) for line in self.file.read_text().split()]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 1)
    return Workers(tmp_path)


def test_steps_are_found_when_a_share_is_begun_again_behind_them(workers: Workers) -> None:
    first = workers.steps()
    again = workers.steps(is_again=True)

    assert again == first
    assert workers.done() == [0, 1, 2]
    assert not any(each.is_repeated for each in again)


def test_a_step_is_not_taken_when_any_bit_of_its_result_is_another(workers: Workers) -> None:
    first = workers.steps()
    (key,) = (key for key in workers.store.list(f"{graph_folder('job')}/scratch") if key.endswith("a-1-0"))
    content, path = workers.store.get(key), Path(str(workers.store.local_path(key)))
    path.chmod(0o600)
    state = first[0].state.part  # what stands behind it is the result
    for at in (*range(state.start + state.length, len(content), 7), *range(len(content) - 24, len(content))):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(CorruptState, match=key):
            workers.steps(is_again=True)
    for count in (0, 5, len(content) - 1):
        path.write_bytes(content[:count])
        with pytest.raises(CorruptState, match=key):
            workers.steps(is_again=True)
    path.write_bytes(content)
    assert workers.steps(is_again=True) == first


def test_one_step_is_done_again_when_a_worker_dies_in_it(workers: Workers) -> None:
    clean = workers.shown(workers.steps("clean"))
    points = 0
    for at in range(1, 100):
        workers.file.write_text("")
        with pytest.MonkeyPatch.context() as patch:
            left, real = [at], LocalStore.create

            def create(store: LocalStore, key: str, data: Any, left: list[int] = left, real: Any = real) -> None:
                left[0] -= 1
                if not left[0]:
                    raise Killed
                real(store, key, data)

            patch.setattr(LocalStore, "create", create)
            with suppress(Killed):
                workers.steps(f"{at}")
        if left[0] > 0:
            break
        points += 1
        again = workers.steps(f"{at}", is_again=True)
        assert workers.shown(again) == clean
        assert len(workers.done()) == CHANNELS + 1
        assert [each.is_repeated for each in again].count(True) == 1
    assert points == 2 * CHANNELS  # a frame of the state, and what the step leaves


def test_the_first_result_counts_when_a_worker_that_was_taken_for_lost_goes_on(workers: Workers) -> None:
    first = workers.steps()
    late = workers.steps()  # it does not know that another one was there
    assert late == first
    assert workers.done() == [0, 1, 2] * 2


def test_state_is_found_in_the_object_of_a_step_when_another_worker_goes_on(workers: Workers) -> None:
    first = workers.steps()
    batches = [(0, (each.messages[0].payload,)) for each in first]
    workers.works = [
        replace(work, inbox=(batch,), state=each.state)
        for work, batch, each in zip(workers.works, batches, first, strict=True)
    ]
    second = workers.steps("b")
    live, _ = _Bench(workers.url, "job", workers.program)._channel(replace(workers.works[0], state=second[0].state))
    assert pl.concat(live._executor.kept)["k"].to_list() == [0, 3, 0, 3]
