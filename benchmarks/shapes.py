"""Small microbatches on the engine `local` for several shapes of one module: (tasks, threads).

The shapes take turns, so that changes of the machine's speed meet all of them. Each batch is appended, and then timed
until readers see it. The state of each shape is read whole at the end. Prints one JSON object.
usage: python -m benchmarks.shapes --rounds N
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

from benchmarks import modules, rows, state_read
from tidemill import InProcessCluster, LaunchConfig

BATCH_ROWS = 10_000
TASKS = 4
THREADS = 2
MANY_TASKS = 512
SHAPES = ((TASKS, THREADS), (4_096, THREADS), (MANY_TASKS, THREADS), (MANY_TASKS, 64), (MANY_TASKS, 256))
WARM_UP = 4
MODULE, TOPOLOGY = "KeyedCount", "counts"


class Contestant:
    """One shape on a folder of its own."""

    def __init__(self, stack: ExitStack, shape: tuple[int, int]) -> None:
        self.cluster = stack.enter_context(InProcessCluster.create(engine="local"))
        self.cluster.launch_module(modules.KeyedCount(), LaunchConfig(*shape))
        self.depot = self.cluster.cluster_depot(MODULE, "*rows")
        self.appended = 0
        self.seconds: list[float] = []

    def take(self, batch: Any) -> None:
        self.depot.append_many(batch)
        self.appended += batch.height
        start = time.perf_counter()
        self.cluster.wait_for_microbatch_processed_count(MODULE, TOPOLOGY, self.appended)
        self.seconds.append(time.perf_counter() - start)

    def totals(self) -> list[int]:
        definition = state_read.definition_of(self.cluster.store, MODULE)
        return list(state_read.totals(self.cluster.store, definition, TOPOLOGY, "$$counts"))


def run(rounds: int) -> dict[str, Any]:
    """Median seconds a batch of each shape, by "tasks/threads"."""
    with ExitStack() as stack:
        contestants = {shape: Contestant(stack, shape) for shape in SHAPES}
        truth = rows.Truth(rows.KEYS)
        for seed in range(rounds + WARM_UP):
            batch = rows.batch(seed, BATCH_ROWS)
            truth.add(batch)
            for contestant in contestants.values():
                contestant.take(batch)
        for shape, contestant in contestants.items():
            if contestant.totals() != list(truth.totals()):
                raise SystemExit(f"The state of {shape} is wrong: {contestant.totals()} instead of {truth.totals()}")
        return {
            f"{tasks}/{threads}": statistics.median(contestant.seconds[WARM_UP:])
            for (tasks, threads), contestant in contestants.items()
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    sys.stdout.write(json.dumps(run(parser.parse_args().rounds)) + "\n")
