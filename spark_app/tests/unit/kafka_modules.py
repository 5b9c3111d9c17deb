"""Modules that read Kafka and write to it, for tests on a real broker."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    KafkaDepot,
    KafkaSink,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PState,
    operation,
    to_kafka,
)

START = MicrobatchSourceOptions.start_from_beginning()


def wait_at(gate: Path, value: Any) -> Any:
    """Waits while the file `closed` is there, and leaves `reached`."""
    while (gate / "closed").exists():
        (gate / "reached").touch()
        threading.Event().wait(0.01)
    return value


def fail_at(gate: Path, value: Any) -> Any:
    """Raises as often as there are files `fail-…`, each of which goes with it."""
    for file in sorted(gate.glob("fail-*")):
        file.unlink()
        raise RuntimeError(f"{file.name} was there")
    return value


class Passing(Module):
    """Counts the records [key, number] of a topic, and sends each on to another: [key] -> number."""

    def __init__(self, depot: KafkaDepot, sink: KafkaSink, gate: Path, source: Any = START) -> None:
        self.depot, self.sink, self.gate, self.source = depot, sink, gate, source

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_object("*in", self.depot)
        setup.declare_object("*out", self.sink)
        setup.declare_object("*gate", self.gate)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, PState.fixed_keys_schema("count", int, "sum", int)))
        count = (
            Block.explode_microbatch("*mb").out("*record").each(Ops.EXPAND, "*record").out("*key", "*n")
            .each(wait_at, "*gate", "*n").out("*number").hash_partition("*key")
            .compound_agg("$$counts", CompoundAgg.map("*key", CompoundAgg.map(
                "count", Agg.count(), "sum", Agg.sum("*number"))))
        )  # fmt: skip
        send = (
            Block.explode_microbatch("*mb").out("*record").each(Ops.EXPAND, "*record").out("*key", "*n")
            .macro(to_kafka, "*out", "*key", "*n").each(fail_at, "*gate", 1).out("*one")
        )  # fmt: skip
        mb.source("*in", self.source).out("*mb").batch_block(count).batch_block(send)


@operation
def three_times(_microbatch: Any) -> Any:
    yield from range(3)


class Several(Module):
    """A block that is run three times in a microbatch, and sends each record each time."""

    def __init__(self, sink: KafkaSink, gate: Path) -> None:
        self.sink, self.gate = sink, gate

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        setup.declare_object("*out", self.sink)
        setup.declare_object("*gate", self.gate)
        mb = topologies.microbatch("mb")
        send = (
            Block.explode_microbatch("*mb").out("*record").each(Ops.TUPLE, "*record", "*times").out("*value")
            .macro(to_kafka, "*out", None, "*value").each(fail_at, "*gate", 1).out("*one")
        )  # fmt: skip
        mb.source("*d", START).out("*mb").each(three_times, 0).out("*times").batch_block(send)
