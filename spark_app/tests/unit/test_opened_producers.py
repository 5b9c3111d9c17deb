"""Producers that one process at a time may use: an opening shuts out whoever opened them before (R8)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path as Folder
from typing import Any

import httpx2 as httpx
import pytest
from gateways import WAYS, launched

from tidemill import BadInput, Depot, Fenced, InProcessCluster, LaunchConfig, Module, OutcomeUnknown, RecordRefused
from tidemill.depot import epochs, producers
from tidemill.depot.log import DepotLog
from tidemill.store.urls import connect
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.values.data import INT_MAX
from tidemill.values.errors import KeyReused, SequenceUnknown, StoreUnavailable
from tidemill.values.numbers import EPOCH_APPENDS


class Pings(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pings", Depot.random())
        setup.declare_depot("*closed", Depot.disallow())
        setup.declare_tick_depot("*ticks", 3_600_000)


@pytest.fixture(params=WAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    with launched(request.param, Pings(), LaunchConfig(1, 1)) as found:
        yield found


@pytest.fixture
def depot(cluster: Any) -> Any:
    return cluster.cluster_depot("Pings", "*pings")


def records(depot: Any) -> list[Any]:
    info = depot.get_partition_info(0)
    found: list[Any] = depot.read(0, info.start_offset, info.end_offset)
    return found


def test_no_append_is_acknowledged_and_not_stored_when_two_use_one_name(depot: Any) -> None:
    """Equal records under equal numbers, as two copies of one program append them."""
    acknowledged = 0
    first, second = depot.open_producer("sensor"), None
    for number in range(20):
        second = depot.open_producer("sensor") if number == 10 else second
        for producer in filter(None, (first, second)):
            try:
                producer.append({"ping": 1})
                acknowledged += 1
            except Fenced:
                assert producer is first
    assert len(records(depot)) == acknowledged == 20


def test_no_append_is_acknowledged_and_not_stored_when_a_depot_forgot_the_producer_and_it_is_opened_again(
    depot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "KEYS_MAX", 1)
    old = depot.open_producer("sensor")
    depot.open_producer("other")
    new = depot.open_producer("sensor")
    assert old.epoch == new.epoch == 1
    acknowledged = 0
    for producer in (new, old, old, new) * 5:
        with suppress(Fenced):
            producer.append({"ping": 1})
            acknowledged += 1
    assert len(records(depot)) == acknowledged


@pytest.mark.parametrize(("way", "last"), [("process", INT_MAX), ("http", 2**53 - 1)])
def test_producer_is_refused_when_no_epoch_is_left_above_its_last_number(way: str, last: int) -> None:
    with launched(way, Pings(), LaunchConfig(1, 1)) as cluster:
        depot = cluster.cluster_depot("Pings", "*pings")
        depot.append("a", producer="p", sequence=last - EPOCH_APPENDS)
        depot.open_producer("p").append("b")
        with pytest.raises(BadInput, match=r"'p' has the number \d+: no epoch is left above it\. Open another name"):
            depot.open_producer("p")
        depot.append("c", producer="p", sequence=last)
        assert records(depot) == ["a", "b", "c"]


def test_who_opened_it_before_is_told_when_a_producer_is_opened_again(depot: Any) -> None:
    old = depot.open_producer("importer")
    old.append_many([1, 2])
    new = depot.open_producer("importer")
    with pytest.raises(Fenced, match=r"Another process opened the producer 'importer' of \*pings"):
        old.append(3)
    new.append(4)
    for _ in range(2):
        with pytest.raises(Fenced):
            old.append_many([5, 6])
    assert (old.epoch, new.epoch) == (1, 2)
    assert repr(new) == "DepotProducer('*pings', 'importer', epoch=2)"
    assert records(depot) == [1, 2, 4]


def test_own_numbers_are_refused_when_the_producer_was_opened(depot: Any) -> None:
    depot.append("a", producer="p", sequence=7)
    depot.open_producer("p")
    depot.append("a", producer="p", sequence=7)
    with pytest.raises(SequenceUnknown):
        depot.append("b", producer="p", sequence=8)
    assert records(depot) == ["a"]


def test_other_producers_go_on_when_one_is_opened(depot: Any) -> None:
    one, other = depot.open_producer("one"), depot.open_producer("other")
    depot.open_producer("one")
    other.append("x")
    assert records(depot) == ["x"]
    with pytest.raises(Fenced):
        one.append("y")


@pytest.mark.parametrize("name", ["", 5, None, "\ud800"])
def test_producer_is_refused_when_it_has_no_name(depot: Any, name: Any) -> None:
    with pytest.raises(BadInput):
        depot.open_producer(name)
    if name is not None:
        with pytest.raises(BadInput):
            depot.append("a", producer=name, sequence=1)


@pytest.mark.parametrize("name", ["topology/1f", "key/sensor"])
@pytest.mark.parametrize(
    "use",
    [
        lambda depot, name: depot.open_producer(name),
        lambda depot, name: depot.append({"ping": 1}, producer=name, sequence=1),
        lambda depot, name: depot.append_async({"ping": 1}, producer=name, sequence=1),
        lambda depot, name: depot.append_many([{"ping": 1}], producer=name, sequence=1),
    ],
    ids=["opened", "append", "append_async", "append_many"],
)
def test_name_is_refused_when_it_is_one_of_a_topology_or_a_client(name: str, use: Any) -> None:
    with launched("process", Pings(), LaunchConfig(1, 1)) as cluster:
        depot = cluster.cluster_depot("Pings", "*pings")
        with pytest.raises(BadInput, match="Call it otherwise"):
            use(depot, name)
        assert records(depot) == []


@pytest.mark.parametrize("name", ["*closed", "*ticks"])
def test_producer_is_refused_when_the_depot_takes_no_appends(cluster: Any, name: str) -> None:
    with pytest.raises(RecordRefused, match=r"cannot (append to it|be appended to)"):
        cluster.cluster_depot("Pings", name).open_producer("p")


def test_epochs_differ_when_many_open_one_name_at_once(depot: Any) -> None:
    epochs_seen: list[int] = []

    def open_some() -> None:
        epochs_seen.extend(depot.open_producer("shared").epoch for _ in range(5))

    threads = [threading.Thread(target=open_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs_seen) == list(range(1, 21))


def test_producer_of_a_gateway_goes_on_when_its_name_is_opened_in_the_process() -> None:
    """As the guide says: their names are apart, as those of their numbered appends are."""
    with launched("http", Pings(), LaunchConfig(1, 1)) as cluster:
        through_gateway = cluster.cluster_depot("Pings", "*pings").open_producer("p")
        depot = cluster._cluster.cluster_depot("Pings", "*pings")
        depot.open_producer("p").append("a")
        through_gateway.append("b")
        assert records(depot) == ["a", "b"]


def test_who_opened_it_before_is_refused_when_the_name_was_opened_in_quotes() -> None:
    """As an Idempotency-Key may be written."""
    with launched("http", Pings(), LaunchConfig(1, 1)) as cluster:
        depot = f"{cluster.client._connection.url}/api/v1/modules/Pings/depots/*pings"

        def appended(number: int) -> int:
            headers = {"idempotency-key": '"sensor"', "idempotency-sequence": str(number)}
            return httpx.post(f"{depot}/append", json={"record": number}, headers=headers).status_code

        old, new = (httpx.post(f"{depot}/producers", json={"producer": '"sensor"'}).json() for _ in range(2))
        assert new["producer"] == "sensor"
        assert [appended(opened["sequence"] + 1) for opened in (old, new)] == [422, 200]


class Lossy:
    """A depot whose first calls end in errors; the first one's record may arrive all the same."""

    name = "*pings"

    def __init__(self, depot: Any, arrives: bool, *errors: type[BaseException]) -> None:
        self.depot, self.arrives, self.errors, self.calls = depot, arrives, errors, 0

    def append(self, record: Any, *, producer: str, sequence: int) -> Any:
        self._lose(lambda given: self.depot.append(given, producer=producer, sequence=sequence), record)

    def append_many(self, records: Any, *, producer: str, sequence: int) -> Any:
        self._lose(lambda given: self.depot.append_many(given, producer=producer, sequence=sequence), list(records))

    def _lose(self, append: Any, given: Any) -> None:
        self.calls += 1
        is_lost = self.calls <= len(self.errors)
        if not is_lost or (self.arrives and self.calls == 1):
            append(given)
        if is_lost:
            raise self.errors[self.calls - 1]("no answer")


@pytest.mark.parametrize(
    ("arrives", "error"), [(True, OutcomeUnknown), (False, OutcomeUnknown), (False, StoreUnavailable)]
)
def test_record_is_there_once_when_its_answer_was_lost_and_it_is_repeated(
    depot: Any, arrives: bool, error: type[Exception]
) -> None:
    producer = depot.open_producer("p")
    producer._depot = Lossy(depot, arrives, error)
    with pytest.raises(error):
        producer.append("a")
    producer.repeat()
    with pytest.raises(BadInput, match="none to repeat"):
        producer.repeat()
    producer.append("b")
    assert records(depot) == ["a", "b"]


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("error", [OutcomeUnknown, StoreUnavailable, KeyboardInterrupt])
def test_next_append_is_refused_when_the_one_before_had_no_answer(
    depot: Any, arrives: bool, error: type[BaseException]
) -> None:
    """As another thread, which shares the producer, makes it: the repeat is of the first one still."""
    producer = depot.open_producer("p")
    producer._depot = Lossy(depot, arrives, error)
    with pytest.raises(error):
        producer.append("a")
    for append in (producer.append, lambda record: producer.append_many([record])):
        with pytest.raises(BadInput, match=r"'p' had no answer: call repeat\(\) before the next one"):
            append("b")
    producer.repeat()
    producer.append("b")
    assert records(depot) == ["a", "b"]


@pytest.mark.parametrize("arrives", [True, False])
def test_generated_records_are_there_once_when_their_answer_was_lost(depot: Any, arrives: bool) -> None:
    producer = depot.open_producer("p")
    producer._depot = Lossy(depot, arrives, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        producer.append_many(number for number in range(3))
    producer.repeat()
    assert records(depot) == [0, 1, 2]


@pytest.mark.parametrize("records_of", [lambda: "ab", lambda: {"a": 1}, lambda: 5])
def test_what_is_not_many_records_is_refused_when_a_producer_appends_it(depot: Any, records_of: Any) -> None:
    with pytest.raises(RecordRefused):
        depot.open_producer("p").append_many(records_of())
    assert records(depot) == []


@pytest.mark.parametrize("arrives", [True, False])
def test_record_is_repeated_as_it_was_when_its_dict_was_filled_anew(depot: Any, arrives: bool) -> None:
    producer, record = depot.open_producer("p"), {"number": 1, "parts": [1]}
    producer._depot = Lossy(depot, arrives, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        producer.append(record)
    record["number"] = 2
    record["parts"].append(2)
    producer.repeat()
    assert records(depot) == [{"number": 1, "parts": [1]}]


@pytest.mark.parametrize("arrives", [True, False])
def test_append_can_be_repeated_still_when_its_repeat_failed_for_another_reason(depot: Any, arrives: bool) -> None:
    """As where the gateway refuses a token that has run out."""
    producer = depot.open_producer("p")
    producer._depot = Lossy(depot, arrives, OutcomeUnknown, BadInput)
    with pytest.raises(OutcomeUnknown):
        producer.append("a")
    with pytest.raises(BadInput, match="no answer"):
        producer.repeat()
    producer.repeat()
    assert records(depot) == ["a"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_each_opening_has_its_own_epoch_when_a_process_dies_at_one(tmp_path: Folder, moment: str) -> None:
    """Whether the opening arrived or not: opened again, it shuts out all before."""

    def die(verb: str, key: str) -> None:
        if verb == "create":
            raise Crash(key)

    store = FaultyObjectStore(connect(tmp_path.as_uri()), FaultPlan(**{moment: die}))
    with pytest.raises(Crash):
        epochs.open_epoch(DepotLog(store, "M/depots/pings", 1, patience=()), "p", INT_MAX)
    again = epochs.open_epoch(DepotLog(connect(tmp_path.as_uri()), "M/depots/pings", 1), "p", INT_MAX)
    assert again // EPOCH_APPENDS == (2 if moment == "after" else 1)


def test_opening_ends_with_a_sentence_when_others_open_it_all_the_time(tmp_path: Folder) -> None:
    class Overtaken(DepotLog):
        def append(self, *args: Any, **named: Any) -> Any:
            raise KeyReused("another one")

    with pytest.raises(StoreUnavailable, match="Others opened the producer 'p' 50 times"):
        epochs.open_epoch(Overtaken(connect(tmp_path.as_uri()), "M/depots/pings", 1), "p", INT_MAX)


def test_producer_goes_on_when_its_depot_is_rolled_meanwhile(tmp_path: Folder) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Pings(), LaunchConfig(1, 1))
        depot = cluster.cluster_depot("Pings", "*pings")
        old = depot.open_producer("p")
        for number in range(300):
            depot.append(number)
        new = depot.open_producer("p")
        new.append("new")
        with pytest.raises(Fenced):
            old.append("old")
        assert records(depot)[-1] == "new"
