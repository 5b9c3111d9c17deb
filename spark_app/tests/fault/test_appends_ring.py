"""Two topologies that feed each other while their leaders die again and again: every count is exact in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from waiting import eventually

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.cluster.launch import RunningModule, launch
from tidemill.leader.check import check_module
from tidemill.local.runner import LocalRunner

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
RECORDS, ROUNDS, KILLS = 12, 15, 12
SECONDS = 60.0


class Ring(Module):
    """`a` sends what it reads on to `b` and `b` to `a`, until it went `ROUNDS` steps; each notes the steps it saw."""

    def module_name(self) -> str:
        return "Ring"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*a", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*b", Depot.disallow())
        setup.set_launch_module_dynamic_option("depot.microbatch.max.records", 3)
        for name, source, target in (("a", "*a", "*b"), ("b", "*b", "*a")):
            mb = topologies.microbatch(name)
            mb.pstate(f"$${name}", PState.map_schema(int, PState.list_schema(int)))
            rows = mb.source(source, BEGINNING).out("*mb").explode_microbatch("*mb").out("*r")
            rows = rows.each(Ops.EXPAND, "*r").out("*id", "*step").hash_partition("*id")
            rows.compound_agg(f"$${name}", CompoundAgg.map("*id", Agg.list("*step"))).if_true(
                Expr(Ops.LESS_THAN, "*step", ROUNDS),
                Block.depot_partition_append(target, Expr(Ops.TUPLE, "*id", Expr(Ops.INC, "*step"))),
            )


def wait_for(running: RunningModule, processed: int) -> None:
    topologies = running.topologies.values()
    eventually(lambda: sum(topology.state.processed for topology in topologies) >= processed, SECONDS)


@pytest.mark.usefixtures("short_leases")
def test_counts_stay_exact_when_leaders_of_a_ring_are_killed(store_url: str) -> None:
    dice = random.Random(1)
    total = RECORDS * (ROUNDS + 1)
    running = launch(store_url, Ring(), LaunchConfig(2, 1), LocalRunner())
    try:
        client = ModuleClient(running.store, "Ring", running.hub)
        DepotHandle(client, "*a").append_many([[n, 0] for n in range(RECORDS)])
        for kill in range(1, KILLS + 1):
            wanted = min(total, kill * total // (KILLS + 2) + dice.randrange(5))
            wait_for(running, wanted)
            running.kill()
            running = launch(store_url, Ring(), LaunchConfig(2, 1), LocalRunner())
        wait_for(running, total)

        for name, first in (("a", 0), ("b", 1)):
            handle = PStateHandle(ModuleClient(running.store, "Ring", running.hub), f"$${name}")
            steps = list(range(first, ROUNDS + 1, 2))
            assert all(handle.select_one(Path.key(n)) == steps for n in range(RECORDS))
        assert check_module(running.store, "Ring") == []
    finally:
        running.close()
