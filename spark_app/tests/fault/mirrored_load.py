"""Two modules under a load: a bank, which an update migrates, and a report that mirrors its depot and a PState.

Run as `tidemill run mirrored_load.py:Bank`, `:BankInCents` and `:Report`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tidemill import Agg, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, Path, PState

KEYS = [f"k{number}" for number in range(40)]
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


def in_cents(amount: int) -> int:
    return amount * 100


class Bank(Module):
    """Sums the amounts of moves [key, amount], and counts them."""

    sums: ClassVar[Any] = PState.map_schema(str, int)
    factor: ClassVar[int] = 1

    def module_name(self) -> str:
        return "Bank"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", self.sums)
        mb.pstate("$$counts", PState.map_schema(str, int))
        rows = mb.source("*moves", BEGINNING).out("*batch").explode_microbatch("*batch").out("*move")
        rows = rows.each(Ops.EXPAND, "*move").out("*key", "*amount").each(Ops.TIMES, "*amount", self.factor).out("*n")
        rows = rows.compound_agg("$$sums", CompoundAgg.map("*key", Agg.sum("*n")))
        rows.compound_agg("$$counts", CompoundAgg.map("*key", Agg.count()))


class BankInCents(Bank):
    """The next version: all sums go through a migration, each once."""

    sums = PState.map_schema(str, PState.migrated(int, "cents", in_cents))
    factor = 100


class Report(Module):
    """Counts the bank's moves too, and notes the largest count that the bank showed for each key."""

    def module_name(self) -> str:
        return "Report"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*moves", "Bank", "*moves")
        setup.cluster_pstate("$$counts", "Bank", "$$counts")
        mb = topologies.microbatch("mb")
        mb.pstate("$$mine", PState.map_schema(str, int))
        mb.pstate("$$shown", PState.map_schema(str, int))
        rows = mb.source("*moves", BEGINNING).out("*batch").explode_microbatch("*batch").out("*move")
        rows = rows.each(Ops.FIRST, "*move").out("*key")
        rows = rows.select("$$counts", Path.key("*key").null_to_val(0)).out("*count").hash_partition("*key")
        rows = rows.compound_agg("$$mine", CompoundAgg.map("*key", Agg.count()))
        rows.compound_agg("$$shown", CompoundAgg.map("*key", Agg.max("*count")))
