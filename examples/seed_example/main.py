"""Runs the example module in this process and prints three lines: `python examples/seed_example/main.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.seed_example.module import ExampleMicrobatchTopologyModule
from tidemill import InProcessCluster, LaunchConfig, Path, to_text

NAME = "ExampleMicrobatchTopologyModule"


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(ExampleMicrobatchTopologyModule(), LaunchConfig(4, 4))
        numbers = cluster.cluster_depot(NAME, "*numbersDepot")
        pairs = cluster.cluster_depot(NAME, "*keyPairsDepot")

        for number in (1, 3, 7):
            numbers.append(number)
        for pair in (["a", "b"], ["a", "b"], ["a", "c"], ["x", "y"], ["x", "y"], ["x", "y"], ["x", "z"]):
            pairs.append(pair)
        cluster.wait_for_microbatch_processed_count(NAME, "mb", 10)

        total = cluster.cluster_pstate(NAME, "$$globalSum")
        counts = cluster.cluster_pstate(NAME, "$$keyPairCounts")
        lines = (
            f"Global sum: {to_text(total.select_one(Path.stay()))}",
            f"Counts for 'a': {to_text(counts.select(Path.key('a').all()))}",
            f"Counts for 'x': {to_text(counts.select(Path.key('x').all()))}",
        )
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
