"""A module with PStates of many schemas, for those who look at them."""

from __future__ import annotations

from typing import Any

from tidemill import Agg, CompoundAgg, Depot, Module, Ops, PState
from tidemill import Path as At

PSTATES = ("$$counts", "$$products", "$$profiles", "$$notes", "$$years", "$$total")
ITEMS = [["ann", f"item {number:03}", number] for number in range(250)] + [["bob", "tea", 1], ['q"/#?&', "milk", 2]]


class Shelf(Module):
    """Keeps items by who has them, in several forms."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*items", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("keep")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$products", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        profile = PState.fixed_keys_schema("name", str, "tags", PState.set_schema(str).subindexed())
        mb.pstate("$$profiles", PState.map_schema(str, profile))
        mb.pstate("$$notes", PState.map_schema(str, PState.list_schema(str)))
        mb.pstate("$$years", PState.map_schema(int, int))
        mb.pstate("$$total", int).global_().initial_value(0)
        (mb.source("*items").out("*batch").explode_microbatch("*batch").out("*item")
           .each(Ops.EXPAND, "*item").out("*who", "*what", "*number")
           .compound_agg("$$counts", CompoundAgg.map("*who", Agg.count()))
           .compound_agg("$$products", CompoundAgg.map("*who", CompoundAgg.map("*what", Agg.sum("*number"))))
           .local_transform("$$profiles", At.key("*who", "name").term_val("*who"))
           .local_transform("$$profiles", At.key("*who", "tags").void_set_elem().term_val("*what"))
           .local_transform("$$notes", At.key("*who").null_to_list().after_elem().term_val("*what"))
           .hash_partition("*number").compound_agg("$$years", CompoundAgg.map("*number", Agg.count()))
           .global_partition().agg("$$total", Agg.count()))  # fmt: skip
