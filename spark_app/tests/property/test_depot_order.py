"""A graph reads a depot in the order of its appends, also where many segments were made one object."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.graphs.inputs import depot_input
from tidemill.graphs.inputs.depot_input import DepotInput
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.offsets import OffsetRanges

PARTITIONS = 4
Appends = list[dict[int, int]]
appends = st.lists(st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(1, 3), min_size=1), max_size=15)
"""For each append the number of records in partitions."""


def depot_of(written: Appends) -> tuple[MemoryStore, list[int]]:
    """A depot of numbered records, and their numbers in the order in which a graph reads them."""
    store, last = MemoryStore("order"), 0
    depot = DepotLog(store, "d", PARTITIONS)
    for append in written:
        batch: list[tuple[int, list[Any]]] = []
        for partition, count in sorted(append.items()):
            batch.append((partition, [{"n": n} for n in range(last, last + count)]))
            last += count
        depot.append(batch)
    return store, list(range(last))


def read(store: MemoryStore, channels: int = 1) -> list[list[int]]:
    """What each channel reads, in batches that are small."""
    reader = DepotInput("", "M", "d", "d", (0,) * PARTITIONS, log_of(store).ends())
    vars(reader)["_log"] = log_of(store)
    found = []
    for cursor in reader.plan(channels):
        numbers: list[int] = []
        while cursor is not None:
            frame, cursor = reader.read(cursor)
            numbers += [] if frame is None else frame["n"].to_list()
        found.append(numbers)
    return found


def log_of(store: MemoryStore) -> DepotLog:
    """The depot as another process finds it, which has read no segment yet."""
    again = MemoryStore("order")
    again.objects = store.objects
    log = DepotLog(again, "d", PARTITIONS)
    log.follow()
    return log


@given(appends, st.integers(1, 3), st.integers(1, 8), st.integers(1, 20))
def test_records_come_in_the_order_of_their_appends_when_segments_are_rolled(
    written: Appends, channels: int, batch: int, segments: int
) -> None:
    store, expected = depot_of(written)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depot_input, "BATCH_RECORDS", batch)
        before = read(store, channels)
        roll(log_of(store), RollingLimits(segments_min=1, segments_max=segments))
        roll(log_of(store), RollingLimits(segments_min=1, segments_max=segments))
        assert read(store, channels) == before
    if channels == 1 and batch == 8:  # no append has more of a partition
        assert before == [expected]


def test_records_come_in_the_order_of_their_appends_when_a_batch_has_more_than_enough_of_a_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch takes whole segments, also where that makes it larger."""
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 8)
    store, expected = depot_of([{2: 3}, {2: 3}, {0: 1, 2: 3, 3: 1}])
    assert read(store) == [expected]


def test_records_come_by_partition_when_a_microbatch_reads_a_rolled_depot() -> None:
    store, _ = depot_of([{0: 1, 1: 1}] * 6)
    roll(log_of(store), RollingLimits(segments_min=1))
    log = log_of(store)
    column, partitions = log.read_rows(OffsetRanges.of([(0, 4), (0, 4), (0, 0), (0, 0)]))
    assert partitions.tolist() == [0] * 4 + [1] * 4
    assert [row["n"] for row in columns.to_values(column)] == [0, 2, 4, 6, 1, 3, 5, 7]
