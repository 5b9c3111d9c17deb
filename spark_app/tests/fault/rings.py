"""Two modules that feed each other: `Left` and `Right`, which have different numbers of tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrored import BEGINNING
from stories import module_of

from tidemill import Agg, Block, CompoundAgg, Depot, Expr, LaunchConfig, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.cluster.launch import RunningModule, launch, update
from tidemill.journal.clock import SystemClock
from tidemill.leader.check import check_module
from tidemill.local.runner import LocalRunner
from tidemill.store.objects import ObjectStore

RECORDS, ROUNDS = 12, 15
SECONDS = 60.0
TASKS = {"Left": 2, "Right": 4}


def feeding(own: str, other: str) -> Callable[[Any, Any], None]:
    """Sends what it reads on to the other module, until it went `ROUNDS` steps; notes the steps it saw."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        setup.set_launch_module_dynamic_option("depot.microbatch.max.records", 3)
        mb = topologies.microbatch("mb")
        mb.pstate("$$seen", PState.map_schema(int, PState.list_schema(int)))
        rows = mb.source("*in", BEGINNING).out("*mb").explode_microbatch("*mb").out("*r")
        rows = rows.each(Ops.EXPAND, "*r").out("*id", "*step").hash_partition("*id")
        rows = rows.compound_agg("$$seen", CompoundAgg.map("*id", Agg.list("*step")))
        if other:
            setup.cluster_depot("*theirs", other, "*in")
            on = Block.hash_partition("*theirs", "*id")
            on = on.depot_partition_append("*theirs", Expr(Ops.TUPLE, "*id", Expr(Ops.INC, "*step")))
            rows.if_true(Expr(Ops.LESS_THAN, "*step", ROUNDS), on)

    return define


def run(url: str, own: str, other: str) -> RunningModule:
    return launch(url, module_of(own, feeding(own, other)), LaunchConfig(TASKS[own], 1), LocalRunner())


def closed(url: str) -> dict[str, RunningModule]:
    """Left, then Right, which mirrors it, then Left anew, which mirrors Right."""
    left = run(url, "Left", "")
    right = run(url, "Right", "Left")
    left.close()
    update(left.store, record_module(module_of("Left", feeding("Left", "Right"))), (), SystemClock())
    return {"Left": run(url, "Left", "Right"), "Right": right}


def others() -> dict[str, str]:
    return {"Left": "Right", "Right": "Left"}


def processed(running: dict[str, RunningModule]) -> int:
    return sum(module.topologies["mb"].state.processed for module in running.values())


def check_counts(store: ObjectStore) -> None:
    for name, first in (("Left", 0), ("Right", 1)):
        handle = PStateHandle(ModuleClient(store, name), "$$seen")
        steps = list(range(first, ROUNDS + 1, 2))
        assert [handle.select_one(Path.key(n)) for n in range(RECORDS)] == [steps] * RECORDS
        assert check_module(store, name) == []


def feed(store: ObjectStore) -> None:
    DepotHandle(ModuleClient(store, "Left"), "*in").append_many([[n, 0] for n in range(RECORDS)])
