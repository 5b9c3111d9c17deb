"""The rules of logs, one by one, on a folder and on MinIO."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tidemill.store.log import FIRST, Log, Lost, SlotTrimmed
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import CorruptState, OutcomeUnknown, StoreRestored, StoreUnavailable


def entry(nonce: str) -> bytes:
    return json.dumps({"nonce": nonce}).encode()


def log_on(store: ObjectStore) -> Log:
    return Log(store, "topic/log", ".json", lambda data, _: str(json.loads(data)["nonce"]), patience=(0.0, 0.0))


def fill(log: Log, first: int, last: int) -> None:
    for number in range(first, last + 1):
        log.append(number, entry(f"n{number}"), f"n{number}")


def numbers(log: Log, known: int = 0) -> list[int]:
    return [number for number, _ in log.follow(known)]


def once(verb: str, error: Exception) -> Callable[[str, str], None]:
    """A hook that fails the first request of this verb."""
    left = [error]

    def fail(asked: str, key: str) -> None:
        if asked == verb and left:
            raise left.pop()

    return fail


@pytest.fixture
def log(store_url: str) -> Log:
    return log_on(connect(store_url))


def test_entries_are_followed_in_order_when_appended(log: Log) -> None:
    assert (log.newest(), numbers(log), log.span()) == (0, [], (1, 0))
    fill(log, 1, 5)
    assert numbers(log) == [1, 2, 3, 4, 5]
    assert numbers(log, 3) == [4, 5]
    assert log.newest() == log.newest(2) == log.newest(5) == 5
    assert log.read(2) == entry("n2")


def test_newest_is_found_when_the_reader_is_far_behind(log: Log) -> None:
    fill(log, 1, 40)
    assert log.newest(1) == 40


def test_append_is_lost_when_another_writer_has_the_slot(log: Log) -> None:
    fill(log, 1, 2)
    with pytest.raises(Lost):
        log.append(2, entry("other"), "other")
    assert log.read(2) == entry("n2")


def test_append_is_done_when_the_slot_holds_its_own_nonce(log: Log) -> None:
    fill(log, 1, 2)
    log.append(2, entry("n2"), "n2")
    assert (numbers(log), log.read(2), log.newest()) == ([1, 2], entry("n2"), 2)
    with pytest.raises(Lost):
        log.append(2, entry("n2"), "n3")


def test_last_two_stay_when_all_is_trimmed(log: Log) -> None:
    fill(log, 1, 5)
    assert log.trim(100) == 4
    assert (log.span(), numbers(log), numbers(log, 2)) == ((4, 5), [4, 5], [4, 5])
    assert log.trim(2) == log.trim(100) == 4
    fill(log, 6, 6)
    assert log.newest(1) == 6


@pytest.mark.parametrize("slot", [FIRST, 3, 4])
def test_object_counts_for_nothing_when_its_writer_slept_through_a_trim(log: Log, slot: int) -> None:
    fill(log, 1, 6)
    log.trim(5)
    with pytest.raises(SlotTrimmed):
        log.append(slot, entry("stalled"), "stalled")
    assert log.store.exists(log.key(slot))
    assert (log.span(), numbers(log), log.newest(slot - 1), log.is_entry(slot)) == ((5, 6), [5, 6], 6, False)
    assert numbers(log, slot) == [5, 6]
    fill(log, 7, 8)
    log.trim(7)
    assert not log.store.exists(log.key(slot))


def test_void_object_is_left_out_when_a_trim_overtakes_a_reader(log: Log) -> None:
    fill(log, 1, 6)
    log.trim(2)
    left = [2]

    def overtake(verb: str, key: str) -> None:
        if verb == "get" and left and key == log.key(left[0]):
            slot = left.pop()
            log.trim(5)
            with pytest.raises(SlotTrimmed):
                log.append(slot, entry("stalled"), "stalled")

    assert numbers(log_on(FaultyObjectStore(log.store, FaultPlan(before=overtake)))) == [5, 6]


def test_second_stalled_writer_is_void_when_the_first_left_a_predecessor(log: Log) -> None:
    fill(log, 1, 6)
    log.trim(5)
    for slot in (2, 3):
        with pytest.raises(SlotTrimmed):
            log.append(slot, entry("stalled"), "stalled")


def test_trim_goes_on_as_a_prefix_when_it_was_cut_off() -> None:
    store = MemoryStore()
    fill(log_on(store), 1, 6)
    deletes: list[str] = []

    def fail_third(verb: str, key: str) -> None:
        if verb == "delete":
            deletes.append(key)
            if len(deletes) == 3:
                raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        log_on(FaultyObjectStore(store, FaultPlan(before=fail_third))).trim(5)
    assert deletes == sorted(deletes)
    assert log_on(store).span() == (5, 6)
    assert log_on(store).trim(5) == 5
    fill(log_on(store), 7, 9)
    log_on(store).trim(8)
    assert [key for key in store.objects if "/floor/" not in key] == [log_on(store).key(8), log_on(store).key(9)]


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), StoreUnavailable("refused")])
@pytest.mark.parametrize("when", ["before", "after"])
def test_append_succeeds_once_when_one_answer_is_missing(error: Exception, when: str) -> None:
    store = MemoryStore()
    plan = FaultPlan(**{when: once("create", error)})
    log_on(FaultyObjectStore(store, plan)).append(1, entry("a"), "a")
    assert [data for _, data in log_on(store).follow(0)] == [entry("a")]


def test_outcome_is_unknown_when_no_create_is_ever_answered() -> None:
    def fail(verb: str, key: str) -> None:
        if verb == "create":
            raise OutcomeUnknown("lost")

    with pytest.raises(OutcomeUnknown):
        log_on(FaultyObjectStore(MemoryStore(), FaultPlan(before=fail))).append(1, entry("a"), "a")


def test_store_is_unavailable_when_it_refused_every_create() -> None:
    def fail(verb: str, key: str) -> None:
        if verb == "create":
            raise StoreUnavailable("full")

    with pytest.raises(StoreUnavailable, match="full"):
        log_on(FaultyObjectStore(MemoryStore(), FaultPlan(before=fail))).append(1, entry("a"), "a")


def test_outcome_is_unknown_when_the_floor_cannot_be_looked_up() -> None:
    def fail(verb: str, key: str) -> None:
        if verb == "list":
            raise StoreUnavailable("gone")

    store = MemoryStore()
    fill(log_on(store), 1, 1)
    with pytest.raises(OutcomeUnknown):
        log_on(FaultyObjectStore(store, FaultPlan(before=fail))).append(2, entry("a"), "a")


@pytest.mark.parametrize("lost", [{3}, {1}, {1, 2, 3, 4}, set(range(1, 7))])
def test_log_is_corrupt_when_entries_are_missing(lost: set[int]) -> None:
    log = log_on(MemoryStore())
    fill(log, 1, 6)
    log.trim(2)
    for number in lost | {2}:
        log.store.delete(log.key(number))
    with pytest.raises(CorruptState):
        log.span()


def test_append_costs_a_create_and_a_short_listing_when_nothing_fails(log: Log) -> None:
    fill(log, 1, 2)
    log.store.counts.clear()
    fill(log, 3, 3)
    looks = {"exists": 1} if log.store.local_path("x") is not None else {}  # a file: the listing would be longer
    assert log.store.counts == {"create": 1, "list": 1, **looks}
    log.store.counts.clear()
    assert log.newest(3) == 3
    assert log.store.counts == {"exists": 1, "list": 1}


@pytest.mark.parametrize("first_missing", [3, 5])
def test_append_is_taken_back_when_an_older_copy_of_the_log_was_put_back(log: Log, first_missing: int) -> None:
    fill(log, 1, 5)
    for number in range(first_missing, 6):
        log.store.delete(log.key(number))
    with pytest.raises(StoreRestored, match="older copy"):
        fill(log, 6, 6)
    assert log.span() == (1, first_missing - 1), "the log that was put back has no hole"
    fill(log, first_missing, first_missing)


def test_append_counts_when_its_predecessors_were_trimmed(log: Log) -> None:
    fill(log, 1, 5)
    log.trim(4)
    log.store.create(f"{log.prefix}/floor/{6:020d}", b"")
    log.store.delete(log.key(4))
    log.store.delete(log.key(5))
    fill(log, 6, 6)
    assert log.read(6) == entry("n6")


def test_everybody_who_has_a_log_open_stops_when_it_is_closed(log: Log) -> None:
    fill(log, 1, 3)
    log.close()
    log.close()
    for use in (
        lambda: fill(log, 4, 4),
        lambda: log.newest(3),
        log.span,
        lambda: log.is_entry(2),
        lambda: numbers(log),
    ):
        with pytest.raises(StoreRestored, match="start the process anew"):
            use()
