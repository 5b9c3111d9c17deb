"""A process that stands still while others append, roll and delete looks again, or says that it is to be retried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tidemill.depot import producers
from tidemill.depot.header import Offsets
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, retain, roll
from tidemill.language.dataflow import StartFrom
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.errors import (
    BadInput,
    CorruptState,
    OutcomeUnknown,
    RetryableError,
    SequenceUnknown,
    StoreUnavailable,
)

EVERY = 4
BEGUN = 7
"""How many segments there are at first."""


@pytest.fixture(autouse=True)
def _tables_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "TABLE_EVERY", EVERY)
    monkeypatch.setattr(producers, "SMALL_TABLE", 0)


def process(store: MemoryStore, plan: FaultPlan | None = None) -> DepotLog:
    """The depot as a new process sees it, which shares no cache."""
    return DepotLog(FaultyObjectStore(store, plan), "d", 1, lambda: 0, ())


def send(depot: DepotLog, name: str, sequence: int = 1) -> Offsets:
    return depot.append([(0, [f"{name} {sequence}"])], (name, sequence))


def delete(depot: DepotLog, kept: int = 1) -> int:
    return retain(depot, kept, (999,), grace_millis=0)


def begun(rolled: int = 0) -> MemoryStore:
    store = MemoryStore()
    depot = process(store)
    for number in range(BEGUN):
        send(depot, f"p{number}")
        if number + 1 == rolled:
            roll(depot, RollingLimits(segments_min=1))
    return store


def copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy.objects.update(store.objects)
    return copy


def read(depot: DepotLog) -> None:
    """From the beginning on, as a reader does that does not look again for it."""
    start, end = depot.starts()[0], depot.ends()[0]
    try:
        assert len(columns.to_values(depot.read_columns(0, start, end))) == end - start
    except BadInput:
        assert depot.starts()[0] > start, "retention gave it up"


def repeat(depot: DepotLog) -> None:
    for number in range(BEGUN):
        try:
            assert send(depot, f"p{number}") in (((0, number, number + 1),), ())
        except SequenceUnknown:
            pytest.fail("the last append of a producer is known for ever")


WORK: dict[str, Callable[[DepotLog], object]] = {
    "append": lambda depot: send(depot, "new"),
    "append of nobody": lambda depot: depot.append([(0, ["new"])]),
    "repeat": repeat,
    "roll": lambda depot: roll(depot, RollingLimits(segments_min=1, segments_max=2)),
    "retain": delete,
    "read": read,
    "start": lambda depot: depot.resolve_start(StartFrom("after_timestamp", -1), 0),
    "start from the beginning": lambda depot: depot.resolve_start(StartFrom("beginning"), 0),
}


def others_append(store: MemoryStore, names: Iterator[int]) -> None:
    depot = process(store)
    for _ in range(EVERY + 1):
        send(depot, f"q{next(names)}")


def others_roll(store: MemoryStore, names: Iterator[int]) -> None:
    others_append(store, names)
    roll(process(store), RollingLimits(segments_min=1))


def others_delete(store: MemoryStore, names: Iterator[int]) -> None:
    newest = process(store).newest().number
    others_append(store, names)
    delete(process(store))
    others_append(store, names)
    delete(process(store))
    assert process(store).files.log.span()[0] > newest


OTHERS = {"append": others_append, "roll": others_roll, "delete": others_delete}


def overtaken(store: MemoryStore, what: str, is_due: Callable[[int], bool]) -> tuple[DepotLog, list[int]]:
    """A process that others overtake before those of its requests that are due; the requests that it made."""
    names, requests, depth = count(), [0], [0]

    def others(verb: str, key: str) -> None:
        requests[0] += 1
        if not depth[0] and is_due(requests[0]):
            depth[0] = 1
            OTHERS[what](store, names)
            depth[0] = 0

    return process(store, FaultPlan(before=others)), requests


def check(store: MemoryStore) -> None:
    """Each record that is kept is there once, each append is known, and a roll finds the table that it needs."""
    depot = process(store)
    (start,), (end,) = depot.starts(), depot.ends()
    kept = columns.to_values(depot.read_columns(0, start, end))
    assert len(kept) == len(set(kept)) == end - start
    roll(process(store), RollingLimits(segments_min=1, segments_max=1))
    repeat(process(store))
    assert process(store).ends() == (end,)


@pytest.mark.parametrize("rolled", [0, 5])
@pytest.mark.parametrize("has_followed", [False, True])
@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("work", WORK)
def test_it_is_done_when_others_overtake_it_at_any_request(
    work: str, what: str, has_followed: bool, rolled: int
) -> None:
    before = begun(rolled)
    for request in count(1):
        store = copied(before)
        due = [0]
        depot, requests = overtaken(store, what, lambda made, due=due: made == due[0])  # type: ignore[misc]
        if has_followed:
            depot.follow()
        due[0] = requests[0] + request
        try:
            WORK[work](depot)
        except OutcomeUnknown as error:
            assert what == "delete" and "was trimmed before its append was confirmed" in str(error)
        check(store)
        if requests[0] < due[0]:
            break
    assert request > 1


@pytest.mark.parametrize("work", WORK)
def test_it_ends_when_others_overtake_it_at_each_request(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.depot.log._COLLISIONS_MAX", 3)
    store = begun()
    depot, requests = overtaken(store, "delete", lambda made: True)
    try:
        WORK[work](depot)
    except (RetryableError, OutcomeUnknown) as error:
        assert "try again" in str(error) or "was trimmed before its append was confirmed" in str(error)
    assert requests[0] < 1_000


def test_it_is_to_be_tried_again_when_the_newest_segment_is_deleted_each_time_before_it_is_read() -> None:
    store = begun()

    def others(verb: str, key: str) -> None:
        if verb == "get":
            others_delete(store, names)

    names = count()
    depot = process(store, FaultPlan(before=others))
    with pytest.raises(StoreUnavailable, match=r"d/log/0+\d+.arrow was not found 10 times in a row.* try again"):
        depot.follow()


# --- one by one ------------------------------------------------------------------------------------------------------


def once(verb: str, part: str, work: Callable[[], object]) -> FaultPlan:
    """Others do `work` before the first such request."""
    left = [work]

    def others(asked: str, key: str) -> None:
        if asked == verb and part in key and left:
            left.pop()()

    return FaultPlan(before=others)


def test_append_follows_on_when_the_newest_segment_is_deleted_before_it_is_read() -> None:
    store = begun()
    depot = process(store, once("get", "/log/", lambda: others_delete(store, count())))
    assert send(depot, "new") == ((0, BEGUN + 2 * (EVERY + 1), BEGUN + 2 * (EVERY + 1) + 1),)


def test_segments_are_rolled_when_retention_deleted_the_table_before_them() -> None:
    """The last two segments stay, though the table that the first of them follows is deleted."""
    store = begun()
    delete(process(store))
    first, _ = process(store).files.log.span()
    assert not process(store).files.header(first).is_full and not store.exists(process(store).files.log.key(EVERY))
    others_append(store, count())
    assert roll(process(store), RollingLimits(segments_min=1, segments_max=1)) == 1
    check(store)


def test_records_are_no_longer_kept_when_others_deleted_them_since_the_reader_looked() -> None:
    store = begun()
    depot = process(store)
    ends = depot.ends()
    others_delete(store, count())
    with pytest.raises(BadInput, match="no longer kept"):
        depot.read_columns(0, 0, ends[0])


def test_a_repeat_is_known_when_others_deleted_its_records_since_its_process_looked() -> None:
    """Its producer is told that it is appended, as it would be told by anybody else."""
    store = begun()
    depot = process(store)
    send(depot, "p7")
    assert depot.newest().is_full, "so the table is at hand"
    others_delete(store, count())
    assert depot.starts() == (0,)
    assert send(depot, "p1") == () == send(process(store), "p1")
    assert depot.starts() == process(store).starts() != (0,), "it looked before it answered"


def test_a_missing_segment_is_an_error_when_nobody_trimmed_it() -> None:
    store = begun()
    store.delete(process(store).files.log.key(2))
    for work in (read, WORK["roll"]):
        with pytest.raises(CorruptState):
            work(process(store))


def test_starts_are_recorded_or_refused_when_others_always_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.depot.log._COLLISIONS_MAX", 3)
    store, names = begun(), count()

    def others(verb: str, key: str) -> None:
        if verb == "create":
            send(process(store), f"q{next(names)}")

    with pytest.raises(StoreUnavailable, match="met other writers"):
        process(store, FaultPlan(before=others)).record_starts([3])


def read_all(depot: DepotLog) -> list[Any]:
    return columns.to_values(depot.read_columns(0, depot.starts()[0], depot.ends()[0]))


def test_nothing_more_is_deleted_when_two_delete_at_once() -> None:
    store = begun(rolled=5)
    plan = once("delete", "", lambda: delete(process(store)))
    delete(process(store, plan))
    assert read_all(process(store)) == [f"p{BEGUN - 1} 1"]
