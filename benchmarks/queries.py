"""Queries that fan out over 10 tasks, warm, each with its freshness probe: in the process of who asks, and over HTTP.

usage: python -m benchmarks.queries library|gateway      (prints one JSON object)
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import numpy as np

from benchmarks import modules, rows
from benchmarks.gateway import gateway, minio_store
from tidemill import Agg, InProcessCluster, LaunchConfig, Ops, Path
from tidemill.cluster.launch import launch
from tidemill.local.runner import LocalRunner
from tidemill.values.data import route

TASKS, FAN_OUT, KEYS, CALLS = 16, 10, 100_000, 1_000
MILLISECONDS = 1000.0


class QueriedCount(modules.KeyedCount):
    """Counts by key, and a query for those of several keys."""

    def define(self, setup: Any, topologies: Any) -> None:
        super().define(setup, topologies)
        of = topologies.query("of", "*keys").out("*found").each(Ops.EXPLODE, "*keys").out("*key")
        of = of.select("$$counts", Path.key("*key", "count")).out("*count").origin_partition()
        of.agg(Agg.map("*key", "*count")).out("*found")


def keys() -> list[list[int]]:
    """Keys of so many calls, those of each on 10 different tasks."""
    drawn = np.random.default_rng(5).integers(0, KEYS, (CALLS, 40 * FAN_OUT)).tolist()
    return [list({route(key, TASKS): key for key in call}.values())[:FAN_OUT] for call in drawn]


def library() -> dict[str, Any]:
    """Calls of a handle in the process that runs the module."""
    with tempfile.TemporaryDirectory() as folder, InProcessCluster.create("local", folder) as cluster:
        cluster.launch_module(QueriedCount(), LaunchConfig(TASKS, 2))
        cluster.cluster_depot("KeyedCount", "*rows").append_many(rows.all_keys(KEYS))
        cluster.wait_until_processed("KeyedCount")
        of = cluster.cluster_query("KeyedCount", "of")
        return _timed(of.invoke)


def through_gateway() -> dict[str, Any]:
    """Requests to a gateway on MinIO, over one connection."""
    with minio_store() as store:
        running = launch(store, QueriedCount(), LaunchConfig(TASKS, 2), LocalRunner())
        try:
            with gateway(store, "--entry", "benchmarks.queries:QueriedCount") as (_, url):
                return _asked(url)
        finally:
            running.close()


def _asked(url: str) -> dict[str, Any]:
    at = "/api/v1/modules/KeyedCount"
    with httpx.Client(base_url=url, timeout=60) as http:
        frame = rows.all_keys(KEYS)
        for start in range(0, KEYS, 50_000):
            body = "".join(json.dumps(row) + "\n" for row in frame.slice(start, 50_000).to_dicts())
            kind = {"content-type": "application/x-ndjson"}
            http.post(f"{at}/depots/rows/append", content=body, headers=kind).raise_for_status()
        while http.get(f"{at}/topologies/counts").json()["processed"] < KEYS:
            threading.Event().wait(0.1)

        def invoke(given: list[int]) -> Any:
            response = http.post(f"{at}/queries/of/invoke", json=[given])
            response.raise_for_status()
            return {int(key): count for key, count in response.json().items()}

        return _timed(invoke)


def _timed(invoke: Callable[[list[int]], Any]) -> dict[str, Any]:
    seconds = []
    for given in keys():
        start = time.perf_counter()
        found = invoke(given)
        seconds.append(time.perf_counter() - start)
        if found != dict.fromkeys(given, 1):
            raise SystemExit(f"The counts of {given} are wrong: {found}")
    warm = np.array(seconds[CALLS // 10 :]) * MILLISECONDS
    return {"p50_ms": float(np.percentile(warm, 50)), "p99_ms": float(np.percentile(warm, 99))}


if __name__ == "__main__":
    print(json.dumps({"library": library, "gateway": through_gateway}[sys.argv[1]]()))
