"""A graph whose code was mended goes on with that code, wherever it goes on, and whoever was killed while it began."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Adds, Killed

from tidemill import CorruptState, Dataset, Executor, Fenced, JoinExecutor, TaskGraph, UnknownName, UserCodeError
from tidemill.graphs import run
from tidemill.graphs.run_log import RunLog, graph_folder
from tidemill.store.local import LocalStore
from tidemill.store.urls import open_store

ROWS = [pl.DataFrame({"n": [n]}) for n in range(6)]


def adding(store: Any, executor: Executor) -> tuple[TaskGraph, Dataset]:
    graph = TaskGraph(store, id="adds", checkpoint_waves=1, memory_bytes=1)
    rows = graph.new_input_frames(ROWS, 1)
    return graph, graph.new_blocking_node({0: rows}, executor, 1, {0: None})


def programs(store: Any) -> list[str]:
    return [key for key in open_store(str(store)).list(graph_folder("adds")) if "/program-" in key]


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)


def failed(store: Any) -> None:
    with pytest.raises(UserCodeError, match="not this one"):
        adding(store, Adds(100))[0].run()


def stop_at(graph: TaskGraph, wave: int) -> None:
    graph.observe(lambda waves: graph.stop() if waves.wave >= wave else None)


def test_the_mended_code_is_stored_when_the_same_program_is_started_again(tmp_path: Path) -> None:
    failed(tmp_path)
    graph, out = adding(tmp_path, Adds(200, is_mended=True))
    stop_at(graph, 5)
    graph.run()
    assert len(programs(tmp_path)) == 1

    TaskGraph.resume("adds", tmp_path).run()  # as another process, which has not the program itself

    assert out.to_polars()["n"].to_list() == [100, 101, 102, 203, 204, 205]
    assert programs(tmp_path) == []
    with pytest.raises(UnknownName):
        TaskGraph.resume("adds", tmp_path)


@pytest.mark.parametrize("after", [False, True])
def test_a_graph_goes_on_when_a_process_with_mended_code_dies_at_any_write(tmp_path: Path, after: bool) -> None:
    points = 0
    for at in range(2, 100, 2):  # to die before a write is to die after the one before it: together they try each one
        store = tmp_path / f"{at}"
        failed(store)
        with pytest.MonkeyPatch.context() as patch:
            killer = Killer(patch, at - after, after)
            with suppress(Killed):
                adding(store, Adds(200, is_mended=True))[0].run()
        if not killer.is_dead:
            break
        points += 1
        graph, out = adding(store, Adds(200, is_mended=True))
        with suppress(UnknownName, UserCodeError):  # it died when all was done, or before it had begun: the old code
            TaskGraph.resume("adds", store).run()
        graph.run()
        assert out.to_polars()["n"].to_list() == [100, 101, 102, 203, 204, 205], at
        assert programs(store) == []
    assert points > 5


class Killer:
    """Kills at one create or delete, before it or after it; from then on nothing is written."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self.left, self.after, self.lock = at, after, threading.Lock()
        for verb in ("create", "delete"):
            self.wrap(patch, verb, getattr(LocalStore, verb))

    @property
    def is_dead(self) -> bool:
        return self.left <= 0

    def wrap(self, patch: pytest.MonkeyPatch, verb: str, real: Any) -> None:
        def call(store: LocalStore, *arguments: Any) -> None:
            with self.lock:
                self.left -= 1
                if self.left > 0 or (self.left == 0 and self.after):
                    real(store, *arguments)
                if self.is_dead:
                    raise Killed

        patch.setattr(LocalStore, verb, call)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_nothing_of_the_next_process_is_deleted_when_a_slow_one_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The next process begins while the one before it deletes the program before its own, or what was left."""
    failed(tmp_path)
    for name in "ab":
        open_store(str(tmp_path)).create(f"{graph_folder('adds')}/frames/{name}", b"left by somebody who was killed")
    real, begun, deletes = LocalStore.delete, list[Any](), [0]

    def delete(store: LocalStore, key: str) -> None:
        deletes[0] += 1
        if deletes[0] == at and not begun:
            begun.append(adding(tmp_path, Adds(200, is_mended=True)))
            stop_at(begun[0][0], 5)
            begun[0][0].run()
        real(store, key)

    with monkeypatch.context() as patch, pytest.raises((Fenced, CorruptState)):
        patch.setattr(LocalStore, "delete", delete)
        adding(tmp_path, Adds(300, is_mended=True))[0].run()
    newest = RunLog(open_store(str(tmp_path)), "adds").newest()
    assert newest is not None and newest.program in programs(tmp_path)

    TaskGraph.resume("adds", tmp_path).run()
    assert begun[0][1].to_polars()["n"].to_list() == [100, 101, 102, 203, 204, 205]


class Applies(Executor):
    """Calls a function with each batch, and counts in another one."""

    def __init__(self, function: Any, count: Any) -> None:
        self.function, self.count, self.seen = function, count, 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        self.seen += len(batches)
        return [self.function(batch).with_columns(seen=self.seen, counted=self.count()) for batch in batches]


def counter() -> Any:
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return count

    return counted


def failing(batch: pl.DataFrame) -> pl.DataFrame:
    if batch["n"].max() >= 3:  # type: ignore[operator]
        raise ValueError("not this one")
    return batch


def test_an_executor_goes_on_with_the_mended_function_that_it_is_given(tmp_path: Path) -> None:
    def applying(function: Any) -> tuple[TaskGraph, Dataset]:
        return adding(tmp_path, Applies(function, counter()))

    def doubled(factor: int) -> Any:
        return lambda batch: batch * factor

    with pytest.raises(UserCodeError, match="not this one"):
        applying(lambda batch: failing(batch))[0].run()
    graph, out = applying(doubled(2))
    graph.run()

    assert out.to_polars()["n"].to_list() == [0, 1, 2, 6, 8, 10]
    assert out.to_polars()["seen"].to_list() == [1, 2, 3, 4, 5, 6]
    assert out.to_polars()["counted"].to_list() == [1, 2, 3, 4, 5, 6]  # a function that keeps something is state


@pytest.mark.parametrize("build", [None, 1])
def test_a_join_goes_on_with_the_mended_function_behind_it(tmp_path: Path, build: int | None) -> None:
    def joining(function: Any) -> tuple[TaskGraph, Dataset]:
        graph = TaskGraph(tmp_path, id="adds", checkpoint_waves=1, memory_bytes=1)
        right = graph.new_input_frames(pl.concat(ROWS), 1)
        left = graph.new_input_frames(ROWS, 1, dependents=[right])
        join = JoinExecutor("n", build=build, batch_func=function)
        return graph, graph.new_blocking_node({0: left, 1: right}, join, 1, {0: None, 1: None})

    with pytest.raises(UserCodeError, match="not this one"):
        joining(failing)[0].run()
    graph, out = joining(partial(pl.DataFrame.select, n=pl.col("n") + 10))
    graph.run()
    assert out.to_polars()["n"].to_list() == [0, 1, 2, 13, 14, 15]
