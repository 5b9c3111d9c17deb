"""Purchases in three rounds, and who leads after each: `python examples/top_users/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.top_users.module import TopUsers
from tidemill import InProcessCluster, LaunchConfig, Path

ROUNDS = (
    [("ann", 500), ("bob", 300), ("cid", 400)],
    [("bob", 350), ("dot", 20), ("dot", 30)],
    [("dot", 900)],
)


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(TopUsers(), LaunchConfig(4, 2))
        purchases = cluster.cluster_depot("TopUsers", "*purchases")
        top = cluster.cluster_pstate("TopUsers", "$$top")
        for bought in ROUNDS:
            purchases.append_many([{"user": user, "cents": cents} for user, cents in bought])
            cluster.wait_until_processed("TopUsers")
            print(", ".join(f"{user} {cents}" for user, cents in top.select_one(Path.stay())))


if __name__ == "__main__":
    main()
