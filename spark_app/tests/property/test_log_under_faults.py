"""Logs and depots against a model, on a store that loses answers, delays writes and lets writers in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.depot import producers
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, retain, roll
from tidemill.depot.segment import Segment
from tidemill.language.dataflow import StartFrom
from tidemill.store.log import Log, Lost, SlotTrimmed
from tidemill.store.objects import AlreadyExists, Buffer
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values import columns
from tidemill.values.errors import BadInput, KeyReused, OutcomeUnknown, SequenceUnknown, StoreUnavailable

FAULTS = ["none"] * 6 + ["refuse", "lose_request", "lose_answer", "delay", "interrupt"]
PARTITIONS = 2
PATIENCE = (0.0, 0.0)
STARTS = st.sampled_from(
    [StartFrom("end"), StartFrom("beginning"), StartFrom("ago_records", 2), StartFrom("after_timestamp", 0)]
)


class Weather:
    """Decides the fate of each request; `interrupt` lets somebody else work first, one level deep."""

    def __init__(self, draw: Callable[[Any], Any], store: MemoryStore) -> None:
        self.draw = draw
        self.store = store
        self.is_stormy = True
        self.interrupt: Callable[[], None] = lambda: None
        self.late: list[tuple[str, bytes]] = []
        self._depth = 0

    def strike(self) -> str:
        if not self.is_stormy:
            return "none"
        fault = str(self.draw(st.sampled_from(FAULTS)))
        if fault == "interrupt":
            if self._depth == 0:
                self._depth += 1
                try:
                    self.interrupt()
                finally:
                    self._depth -= 1
            return "none"
        return fault

    def land(self) -> None:
        """Writes whose answer was lost long ago reach the store now, if their slot is still free."""
        while self.late:
            key, data = self.late.pop()
            try:
                self.store.create(key, data)
            except AlreadyExists:
                continue


class StormyStore(FaultyObjectStore):
    def __init__(self, weather: Weather) -> None:
        super().__init__(weather.store, FaultPlan(before=self._before))
        self.weather = weather

    def _before(self, verb: str, key: str) -> None:
        if verb != "create" and self.weather.strike() in ("refuse", "lose_answer"):
            raise StoreUnavailable("no answer")

    def create(self, key: str, data: Buffer) -> None:
        fault = self.weather.strike()
        if fault == "refuse":
            raise StoreUnavailable("refused")
        if fault == "delay":
            self.weather.late.append((key, bytes(data)))
        if fault in ("delay", "lose_request"):
            raise OutcomeUnknown("request lost")
        self.inner.create(key, data)
        if fault == "lose_answer":
            raise OutcomeUnknown("answer lost")


# --- the log ---------------------------------------------------------------------------------------------------------


class LogWriter:
    """Appends entries one after the other and remembers what it was told about each."""

    def __init__(self, name: str, log: Log, told: dict[str, str]) -> None:
        self.name = name
        self.log = log
        self.told = told
        self.known = 0
        self.count = 0

    def append(self) -> None:
        self.count += 1
        nonce = f"{self.name}{self.count}"
        try:
            self.known = self.log.newest(self.known)
            self.told[nonce] = "unknown"
            self.log.append(self.known + 1, json.dumps(nonce).encode(), nonce)
            self.told[nonce] = "done"
        except SlotTrimmed:
            self.told[nonce] = "unknown"
        except Lost:
            self.told[nonce] = "lost"
        except (StoreUnavailable, OutcomeUnknown) as error:
            self.told[nonce] = "lost" if isinstance(error, StoreUnavailable) else "unknown"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_log_holds_each_entry_as_its_writer_was_told_when_the_store_fails(data: st.DataObject) -> None:
    store = MemoryStore()
    weather = Weather(data.draw, store)
    stormy = Log(StormyStore(weather), "log", ".json", lambda data, _: json.loads(data), PATIENCE)
    calm = Log(store, "log", ".json", lambda data, _: json.loads(data), PATIENCE)
    told: dict[str, str] = {}
    seen: dict[int, str] = {}
    first, second = LogWriter("a", stormy, told), LogWriter("b", calm, told)

    def watch_and_trim() -> None:
        for number, entry in calm.follow(max(seen, default=0)):
            assert number not in seen
            seen[number] = json.loads(entry)
        calm.trim(max(seen, default=0))

    def others() -> None:
        for _ in range(data.draw(st.integers(1, 4))):
            data.draw(st.sampled_from([second.append, watch_and_trim, weather.land]))()

    weather.interrupt = others
    for _ in range(data.draw(st.integers(1, 6))):
        first.append()
    weather.is_stormy = False
    weather.land()
    watch_and_trim()
    counted = Counter(seen.values())
    for nonce, answer in told.items():
        allowed = {"done": {1}, "lost": {0}, "unknown": {0, 1}}[answer]
        # What was appended and trimmed between two looks of the watcher cannot happen: only the watcher trims.
        assert counted[nonce] in allowed, (nonce, answer, seen)
    assert sorted(seen) == list(range(1, len(seen) + 1))


# --- the depot -------------------------------------------------------------------------------------------------------


class Witness(MemoryStore):
    """A store that knows which records ever came into the log, and where to: an entry counts that is never below the
    floor when it is created.
    """

    def __init__(self) -> None:
        super().__init__()
        self.placed: dict[str, tuple[int, int]] = {}

    def create(self, key: str, data: Buffer) -> None:
        super().create(key, data)
        folder, _, name = key.rpartition("/")
        if folder == "d/log" and int(name.removesuffix(".arrow")) >= self._floor():
            self._note(Segment(pa.py_buffer(bytes(data))))

    def _floor(self) -> int:
        return max((int(key.rpartition("/")[2]) for key in self.list("d/log/floor")), default=1)

    def _note(self, segment: Segment) -> None:
        held = segment.header.held()
        for partition, row, first, end in zip(held.partition, held.row, held.start, held.end, strict=True):
            for at, record in enumerate(columns.to_values(segment.rows(int(row), int(end - first))), int(first)):
                assert record not in self.placed, record
                self.placed[record] = (int(partition), at)


class Model:
    """What clients were told about each record; records are unique strings. `sent` is what producers were told.

    `starts` are the logical starts as they are now, whatever the process that is asked has seen of them; `truth` is
    where each record went that ever came into the log.
    """

    def __init__(self, starts: Callable[[], tuple[int, ...]], truth: dict[str, tuple[int, int]]) -> None:
        self.starts = starts
        self.truth = truth
        self.placed: dict[str, tuple[int, int]] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.sent: list[tuple[Any, Any, Any]] = []
        self.count = 0

    def append(self, depot: DepotLog, draw: Callable[[Any], Any], producer: str | None) -> None:
        sizes = draw(st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 3)), min_size=1, max_size=3))
        batch = [(partition, self._records(size)) for partition, size in sizes]
        records = [record for _, values in batch for record in values]
        identity = (producer, self.count) if producer else None
        try:
            offsets = depot.append(batch, identity)
        except StoreUnavailable:
            self.refused.update(records)
        except OutcomeUnknown:
            self.unknown.update(records)
            if producer:
                self._insist(depot, batch, identity)
        else:
            self._place(batch, offsets)
            if producer:
                self.sent.append((batch, identity, offsets))

    def repeat(self, depot: DepotLog, draw: Callable[[Any], Any]) -> None:
        """What is in the depot stays there once, whoever repeats it; where it is may be deleted by now."""
        if self.sent:
            batch, identity, offsets = draw(st.sampled_from(self.sent))
            with suppress(StoreUnavailable, OutcomeUnknown):
                self.repeated(depot, batch, identity, offsets)

    def repeated(self, depot: DepotLog, batch: Any, identity: Any, offsets: Any) -> None:
        """It is told where it went, unless all of it is deleted: nothing is acknowledged that nobody knows."""
        try:
            again: Any = depot.append(batch, identity)
        except SequenceUnknown:
            again = ()
        assert again == offsets or (again == () and self._is_deleted(batch)), (again, offsets, self.starts())

    def _is_deleted(self, batch: Any) -> bool:
        """All its records were in the log and went."""
        starts = self.starts()
        places = [self.truth[record] for _, values in batch for record in values]
        return all(offset < starts[partition] for partition, offset in places)

    def _insist(self, depot: DepotLog, batch: Any, identity: Any) -> None:
        """An idempotent producer asks again until it is told: then its records are there exactly once."""
        try:
            offsets = depot.append(batch, identity)
        except (StoreUnavailable, OutcomeUnknown):
            return
        if offsets == ():
            assert self._is_deleted(batch), (batch, self.starts())
            return
        self.sent.append((batch, identity, offsets))
        self._place(batch, offsets)

    def _place(self, batch: Any, offsets: Any) -> None:
        at = {partition: start for partition, start, _ in offsets}
        for partition, values in batch:
            for record in values:
                self.placed[record] = (partition, at[partition])
                assert self.truth[record] == self.placed[record]
                at[partition] += 1

    def _records(self, size: int) -> list[str]:
        self.count += size
        return [f"r{self.count - i}" for i in range(size)]


class Depots:
    """Processes at one depot: one whose store fails, others that get in between; each may be a new one any time."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.store = Witness()
        self.weather = Weather(draw, self.store)
        self.weather.interrupt = self.others
        self.model = Model(lambda: self.opened(FaultyObjectStore(self.store)).starts(), self.store.placed)
        self.stormy = self.calm = self.opened(self.store)
        self.restart()

    def opened(self, store: Any) -> DepotLog:
        return DepotLog(store, "d", PARTITIONS, lambda: 0, PATIENCE)

    def restart(self) -> None:
        """New processes: their stores share no cache with those before."""
        self.stormy = self.opened(StormyStore(self.weather))
        self.calm = self.opened(FaultyObjectStore(self.store))

    def others(self) -> None:
        work = {
            "append": lambda: self.model.append(self.calm, self.draw, self.draw(st.sampled_from([None, "q", "key/b"]))),
            "repeat": lambda: self.model.repeat(self.calm, self.draw),
            "roll": lambda: roll(self.calm, RollingLimits(segments_min=1, segments_max=3)),
            "retain": lambda: retain(self.calm, 4, (99,) * PARTITIONS, grace_millis=0),
            "land": self.weather.land,
        }
        for _ in range(self.draw(st.integers(1, 4))):
            work[self.draw(st.sampled_from(sorted(work)))]()

    def step(self) -> None:
        work: dict[str, Callable[[], object]] = {
            "append": lambda: self.model.append(
                self.stormy, self.draw, self.draw(st.sampled_from([None, "p", "key/a"]))
            ),
            "repeat": lambda: self.model.repeat(self.stormy, self.draw),
            "restart": self.restart,
            "roll": lambda: roll(self.stormy, RollingLimits(segments_min=1, segments_max=3)),
            "retain": lambda: retain(self.stormy, 4, (99,) * PARTITIONS, grace_millis=0),
            "start": lambda: self.stormy.resolve_start(self.draw(STARTS), 0),
            "read": self.read,
        }
        with suppress(StoreUnavailable, OutcomeUnknown):
            work[self.draw(st.sampled_from(["append", *sorted(work)]))]()

    def read(self) -> None:
        """Whoever reads gets the records, or learns that they are no longer kept."""
        partition = self.draw(st.integers(0, PARTITIONS - 1))
        start, end = self.stormy.starts()[partition], self.stormy.ends()[partition]
        try:
            records = columns.to_values(self.stormy.read_columns(partition, start, end))
        except BadInput:
            assert start < self.model.starts()[partition]
        else:
            assert len(records) == end - start
            assert all(self.model.truth[record] == (partition, at) for at, record in enumerate(records, start))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_depot_holds_each_record_as_its_writer_was_told_when_the_store_fails(data: st.DataObject) -> None:
    with ExitStack() as stack:
        for name, values in (("TABLE_EVERY", [2, 3, 64]), ("SMALL_TABLE", [0, 1, 16])):
            stack.enter_context(patch.object(producers, name, data.draw(st.sampled_from(values))))
        depots = Depots(data.draw)
        for _ in range(data.draw(st.integers(1, 8))):
            depots.step()
        depots.weather.is_stormy = False
        depots.weather.land()
        for batch, identity, offsets in depots.model.sent:
            ends = depots.opened(FaultyObjectStore(depots.store)).ends()
            depots.restart()
            depots.model.repeated(depots.calm, batch, identity, offsets)
            with pytest.raises((KeyReused, SequenceUnknown)):
                depots.calm.append([(0, ["another"])], identity)
            assert depots.calm.ends() == ends
        check_depot(depots.store, depots.model)


def check_depot(store: MemoryStore, model: Model) -> None:
    depot = DepotLog(store, "d", PARTITIONS, lambda: 0, PATIENCE)
    starts = depot.starts()
    read = [columns.to_values(depot.read_columns(p, starts[p], end)) for p, end in enumerate(depot.ends())]
    counted = Counter(record for records in read for record in records)
    assert all(count == 1 for count in counted.values())
    kept = {record: at for record, at in model.truth.items() if at[1] >= starts[at[0]]}
    assert kept == {r: (p, at) for p, records in enumerate(read) for at, r in enumerate(records, starts[p])}
    assert not model.refused & set(model.truth)
    assert set(model.truth) <= set(model.placed) | model.unknown
