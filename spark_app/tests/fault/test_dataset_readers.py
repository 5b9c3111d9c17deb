"""Datasets that graphs read are not deleted under them, whoever is killed at whichever durable step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Killed, Pass

from tidemill import Dataset, Executor, TaskGraph
from tidemill.graphs import dataset_collection, dataset_readers
from tidemill.graphs.dataset import FOLDER, list_datasets
from tidemill.graphs.dataset_collection import collect_datasets
from tidemill.graphs.dataset_readers import (
    LEASE_MS,
    READERS,
    DatasetReader,
    delete_dataset,
    delete_waiting,
    is_to_be_deleted,
    readers_of,
)
from tidemill.graphs.run_log import RunLog
from tidemill.journal.clock import ManualClock, SystemClock
from tidemill.store.local import LocalStore
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import Fenced, UnknownName

ROWS = pl.DataFrame({"n": range(40)})
DAY = 24 * 3_600_000


def made(store: Any, name: str = "first", **options: Any) -> Dataset:
    graph = TaskGraph(store, id=name, **options)
    out: Dataset = graph.new_blocking_node({0: graph.new_input_frames([ROWS, ROWS], 2)}, Pass(), 2, {0: "n"})
    graph.run()
    return out


def opened(store: Any) -> ObjectStore:
    return open_store(str(store))


def left(store: Any) -> set[str]:
    """What there is of Datasets in a store."""
    return {key for key in opened(store).list("_tidemill") if "/dataset" in key}


class Watching(Executor):
    """Calls a function while its graph runs."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        return batches


@pytest.fixture(params=["stream", "datasets"])
def reading(request: pytest.FixtureRequest) -> Callable[..., TaskGraph]:
    """A graph that reads a Dataset in one of the two ways, in steps of one batch."""

    def graph_of(dataset: Dataset, **options: Any) -> TaskGraph:
        graph = TaskGraph(dataset.store, memory_bytes=1, **options)
        if request.param == "stream":
            source, datasets = graph.new_input_from_dataset(dataset, 1), []
        else:
            source, datasets = graph.new_input_frames([ROWS, ROWS], 1), [dataset]
        graph.new_blocking_node({0: source}, datasets, Pass(), 1, {0: None})
        return graph

    return graph_of


def test_a_dataset_is_deleted_when_the_last_graph_that_reads_it_ends(
    tmp_path: Path, reading: Callable[..., TaskGraph]
) -> None:
    dataset, store = made(tmp_path), opened(tmp_path)
    dataset.record  # noqa: B018 - it is known from here on
    graph = reading(dataset)
    seen: list[Any] = []

    def delete(waves: Any) -> None:
        if not seen:
            seen.append([name for name, _ in readers_of(store, dataset.id, SystemClock().now_ms())])
            seen.append(delete_dataset(store, dataset.id))
            with pytest.raises(UnknownName):
                Dataset(str(tmp_path), dataset.id).to_polars()

    graph.observe(delete)
    graph.run()

    assert seen == [[graph.id], 0]
    (out,) = graph.datasets().values()
    assert out.num_rows == 80
    assert [record.id for record in list_datasets(store)] == [out.id]
    assert not any(f"/{dataset.id}" in key for key in left(tmp_path))


def test_a_graph_does_not_begin_when_what_it_reads_is_to_be_deleted(
    tmp_path: Path, reading: Callable[..., TaskGraph]
) -> None:
    dataset, store = made(tmp_path), opened(tmp_path)
    graph = reading(dataset)
    graph.initialize()
    other = DatasetReader([dataset], "other", SystemClock())
    other.begin()
    assert delete_dataset(store, dataset.id) == 0

    with pytest.raises(UnknownName, match="deleted"):
        graph.run()
    assert [name for name, _ in readers_of(store, dataset.id, SystemClock().now_ms())] == ["other"]
    assert dataset.to_polars().height == 80
    other.end()
    assert not left(tmp_path)


def test_a_killed_reader_holds_a_dataset_for_its_time_and_no_longer(
    tmp_path: Path, reading: Callable[..., TaskGraph]
) -> None:
    dataset, store = made(tmp_path), opened(tmp_path)
    graph = reading(dataset, id="killed")

    def die(waves: Any) -> None:
        raise Killed

    graph.observe(die)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DatasetReader, "end", lambda self: None)
        graph.run()
    now = SystemClock().now_ms()

    assert delete_dataset(store, dataset.id) == 0
    assert collect_datasets(store, now).datasets == []
    assert dataset.to_polars().height == 80
    assert collect_datasets(store, now + LEASE_MS + 1).datasets == [dataset.id]
    assert not left(tmp_path)
    with pytest.raises(UnknownName):
        TaskGraph.resume("killed", tmp_path).run()


def test_a_reader_says_so_again_when_half_of_its_time_is_over(tmp_path: Path) -> None:
    dataset, store = made(tmp_path), opened(tmp_path)
    clock = ManualClock(1_000_000)
    reader = DatasetReader([dataset, Dataset(dataset.store, dataset.id)], "long", clock)
    reader.begin()
    for _ in range(5):
        clock.advance(LEASE_MS * 0.4)
        reader.go_on()
        assert [name for name, _ in readers_of(store, dataset.id, clock.now_ms())] == ["long"]
    assert delete_dataset(store, dataset.id, clock.now_ms()) == 0
    clock.advance(LEASE_MS * 0.6)
    reader.go_on()  # it is to be deleted, and who was there first may read on
    assert len(list(store.list(READERS))) == 1
    reader.end()
    assert not left(tmp_path)


# --- killed ----------------------------------------------------------------------------------------------------------


class Killer:
    """Kills at one create or delete, before it or after it; from then on nothing is written."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self.at, self.after, self.calls = at, after, 0
        for verb in ("create", "delete"):
            self._wrap(patch, verb, getattr(LocalStore, verb))

    @property
    def is_dead(self) -> bool:
        return self.calls >= self.at

    def _wrap(self, patch: pytest.MonkeyPatch, verb: str, real: Any) -> None:
        def call(store: LocalStore, *arguments: Any) -> None:
            self.calls += 1
            if self.calls < self.at or (self.calls == self.at and self.after):
                real(store, *arguments)
            if self.is_dead:
                raise Killed

        patch.setattr(LocalStore, verb, call)


def killed_at_each_step(folder: Path, prepare: Callable[[Path], Any], do: Callable[[Path, Any], None]) -> Iterator[Any]:
    """What `prepare` gave in a new store for each place at which `do` can be killed, and that store."""
    for after in (False, True):
        for at in range(1, 200):
            store = folder / f"{at}-{after}"
            prepared = prepare(store)
            with pytest.MonkeyPatch.context() as patch:
                killer = Killer(patch, at, after)
                with suppress(Killed):
                    do(store, prepared)
            if not killer.is_dead:
                assert at > 4
                break
            yield store, prepared


def test_a_deletion_goes_on_when_it_was_killed_at_any_step(tmp_path: Path) -> None:
    for store, dataset in killed_at_each_step(tmp_path, made, lambda s, d: delete_dataset(opened(s), d.id) and None):
        is_seen = Dataset(str(store), dataset.id).is_complete
        if is_seen:  # nothing had been said
            assert dataset.to_polars().height == 80
            delete_dataset(opened(store), dataset.id)
        delete_waiting(opened(store), SystemClock().now_ms())
        assert not left(store)


def test_nothing_is_deleted_under_a_reader_when_it_or_the_deleter_is_killed_at_any_step(tmp_path: Path) -> None:
    """A reader that began reads all; one that did not learns that there is nothing to read."""

    def both(store: Path, dataset: Dataset) -> None:
        reader = DatasetReader([dataset], "reader", SystemClock())
        reader.begin()
        delete_dataset(opened(store), dataset.id)
        reader.end()

    late = SystemClock().now_ms() + LEASE_MS + 60_000
    for store, dataset in killed_at_each_step(tmp_path, made, both):
        second = DatasetReader([Dataset(str(store), dataset.id)], "second", SystemClock())
        try:
            second.begin()
            assert Dataset(str(store), dataset.id).to_polars().height == 80
        except UnknownName:
            assert is_to_be_deleted(opened(store), dataset.id) or not left(store) - set(opened(store).list(READERS))
        second.end()
        with suppress(UnknownName):
            delete_dataset(opened(store), dataset.id, late)
        delete_waiting(opened(store), late)
        assert not left(store)


# --- retention -------------------------------------------------------------------------------------------------------


def test_datasets_go_when_their_time_is_over(tmp_path: Path) -> None:
    made(tmp_path, "kept")
    short = made(tmp_path, "short", retention=timedelta(days=2))
    store, now = opened(tmp_path), SystemClock().now_ms()

    assert collect_datasets(store, now + DAY).datasets == []
    assert collect_datasets(store, now + 2 * DAY + 1000).datasets == [short.id]
    assert [record.graph for record in list_datasets(store)] == ["kept"]
    assert collect_datasets(store, now + 3 * DAY, older_than_ms=4 * DAY).datasets == []
    assert collect_datasets(store, now + 5 * DAY, older_than_ms=4 * DAY).datasets == ["kept-1"]
    assert not left(tmp_path)


def crashed(store: Path, name: str = "half") -> TaskGraph:
    """A graph that was killed when half of its Dataset was written, and a checkpoint taken."""
    graph = TaskGraph(store, id=name, checkpoint_waves=1)
    source = graph.new_input_frames([ROWS] * 6, 1)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})

    def die(waves: Any) -> None:
        if waves.wave == 4:
            raise Killed

    graph.observe(die)
    with pytest.raises(Killed):
        graph.run()
    return graph


@pytest.fixture
def writes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.graphs import dataset_writer, run

    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(dataset_writer, "OBJECT_ROWS", 10)


@pytest.mark.usefixtures("writes_often")
def test_halves_of_a_crashed_run_go_when_it_wrote_nothing_for_long(tmp_path: Path) -> None:
    kept = made(tmp_path, "whole")
    crashed(tmp_path)
    store, now = opened(tmp_path), SystemClock().now_ms()
    assert any("/half-1/" in key for key in left(tmp_path))

    assert collect_datasets(store, now + 8 * DAY).runs == []
    assert collect_datasets(store, now + DAY, unfinished_ms=7 * DAY).runs == []
    found = collect_datasets(store, now + 8 * DAY, unfinished_ms=7 * DAY)

    assert found.runs == ["half"]
    assert found.objects > 3
    assert not any("half" in key for key in store.list("_tidemill") if "/log/" not in key)
    assert kept.to_polars().height == 80
    with pytest.raises(UnknownName):
        TaskGraph.resume("half", tmp_path)
    crashed(tmp_path)  # the same program begins anew


@pytest.mark.usefixtures("writes_often")
def test_a_slow_process_is_stopped_when_its_run_was_collected(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path, id="slow", checkpoint_waves=1)
    source = graph.new_input_frames([ROWS] * 6, 1)
    out = graph.new_blocking_node({0: source}, Pass(), 1, {0: None})

    def collect(waves: Any) -> None:
        if waves.wave == 4:
            collect_datasets(opened(tmp_path), SystemClock().now_ms() + 8 * DAY, unfinished_ms=7 * DAY)

    graph.observe(collect)
    with pytest.raises(Fenced):
        graph.run()
    assert not out.is_complete


@pytest.mark.usefixtures("writes_often")
def test_a_collection_goes_on_when_it_was_killed_at_any_step(tmp_path: Path) -> None:
    late = SystemClock().now_ms() + 8 * DAY

    def collect(store: Path, prepared: Any) -> None:
        collect_datasets(opened(store), late, unfinished_ms=7 * DAY)

    for store, _ in killed_at_each_step(tmp_path, crashed, collect):
        newest = RunLog(opened(store), "half").newest()
        assert newest is not None
        if newest.kind != "abandon":  # nothing was deleted: it can be resumed
            assert all(opened(store).exists(key) for key in [newest.checkpoint])
        collect(store, None)
        assert not list(opened(store).list("_tidemill/datasets"))
        assert [key for key in opened(store).list("_tidemill/graphs") if "/log/" not in key] == []


@pytest.mark.usefixtures("writes_often")
def test_what_was_finished_is_seen_when_its_process_was_killed_before_that(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path, id="ended")
    out = graph.new_blocking_node({0: graph.new_input_frames(ROWS, 1)}, Pass(), 1, {0: None})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr("tidemill.graphs.run.publish", _die)
        graph.run()
    assert not out.is_complete
    store = opened(tmp_path)

    found = collect_datasets(store, SystemClock().now_ms() + 8 * DAY, unfinished_ms=7 * DAY)

    assert found.runs == ["ended"]
    assert Dataset(str(tmp_path), out.id).to_polars().equals(ROWS)
    assert not any("/program" in key for key in store.list("_tidemill/graphs/ended"))


def _die(*arguments: Any) -> None:
    raise Killed


def test_names_of_modules_are_what_they_say() -> None:
    assert dataset_readers.READERS != FOLDER
    assert dataset_collection.DATASETS == FOLDER
