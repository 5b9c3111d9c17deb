"""Orders, and a service that fails at first: `python examples/rest_enrichment/demo.py`."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

sys.path.insert(0, str(FilePath(__file__).resolve().parents[2]))

from examples.rest_enrichment.module import RestEnrichment
from examples.rest_enrichment.service import Service
from tidemill import InProcessCluster, LaunchConfig, Path

REGIONS = {"0150": "Oslo", "00100": "Rome"}


def main() -> None:
    with (
        Service(REGIONS, lambda code, call: 503 if call == 1 else 200) as service,
        InProcessCluster.create() as cluster,
    ):
        cluster.launch_module(RestEnrichment(service.address), LaunchConfig(4, 2))
        orders = cluster.cluster_depot("RestEnrichment", "*orders")
        orders.append_many([{"id": f"o{n}", "zip": list(REGIONS)[n % 2], "cents": 100 + n} for n in range(20)])
        orders.append({"id": "o20", "zip": "99999", "cents": 5})
        cluster.wait_until_processed("RestEnrichment")
        orders.append({"id": "o21", "zip": "0150", "cents": 1})
        cluster.wait_until_processed("RestEnrichment")

        enriched = cluster.cluster_pstate("RestEnrichment", "$$orders")
        revenue = cluster.cluster_pstate("RestEnrichment", "$$revenue")
        print("order o1:", enriched.select_one(Path.key("o1")))
        for region in ("Oslo", "Rome", "unknown"):
            print(f"{region}: {revenue.select_one(Path.key(region))} cents")
        print("requests:", dict(sorted(service.calls.items())))


if __name__ == "__main__":
    main()
