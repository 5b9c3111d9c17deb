"""Apache Kafka, a real broker: ranges of topics read exactly once, microbatches sent exactly once, whatever dies."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path as Folder
from typing import Any

import pytest
from confluent_kafka import KafkaException
from guide_code import names_of
from kafka_broker import KafkaBroker
from kafka_modules import START, Passing, Several

from tidemill import (
    BadInput,
    CorruptState,
    ExternalUnavailable,
    InProcessCluster,
    KafkaDepot,
    KafkaSink,
    LaunchConfig,
    MicrobatchFails,
    MicrobatchSourceOptions,
    OffsetAgo,
    Path,
    TaskGlobalContext,
    UserCodeError,
)
from tidemill.journal.options_log import OptionsLog
from tidemill.kafka import depot as depots
from tidemill.kafka.sink import Mark
from tidemill.spark.session import Session

KEYS = [f"k{number}" for number in range(7)]
GUIDE = Folder(__file__).resolve().parents[3] / "docs" / "guide" / "kafka.md"
_names = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"t{next(_names)}"


@contextmanager
def opened(kind: Any) -> Iterator[Any]:
    kind.prepare_for_task(TaskGlobalContext("M", "*o"))
    yield kind
    kind.close()


def messages(first: int, last: int) -> list[bytes]:
    return [json.dumps([KEYS[number % len(KEYS)], number]).encode() for number in range(first, last)]


def until(is_so: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.01)


# --- the source ---


def test_only_committed_messages_are_read_and_the_same_again(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    kafka.send(name, 0, *messages(0, 3))
    producer = kafka.producer(transactional_id=name)
    producer.init_transactions(30)
    for values, ends in ((messages(3, 5), producer.commit_transaction), ([b"never"] * 4, producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value, partition=0)
        producer.flush(30)
        ends(30)
    kafka.send(name, 0, *messages(5, 6))
    with opened(KafkaDepot(name, kafka.servers, timeout_seconds=30, fetch_rows=2, fetch_bytes=2_000)) as depot:
        ((start, end),) = depot.bounds()
        assert (start, end) == (0, 3 + 2 + 1 + 4 + 1 + 1)
        whole = depot.fetch_from(0, 0, end)
        assert [number for _, number in whole] == [0, 1, 2, 3, 4, 5]
        for cut in range(end + 1):
            assert depot.fetch_from(0, 0, cut) + depot.fetch_from(0, cut, end) == whole


def test_an_open_transaction_ends_what_may_be_read(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    kafka.send(name, 0, b"1")
    producer = kafka.producer(transactional_id=name)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"2", partition=0)
    producer.flush(30)
    kafka.send(name, 0, b"3")
    with opened(KafkaDepot(name, kafka.servers, timeout_seconds=30)) as depot:
        assert depot.bounds() == [(0, 1)]
        assert depot.fetch_from(0, 0, 1) == [1]
        producer.commit_transaction(30)
        until(lambda: depot.bounds() == [(0, 4)])
        assert depot.fetch_from(0, 1, 4) == [2, 3]


def test_large_ranges_come_in_small_fetches(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    values = [json.dumps([number, "x" * 2_000]).encode() for number in range(2_000)]
    kafka.send(name, 0, *values)
    with opened(KafkaDepot(name, kafka.servers, timeout_seconds=30, fetch_rows=100, fetch_bytes=10_000)) as depot:
        assert [value[0] for value in depot.fetch_from(0, 0, 2_000)] == list(range(2_000))
        assert [value[0] for value in depot.fetch_from(0, 700, 705)] == list(range(700, 705))


def test_a_time_finds_its_offset(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    producer = kafka.producer()
    for millis in (1_000, 2_000, 2_000, 3_000):
        producer.produce(name, b"1", partition=0, timestamp=1_700_000_000_000 + millis)
    producer.flush(30)
    with opened(KafkaDepot(name, kafka.servers, timeout_seconds=30)) as depot:
        times = [depot.offset_after_timestamp_millis(0, 1_700_000_000_000 + at) for at in (0, 1_000, 2_500, 3_000)]
        assert times == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("decode", "record"),
    [("json", {"a": 1}), ("string", '{"a": 1}'), ("bytes", b'{"a": 1}'), (lambda message: message.offset(), 0)],
)
def test_messages_become_records(kafka: KafkaBroker, name: str, decode: Any, record: Any) -> None:
    kafka.topic(name)
    kafka.send(name, 0, b'{"a": 1}', None)
    with opened(KafkaDepot(name, kafka.servers, timeout_seconds=30, decode=decode)) as depot:
        assert depot.fetch_from(0, 0, 1) == [record]
        assert callable(decode) or depot.fetch_from(0, 1, 2) == [None]


def test_a_message_that_cannot_be_decoded_is_named(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    kafka.send(name, 0, b"1", b"{")
    with opened(KafkaDepot(name, kafka.servers, timeout_seconds=30)) as depot:
        with pytest.raises(UserCodeError, match=f"message 1 of {name} partition 0 cannot be decoded: JSONDecodeError"):
            depot.fetch_from(0, 0, 2)
        assert depot.fetch_from(0, 0, 1) == [1]


def test_a_topic_or_broker_that_is_not_there_is_named(kafka: KafkaBroker, name: str) -> None:
    with (
        opened(KafkaDepot(name, kafka.servers, timeout_seconds=30)) as depot,
        pytest.raises(ExternalUnavailable, match=name),
    ):
        depot.bounds()
    nobody = KafkaDepot(name, "127.0.0.1:9", timeout_seconds=0.2)
    with opened(nobody) as depot, pytest.raises(ExternalUnavailable):
        depot.bounds()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: KafkaDepot("", "h:1"), "The name of a topic is a text"),
        (lambda: KafkaDepot("t", ["h:1"]), "bootstrap_servers is a text"),  # type: ignore[arg-type] # the mistake
        (lambda: KafkaDepot("t", "h:1", decode="avro"), "decode is 'json'"),  # type: ignore[arg-type] # the mistake
        (lambda: KafkaDepot("t", "h:1", fetch_rows=0), "fetch_rows is a whole number from 1 on, not 0"),
        (lambda: KafkaDepot("t", "h:1", timeout_seconds=0), "timeout_seconds is a number of seconds above 0"),
        (lambda: KafkaDepot("t", "h:1", config={"isolation.level": "x"}), "config may not set isolation.level"),
        (lambda: KafkaSink("t", "h:1", config={"transactional.id": "x"}), "config may not set transactional.id"),
        (lambda: KafkaSink("t", "h:1", encode="avro"), "encode is 'json'"),  # type: ignore[arg-type] # the mistake
        (lambda: KafkaSink("t", "h:1", transactional_id=""), "transactional_id is a text that is not empty"),
    ],
)
def test_a_wrong_argument_is_refused_where_it_is_written(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        make()


# --- the sink ---


def test_a_microbatch_is_sent_once_when_it_is_written_again(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    with opened(KafkaSink(name, kafka.servers, transactional_id=name)) as sink:
        sink.write(Mark(1, 2, "mb-1"), [["a", 1], [None, {"b": 2}]])
        sink.write(Mark(1, 2, "mb-1"), [["a", 1]])
        sink.write(Mark(2, 2, "mb-1"), [])
        with opened(KafkaSink(name, kafka.servers, transactional_id=name)) as other:  # the next leader
            other.write(Mark(3, 2, "mb-1"), [[b"c", None]])
            sink.write(Mark(3, 2, "mb-1"), [["c", 3]])
    assert kafka.committed(name) == [(b"a", b"1"), (None, b'{"b": 2}'), (b"c", None)]


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_microbatch_that_was_left_half_sent_is_sent_whole(kafka: KafkaBroker, name: str, is_alive: bool) -> None:
    kafka.topic(name)
    left = kafka.producer(transactional_id=name)  # what a sender that is replaced, or killed, leaves
    left.init_transactions(30)
    left.begin_transaction()
    left.produce(name, b"half")
    left.flush(30)
    if not is_alive:
        del left
    with opened(KafkaSink(name, kafka.servers, transactional_id=name)) as sink:
        sink.write(Mark(1, 2, "mb-1"), [[None, "whole"]])
    if is_alive:
        with pytest.raises(KafkaException):  # it is fenced
            left.commit_transaction(30)
    assert kafka.committed(name) == [(None, b'"whole"')]


def test_a_transactional_id_of_another_or_a_later_state_is_refused(kafka: KafkaBroker, name: str) -> None:
    kafka.topic(name)
    with opened(KafkaSink(name, kafka.servers, transactional_id=name)) as sink:
        sink.write(Mark(5, 2, "mb-1"), [[None, 1]])
    with opened(KafkaSink(name, kafka.servers, transactional_id=name)) as sink:
        with pytest.raises(CorruptState, match=r"that of another sink \(mb-1 \*o; this is mb-2 \*o\)"):
            sink.write(Mark(6, 2, "mb-2"), [[None, 1]])
        with pytest.raises(CorruptState, match="has sent microbatch 5, and this is 4. If an older copy"):
            sink.write(Mark(4, 2, "mb-1"), [[None, 1]])
        with pytest.raises(UserCodeError, match="cannot be encoded: TypeError"):
            sink.write(Mark(6, 2, "mb-1"), [[None, object()]])
        sink.write(Mark(6, 2, "mb-1"), [[None, 2]])
    assert kafka.committed(name) == [(None, b"1"), (None, b"2")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([None, {"mean": float("nan")}], "ValueError: Out of range float values are not JSON compliant"),
        ([None, [{1: "a", "1": "b"}]], "ValueError: two of the keys 1, '1' are the same text"),
        ([float("inf"), 1], "ValueError: Out of range float values are not JSON compliant"),
        ([None, b"raw"], "TypeError"),
    ],
)
def test_a_message_is_refused_when_json_does_not_hold_it(row: list[Any], said: str) -> None:
    with opened(KafkaSink("t", "nowhere:1")) as sink, pytest.raises(UserCodeError, match=f"cannot be encoded: {said}"):
        sink.write(Mark(1, 2, "mb-1"), [row])


# --- whole modules ---


class Story:
    """A module between two topics, and what must have come of the messages so far."""

    def __init__(self, kafka: KafkaBroker, name: str, folder: Folder) -> None:
        self.kafka, self.name, self.folder = kafka, name, folder
        self.source, self.target = kafka.topic(f"{name}-in", 3), kafka.topic(f"{name}-out", 2)
        self.gate = folder / "gate"
        self.gate.mkdir()
        self.sent = 0

    def module(self, source: Any = START) -> Passing:
        depot = KafkaDepot(self.source, self.kafka.servers, fetch_seconds=5)
        sink = KafkaSink(self.target, self.kafka.servers, transactional_id=self.name, timeout_seconds=15)
        return Passing(depot, sink, self.gate, source)

    def send(self, count: int) -> None:
        for partition in range(3):
            self.kafka.send(self.source, partition, *messages(self.sent, self.sent + count)[partition::3])
        self.sent += count

    @contextmanager
    def running(self, engine: Any = "local") -> Iterator[InProcessCluster]:
        with InProcessCluster.create(store=self.folder / "store", engine=engine) as cluster:
            cluster.launch_module(self.module(), LaunchConfig(4, 2))
            yield cluster

    def wait(self, cluster: InProcessCluster) -> None:
        cluster.wait_for_microbatch_processed_count("Passing", "mb", self.sent, 120_000, fail_fast=False)

    def check(self, cluster: InProcessCluster) -> None:
        self.wait(cluster)
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for number in range(self.sent):
            counts[KEYS[number % len(KEYS)]] += 1
            sums[KEYS[number % len(KEYS)]] += number
        handle = cluster.cluster_pstate("Passing", "$$counts")
        found = {key: handle.select_one(Path.key(key)) for key in KEYS}
        assert found == {key: {"count": counts[key], "sum": sums[key]} for key in KEYS}
        sent = sorted(int(value or b"") for _, value in self.kafka.committed(self.target, 2))
        assert sent == list(range(self.sent))


@pytest.fixture
def story(kafka: KafkaBroker, name: str, tmp_path: Folder) -> Story:
    return Story(kafka, name, tmp_path)


@pytest.mark.spark
def test_each_message_counts_and_is_sent_once_when_workers_of_spark_do_it(story: Story, spark: Session) -> None:
    story.send(60)
    with story.running("spark") as cluster:
        OptionsLog(cluster.store, "Passing").set("topology", "mb", "topology.microbatch.placement", "spread")
        story.wait(cluster)
        story.send(30)
        story.check(cluster)


def test_each_message_counts_and_is_sent_once_when_the_broker_is_killed_in_a_microbatch(
    story: Story, kafka: KafkaBroker
) -> None:
    story.send(30)
    with story.running() as cluster:
        story.wait(cluster)
        (story.gate / "closed").touch()
        story.send(60)
        until((story.gate / "reached").exists)
        kafka.kill()
        (story.gate / "closed").unlink()
        runner = cluster._running["Passing"].topologies["mb"]
        runner.wait_for(lambda now: now.report.failure is not None or bool(now.report.store_trouble), 120)
        kafka.start()
        story.send(30)
        story.check(cluster)


def test_each_message_counts_and_is_sent_once_when_runners_are_killed_in_a_microbatch(story: Story) -> None:
    for _ in range(2):
        (story.gate / "closed").touch()
        story.send(40)
        with story.running() as cluster:
            until((story.gate / "reached").exists)
            running = cluster._running.pop("Passing")
            killing = threading.Thread(target=running.kill)
            killing.start()
            (story.gate / "closed").unlink()
            killing.join()
        (story.gate / "reached").unlink()
    with story.running() as cluster:
        story.check(cluster)


def test_nothing_is_sent_twice_when_the_attempt_fails_behind_the_transaction(story: Story) -> None:
    for number in range(3):
        (story.gate / f"fail-{number}").touch()
    story.send(50)
    with story.running() as cluster:
        story.check(cluster)
        assert not list(story.gate.glob("fail-*"))


def test_parts_of_a_microbatch_that_look_for_a_poison_record_are_not_sent(story: Story, kafka: KafkaBroker) -> None:
    with story.running() as cluster:
        options = OptionsLog(cluster.store, "Passing")
        options.set("topology", "mb", "topology.on.record.error", "quarantine")
        cluster.pause_microbatch_topology("Passing", "mb")
        story.send(30)
        kafka.send(story.source, 1, b'["k0", "poison"]')  # no number: the sum of its key fails
        cluster.resume_microbatch_topology("Passing", "mb")
        cluster.wait_for_microbatch_processed_count("Passing", "mb", 31, 120_000, fail_fast=False)
        story.check(cluster)
        (held,) = cluster.quarantine("Passing", "mb").records()
        assert (held.record, held.depot, held.partition) == (["k0", "poison"], "*in", 1)
        with pytest.raises(BadInput, match="is outside the store, so it cannot be retried"):
            cluster.quarantine("Passing", "mb").retry()


def test_each_run_of_a_block_is_sent_once_when_several_rows_reach_it(
    kafka: KafkaBroker, name: str, tmp_path: Folder
) -> None:
    sink = KafkaSink(kafka.topic(name), kafka.servers)
    for number in range(2):
        (tmp_path / f"fail-{number}").touch()
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Several(sink, tmp_path), LaunchConfig(4, 2))
        for count, record in enumerate(("a", "b"), 1):
            cluster.cluster_depot("Several", "*d").append(record)
            cluster.wait_for_microbatch_processed_count("Several", "mb", count, 120_000, fail_fast=False)
    sent = sorted(json.loads(value or b"") for _, value in kafka.committed(name))
    assert sent == [[letter, times] for letter in "ab" for times in range(3)]


def test_new_partitions_join(story: Story, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depots, "PARTITIONS_SECONDS", 0.0)
    story.send(30)
    with story.running() as cluster:
        story.wait(cluster)
        kafka.grow(story.source, 5)
        kafka.send(story.source, 4, *messages(30, 33))
        story.sent += 3
        story.check(cluster)


def test_processing_stops_when_kafka_deleted_what_was_not_processed(story: Story, kafka: KafkaBroker) -> None:
    story.send(30)
    with story.running() as cluster:
        story.wait(cluster)
        cluster.pause_microbatch_topology("Passing", "mb")
        story.send(30)
        kafka.cut(story.source, 1, 15)
        cluster.resume_microbatch_topology("Passing", "mb")
        with pytest.raises(MicrobatchFails, match=r"partition 1 begins at 15 now, .* reads \[10, 20\)"):
            cluster.wait_for_microbatch_processed_count("Passing", "mb", 60, 120_000)
        again = MicrobatchSourceOptions.start_from_offset_ago(2, OffsetAgo.RECORDS).source_id("again")
        cluster.update_module(story.module(again))
        cluster.wait_for_microbatch_processed_count("Passing", "mb", 36, 120_000, fail_fast=False)
        assert len(kafka.committed(story.target, 2)) == 36


def test_the_guide_runs_as_it_stands_there(kafka: KafkaBroker, name: str) -> None:
    found = names_of(GUIDE)
    orders, totals = kafka.topic(f"{name}-in", 2), kafka.topic(f"{name}-out")
    for partition, user, amounts in ((0, "ann", (5, 6)), (1, "bob", (7,))):
        kafka.send(orders, partition, *(json.dumps({"user": user, "amount": a}).encode() for a in amounts))
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(found["Orders"](kafka.servers, orders, totals), LaunchConfig(2, 1))
        cluster.wait_for_microbatch_processed_count("Orders", "mb", 3, 120_000, fail_fast=False)
        assert sorted(kafka.committed(totals)) == [(b"ann", b"11"), (b"bob", b"7")]
        kafka.send(orders, 0, json.dumps({"user": "bob", "amount": 3}).encode())
        cluster.wait_for_microbatch_processed_count("Orders", "mb", 4, 120_000, fail_fast=False)
        assert kafka.committed(totals)[2:] == [(b"bob", b"10")]
    assert found["Numbers"]().bounds() == [(0, 10), (0, 10)]
    assert found["Numbers"]().fetch_from(0, 3, 5) == [3, 4]


def test_options_bound_a_microbatch_of_a_topic(story: Story) -> None:
    story.send(60)
    with story.running() as cluster:
        OptionsLog(cluster.store, "Passing").set("depot", "*in", "depot.microbatch.max.records", 5)
        story.check(cluster)
