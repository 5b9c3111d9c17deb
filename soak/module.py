"""The module that a soak runs: a count for each key, and one number for each record that was ever appended."""

from __future__ import annotations

from typing import Any

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, PState

KEYS = 5_000


class Soaked(Module):
    """A record is a whole number; its key is its remainder. Keys stay few, so that the state does not grow for ever."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*numbers", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        mb.pstate("$$sums", PState.map_schema(int, PState.map_schema(int, int).subindexed()))
        source = mb.source("*numbers", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
        rows = source.explode_microbatch("*microbatch").out("*n").each(remainder, "*n").out("*k").hash_partition("*k")
        rows = rows.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))
        rows.compound_agg("$$sums", CompoundAgg.map("*k", CompoundAgg.map("*k", Agg.sum("*n"))))


def remainder(number: int) -> int:
    return number % KEYS
