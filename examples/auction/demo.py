"""An auction, bids, and the moment when it ends: `python examples/auction/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.auction.module import Auction
from tidemill import InProcessCluster, LaunchConfig, Path


def main() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Auction(clock="depot"), LaunchConfig(4, 2))  # the demo says what time it is
        listings = cluster.cluster_depot("Auction", "*listings")
        bids = cluster.cluster_depot("Auction", "*bids")
        clock = cluster.cluster_depot("Auction", "*clock")
        listings.append({"id": "l1", "seller": "sue", "item": "a lamp", "ends": 1_000})
        cluster.wait_until_processed("Auction")
        for bidder, cents in (("ann", 500), ("bob", 700), ("cid", 600), ("ann", 900)):
            bids.append({"listing": "l1", "bidder": bidder, "cents": cents})
        cluster.wait_until_processed("Auction")
        for now in (999, 1_000, 1_001):
            clock.append(now)
        cluster.wait_until_processed("Auction")

        found = cluster.cluster_pstate("Auction", "$$listings").select_one(Path.key("l1"))
        print(f"sold to {found['leader']} for {found['cents']}; still open: {found['open']}")
        notifications = cluster.cluster_pstate("Auction", "$$notifications")
        for user in ("sue", "ann", "bob", "cid"):
            print(f"{user}: {notifications.select(Path.key(user).all())}")


if __name__ == "__main__":
    main()
