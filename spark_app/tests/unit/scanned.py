"""A module with a PState of each shape, and what is written to it, for tests of scans, SQL and Spark."""

from __future__ import annotations

import datetime
from typing import Any

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState

TASKS = 4
DAY = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
PROFILE = PState.fixed_keys_schema(
    "name", str, "tags", PState.set_schema(str), "seen", datetime.datetime, "scores", PState.map_schema(str, int),
    "k0", int, "likes", PState.set_schema(int).subindexed(),
)  # fmt: skip
SCHEMAS = {
    "counts": PState.map_schema(str, PState.map_schema(int, int).subindexed()),
    "late": PState.map_schema(str, PState.set_schema(int).subindexed()),
    "sets": PState.map_schema(str, PState.set_schema(int).subindexed()),
    "lists": PState.map_schema(str, PState.list_schema(float).subindexed()),
    "any": PState.map_schema(object, object),
    "times": PState.map_schema(datetime.datetime, PState.list_schema(PState.map_schema(int, bytes))),
    "users": PState.map_schema(int, PROFILE),
}


class Shapes(Module):
    """A PState of each shape and two depots for it: `*put_x` takes [key, value], and `*drop_x` [key]."""

    def define(self, setup: Any, topologies: Any) -> None:
        user = PState.fixed_keys_schema("id", int, "name", str, "time", float, "tags", PState.list_schema(str))
        setup.declare_depot("*people", Depot.hash_by("id")).schema(user)
        setup.declare_depot("*events", Depot.hash_by("id"))
        setup.declare_depot("*ticks", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$total", int).global_().initial_value(7)
        mb.pstate("$$plain", int).initial_value(1)
        mb.pstate("$$hidden", PState.map_schema(str, int)).make_private()
        mb.source("*ticks").out("*m").explode_microbatch("*m").out("*n").agg("$$plain", Agg.sum("*n"))
        for name, schema in SCHEMAS.items():
            setup.declare_depot(f"*put_{name}", Depot.hash_by(Ops.FIRST))
            setup.declare_depot(f"*drop_{name}", Depot.hash_by(Ops.FIRST))
            mb.pstate(f"$${name}", schema)
            put = mb.source(f"*put_{name}").out("*m").explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r")
            put.out("*key", "*value").local_transform(f"$${name}", Path.key("*key").term_val("*value"))
            drop = mb.source(f"*drop_{name}").out("*m").explode_microbatch("*m").out("*r").each(Ops.FIRST, "*r")
            drop.out("*key").local_transform(f"$${name}", Path.key("*key").term_void())


class Shown:
    """The module on a cluster; each call of `put` or `drop` is one microbatch."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self._count = 0
        cluster.launch_module(Shapes(), LaunchConfig(TASKS, 2))

    def put(self, name: str, values: dict[Any, Any]) -> None:
        """Each key gets its value, whole."""
        self._append(f"*put_{name}", [[key, value] for key, value in values.items()])

    def drop(self, name: str, *keys: Any) -> None:
        """The keys go, with all that is below them."""
        self._append(f"*drop_{name}", [[key] for key in keys])

    def add(self, *numbers: int) -> None:
        """To the plain number of whichever task takes them."""
        self._append("*ticks", list(numbers))

    def _append(self, depot: str, records: list[Any]) -> None:
        self.cluster.pause_microbatch_topology("Shapes", "mb")
        self.cluster.cluster_depot("Shapes", depot).append_many(records)
        self._count += len(records)
        self.cluster.resume_microbatch_topology("Shapes", "mb")
        self.cluster.wait_for_microbatch_processed_count("Shapes", "mb", self._count)
