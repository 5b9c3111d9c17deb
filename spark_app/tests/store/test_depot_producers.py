"""What idempotent producers appended last is known whoever looks, whatever was rolled, deleted or written meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.depot import producers, record_reader
from tidemill.depot.commit import SegmentBatch
from tidemill.depot.header import Offsets
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, retain, roll
from tidemill.depot.rows import of_pairs
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.errors import CorruptState, KeyReused, SequenceUnknown, StoreUnavailable

EVERY = 4
ALL = RollingLimits(segments_min=1)


@pytest.fixture(autouse=True)
def _tables_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "TABLE_EVERY", EVERY)
    monkeypatch.setattr(producers, "SMALL_TABLE", 0)


def process(store: MemoryStore, plan: FaultPlan | None = None) -> DepotLog:
    """The depot as a new process sees it, which shares no cache."""
    return DepotLog(FaultyObjectStore(store, plan), "d", 1, lambda: 0, ())


def send(depot: DepotLog, name: str, sequence: int = 1) -> Offsets:
    return depot.append([(0, [f"{name} {sequence}"])], (name, sequence))


def records(store: MemoryStore) -> list[Any]:
    depot = process(store)
    depot.follow()
    (start,), (end,) = depot.starts(), depot.ends()
    return columns.to_values(depot.read_columns(0, start, end))


def test_few_segments_carry_the_table_when_many_producers_append() -> None:
    depot = process(MemoryStore())
    for number in range(1, 3 * EVERY + 1):
        send(depot, f"p{number}")
    headers = [depot.files.header(number) for number in range(1, 3 * EVERY + 1)]
    assert [header.number for header in headers if header.is_full] == [EVERY, 2 * EVERY, 3 * EVERY]
    assert [len(header.sequences) for header in headers] == [0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 12]
    assert [header.table_at for header in headers] == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]


def test_each_segment_carries_the_table_when_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "SMALL_TABLE", 2)
    depot = process(MemoryStore())
    for number in range(5):
        send(depot, "pq"[number % 2], number)
    assert all(depot.files.header(number).is_full for number in range(1, 6))
    send(depot, "r")
    assert not depot.newest().is_full


@pytest.mark.parametrize("count", range(1, 3 * EVERY))
@pytest.mark.parametrize("rolled", [0, 1, 3, 100])
def test_nothing_is_appended_again_when_another_process_repeats_it(count: int, rolled: int) -> None:
    store = MemoryStore()
    first = process(store)
    placed = {(f"p{number % 3}", number): send(first, f"p{number % 3}", number) for number in range(count)}
    if rolled:
        roll(process(store), RollingLimits(segments_min=1, segments_max=rolled))
        roll(process(store), RollingLimits(segments_min=1, segments_max=rolled))
    second = process(store)
    for (name, sequence), offsets in placed.items():
        assert send(second, name, sequence) == offsets
        assert send(process(store), name, sequence) == offsets
    assert second.newest().number == count
    assert send(second, "p0", count) == ((0, count, count + 1),)


def test_both_are_known_when_two_processes_append_in_turns() -> None:
    store = MemoryStore()
    pair = process(store), process(store)
    for number in range(3 * EVERY):
        send(pair[number % 2], f"p{number % 2}", number)
        send(pair[(number + 1) % 2], f"p{number % 2}", number)
    assert len(records(store)) == len(set(records(store))) == 3 * EVERY


def test_segments_without_producers_read_nothing_when_they_pass_the_table_on() -> None:
    store = MemoryStore()
    send(process(store), "p")
    asked: list[str] = []
    depot = process(store, FaultPlan(before=lambda verb, key: asked.append(key) if verb == "get" else None))
    for number in range(EVERY - 2):
        depot.append([(0, [number])])
    assert asked == [depot.files.log.key(1)]


def test_the_table_stays_when_retention_deletes_all_records() -> None:
    store = MemoryStore()
    depot = process(store)
    for number in range(EVERY - 1):
        send(depot, f"p{number}")
    retain(depot, 0, (99,), grace_millis=0)
    for name in ("empty", "void"):  # no records: what retention measures does not grow
        depot.append_group([SegmentBatch(of_pairs([]), (name, 1))])
    retain(process(store), 0, (99,), grace_millis=0)
    assert process(store).files.log.span()[0] == process(store).newest().table_at == EVERY
    for number in range(EVERY - 1):
        assert send(process(store), f"p{number}") == ()  # known, though its records are gone
    assert process(store).ends() == (EVERY - 1,)


def test_a_late_process_goes_on_when_the_table_that_it_saw_is_deleted() -> None:
    store = MemoryStore()
    depot = process(store)
    for number in range(EVERY + 2):
        send(depot, f"p{number}")
    late = process(store)
    assert late.newest().table_at == EVERY
    for number in range(10, 10 + EVERY):
        send(depot, f"p{number}")
    retain(depot, 1, (99,), grace_millis=0)
    retain(depot, 1, (99,), grace_millis=0)
    assert depot.files.log.span()[0] > EVERY
    ends = depot.ends()
    assert send(late, "p0") == () and send(late, "p11") == ()
    assert late.ends() == ends


def test_append_is_refused_when_somebody_deleted_what_the_table_needs() -> None:
    store = MemoryStore()
    for number in range(EVERY - 2):
        send(process(store), f"p{number}")
    depot = process(store)
    depot.follow()
    store.delete(depot.files.log.key(1))
    with pytest.raises(CorruptState, match="hold its producers, but 1 is missing"):
        send(depot, "p0")
    depot.append([(0, ["of nobody"])])  # other appends do not need it before the table is due


def test_nothing_is_appended_when_the_table_cannot_be_read() -> None:
    store = MemoryStore()
    for number in range(EVERY - 1):
        send(process(store), f"p{number}")
    depot = process(store)
    depot.follow()

    def away(verb: str, key: str) -> None:
        raise StoreUnavailable("away")

    depot.files.store.plan.before = away  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable):
        send(depot, "new")
    depot.files.store.plan.before = lambda verb, key: None  # type: ignore[attr-defined]
    assert send(depot, "p1") == ((0, 1, 2),)


def test_repeat_is_refused_when_its_records_are_gone_and_it_was_not_the_last() -> None:
    store = MemoryStore()
    depot = process(store)
    for number in range(1, EVERY + 1):
        send(depot, "p", number)
    for _ in range(2):
        retain(process(store), 0, (99,), grace_millis=0)
    process(store).append_group([SegmentBatch(of_pairs([]), ("other", 1))])
    retain(process(store), 0, (99,), grace_millis=0)
    assert send(process(store), "p", EVERY) == (), "its digest is with the producer"
    with pytest.raises(KeyReused):
        process(store).append([(0, ["another"])], ("p", EVERY))
    with pytest.raises(SequenceUnknown, match=f"has the number {EVERY}; of number 1 nothing is known"):
        send(process(store), "p", 1)


def test_search_for_a_repeat_ends_when_it_is_too_far_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_reader, "PAST_MAX", 3)
    store = MemoryStore()
    depot = process(store)
    for number in range(10):
        send(depot, "p", number)
    assert send(depot, "p", 7) == ((0, 7, 8),)
    with pytest.raises(SequenceUnknown):
        send(depot, "p", 6)


def test_numbered_producers_stay_when_keys_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "KEYS_MAX", 3)
    store = MemoryStore()
    depot = process(store)
    for number in range(2):
        send(depot, "key/numbered", number)
    for number in range(20):
        send(depot, f"key/{number}", 0)
    late = process(store)
    assert send(late, "key/numbered", 1) == ((0, 1, 2),)
    assert send(late, "key/19", 0) == ((0, 21, 22),)
    assert send(late, "key/0", 0) == ((0, 22, 23),), "forgotten: three others came after it"


@pytest.mark.parametrize("rolled", [3, 7])
def test_records_stay_when_two_processes_roll_at_once(rolled: int) -> None:
    store = MemoryStore()
    for number in range(6):
        send(process(store), f"p{number}")
    done: list[int] = []

    def other(verb: str, key: str) -> None:
        if verb == "get" and not done:
            done.append(0)
            for number in range(6, 9):
                send(process(store), f"p{number}")
            done[0] = roll(process(store), RollingLimits(segments_min=1, segments_max=rolled))

    roll(process(store, FaultPlan(before=other)), ALL)
    assert done == [rolled]
    assert records(store) == [f"p{number} 1" for number in range(9)]
    for number in range(9):
        assert send(process(store), f"p{number}") == ((0, number, number + 1),)


def test_it_is_appended_once_when_its_writer_slept_while_it_was_rolled() -> None:
    store = MemoryStore()
    send(process(store), "p0")
    slept: list[str] = []

    def others(verb: str, key: str) -> None:
        if verb == "create" and not slept:
            slept.append(key)
            for number in range(2 * EVERY):
                send(process(store), f"q{number}")
            roll(process(store), ALL)

    stalled = process(store, FaultPlan(after=others))
    assert send(stalled, "p1") == send(stalled, "p1") == ((0, 1, 2),)
    assert send(stalled, "q3") == ((0, 5, 6),)
    assert len(records(store)) == len(set(records(store))) == 2 + 2 * EVERY


# --- crashes ---------------------------------------------------------------------------------------------------------


def cut_at(write: int, moment: str) -> FaultPlan:
    """The process dies before or after this write."""
    writes: list[str] = []

    def count(verb: str, key: str) -> None:
        if verb in ("create", "delete"):
            writes.append(key)
            if len(writes) == write:
                raise Crash

    return FaultPlan(**{moment: count})  # type: ignore[arg-type]


def work(depot: DepotLog) -> Iterator[str]:
    """Keyed appends, rolling and retention; what was sent, before it is."""
    for number in range(4 * EVERY):
        name = f"key/{number % 5}" if number % 2 else f"p{number % 3}"
        yield f"{name} {number}"
        send(depot, name, number)
        if number % 5 == 4:
            roll(depot, RollingLimits(segments_min=2, segments_max=3))
        if number % 7 == 6:
            retain(depot, 3, (99,), grace_millis=0)


def writes_of_work() -> int:
    store = MemoryStore()
    counted: list[str] = []
    plan = FaultPlan(before=lambda verb, key: counted.append(key) if verb in ("create", "delete") else None)
    for _ in work(process(store, plan)):
        pass
    return len(counted)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_each_append_is_done_once_when_the_process_dies_at_any_write(moment: str) -> None:
    total = writes_of_work()
    assert total > 30
    for write in range(1, total + 1):
        store = MemoryStore()
        sent: list[str] = []
        with pytest.raises(Crash):
            sent.extend(work(process(store, cut_at(write, moment))))
        name, _, sequence = sent[-1].partition(" ")
        send(process(store), name, int(sequence))  # its client repeats it
        (end,) = process(store).ends()
        assert (write, end) == (write, len(sent))
        kept = records(store)
        assert kept == sent[len(sent) - len(kept) :]
