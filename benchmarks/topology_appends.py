"""What appending from a topology costs: small and large microbatches with and without it, turn by turn in one run.

usage: python -m benchmarks.topology_appends [ROUNDS]
Prints a line of JSON. Milliseconds from a client's append to the commit (with appends: to their publication) are
medians; objects are those in a module's logs for each small microbatch; seconds of a large one are the least of three.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PState,
)

LARGE = 400_000
BEGINNING = MicrobatchSourceOptions.start_from_beginning()


class Plain(Module):
    """Counts records by key."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        setup.set_launch_module_dynamic_option("depot.microbatch.max.records", LARGE)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        rows = mb.source("*in", BEGINNING).out("*mb").explode_microbatch("*mb").out("*r")
        rows = rows.each(Ops.EXPAND, "*r").out("*key", "*value")
        self.go_on(setup, rows.compound_agg("$$counts", CompoundAgg.map("*key", Agg.count())))

    def go_on(self, setup: Any, rows: Any) -> None:
        """Nothing more."""


class Appending(Plain):
    """The same, and appends each record to a depot."""

    def go_on(self, setup: Any, rows: Any) -> None:
        setup.declare_depot("*out", Depot.disallow())
        rows.depot_partition_append("*out", "*r")


def processed(cluster: InProcessCluster, module: Module, count: int) -> None:
    cluster.wait_for_microbatch_processed_count(module.module_name(), "mb", count, 120_000)


def main(rounds: int) -> None:
    modules = {"plain": Plain(), "appending": Appending()}
    small: dict[str, list[float]] = {name: [] for name in modules}
    large: dict[str, list[float]] = {name: [] for name in modules}
    objects = {}
    with tempfile.TemporaryDirectory() as folder, InProcessCluster.create("local", Path(folder).as_uri()) as cluster:
        for module in modules.values():
            cluster.launch_module(module, LaunchConfig(4, 2))
        depots = {name: cluster.cluster_depot(module.module_name(), "*in") for name, module in modules.items()}
        for number in range(1, rounds + 1):
            for name, module in modules.items():
                begin = time.perf_counter()
                depots[name].append([number, number])
                processed(cluster, module, number)
                small[name].append(1000 * (time.perf_counter() - begin))
        for name, module in modules.items():
            keys = list(cluster.store.list(module.module_name()))
            objects[name] = len([key for key in keys if "/log/" in key]) / rounds
        count = rounds
        for _ in range(3):
            count += LARGE
            batch = [[number % 1000, number] for number in range(LARGE)]
            for name, module in modules.items():
                cluster.pause_microbatch_topology(module.module_name(), "mb")
                depots[name].append_many(batch)
                begin = time.perf_counter()
                cluster.resume_microbatch_topology(module.module_name(), "mb")
                processed(cluster, module, count)
                large[name].append(time.perf_counter() - begin)
    print(json.dumps({
        "small_ms": {name: round(statistics.median(held), 2) for name, held in small.items()},
        "small_ratio": round(statistics.median(small["appending"]) / statistics.median(small["plain"]), 2),
        "log_objects_a_small_microbatch": objects,
        "large_seconds": {name: round(min(held), 3) for name, held in large.items()},
        "large_ratio": round(min(large["appending"]) / min(large["plain"]), 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
