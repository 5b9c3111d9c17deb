"""`depot.max.fetch`: what a read of a depot holds beside its records, and that it reads the same whatever the bound."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.depot import files
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.offsets import OffsetRanges

PARTITIONS = 3
PREFIX = "M/depots/d"
ALL = 10**9
TEXT = "a text that is longer than twelve bytes, number "


class Held(bytes):
    """The bytes of a segment; `now` counts those that somebody still holds."""

    now = 0
    peak = 0

    def __new__(cls, content: bytes) -> Held:
        made = super().__new__(cls, content)
        Held.now += len(made)
        Held.peak = max(Held.peak, Held.now)
        return made

    def __del__(self) -> None:
        Held.now -= len(self)


class HoldingStore(MemoryStore):
    def get(self, key: str) -> bytes:
        return Held(super().get(key))


def wide(kind: str, number: int) -> Any:
    made: dict[str, Any] = {
        "text": f"{TEXT}{number}",
        "number": number,
        "record": {"text": f"{TEXT}{number}", "count": number, "no": None, "flag": number % 2 == 0},
        "packed": [number, f"{TEXT}{number}"][number % 2],
    }
    return made[kind]


def partition_of_many(kind: str, segments: int, each: int) -> tuple[DepotLog, int, list[Any]]:
    """A depot, the bytes of its largest segment, and the records of its first partition."""
    store, records = HoldingStore("fetching"), []
    depot = DepotLog(store, PREFIX, PARTITIONS)
    for segment in range(segments):
        rows = [wide(kind, 1000 + segment * each + i) for i in range(each)]
        depot.append([(partition, rows) for partition in range(PARTITIONS)])
        records += rows
    return depot, max(len(content) for content in store.objects.values()), records


def read_first(depot: DepotLog, records: list[Any], fetch: int) -> tuple[int, int]:
    """The most bytes of segments that were held while a partition was read, and those that its result holds."""
    before = Held.peak = Held.now
    column, _ = depot.read_rows(OffsetRanges.of([(0, len(records)), (0, 0), (0, 0)]), None, fetch)
    assert columns.to_values(column) == records
    return Held.peak - before, Held.now - before


@pytest.fixture
def one_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment is kept for others but the last one."""
    monkeypatch.setattr(files, "_SEGMENTS_MAX", 1)


@pytest.mark.usefixtures("one_cached")
@pytest.mark.parametrize("kind", ["text", "number", "record"])
@pytest.mark.parametrize("fetch", [1, 20, 100, 250])
def test_few_segments_are_held_when_a_read_wants_a_part_of_each(kind: str, fetch: int) -> None:
    depot, size, records = partition_of_many(kind, segments=30, each=10)
    beside = 10 * (PARTITIONS - 1)
    peak, after = read_first(depot, records, fetch)
    assert 0 < peak <= size * (fetch // beside + 2), "so many, the one that is read, and the one before it"
    assert after <= size * (fetch // beside + 1)


@pytest.mark.usefixtures("one_cached")
def test_all_segments_are_held_when_the_bound_is_above_what_they_hold() -> None:
    """Without this, a count that is always low would pass the test above."""
    depot, size, records = partition_of_many("text", segments=30, each=10)
    peak, after = read_first(depot, records, ALL)
    assert min(peak, after) > 25 * size


@pytest.mark.usefixtures("one_cached")
def test_nothing_is_copied_when_whole_segments_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    depot, _, records = partition_of_many("text", segments=5, each=10)
    monkeypatch.setattr(columns, "owned", None)
    column, _ = depot.read_rows(OffsetRanges.of([(0, 50)] * PARTITIONS), None, 1)
    assert columns.to_values(column)[:10] == records[:10]


@pytest.mark.parametrize(("fetch", "largest"), [(1, 1), (7, 7), (1_000, 40)])
def test_packed_records_are_unpacked_so_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, fetch: int, largest: int
) -> None:
    depot, _, records = partition_of_many("packed", segments=2, each=40)
    to_list, lengths = pl.Series.to_list, []

    def counted(series: pl.Series) -> list[Any]:
        lengths.append(len(series))
        return to_list(series)

    monkeypatch.setattr(pl.Series, "to_list", counted)
    column, _ = depot.read_rows(OffsetRanges.of([(0, 80), (0, 0), (0, 0)]), None, fetch)
    assert column == records
    assert max(lengths) == largest


kinds = st.sampled_from(["text", "number", "record", "packed"])
segments = st.lists(st.tuples(kinds, st.tuples(*[st.integers(0, 4)] * PARTITIONS)), min_size=1, max_size=12)


@given(segments, st.data(), st.integers(0, 6))
def test_the_same_records_are_read_whatever_the_bound(written: list[Any], data: Any, rolled: int) -> None:
    store = MemoryStore("fetching")
    depot = DepotLog(store, PREFIX, PARTITIONS)
    held: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    for kind, counts in written:
        batch = [(p, [wide(kind, len(held[p]) + i) for i in range(count)]) for p, count in enumerate(counts) if count]
        for partition, rows in batch:
            held[partition] += rows
        if batch:
            depot.append(batch)
    if rolled > 1:
        roll(depot, RollingLimits(segments_min=1, segments_max=rolled, records_max=20))
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2))) for rows in held]
    ranges = [(start, end) for start, end in bounds]
    for fetch in (1, 2, 5, 9, ALL):
        column, partitions = depot.read_rows(OffsetRanges.of(ranges), None, fetch)
        found = list(zip(partitions.tolist(), columns.to_values(column), strict=True))
        for partition, (start, end) in enumerate(ranges):
            assert [row for p, row in found if p == partition] == held[partition][start:end]
