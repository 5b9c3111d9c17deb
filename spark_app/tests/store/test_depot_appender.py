"""Group commit: order, one segment for what waits, refusal, chunks, errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pytest

from tidemill.depot import appender as depot_appender
from tidemill.depot.appender import DepotAppender, chunks
from tidemill.depot.log import DepotLog
from tidemill.depot.rows import RECORD_BYTES_MAX, check_records, split_by_partition
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import BadInput, RecordRefused, StoreUnavailable
from tidemill.values.offsets import OffsetRanges
from tidemill.values.routing import route_column

PARTITIONS = 4
SECONDS_MAX = 20


class Gate:
    """Holds creates back until it is opened, and says when one waits there."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()

    def __call__(self, verb: str, key: str) -> None:
        if verb == "create":
            self.arrived.set()
            assert self.opened.wait(SECONDS_MAX)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def depot(gate: Gate) -> DepotLog:
    store = FaultyObjectStore(MemoryStore(), FaultPlan(before=gate))
    return DepotLog(store, "depot", PARTITIONS, lambda: 0, patience=(0.0,))


@pytest.fixture
def appender(depot: DepotLog) -> Iterator[DepotAppender]:
    appender = DepotAppender(depot)
    yield appender
    appender.close()


def route_first(column: Column, first: int = 0) -> Any:
    assert isinstance(column, columns.RecordColumn)
    return route_column(column.fields[0], PARTITIONS)


def records(depot: DepotLog) -> list[Any]:
    return [r for p, end in enumerate(depot.ends()) for r in columns.to_values(depot.read_columns(p, 0, end))]


def test_waiting_appends_share_a_segment_when_a_create_is_under_way(
    depot: DepotLog, appender: DepotAppender, gate: Gate
) -> None:
    first = appender.append_async(0, "first")
    assert gate.arrived.wait(SECONDS_MAX)
    rest = [appender.append_async(i % PARTITIONS, i) for i in range(100)]
    gate.opened.set()
    assert first.result(SECONDS_MAX) == ((0, 0, 1),)
    assert [future.result(SECONDS_MAX) for future in rest[:5]] == [
        ((0, 1, 2),), ((1, 0, 1),), ((2, 0, 1),), ((3, 0, 1),), ((0, 2, 3),)
    ]  # fmt: skip
    assert (depot.newest().number, depot.ends()) == (2, (26, 25, 25, 25))


def test_each_record_is_there_once_in_its_callers_order_when_threads_append(
    depot: DepotLog, appender: DepotAppender, gate: Gate
) -> None:
    gate.opened.set()

    def run(thread: int) -> None:
        for i in range(50):
            appender.append(thread % PARTITIONS, [thread, i])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    read = records(depot)
    for thread in range(8):
        assert [i for owner, i in read if owner == thread] == list(range(50))
    assert len(read) == 400


def test_offsets_come_back_when_a_sequence_is_repeated_in_one_group(appender: DepotAppender, gate: Gate) -> None:
    appender.append_async(0, "first")
    assert gate.arrived.wait(SECONDS_MAX)
    futures = [appender.append_async(1, "same", ("p", 7)) for _ in range(3)]
    gate.opened.set()
    assert {future.result(SECONDS_MAX) for future in futures} == {((1, 0, 1),)}


@pytest.mark.parametrize("record", [object(), lambda: 1, 2**64, "x" * (RECORD_BYTES_MAX + 1), {"a": [b"x" * 2**24]}])
def test_record_is_refused_when_it_is_no_data_or_huge(depot: DepotLog, appender: DepotAppender, record: Any) -> None:
    with pytest.raises(RecordRefused):
        appender.append_async(0, record)
    with pytest.raises(RecordRefused):
        appender.append_many([[1, record]], route_first)
    assert depot.newest().number == 0


def test_wide_record_is_refused_when_only_its_sum_is_huge() -> None:
    half = "x" * (RECORD_BYTES_MAX // 2)
    check_records(columns.from_values([[half, ""], ["", half]]))
    with pytest.raises(RecordRefused, match="Record 1 "):
        check_records(columns.from_values([[half, ""], [half, half]]))


@pytest.mark.parametrize("form", ["list", "frame", "column"])
def test_chunks_keep_all_records_when_many_are_appended(
    depot: DepotLog, appender: DepotAppender, gate: Gate, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depot_appender, "CHUNK_RECORDS", 300)
    monkeypatch.setattr(depot_appender, "_VALUES_CHUNK_RECORDS", 300)
    gate.opened.set()
    frame = pl.DataFrame({"k": np.arange(1000), "s": [f"s{i}" for i in range(1000)]})
    given: Any = {"list": frame.to_dicts(), "frame": frame, "column": columns.from_frame(frame)}[form]
    offsets = appender.append_many(given, route_first)
    assert len(offsets) == 4 >= depot.newest().number  # chunks that wait together are written together
    assert sorted(records(depot), key=lambda record: record["k"]) == frame.to_dicts()
    column, partitions = depot.read_rows(OffsetRanges.of((0, end) for end in depot.ends()))
    assert route_first(column).tolist() == partitions.tolist()


def test_nothing_is_appended_when_there_are_no_records(depot: DepotLog, appender: DepotAppender) -> None:
    assert appender.append_many([], route_first) == []
    assert appender.append_many(pl.DataFrame({"k": []}), route_first) == []
    assert appender.append_rows(split_by_partition([], np.array([]))).result(SECONDS_MAX) == ()
    assert list(chunks([])) == []
    assert depot.newest().number == 0


def test_callers_get_the_error_and_later_appends_work_when_the_store_was_away(gate: Gate) -> None:
    gate.opened.set()
    is_away = threading.Event()
    is_away.set()

    def before(verb: str, key: str) -> None:
        if is_away.is_set():
            raise StoreUnavailable("away")

    store = FaultyObjectStore(MemoryStore(), FaultPlan(before=before))
    appender = DepotAppender(DepotLog(store, "depot", PARTITIONS, lambda: 0, patience=(0.0,)))
    with pytest.raises(StoreUnavailable):
        appender.append(0, 1)
    is_away.clear()
    assert appender.append(0, 2) == ((0, 0, 1),)
    appender.close()
    with pytest.raises(BadInput, match="closed"):
        appender.append(0, 3)


def test_each_caller_is_told_its_own_count_when_a_group_is_refused_together(gate: Gate) -> None:
    writes: list[str] = []

    def before(verb: str, key: str) -> None:
        gate(verb, key)
        if verb == "create":
            writes.append(key)
            if len(writes) > 1:
                raise StoreUnavailable("away")

    store = FaultyObjectStore(MemoryStore(), FaultPlan(before=before))
    appender = DepotAppender(DepotLog(store, "depot", PARTITIONS, lambda: 0, patience=(0.0,)))
    with ThreadPoolExecutor(1) as threads:
        many = threads.submit(appender.append_many, columns.from_values([{"k": "a"}, {"k": "b"}]), route_first)
        assert gate.arrived.wait(SECONDS_MAX)
        other = [appender.append_async(0, number) for number in range(2)]
        more = threads.submit(appender.append_many, columns.from_values([{"k": "c"}]), route_first)
        gate.opened.set()
        many.result(SECONDS_MAX)
        error = more.exception(SECONDS_MAX)
    assert isinstance(error, StoreUnavailable)
    assert error.context == {"appended": 0}
    for future in other:
        found = future.exception(SECONDS_MAX)
        assert isinstance(found, StoreUnavailable)
        assert found.context == {}


def test_everything_handed_in_is_settled_when_closed(appender: DepotAppender, gate: Gate) -> None:
    futures = [appender.append_async(0, i) for i in range(10)]
    gate.opened.set()
    appender.close()
    assert all(future.done() for future in futures)


def test_an_append_is_left_out_when_it_was_cancelled_in_time(appender: DepotAppender, gate: Gate) -> None:
    first = appender.append_async(0, "first")
    assert gate.arrived.wait(SECONDS_MAX)
    waiting, last = appender.append_async(0, "waiting"), appender.append_async(0, "last")
    assert not first.cancel() and waiting.cancel()
    gate.opened.set()
    assert (first.result(SECONDS_MAX), last.result(SECONDS_MAX)) == (((0, 0, 1),), ((0, 1, 2),))
    assert columns.to_values(appender.depot.read_columns(0, 0, 2)) == ["first", "last"]
