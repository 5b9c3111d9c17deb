"""Appends of 1k-record calls, point reads warm and cold, and row-at-a-time events; one process, a local folder.

usage: python -m benchmarks.access appends|reads|events      (prints one JSON object)
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import modules, rows, state_read
from tidemill import InProcessCluster, LaunchConfig
from tidemill import Path as Key
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.journal.options_log import OptionsLog
from tidemill.store.urls import open_store
from tidemill.tables.stored_parts import part_loader

MILLISECONDS = 1000.0
READS = 5_000
COLD_READS = 40
FIRST_READS = 10
EVENTS = 1_000_000


def appends(calls: int = 500, size: int = 1_000) -> dict[str, Any]:
    """Records a second of `append_many` of `size` Python dicts, one call after the other, each one durable."""
    records = rows.batch(1, calls * size).to_dicts()
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(modules.KeyedCount(), LaunchConfig(4, 2))
        cluster.pause_microbatch_topology("KeyedCount", "counts")
        depot = cluster.cluster_depot("KeyedCount", "*rows")
        depot.append_many(records[:size])
        seconds = []
        for call in range(1, calls):
            start = time.perf_counter()
            depot.append_many(records[call * size : (call + 1) * size])
            seconds.append(time.perf_counter() - start)
    return {
        "records_per_second": size / statistics.mean(seconds),
        "call_p50_ms": _p(seconds, 50),
        "call_p99_ms": _p(seconds, 99),
    }


def reads() -> dict[str, Any]:
    """`select_one` of one key among 1M, with the freshness probe, while the state is one large delta and once it is a
    run. Cold = a new handle and nothing of the process's own; `first` = the cache on disk is empty as well.
    """
    keys = np.random.default_rng(5).integers(0, rows.KEYS, READS).tolist()
    with InProcessCluster.create(engine="local") as cluster, cache_of_its_own() as cache:
        cluster.launch_module(modules.KeyedCount(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("KeyedCount", "*rows")
        depot.append_many(rows.all_keys())
        cluster.wait_for_microbatch_processed_count("KeyedCount", "counts", rows.KEYS, 120_000)
        found = _reads(cluster, cache, keys)
        _compact(cluster, depot)
        compacted = _reads(cluster, cache, keys)
    return {**found, **{f"compacted_{name}": value for name, value in compacted.items()}}


def _reads(cluster: InProcessCluster, cache: Path, keys: list[int]) -> dict[str, float]:
    counts = cluster.cluster_pstate("KeyedCount", "$$counts")
    counts.select_one(Key.key(keys[0]))
    warm = [_timed(lambda key=key: counts.select_one(Key.key(key))) for key in keys]
    cold = []
    for key in keys[:COLD_READS]:
        part_loader.cache_clear()
        cold.append(_timed(lambda key=key: _cold_read(cluster, key)))
    first = []
    for key in keys[:FIRST_READS]:
        shutil.rmtree(cache, ignore_errors=True)
        part_loader.cache_clear()
        first.append(_timed(lambda key=key: _cold_read(cluster, key)))
    named = {"warm": warm, "cold": cold, "first": first}
    return {f"{kind}_p{p}_ms": _p(seconds, p) for kind, seconds in named.items() for p in (50, 99)}


def _compact(cluster: InProcessCluster, depot: Any) -> None:
    """Small microbatches until the first compaction has drawn the large delta in."""
    store = open_store(cluster.store_url)
    definition = state_read.definition_of(store, "KeyedCount")
    count = rows.KEYS
    while state_read.newest(store, definition, "counts")[0].levels[0].kind == "delta":
        depot.append_many(rows.batch(count, 100))
        count += 100
        cluster.wait_for_microbatch_processed_count("KeyedCount", "counts", count, 120_000)


@contextmanager
def cache_of_its_own() -> Iterator[Path]:
    """A folder for decoded parts that nothing else uses."""
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-cache-") as folder:
        os.environ["TIDEMILL_CACHE_DIR"] = folder
        part_loader.cache_clear()
        yield Path(folder)


def _cold_read(cluster: InProcessCluster, key: int) -> Any:
    return PStateHandle(ModuleClient(cluster.store, "KeyedCount"), "$$counts").select_one(Key.key(key))


def events() -> dict[str, Any]:
    """Events a second on one core of a segment that reads, decides and writes one key an event, commits included."""
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(modules.RowEvents(), LaunchConfig(1, 1))
        depot = cluster.cluster_depot("RowEvents", "*events")
        OptionsLog(cluster.store, "RowEvents").set("depot", "*events", "depot.microbatch.max.records", 100_000)
        cluster.pause_microbatch_topology("RowEvents", "events")
        depot.append_many(rows.batch(1, EVENTS, 100_000))
        started, cpu = time.perf_counter(), time.process_time()
        cluster.resume_microbatch_topology("RowEvents", "events")
        cluster.wait_for_microbatch_processed_count("RowEvents", "events", EVENTS, 120_000)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        expected = rows.batch(1, EVENTS, 100_000).group_by("k").agg(pl.col("v").sum())
        balances = cluster.cluster_pstate("RowEvents", "$$balances")
        wrong = [key for key, total in expected.head(500).iter_rows() if balances.select_one(Key.key(key)) != total]
        if wrong:
            raise SystemExit(f"wrong balances: {wrong[:5]}")
    return {"events_per_second": EVENTS / seconds, "events_per_cpu_second": EVENTS / cpu_seconds}


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _p(seconds: list[float], percent: int) -> float:
    return float(np.percentile(seconds, percent)) * MILLISECONDS


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"appends": appends, "reads": reads, "events": events}[sys.argv[1]]()) + "\n")
