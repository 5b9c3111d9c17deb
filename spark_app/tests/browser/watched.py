"""Modules that people watch in the tests of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, PState
from tidemill import Path as At

FLAG = Path("mended")
"""While this file is not in the folder of the process, `priced` raises for a price of 13."""


def priced(price: int) -> int:
    if price == 13 and not FLAG.exists():
        raise ValueError("nobody pays 13")
    return price


class Shop(Module):
    """Sums sales by customer and product."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*sales", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("sum")
        mb.pstate("$$sales", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        (mb.source("*sales", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
           .explode_microbatch("*microbatch").out("*sale")
           .each(Ops.EXPAND, "*sale").out("*customer", "*product", "*price")
           .each(priced, "*price").out("*paid")
           .compound_agg("$$sales",
                         CompoundAgg.map("*customer", CompoundAgg.map("*product", Agg.sum("*paid")))))  # fmt: skip
        (topologies.query("spent", "*customer").out("*spent")
            .select("$$sales", At.key("*customer").map_vals()).out("*paid")
            .origin_partition()
            .agg(Agg.sum("*paid")).out("*spent"))  # fmt: skip
