"""Modules that append to sinks in other systems, for tests with real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Delivery,
    Depot,
    ExternalSink,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PostgresSink,
    PState,
)

START = MicrobatchSourceOptions.start_from_beginning()


class Selling(Module):
    """Sends each record [user, amount] on to `*orders`, and each total that changed to `*totals`."""

    def __init__(self, orders: ExternalSink, totals: ExternalSink) -> None:
        self.orders, self.totals = orders, totals

    def module_name(self) -> str:
        return "Selling"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        setup.declare_object("*orders", self.orders)
        setup.declare_object("*totals", self.totals)
        mb = topologies.microbatch("mb")
        mb.pstate("$$totals", PState.map_schema(str, int))
        add = CompoundAgg.map("*user", Agg.sum("*amount").capture_new_val_into("*total"))
        block = (
            Block.explode_microbatch("*mb").out("*record").each(Ops.EXPAND, "*record").out("*user", "*amount")
            .each(order_of, "*user", "*amount").out("*order").depot_partition_append("*orders", "*order")
            .hash_partition("*user").compound_agg("$$totals", add)
            .each(total_of, "*user", "*total").out("*row").depot_partition_append("*totals", "*row")
        )  # fmt: skip
        mb.source("*in", START).out("*mb").batch_block(block)


class WithoutOrders(Module):
    """The same, but for `*orders`."""

    def __init__(self, totals: ExternalSink) -> None:
        self.totals = totals

    def module_name(self) -> str:
        return "Selling"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        setup.declare_object("*totals", self.totals)
        mb = topologies.microbatch("mb")
        mb.pstate("$$totals", PState.map_schema(str, int))
        mb.source("*in", START).out("*mb").explode_microbatch("*mb").out("*record")


def selling(conninfo: str) -> Selling:
    """Into the tables `orders` and `totals` of PostgreSQL."""
    orders = PostgresSink("orders", conninfo, columns={"user": str, "amount": int})
    return Selling(orders, PostgresSink("totals", conninfo, columns={"user": str, "total": int}, key="user"))


def order_of(user: Any, amount: Any) -> dict[str, Any]:
    return {"user": user, "amount": amount}


def total_of(user: str, total: int) -> dict[str, Any]:
    return {"user": user, "total": total}


def delivery(number: int, *rows: Any, store: str = "s", digest: str = "", sink: str = "rows-1") -> Delivery:
    """A delivery of these rows, two at a time."""

    def chunks() -> Iterator[list[Any]]:
        for start in range(0, len(rows), 2):
            yield list(rows[start : start + 2])

    return Delivery(store, "M", "mb-1", sink, number, digest or f"d{number}", len(rows), chunks)
