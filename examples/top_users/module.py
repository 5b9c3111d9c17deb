"""Who spent the most, of all time: a list that each microbatch brings up to date, without looking at all users."""

from __future__ import annotations

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PState,
    Setup,
    SubBatch,
    Topologies,
)

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
TOP = 10


class TopUsers(Module):
    """Purchases are {"user": text, "cents": whole number above zero}."""

    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*purchases", Depot.hash_by("user")).schema(
            PState.fixed_keys_schema("user", str, "cents", int)
        )
        mb = topologies.microbatch("spending")
        mb.pstate("$$spent", PState.map_schema(str, int))
        mb.pstate("$$top", list).global_()

        spent = Agg.sum("*cents").capture_new_val_into("*total")
        changed = SubBatch(
            Block.explode_microbatch("*microbatch").out("*purchase")
            .each(Ops.GET, "*purchase", "user").out("*user")
            .each(Ops.GET, "*purchase", "cents").out("*cents")
            .keep_true(Expr(Ops.AND, "*user", "*cents"))
            .hash_partition("*user")
            .compound_agg("$$spent", CompoundAgg.map("*user", spent)),
            "*user", "*total",
        )  # fmt: skip
        best = Agg.top_monotonic(TOP, "*pair", id_function=Ops.FIRST, sort_val_function=Ops.LAST)
        (mb.source("*purchases", BEGINNING).out("*microbatch")
           .batch_block(
               Block.sub_batch(changed).out("*user", "*total")
               .each(Ops.TUPLE, "*user", "*total").out("*pair")
               .global_partition()
               .agg("$$top", best)))  # fmt: skip
