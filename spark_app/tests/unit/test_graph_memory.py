"""A graph without end holds as much after thousands of waves as after some: memory, files, objects of the store."""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemill import Depot, InProcessCluster, LaunchConfig, Module, TaskGraph, TumblingWindowExecutor, WindowedDataset
from tidemill.graphs import run, run_log
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.graphs.waves import Waves
from tidemill.store.urls import open_store

logger = logging.getLogger(__name__)
WAVES = int(os.environ.get("TIDEMILL_GROWTH_WAVES", "200"))
"""The batches that go through the graph; TIDEMILL_GROWTH_WAVES=20000 takes some minutes."""
SPARE = {"objects": 100, "blocks": 3_000, "arrow bytes": 100_000, "open": 3, "resident kB": 50_000, "stored": 12}
"""By how much they differ from time to time. A graph that kept a batch of each wave would have more of each kind."""


class Ticks(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*ticks", Depot.random())
        setup.declare_depot("*out", Depot.random())


def held(store: str) -> dict[str, int]:
    """What might grow with each wave."""
    gc.collect()
    return {
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "arrow bytes": pa.total_allocated_bytes(),
        "open": len(list(Path("/proc/self/fd").iterdir())),
        "resident kB": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024,
        "stored": sum(1 for _ in open_store(store).list("_tidemill")),
    }


@pytest.mark.slow
def test_nothing_grows_with_each_wave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.depot import files

    # What is bounded by a few hundred values is full before the first look, so that all else would show.
    monkeypatch.setattr(files, "_HEADERS_MAX", 50)
    monkeypatch.setattr(files, "_SEGMENTS_MAX", 20)
    monkeypatch.setattr(run_log, "ENTRIES_KEPT", 8)
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(run, "IDLE_SECONDS", (0.0005, 0.0005))
    seen: list[dict[str, int]] = []
    store = str(tmp_path / "store")
    with InProcessCluster.create("local", store=store) as cluster:
        cluster.launch_module(Ticks(), LaunchConfig(2, 1))
        depot, appended = cluster.cluster_depot("Ticks", "*ticks"), [0]
        graph = TaskGraph(store, id="flow", checkpoint_waves=2)
        ticks = graph.new_input_depot("Ticks", "*ticks", 1, endless=True)
        graph.new_output_depot({0: ticks}, "Ticks", "*out", 1)
        sums = TumblingWindowExecutor("at", 50, "k", aggregations={"n": ("at", "count")}, allowed_lateness=10)
        windows = graph.new_blocking_node({0: ticks}, sums, 1, {0: None}, kind=WindowedDataset, key="window_start")

        def look(waves: Waves) -> None:
            """One batch a wave; windows that have ended are deleted now and then."""
            if waves.is_idle or not waves.wave:
                at = 5 * appended[0]
                depot.append_many([{"at": n, "k": n % 3} for n in range(at, at + 5)])
                appended[0] += 1
                if appended[0] % (WAVES // 4) == 0:
                    for each in windows.windows():
                        delete_dataset(open_store(store), each.id)
                    seen.append(held(store))
                    logger.info("%s waves: %s", f"{appended[0]:,}", seen[-1])  # shown by --log-cli-level=INFO
                if appended[0] >= WAVES:
                    graph.stop()

        graph.observe(look)
        graph.run()
    first, _, third, last = seen
    grown = {name: min(third[name], last[name]) - first[name] for name in SPARE}
    assert all(grown[name] <= SPARE[name] for name in SPARE), (grown, seen)
