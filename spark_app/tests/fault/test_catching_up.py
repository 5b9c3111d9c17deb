"""A backlog of many small segments is caught up with although many of the store's answers are faults."""

from __future__ import annotations

import random
import threading
from pathlib import Path as Folder

import pytest
from poison import NAME, Tally, append, commit_log, counts, faulty, launch, wait

from tidemill import InProcessCluster
from tidemill.journal.entries import Attempt, SourceProgress
from tidemill.leader import ranges
from tidemill.leader.events import DepotEnds
from tidemill.store.patient import PAUSES, PatientStore
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import StoreUnavailable
from tidemill.values.offsets import OffsetRanges

SEGMENTS = 120
FAST = {"topology.microbatch.retry.delay.base.millis": 1, "topology.microbatch.retry.delay.max.millis": 20}


class Weather:
    """Of the reads one in a hundred is refused, thirteen go without an answer."""

    def __init__(self) -> None:
        self.is_on, self._random, self._lock = False, random.Random(7), threading.Lock()

    def __call__(self, verb: str, key: str) -> None:
        with self._lock:
            drawn = self._random.random()
        if self.is_on and verb in ("get", "exists", "list") and "/lease" not in key and drawn < 0.14:
            raise StoreUnavailable("403 Forbidden" if drawn < 0.01 else "no answer", key=key)


def test_backlog_is_processed_in_a_few_attempts_when_one_read_in_seven_fails(tmp_path: Folder) -> None:
    weather = Weather()
    faulty(tmp_path.as_uri(), FaultPlan(before=weather))
    with InProcessCluster.create(store=tmp_path.as_uri()) as cluster:
        launch(cluster, Tally(options=FAST))
        cluster.pause_microbatch_topology(NAME, "tally")
        for _ in range(SEGMENTS):
            append(cluster, "a")
        weather.is_on = True
        while True:
            try:
                cluster.resume_microbatch_topology(NAME, "tally")
                break
            except StoreUnavailable:
                continue
        wait(cluster, SEGMENTS, timeout_millis=60_000)
        weather.is_on = False
        entries = [entry for _, entry in commit_log(cluster).tail(10_000) if entry.kind == "commit"]
        versions = [entry.last_version for entry in entries]
        assert max(versions) <= 3, versions
        assert counts(cluster, "a") == [SEGMENTS]


_calls: list[str] = []


def fails_twice(word: str) -> str:
    _calls.append(word)
    if len(_calls) <= 2:
        raise ValueError("not yet")
    return word


def test_next_microbatches_are_smaller_when_one_took_several_attempts(tmp_path: Folder) -> None:
    _calls.clear()
    with InProcessCluster.create(store=tmp_path.as_uri()) as cluster:
        launch(cluster, Tally(fails_twice, options={**FAST, "depot.microbatch.max.records": 40}))
        cluster.pause_microbatch_topology(NAME, "tally")
        append(cluster, *("a" for _ in range(600)))
        cluster.resume_microbatch_topology(NAME, "tally")
        wait(cluster, 600)
        entries = [entry for _, entry in commit_log(cluster).tail(10_000) if entry.kind == "commit"]
        assert [(e.last_version, e.committed[0].records) for e in entries][:5] == [
            (3, 80), (1, 20), (1, 40), (1, 80), (1, 80),
        ]  # fmt: skip
        assert counts(cluster, "a") == [600]


# --- reads -----------------------------------------------------------------------------------------------------------


class Failing:
    """The first `count` requests of each kind fail."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    def __call__(self, verb: str, key: str) -> None:
        self.asked += 1
        if self.asked <= self.count:
            raise StoreUnavailable("403 Forbidden", key=key)


def patient(failing: Failing) -> PatientStore:
    store = MemoryStore()
    store.create("a/b", b"x")
    return PatientStore(FaultyObjectStore(store, FaultPlan(before=failing)), (0.0,) * len(PAUSES))


@pytest.mark.parametrize("read", ["get", "get_range", "exists", "list"])
def test_read_is_asked_again_so_often_and_no_more_when_it_fails(read: str) -> None:
    given = {"get": ("a/b",), "get_range": ("a/b", 0, 1), "exists": ("a/b",), "list": ("a",)}[read]
    good = getattr(patient(Failing(len(PAUSES))), read)(*given)
    assert (list(good) if read == "list" else good) in (b"x", True, ["a/b"])
    failing = Failing(len(PAUSES) + 1)
    with pytest.raises(StoreUnavailable):
        getattr(patient(failing), read)(*given)
    assert failing.asked == len(PAUSES) + 1


def test_write_is_never_repeated_when_it_fails() -> None:
    failing = Failing(1)
    with pytest.raises(StoreUnavailable):
        patient(failing).create("a/c", b"")
    assert failing.asked == 1


# --- ranges ----------------------------------------------------------------------------------------------------------


def attempt(version: int, records: int) -> Attempt:
    return Attempt(1, version, {"*d": OffsetRanges((0, 5), (records, 5))})


def test_microbatches_get_smaller_after_failures_and_larger_again() -> None:
    assert ranges.limit_after(None, attempt(1, 1000)) is None
    assert ranges.limit_after(None, attempt(2, 1000)) == 500
    assert ranges.limit_after(500, attempt(4, 500)) == 62
    assert ranges.limit_after(1, attempt(9, 1)) == 1
    assert ranges.limit_after(62, attempt(1, 62)) == 124
    assert ranges.limit_after(124, attempt(3, 0)) == 248, "without records nothing was too large"
    limit: int | None = 1
    for _ in range(40):
        limit = ranges.limit_after(limit, attempt(1, 1))
    assert limit is None


def test_range_is_cut_to_the_limit_in_each_partition() -> None:
    progress = SourceProgress("d", (0, 10), (0, 0))
    found = ranges.fix_range(progress, DepotEnds((0, 0), (100, 12)), 7)
    assert list(found) == [(0, 7), (10, 12)]
