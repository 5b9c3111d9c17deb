"""Joins and sub-batches on the real local engine under crashes: each transfer counts once, the total never changes."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import pytest
from simulation_runs import run

from tidemill import Agg, Block, CompoundAgg, Depot, MicrobatchSourceOptions, Module, Ops, PState, SubBatch
from tidemill.api.declaration import record_module
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.testing.bank_simulation import BankSimulation
from tidemill.testing.simulation import DEPOT, TOPOLOGY

SEEDS = int(os.environ.get("TIDEMILL_BANK_SEEDS", "6"))


def transfers() -> Block:
    rows = Block.explode_microbatch("*microbatch").out("*transfer").each(Ops.EXPAND, "*transfer")
    return rows.out("*giver", "*taker", "*amount", "*number")


def totals(account: str) -> SubBatch:
    """How much each account gave or took."""
    return SubBatch(transfers().group_by(account, Block.agg(Agg.sum("*amount")).out("*sum")), account, "*sum")


class JoiningBank(Module):
    """Each transfer is noted behind a join with its giver's total; balances change by sums of sub-batches."""

    def module_name(self) -> str:
        return "Bank"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot(DEPOT, Depot.random())
        mb = topologies.microbatch(TOPOLOGY)
        mb.pstate("$$seen", PState.map_schema(int, int))
        mb.pstate("$$balances", PState.map_schema(int, int))
        noted = transfers().sub_batch(totals("*giver")).out("*giver", "*given").hash_partition("*number")
        noted = noted.compound_agg("$$seen", CompoundAgg.map("*number", Agg.count()))
        losses = Block.sub_batch(totals("*giver")).out("*who", "*loss").each(Ops.MINUS, 0, "*loss").out("*change")
        gains = losses.anchor("losses").sub_batch(totals("*taker")).out("*who", "*change").anchor("gains")
        changed = gains.unify("losses", "gains").hash_partition("*who")
        changed = changed.compound_agg("$$balances", CompoundAgg.map("*who", Agg.sum("*change")))
        source = mb.source(DEPOT, MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
        source.batch_block(noted).batch_block(changed)


@lru_cache(maxsize=1)
def declared() -> ModuleDeclaration:
    return record_module(JoiningBank())


class JoinSimulation(BankSimulation):
    """The simulation of the bank with the module above."""

    def _declaration(self) -> ModuleDeclaration:
        return declared()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_joined_transfers_count_once_when_anything_fails_at_any_time(seed: int) -> None:
    run(JoinSimulation(seed), 150)
