"""The smallest module that shows everything: count pairs in a nested index, sum numbers in a batch block."""

from __future__ import annotations

from tidemill import Agg, Block, CompoundAgg, Depot, Module, Ops, PState, Setup, Topologies


class ExampleMicrobatchTopologyModule(Module):
    def define(self, setup: Setup, topologies: Topologies) -> None:
        setup.declare_depot("*keyPairsDepot", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*numbersDepot", Depot.random())

        mb = topologies.microbatch("mb")
        mb.pstate("$$keyPairCounts", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        mb.pstate("$$globalSum", int).global_().initial_value(0)

        (mb.source("*keyPairsDepot").out("*microbatch")
           .explode_microbatch("*microbatch").out("*tuple")
           .each(Ops.EXPAND, "*tuple").out("*k", "*k2")
           .compound_agg("$$keyPairCounts", CompoundAgg.map("*k", CompoundAgg.map("*k2", Agg.count()))))  # fmt: skip

        (mb.source("*numbersDepot").out("*microbatch")
           .batch_block(Block.explode_microbatch("*microbatch").out("*v")
                             .global_partition()
                             .agg("$$globalSum", Agg.sum("*v"))))  # fmt: skip
