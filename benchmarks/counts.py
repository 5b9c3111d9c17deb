"""Keyed counts on Tidemill: rounds of a backlog that is processed in microbatches of one size, compaction included.

Run as a process of its own, so that its memory is its own; prints one JSON object.
usage: python -m benchmarks.counts KIND --batch-rows N --rounds N --per-round N --keys N [--placement P] [--preload]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any

import polars as pl

from benchmarks import memory, modules, rows, state_read
from tidemill import InProcessCluster, LaunchConfig
from tidemill.journal.options_log import OptionsLog
from tidemill.store.urls import open_store
from tidemill.tables.compaction_plan import DELTAS_MAX, plan

TASKS = 4
THREADS = 2
TOPOLOGY = "counts"
MODULE = "KeyedCount"
SECONDS_MAX = 600


class Contest:
    """One module on one engine and one folder; every batch that was appended is remembered for the truth at the end."""

    def __init__(self, cluster: InProcessCluster, kind: str, placement: str, keys: int) -> None:
        self.cluster = cluster
        module = modules.ColocatedKeyedCount() if kind == "colocated" else modules.KeyedCount()
        cluster.launch_module(module, LaunchConfig(TASKS, THREADS))
        self.depot = cluster.cluster_depot(MODULE, "*rows")
        self.store = open_store(cluster.store_url)
        self.definition = state_read.definition_of(self.store, MODULE)
        self.options = OptionsLog(self.store, MODULE)
        self.options.set("topology", TOPOLOGY, "topology.microbatch.placement", placement)
        self.truth = rows.Truth(keys)
        self.appended = 0

    def gather(self, batches: Iterable[pl.DataFrame], batch_rows: int) -> None:
        """Append while the topology is paused, so that a round starts with its whole backlog."""
        self.cluster.pause_microbatch_topology(MODULE, TOPOLOGY)
        self.options.set("depot", "*rows", "depot.microbatch.max.records", -(-batch_rows // TASKS))
        for batch in batches:
            self.depot.append_many(batch)
            self.appended += batch.height
            self.truth.add(batch)

    def release(self, is_compacted: bool = True) -> float:
        """Seconds until all is processed and, if asked, until no compaction is left to do."""
        start = time.perf_counter()
        self.cluster.resume_microbatch_topology(MODULE, TOPOLOGY)
        self.cluster.wait_for_microbatch_processed_count(MODULE, TOPOLOGY, self.appended, SECONDS_MAX * 1000)
        if is_compacted:
            self.wait_for_compaction()
        return time.perf_counter() - start

    def wait_for_compaction(self) -> None:
        """Until the newest entry leaves nothing to merge."""
        limit = time.perf_counter() + SECONDS_MAX
        while plan(*state_read.newest(self.store, self.definition, TOPOLOGY)) is not None:
            if time.perf_counter() > limit:
                raise SystemExit("Compaction does not catch up")
            time.sleep(0.005)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Warm up with one round, then `rounds` rounds of `per_round` batches; the state is read whole at the end."""
    with InProcessCluster.create(engine=arguments.engine) as cluster, memory.Peaks() as peaks:
        placement = "auto" if arguments.preload else arguments.placement
        contest = Contest(cluster, arguments.kind, placement, arguments.keys)
        if arguments.preload:
            contest.gather(rows.preload(arguments.keys), rows.BATCH_ROWS)
            contest.release()
            contest.options.set("topology", TOPOLOGY, "topology.microbatch.placement", arguments.placement)
        seed = 0
        seconds = []
        for _ in range(arguments.rounds + 1):
            size = range(seed, seed + arguments.per_round)
            batches = (rows.batch(number, arguments.batch_rows, arguments.keys) for number in size)
            contest.gather(batches, arguments.batch_rows)
            seconds.append(contest.release() / arguments.per_round)
            seed += arguments.per_round
        start = time.perf_counter()
        state = state_read.totals(contest.store, contest.definition, TOPOLOGY, "$$counts")
        read_seconds = time.perf_counter() - start
        expected = contest.truth.totals()
        if state != expected:
            raise SystemExit(f"The state is wrong: {state} instead of {expected}")
        return {
            "seconds": seconds[1:],
            "median": statistics.median(seconds[1:]),
            "mean": statistics.mean(seconds[1:]),
            "state": list(state),
            "read_seconds": read_seconds,
            "memory": peaks.megabytes(),
        }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("repartition", "colocated"))
    parser.add_argument("--batch-rows", type=int, default=rows.BATCH_ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-round", type=int, default=DELTAS_MAX, help="so that each round has its compaction")
    parser.add_argument("--keys", type=int, default=rows.KEYS)
    parser.add_argument("--placement", default="auto")
    parser.add_argument("--engine", default="spark")
    parser.add_argument("--preload", action="store_true", help="start with a state of all keys")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(parse(sys.argv[1:]))) + "\n")
