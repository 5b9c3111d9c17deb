"""The module that driver processes run in tests; `TIDEMILL_TEST_EXTRA` declares one more PState, as an update does."""

from __future__ import annotations

import os
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, PState


class Driven(Module):
    """Counts each record."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*records", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        if os.environ.get("TIDEMILL_TEST_EXTRA"):
            mb.pstate("$$more", PState.map_schema(int, int))
        (
            mb.source("*records", MicrobatchSourceOptions.start_from_beginning())
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*record")
            .hash_partition("*record")
            .compound_agg("$$counts", CompoundAgg.map("*record", Agg.count()))
        )
