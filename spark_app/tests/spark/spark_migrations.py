"""Two versions of one module, of which the second migrates what the first stored."""

from __future__ import annotations

from typing import Any

from tidemill import Agg, CompoundAgg, Depot, Module, Ops, Path, PState


def with_bang(value: Any) -> str:
    return f"{value}!"


def in_cents(value: int) -> int:
    return value * 100


class Numbers(Module):
    """Pairs of key and number: the newest, their sum, and how often each number came."""

    is_migrated = False

    def module_name(self) -> str:
        return "Numbers"

    def define(self, setup: Any, topologies: Any) -> None:
        newest, sums = (PState.migrated(str, "bang", with_bang), PState.migrated(int, "cents", in_cents))
        times = PState.map_schema(int, int)
        one_by_one = PState.migrated(times.subindexed(), "one-by-one", dict).migrate_to_subindexed()
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$newest", PState.map_schema(str, newest if self.is_migrated else int))
        mb.pstate("$$sums", PState.map_schema(str, sums if self.is_migrated else int))
        mb.pstate("$$times", PState.map_schema(str, one_by_one if self.is_migrated else times))
        (
            mb.source("*pairs").out("*m")
            .explode_microbatch("*m").out("*pair")
            .each(Ops.EXPAND, "*pair").out("*k", "*v")
            .each(with_bang if self.is_migrated else Ops.IDENTITY, "*v").out("*w")
            .each(in_cents if self.is_migrated else Ops.IDENTITY, "*v").out("*cents")
            .local_transform("$$newest", Path.key("*k").term_val("*w"))
            .compound_agg("$$sums", CompoundAgg.map("*k", Agg.sum("*cents")))
            .compound_agg("$$times", CompoundAgg.map("*k", CompoundAgg.map("*v", Agg.count())))
        )  # fmt: skip


class MigratedNumbers(Numbers):
    is_migrated = True
