"""Each mistake with objects of a module and with depots outside the store is reported at its line, with what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from faulty import Cases, Define, assert_one_fault

from tidemill import (
    Agg,
    Block,
    Delivery,
    Depot,
    ExternalDepot,
    ExternalSink,
    KafkaDepot,
    KafkaSink,
    PostgresSink,
    TaskGlobalObject,
    to_kafka,
)

cases = Cases()
expect = cases.expect


class Once(TaskGlobalObject):
    is_used_once = True


class Half(ExternalDepot):
    def get_num_partitions(self) -> int:
        return 1


class Log(Half):
    def start_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        return 0

    def fetch_from(self, partition: int, start: int, end: int) -> list[Any]:
        return []

    def offset_after_timestamp_millis(self, partition: int, millis: int) -> int:
        return 0


def two_words(first: str, second: str) -> str:
    return first + second


def numbers() -> Iterator[int]:
    yield 1


async def connected() -> int:
    return 1


def rows(setup: Any, topologies: Any) -> Any:
    setup.declare_depot("*d", Depot.random())
    return topologies.microbatch("mb").source("*d").out("*mb").explode_microbatch("*mb").out("*v")


@expect("The name of a declared object begins with '*'; 'model' does not.")
def object_without_sigil(setup: Any, topologies: Any) -> None:
    setup.declare_object("model", 1)  # <- fault


@expect("The object '*o' is declared twice; the first time at")
def object_declared_twice(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    setup.declare_object("*o", 2)  # <- fault


@expect("'*d' is a depot, declared at ")
def object_with_the_name_of_a_depot(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    setup.declare_object("*d", 1)  # <- fault


@expect("The object '*lock' cannot be sent to other processes: TypeError")
def object_that_cannot_travel(setup: Any, topologies: Any) -> None:
    setup.declare_object("*lock", threading.Lock())  # <- fault


@expect("'two_words', which makes the object '*o', needs arguments.")
def factory_with_arguments(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", two_words)  # <- fault


@expect("'connected' gives a coroutine or a generator, and not the object '*o'.")
def factory_that_is_a_coroutine(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", connected)  # <- fault


@expect("'numbers' gives a coroutine or a generator, and not the object '*o'.")
def factory_that_is_a_generator(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", numbers)  # <- fault


class OfTasks(TaskGlobalObject):
    def prepare_for_task(self, task_id: int, context: Any) -> None:  # type: ignore[override]  # the mistake that is tested
        self.task_id = task_id


@expect("OfTasks.prepare_for_task does not take one argument, the context.")
def object_of_one_task(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", OfTasks())  # <- fault


@expect("'*o' is an object of the module, and cannot be bound.")
def object_as_an_out_variable(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    rows(setup, topologies).each(len, "*v").out("*o")  # <- fault


@expect("'*o' is an object of the module, and cannot be bound.")
def object_as_the_microbatch(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.source("*d").out("*o")  # <- fault


@expect("The query 'q' has an input '*o', which is an object of the module.")
def object_as_an_input(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    query = topologies.query("q", "*o").out("*r")  # <- fault
    query.each(len, "*o").out("*r").origin_partition()


@expect("'*o' is an object, which no row carries.")
def object_as_a_key_of_groups(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    setup.declare_depot("*d", Depot.random())
    block = Block.explode_microbatch("*mb").out("*v").group_by("*o", Block.agg(Agg.count()).out("*n"))  # <- fault
    topologies.microbatch("mb").source("*d").out("*mb").batch_block(block)


@expect("The object '*o' is no depot.")
def source_of_an_object(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    topologies.microbatch("mb").source("*o")  # <- fault


@expect("The object '*o' is no depot.")
def source_of_an_external_depot_that_a_function_makes(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", ExternalDepot)
    topologies.microbatch("mb").source("*o")  # <- fault


@expect("Can't instantiate abstract class Half")
def external_depot_without_methods(setup: Any, topologies: Any) -> None:
    setup.declare_object("*e", Half())  # type: ignore[abstract] # the mistake  # <- fault


@expect("'*e' is an external depot: nothing can be appended to it.")
def append_to_an_external_depot(setup: Any, topologies: Any) -> None:
    setup.declare_object("*e", Log())
    rows(setup, topologies).depot_partition_append("*e", "*v")  # <- fault


@expect("The external depot '*e' has no partitions to go to.")
def partitions_of_an_external_depot(setup: Any, topologies: Any) -> None:
    setup.declare_object("*e", Log())
    rows(setup, topologies).hash_partition("*e", "*v")  # <- fault


@expect("There is no depot '*o'.")
def append_to_an_object(setup: Any, topologies: Any) -> None:
    setup.declare_object("*o", 1)
    rows(setup, topologies).depot_partition_append("*o", "*v")  # <- fault


@expect("The object '*once' is named at 2 places, and may be at one.")
def object_that_may_be_used_once(setup: Any, topologies: Any) -> None:
    setup.declare_object("*once", Once())  # <- fault
    rows(setup, topologies).each(repr, "*once").out("*a").each(repr, "*once").out("*b")


class Out(ExternalSink):
    def deliver(self, delivery: Delivery) -> None:
        pass


@expect("The sink '*s' cannot be read: its rows are in another system.")
def sink_as_a_source(setup: Any, topologies: Any) -> None:
    setup.declare_object("*s", Out())
    topologies.microbatch("mb").source("*s").out("*mb")  # <- fault


@expect("The sink depot '*s' has no partitions to go to.")
def partitioner_of_a_sink(setup: Any, topologies: Any) -> None:
    setup.declare_object("*s", Out())
    rows(setup, topologies).hash_partition("*s", "*v")  # <- fault


@expect("There is no depot '*s'.")
def append_to_a_sink_that_a_function_makes(setup: Any, topologies: Any) -> None:
    setup.declare_object("*s", lambda: Out())
    rows(setup, topologies).depot_partition_append("*s", "*v")  # <- fault


@expect("columns is a dict such as {'user': str, 'total': int}, not {}.")
def sink_without_columns(setup: Any, topologies: Any) -> None:
    setup.declare_object("*s", PostgresSink("t", columns={}))  # <- fault


@expect("The name of a topic is a text, not ''.")
def topic_without_a_name(setup: Any, topologies: Any) -> None:
    setup.declare_object("*in", KafkaDepot("", "host:9092"))  # <- fault


@expect("decode is 'json', 'string', 'bytes' or a function of a message, not 'avro'.")
def decoder_that_is_none(setup: Any, topologies: Any) -> None:
    setup.declare_object("*in", KafkaDepot("t", "host:9092", decode="avro"))  # type: ignore[arg-type] # <- fault


@expect("The variable '*outt' is not bound here.")
def sink_that_is_not_declared(setup: Any, topologies: Any) -> None:
    setup.declare_object("*out", KafkaSink("t", "host:9092"))
    setup.declare_depot("*d", Depot.random())
    block = Block.explode_microbatch("*mb").out("*v").macro(to_kafka, "*outt", None, "*v")  # <- fault
    topologies.microbatch("mb").source("*d").out("*mb").batch_block(block)


@expect("The object '*out' is named at 2 places, and may be at one.")
def sink_at_two_places(setup: Any, topologies: Any) -> None:
    setup.declare_object("*out", KafkaSink("t", "host:9092"))  # <- fault
    setup.declare_depot("*d", Depot.random())
    for _ in range(2):
        block = Block.explode_microbatch("*mb").out("*v").macro(to_kafka, "*out", None, "*v")
        name = f"mb{_}"
        topologies.microbatch(name).source("*d").out("*mb").batch_block(block)


@pytest.mark.parametrize(("define", "text"), cases.all, ids=cases.ids)
def test_a_mistake_is_reported_at_its_line(define: Define, text: str) -> None:
    assert_one_fault(define, text)
