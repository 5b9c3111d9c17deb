"""Depots on a folder and on MinIO: offsets, reading, start-from, idempotent producers, rolling, retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from callable_clock import Clock

from tidemill.depot import producers
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, retain, roll
from tidemill.depot.rows import of_pairs, split_by_partition
from tidemill.language.dataflow import StartFrom
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import BadInput, CorruptState, OutcomeUnknown, StoreUnavailable
from tidemill.values.offsets import OffsetRanges

PREFIX = "Module/depots/*d-1"
PARTITIONS = 3
ALL = RollingLimits(segments_min=1)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000)


@pytest.fixture
def depot(store: ObjectStore, clock: Clock) -> DepotLog:
    return DepotLog(store, PREFIX, PARTITIONS, clock)


def again(depot: DepotLog) -> DepotLog:
    """The same depot as another process sees it."""
    return DepotLog(depot.files.store, PREFIX, PARTITIONS, depot.now_millis)


def records(depot: DepotLog) -> list[list[Any]]:
    depot.follow()
    return [columns.to_values(depot.read_columns(p, 0, end)) for p, end in enumerate(depot.ends())]


def test_records_come_back_by_partition_and_offset_when_appended(depot: DepotLog) -> None:
    assert depot.append([(1, ["a", "b"]), (0, [1]), (1, [None])]) == ((0, 0, 1), (1, 0, 3))
    assert depot.append([(1, [{"x": (1, 2)}])]) == ((1, 3, 4),)
    for seen in (depot, again(depot)):
        assert records(seen) == [[1], ["a", "b", None, {"x": [1, 2]}], []]
        assert columns.to_values(seen.read_columns(1, 2, 4)) == [None, {"x": [1, 2]}]
        assert (seen.ends(), seen.starts()) == ((1, 4, 0), (0, 0, 0))


@pytest.mark.parametrize(
    "values",
    [
        [1, None, -(2**63)],
        [1.5, float("inf"), None],
        ["", "é😀" * 20, None],
        [b"", b"\xff" * 40],
        [True, None],
        [datetime(2024, 1, 1, tzinfo=UTC), None],
        [[1, "a"], [2, None]],
        [(1, "a"), [2, "b"]],
        [{"k": 1, "v": [1, {"z": 2.5}]}, {"k": 2, "v": [3, {"z": 0.0}]}],
        [{"k": 1}, {"other": 2}, {}],
        [[], [1], [1, 2]],
        [{1, "a"}, {(1, 2): "tuple"}, None, 1, 1.5, True, "x"],
        [2**62, 1.0],
    ],
)
def test_records_are_equal_when_read_whatever_column_they_made(values: list[Any]) -> None:
    depot = DepotLog(MemoryStore(), PREFIX, PARTITIONS, Clock(1_000))
    depot.append([(2, values), (0, values[:1])])
    expected = [list(value) if isinstance(value, tuple) else value for value in values]
    read = columns.to_values(depot.read_columns(2, 0, len(values)))
    assert read == expected
    assert list(map(type, read)) == list(map(type, expected))
    assert columns.to_values(depot.read_columns(0, 0, 1)) == expected[:1]


def test_typed_columns_stay_typed_when_stored(depot: DepotLog) -> None:
    frame = pl.DataFrame({"key": np.arange(1000), "name": ["x" * (i % 30) for i in range(1000)]})
    column = columns.from_frame(frame)
    partitions = np.arange(1000) % PARTITIONS
    depot.append(split_by_partition(column, partitions))
    read, where = again(depot).read_rows(OffsetRanges.of((0, end) for end in depot.ends()))
    assert isinstance(read, columns.RecordColumn)
    assert pl.DataFrame(dict(zip(read.names, read.fields, strict=True))).sort("key").equals(frame)
    assert np.array_equal(where, np.sort(partitions))


def test_slice_of_a_large_text_column_stays_small_when_stored() -> None:
    text = pl.Series(["long enough to be kept in a shared buffer"] * 100_000)
    store = MemoryStore()
    DepotLog(store, PREFIX, PARTITIONS, Clock(1_000)).append([(0, text.slice(5, 100))])
    assert len(next(iter(store.objects.values()))) < 20_000


def test_range_is_read_from_several_segments_when_it_spans_them(depot: DepotLog) -> None:
    for number in range(6):
        depot.append([(number % 2, [number, number + 100])])
    ranges = OffsetRanges.of([(1, 5), (2, 3), (0, 0)])
    segments = depot.locate(ranges)
    assert segments == (1, 6)
    for given in (None, segments, (1, 7)):
        column, partitions = again(depot).read_rows(ranges, given)
        assert columns.to_values(column) == [100, 2, 102, 3, 4] and partitions.tolist() == [0, 0, 0, 1, 0]
    assert depot.locate(OffsetRanges.of([(4, 6), (0, 0), (0, 0)])) == (5, 6)
    assert depot.locate(OffsetRanges.of([(3, 3), (0, 0), (0, 0)])) == (0, 0)


def test_range_is_refused_when_there_are_no_such_offsets(depot: DepotLog) -> None:
    depot.append([(0, [1])])
    for start, end in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(BadInput, match="no range"):
            depot.read_columns(0, start, end)


def test_reader_sees_what_others_append_when_it_follows(depot: DepotLog) -> None:
    other = again(depot)
    assert other.follow() is False
    depot.append([(0, [1])])
    assert other.follow() is True
    assert other.follow() is False
    assert other.ends() == (1, 0, 0)
    other.append([(0, [2])])
    depot.append([(0, [3])])
    assert records(other)[0] == [1, 2, 3]


def test_depot_is_corrupt_when_a_segment_is_missing_or_broken(depot: DepotLog) -> None:
    for number in range(4):
        depot.append([(0, [number])])
    store = depot.files.store
    fresh = DepotLog(connect(store.url), PREFIX, PARTITIONS)
    store.delete(depot.files.log.key(2))
    with pytest.raises(CorruptState):
        fresh.read_columns(0, 0, 4, (1, 5))
    store.create(depot.files.log.key(2), b"garbage" * 100)
    with pytest.raises(CorruptState):
        fresh.read_columns(0, 0, 4, (1, 5))


def test_the_end_never_goes_back_when_a_follower_overtakes_an_append() -> None:
    store = MemoryStore("overtaken")
    other = DepotLog(store, PREFIX, PARTITIONS)

    def follow_on(verb: str, key: str) -> None:
        if verb == "create" and depot.ends()[0] == 0:
            other.append([(0, ["second"])])
            depot.follow()

    depot = DepotLog(FaultyObjectStore(store, FaultPlan(after=follow_on)), PREFIX, PARTITIONS)
    depot.append([(0, ["first"])])

    assert depot.ends()[0] == 2


def test_depot_is_refused_when_its_partitions_differ(depot: DepotLog) -> None:
    depot.append([(0, [1])])
    with pytest.raises(CorruptState, match="3 partitions, not 4"):
        DepotLog(depot.files.store, PREFIX, 4).ends()


# --- start-from ------------------------------------------------------------------------------------------------------


def test_start_is_resolved_when_by_time_offset_or_end(depot: DepotLog, clock: Clock) -> None:
    for millis in (1_000, 2_000, 2_000, 1_500, 3_000):  # one step back: segments keep the time of the one before
        clock.millis = millis
        depot.append([(0, [millis, millis]), (1, [millis])])

    def resolve(kind: Any, amount: int = 0, now: int = 0) -> tuple[int, ...]:
        return again(depot).resolve_start(StartFrom(kind, amount), now)

    assert resolve("end") == (10, 5, 0)
    assert resolve("beginning") == (0, 0, 0)
    after = {0: 0, 999: 0, 1_000: 1, 1_999: 1, 2_000: 4, 2_999: 4, 3_000: 5, 9_999: 5}
    for millis, segments in after.items():
        assert resolve("after_timestamp", millis) == (2 * segments, segments, 0)
        assert resolve("ago_millis", 10_000 - millis, now=10_000) == (2 * segments, segments, 0)
    assert resolve("ago_records", 3) == (7, 2, 0)
    assert resolve("ago_records", 100) == (0, 0, 0)
    roll(depot, ALL)
    for millis, segments in after.items():
        assert resolve("after_timestamp", millis) == (2 * segments, segments, 0)


# --- idempotent producers --------------------------------------------------------------------------------------------


def test_sequence_is_appended_once_when_repeated(depot: DepotLog) -> None:
    placed = [depot.append([(0, [i])], ("p", i)) for i in range(1, 6)]
    depot.append([(0, ["other"])], ("q", 1))
    for seen in (depot, again(depot)):
        assert [seen.append([(0, [i])], ("p", i)) for i in range(1, 6)] == placed
    roll(depot, ALL)
    fresh = DepotLog(connect(depot.files.store.url), PREFIX, PARTITIONS, depot.now_millis)
    assert [fresh.append([(0, [i])], ("p", i)) for i in range(1, 6)] == placed
    assert fresh.ends() == (6, 0, 0)


def test_repeat_is_known_when_a_clock_was_decades_ahead_in_between(depot: DepotLog, clock: Clock) -> None:
    names = ("p", "topology/1", "key/a")
    placed = [depot.append([(0, [name])], (name, 1)) for name in names]
    for jump in (315_576_000_000, -315_576_000_000):
        clock.millis += jump
        depot.append([(0, ["between"])])
        roll(depot, ALL)
    for seen in (depot, again(depot)):
        assert [seen.append([(0, [name])], (name, 1)) for name in names] == placed


# --- rolling ---------------------------------------------------------------------------------------------------------


def test_keys_used_last_are_remembered_when_there_are_many(depot: DepotLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "KEYS_MAX", 3)
    depot.append([(0, ["own"])], ("producer", 1))
    for sequence, name in enumerate(["a", "b", "c", "a", "d", "e"]):
        depot.append([(0, [name])], (f"key/{name}", sequence))
    known = set(depot.newest().sequences)
    assert "producer" in known and {"key/a", "key/d", "key/e"} <= known and "key/b" not in known
    before = depot.ends()
    depot.append([(0, ["a"])], ("key/a", 3))
    assert depot.ends() == before


def test_offsets_and_records_stay_when_segments_are_rolled(depot: DepotLog) -> None:
    for number in range(20):
        depot.append([(number % PARTITIONS, [number, {"n": number}]), (0, [f"extra {number}"])])
    before, reader = records(depot), again(depot)
    reader.ends()
    assert roll(depot, RollingLimits(segments_min=100)) == 0
    assert roll(depot, RollingLimits(segments_min=1, segments_max=10)) == 10
    assert roll(depot, RollingLimits(segments_min=1, records_max=9)) == 3
    assert roll(depot, ALL) == 5
    assert roll(depot, ALL) == 0
    assert len(depot.files.list_rolled()) == 3
    fresh = DepotLog(connect(depot.files.store.url), PREFIX, PARTITIONS)
    for seen in (depot, reader, fresh):
        assert records(seen) == before
        assert seen.locate(OffsetRanges.of([(0, 0), (2, 3), (0, 0)])) == (5, 6)
        assert columns.to_values(seen.read_columns(1, 2, 3, (5, 6))) == [4]
    fresh.append([(0, ["more"])])
    assert records(fresh)[0][-1] == "more"


@pytest.mark.parametrize("step", range(4))
def test_roll_is_finished_when_it_was_cut_off(step: int) -> None:
    store = MemoryStore()
    depot = DepotLog(store, PREFIX, PARTITIONS, Clock(1_000))
    for number in range(8):
        depot.append([(0, [number])])
    changes: list[str] = []

    class Cut(BaseException):
        pass

    def cut(verb: str, key: str) -> None:
        if verb in ("create", "delete"):
            changes.append(key)
            if len(changes) > step:
                raise Cut

    with pytest.raises(Cut):
        roll(DepotLog(FaultyObjectStore(store, FaultPlan(before=cut)), PREFIX, PARTITIONS), ALL)
    assert records(again(depot))[0] == list(range(8))
    again(depot).append([(0, [8])])
    roll(again(depot), ALL)
    assert records(DepotLog(store, PREFIX, PARTITIONS))[0] == list(range(9))
    assert depot.files.log.span() == (8, 9)


def sleeping_append(store: MemoryStore, meanwhile: Callable[[], None]) -> DepotLog:
    """A depot whose appends sleep between the create of a segment and the check of the log."""
    created: list[str] = []

    def after(verb: str, key: str) -> None:
        if verb == "create" and not created:
            created.append(key)
            meanwhile()

    return DepotLog(FaultyObjectStore(store, FaultPlan(after=after)), PREFIX, PARTITIONS, Clock(1_000))


def test_records_are_read_once_when_their_segments_are_rolled_between_two_reads() -> None:
    store = MemoryStore()
    depot = DepotLog(store, PREFIX, PARTITIONS, Clock(1_000))
    for number in range(6):
        depot.append([(0, [number])])
    reader = DepotLog(FaultyObjectStore(store), PREFIX, PARTITIONS)  # a process of its own: it shares no cache
    assert columns.to_values(reader.read_columns(0, 2, 3)) == [2]
    roll(depot, RollingLimits(segments_min=1, segments_max=4))
    assert columns.to_values(reader.read_columns(0, 2, 6)) == [2, 3, 4, 5]


def test_append_is_done_when_its_segment_was_rolled_before_it_was_checked() -> None:
    store = MemoryStore()
    depot = DepotLog(store, PREFIX, PARTITIONS, Clock(1_000))
    depot.append([(0, ["first"])])

    def others() -> None:
        for number in range(3):
            again(depot).append([(0, [number])])
        roll(again(depot), ALL)

    assert sleeping_append(store, others).append([(0, ["slept"])]) == ((0, 1, 2),)
    assert records(again(depot))[0] == ["first", "slept", 0, 1, 2]


def test_outcome_is_unknown_when_the_store_is_away_just_when_a_stalled_writer_wakes() -> None:
    store = MemoryStore()
    depot = DepotLog(store, PREFIX, PARTITIONS, Clock(1_000))
    depot.append([(0, ["first"])])

    def others() -> None:
        for number in range(3):
            again(depot).append([(0, [number])])
        roll(again(depot), ALL)
        stalled.files.store.plan.before = away  # type: ignore[attr-defined]

    def away(verb: str, key: str) -> None:
        if "/rolled" in key:
            raise StoreUnavailable("away")

    stalled = sleeping_append(store, others)
    with pytest.raises(OutcomeUnknown):
        stalled.append([(0, ["slept"])])


def test_append_goes_to_the_end_when_its_writer_slept_through_a_roll() -> None:
    store = MemoryStore()
    depot = DepotLog(store, PREFIX, PARTITIONS, Clock(1_000))
    depot.append([(0, ["first"])])
    stalled = again(depot)
    assert stalled.ends() == (1, 0, 0)
    for number in range(4):
        depot.append([(0, [number])])
    roll(depot, ALL)
    assert stalled.append([(0, ["slept"])]) == ((0, 5, 6),)
    assert records(DepotLog(store, PREFIX, PARTITIONS))[0] == ["first", 0, 1, 2, 3, "slept"]


def test_outcome_is_unknown_when_all_traces_of_an_append_are_deleted() -> None:
    store = MemoryStore()
    clock = Clock(1_000)
    depot = DepotLog(store, PREFIX, PARTITIONS, clock)
    depot.append([(0, ["first"])])

    def others() -> None:
        for number in range(4):
            depot.follow()
            depot.append([(0, [number])])
        assert retain(depot, 1, depot.ends(), grace_millis=0) > 0

    with pytest.raises(OutcomeUnknown):
        sleeping_append(store, others).append([(0, ["slept"])])


# --- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_rolled", [False, True])
def test_oldest_records_go_when_retention_allows(depot: DepotLog, clock: Clock, is_rolled: bool) -> None:
    for number in range(20):
        depot.append([(0, [number]), (1, [number])])
    if is_rolled:
        for _ in range(3):
            roll(depot, RollingLimits(segments_min=1, segments_max=4))
    keys = set(depot.files.store.list(""))
    assert retain(depot, 5, needed=(20, 3, 0), excess=10.0) == 0
    assert depot.starts() == (0, 0, 0)
    assert retain(depot, 5, needed=(20, 3, 0), grace_millis=1_000) == 0
    assert depot.starts() == again(depot).starts() == (15, 3, 0)
    assert again(depot).resolve_start(StartFrom("beginning"), 0) == (15, 3, 0)
    assert keys < set(depot.files.store.list(""))
    assert columns.to_values(depot.read_columns(0, 0, 20)) == list(range(20))  # deleted only after the grace
    retain(depot, 5, needed=(20, 20, 0), grace_millis=1_000)
    clock.millis += 1_000
    assert retain(depot, 5, needed=(20, 20, 0), grace_millis=1_000) > 0
    assert depot.starts() == (15, 15, 0)
    fresh = DepotLog(connect(depot.files.store.url), PREFIX, PARTITIONS, clock)
    assert columns.to_values(fresh.read_columns(0, 15, 20)) == [15, 16, 17, 18, 19]
    with pytest.raises(BadInput, match="no longer kept"):
        fresh.read_columns(0, 0, 5)
    assert fresh.resolve_start(StartFrom("after_timestamp", 0), 0) == (15, 15, 0)
    fresh.append([(0, ["new"])])
    assert fresh.ends() == (21, 20, 0)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_order_within_a_partition_stays_when_rows_are_split() -> None:
    values = [f"r{i}" for i in range(50)]
    partitions = np.array([i * 7 % PARTITIONS for i in range(50)])
    rows = split_by_partition(values, partitions)
    flat: list[Any] = columns.to_values(rows.column)
    assert flat == [v for p in range(PARTITIONS) for v, at in zip(values, partitions, strict=True) if at == p]
    assert rows.counts == tuple((p, int((partitions == p).sum())) for p in range(PARTITIONS))


def test_rows_of_pairs_meet_when_columns_differ() -> None:
    pairs: list[tuple[int, Column]] = [(1, pl.Series([1, 2])), (0, ["x"]), (1, [3])]
    rows = of_pairs(pairs)
    assert (columns.to_values(rows.column), rows.counts) == (["x", 1, 2, 3], ((0, 1), (1, 3)))
