"""Who reads Datasets, and deletions that wait for them.

    _tidemill/dataset-readers/<dataset>@<until>-<graph>-<nonce>   a graph reads it, up to this time at most
    _tidemill/dataset-deletions/<dataset>                         it is to be deleted: nobody new may read it

A reader first says that it reads and then looks for a deletion; who deletes first says so and then looks for readers.
So one of both sees the other, wherever they are killed. What a killed reader said counts no more when its time is over.
Who publishes a Dataset is a reader of it meanwhile, since it may be published again, by a run that is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from urllib.parse import quote

from tidemill.graphs.dataset import (
    DELETIONS,
    FOLDER,
    RECORDS,
    Dataset,
    DatasetRecord,
    is_to_be_deleted,
    read_record,
    record_key,
)
from tidemill.journal.clock import Clock, SystemClock
from tidemill.store.objects import RESERVED, AlreadyExists, ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import StoreUnavailable
from tidemill.values.ids import nonce

READERS = f"{RESERVED}/dataset-readers"
LEASE_MS = 3_600_000
"""A reader counts for so long after it said so; it says so again between two waves, when half of that is over."""


class DatasetReader:
    """A graph that reads Datasets while it runs."""

    def __init__(self, datasets: Iterable[Dataset], graph: str, clock: Clock) -> None:
        self._datasets = list({(each.store, each.id): each for each in datasets}.values())
        self._graph = graph
        self._clock = clock
        self._keys: list[tuple[ObjectStore, Dataset, str]] = []
        self._said_ms = 0

    def begin(self) -> None:
        """Say that the graph reads them, again where it said so before.

        Raises:
            UnknownName: one is deleted, or is to be.
        """
        self._said_ms = self._clock.now_ms()
        before, self._keys = self._keys, []
        for each in self._datasets:
            store = open_store(each.store)
            self._keys.append((store, each, _say(store, each.id, self._graph, self._said_ms)))
            if not before:  # who was there first may read on: the deletion waits
                each.check()
        for store, _, key in before:
            store.delete(key)

    def go_on(self) -> None:
        """Say it again, if half of the time is over."""
        if self._clock.now_ms() - self._said_ms > LEASE_MS // 2:
            self.begin()

    def end(self) -> None:
        """They are read no more; who waited for that is deleted. A store that does not answer hears it by the time."""
        keys, self._keys = self._keys, []
        with suppress(StoreUnavailable):
            for store, each, key in keys:
                _unsay(store, each.id, key, self._clock.now_ms())


def _say(store: ObjectStore, dataset: str, graph: str, now_ms: int) -> str:
    """Say that a graph reads a Dataset; the key under which that stands."""
    key = f"{_prefix(dataset)}{now_ms + LEASE_MS:013d}-{graph}-{nonce()}"
    store.create(key, b"{}")
    return key


def _unsay(store: ObjectStore, dataset: str, key: str, now_ms: int) -> None:
    """It is read no more, so a deletion that waited goes on."""
    store.delete(key)
    for waiting in _waiting(store, dataset):
        _delete_unread(store, waiting, now_ms)


def publish(store: ObjectStore, dataset: str, records: Sequence[DatasetRecord], now_ms: int) -> None:
    """Let a Dataset be seen, or these windows of it; again is no error. What was deleted stays so.

    Who publishes counts as a reader meanwhile: a deletion waits for it, or was said before, or is done and its objects
    are gone. So no record comes when its objects go.
    """
    reader = _say(store, dataset, records[0].graph, now_ms)
    for record in records:
        is_gone = bool(record.objects) and not store.exists(record.objects[0].key)
        if not is_gone and not is_to_be_deleted(store, record.id):
            key = record_key(record.id)
            with suppress(AlreadyExists):
                store.create(key, RECORDS.sealed(record, key))
    _unsay(store, dataset, reader, now_ms)


def readers_of(store: ObjectStore, dataset: str, now_ms: int) -> list[tuple[str, int]]:
    """The graphs that read a Dataset, and until when each counts if nothing more is heard of it."""
    parts = dataset.split("/")  # of windows, the first part is the Dataset of all of them
    whole = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    names = [key.rpartition("@")[2] for each in whole for key in _readers(store, each)]
    found = [(name[14:].rpartition("-")[0], int(name[:13])) for name in names]
    return [(graph, until) for graph, until in found if until > now_ms]


def _prefix(dataset: str) -> str:
    return f"{READERS}/{quote(dataset, safe='')}@"


def _readers(store: ObjectStore, dataset: str) -> list[str]:
    """The keys of those who read a Dataset. All are in one folder, which costs less than one for each Dataset."""
    prefix = _prefix(dataset)
    return list(takewhile(lambda key: key.startswith(prefix), store.list(READERS, prefix)))


def _waiting(store: ObjectStore, dataset: str) -> list[str]:
    """What is to be deleted of a Dataset: itself, or some of its windows."""
    windows = [key.removeprefix(f"{DELETIONS}/") for key in store.list(f"{DELETIONS}/{dataset}")]
    return windows or [dataset] * is_to_be_deleted(store, dataset)


def delete_dataset(store: ObjectStore, dataset: str, now_ms: int | None = None) -> int:
    """Delete a Dataset, its record first; how many objects there were. While a graph reads it nothing is deleted yet
    (0), but nobody new can read it, and it goes when the last reader ends. Who reads it otherwise gets CorruptState.

    Raises:
        UnknownName: there is none of this ID, or it is to be deleted already.
    """
    read_record(store, dataset)
    with suppress(AlreadyExists):
        store.create(f"{DELETIONS}/{dataset}", b"{}")
    return _delete_unread(store, dataset, SystemClock().now_ms() if now_ms is None else now_ms)


def delete_waiting(store: ObjectStore, now_ms: int) -> list[str]:
    """Delete the Datasets that are to be deleted and that nobody reads any more; their IDs. What readers that are no
    more left of others goes too.
    """
    waiting = [key.removeprefix(f"{DELETIONS}/") for key in list(store.list(DELETIONS))]
    gone = [dataset for dataset in waiting if not readers_of(store, dataset, now_ms)]
    for dataset in gone:
        _delete_unread(store, dataset, now_ms)
    for key in list(store.list(READERS)):
        if int(key.rpartition("@")[2][:13]) <= now_ms:
            store.delete(key)
    return gone


def _delete_unread(store: ObjectStore, dataset: str, now_ms: int) -> int:
    """The mark goes last: a process that is killed here leaves it, and the next one goes on."""
    if readers_of(store, dataset, now_ms):
        return 0
    store.delete(record_key(dataset))
    keys = list(store.list(f"{FOLDER}/{dataset}"))
    for key in keys:
        store.delete(key)
    for key in _readers(store, dataset):
        store.delete(key)
    store.delete(f"{DELETIONS}/{dataset}")
    return len(keys)
