"""The modules that are measured."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, Path, PState

COUNTS = PState.map_schema(int, PState.fixed_keys_schema("count", int, "sum", int))
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


class KeyedCount(Module):
    """Count and sum by key; the depot is partitioned at random, so each row is moved to its key's task."""

    is_colocated = False

    def module_name(self) -> str:
        return "KeyedCount"

    def define(self, setup: Any, topologies: Any) -> None:
        partitioning = Depot.hash_by(itemgetter("k")) if self.is_colocated else Depot.random()
        setup.declare_depot("*rows", partitioning)
        mb = topologies.microbatch("counts")
        mb.pstate("$$counts", COUNTS)
        rows = mb.source("*rows", BEGINNING).out("*microbatch").explode_microbatch("*microbatch").out("*row")
        rows = rows.each(Ops.GET, "*row", "k").out("*k").each(Ops.GET, "*row", "v").out("*v")
        if not self.is_colocated:
            rows = rows.hash_partition("*k")
        rows.compound_agg(
            "$$counts", CompoundAgg.map("*k", CompoundAgg.map("count", Agg.count(), "sum", Agg.sum("*v")))
        )


class ColocatedKeyedCount(KeyedCount):
    """The same where the depot is partitioned by the key already: nothing is moved."""

    is_colocated = True


def apply(balance: int | None, amount: int) -> int:
    """A user's function of the state and the record."""
    return (balance or 0) + amount


class RowEvents(Module):
    """Read, decide and write one key an event: rows depend on earlier rows, so they run one at a time."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*events", Depot.hash_by(itemgetter("k")))
        mb = topologies.microbatch("events")
        mb.pstate("$$balances", PState.map_schema(int, int))
        (
            mb.source("*events", BEGINNING).out("*microbatch")
            .explode_microbatch("*microbatch").out("*event")
            .each(Ops.GET, "*event", "k").out("*k")
            .each(Ops.GET, "*event", "v").out("*v")
            .local_select("$$balances", Path.key("*k")).out("*balance")
            .each(apply, "*balance", "*v").out("*next")
            .local_transform("$$balances", Path.key("*k").term_val("*next"))
        )  # fmt: skip
