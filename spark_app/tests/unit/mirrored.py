"""What the stories of several modules share: a bank with a depot and a PState, and a module that mirrors them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stories import module_of

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Ops, Path, PState

BEGINNING = MicrobatchSourceOptions.start_from_beginning()


def bank(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
    mb = topologies.microbatch("mb")
    mb.pstate("$$sums", PState.map_schema(str, int))
    rows = mb.source("*moves", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
    rows = rows.each(Ops.EXPAND, "*r").out("*k", "*v")
    rows.compound_agg("$$sums", CompoundAgg.map("*k", Agg.sum("*v")))


def report(of: Any = "Bank", **where: Any) -> Callable[[Any, Any], None]:
    """Counts the moves of the bank (`of`: its name, or its class), and notes what it says of each account asked for."""

    def define(setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*theirs", of, "*moves", **where)
        setup.cluster_pstate("$$theirs", "Bank", "$$sums", **where)
        setup.declare_depot("*asks", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$answers", PState.map_schema(str, PState.list_schema(object)))
        rows = mb.source("*theirs", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
        rows = rows.each(Ops.EXPAND, "*r").out("*k", "*v").hash_partition("*k")
        rows.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))
        asks = mb.source("*asks", BEGINNING).out("*b").explode_microbatch("*b").out("*k")
        asks = asks.select("$$theirs", Path.key("*k")).out("*sum").hash_partition("*k")
        asks.compound_agg("$$answers", CompoundAgg.map("*k", Agg.list("*sum")))

    return define


def launch(cluster: InProcessCluster, name: str, define: Any, tasks: int = 2, threads: int = 1) -> None:
    cluster.launch_module(module_of(name, define), LaunchConfig(tasks, threads))


def values(cluster: InProcessCluster, module: str, pstate: str, keys: list[str]) -> dict[str, Any]:
    """What a PState has under these keys, without those that it has not."""
    handle = cluster.cluster_pstate(module, pstate)
    found = {key: handle.select_one(Path.key(key)) for key in keys}
    return {key: value for key, value in found.items() if value is not None}
