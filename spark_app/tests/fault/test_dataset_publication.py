"""A Dataset that is published again, as by a run that is resumed, while it is deleted: its record never stays alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Killed

from tidemill.graphs.dataset import FOLDER, Dataset, DatasetRecord, record_key, write_object
from tidemill.graphs.dataset_readers import LEASE_MS, delete_dataset, delete_waiting, publish
from tidemill.store.local import LocalStore
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import UnknownName

NOW = 1_000_000
LATE = NOW + LEASE_MS + 1
VERBS = ("create", "delete", "exists", "get", "list")


def made(store: ObjectStore, name: str) -> DatasetRecord:
    """A Dataset of two objects that was published, and may be again."""
    objects = [write_object(store, f"{FOLDER}/{name}/{n}.parquet", pl.DataFrame({"n": [n]})) for n in range(2)]
    record = DatasetRecord(name, "dataset", "run", 1, 1, NOW, objects)
    publish(store, name, [record], NOW)
    return record


def interrupted(do: Callable[[], object], at: int, action: Callable[[], object], dies_at: int = 0) -> int:
    """The requests that `do` makes; before request `at` somebody does `action`, and `do` is killed at `dies_at`."""
    calls, is_inside = 0, False
    with pytest.MonkeyPatch.context() as patch:

        def wrap(verb: str, real: Any) -> None:
            def call(store: LocalStore, *arguments: Any) -> Any:
                nonlocal calls, is_inside
                if not is_inside:
                    calls += 1
                    if calls == at:
                        is_inside = True
                        action()
                        is_inside = False
                    if dies_at and calls >= dies_at:
                        raise Killed
                return real(store, *arguments)

            patch.setattr(LocalStore, verb, call)

        for verb in VERBS:
            wrap(verb, getattr(LocalStore, verb))
        with suppress(Killed):
            do()
    return calls


def left(store: ObjectStore, name: str) -> list[str]:
    return [key for key in store.list("_tidemill") if f"/{name}" in key]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


def published(store: ObjectStore, record: DatasetRecord) -> None:
    publish(store, record.id, [record], NOW)


def deleted(store: ObjectStore, record: DatasetRecord) -> None:
    delete_dataset(store, record.id, NOW)


@pytest.mark.parametrize(("work", "meanwhile"), [(published, deleted), (deleted, published)])
def test_a_deleted_dataset_stays_deleted_when_it_is_published_meanwhile(
    store: ObjectStore, work: Callable[..., None], meanwhile: Callable[..., None]
) -> None:
    """One is done as a whole at any request of the other."""
    requests = 0
    for at in range(1, 100):
        record = made(store, f"d{at}")
        requests = interrupted(partial(work, store, record), at, partial(meanwhile, store, record))
        if requests < at:
            break
        assert left(store, record.id) == [], at
    assert requests > 4


def test_no_record_outlives_its_objects_when_a_publisher_is_killed_around_a_deletion(store: ObjectStore) -> None:
    """The publisher is killed at each request behind that at which somebody deletes."""
    tried = 0
    for at in range(1, 100):
        for dies_at in range(at, 100):
            record = made(store, f"d{at}-{dies_at}")
            requests = interrupted(
                lambda record=record: publish(store, record.id, [record], NOW), at,
                lambda record=record: delete_dataset(store, record.id, NOW), dies_at,
            )  # fmt: skip
            if requests < dies_at:
                break
            tried += 1
            with pytest.raises(UnknownName):
                Dataset(store.url, record.id).to_polars()
            assert store.exists(record.objects[0].key) or not store.exists(record_key(record.id)), (at, dies_at)
            delete_waiting(store, LATE)
            assert left(store, record.id) == [], (at, dies_at)
        if requests < at:
            break
    assert tried > 15
