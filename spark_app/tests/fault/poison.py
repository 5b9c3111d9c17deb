"""A module whose one function a test chooses, and what tests of bad input ask of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Failure
from tidemill.leader.report import RunnerState
from tidemill.store import urls
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore

NAME = "Tally"
TIMEOUT = "topology.microbatch.phase.timeout.seconds"


class Tally(Module):
    """Counts what `function` makes of each record."""

    def __init__(
        self,
        function: Callable[..., Any] = Ops.IDENTITY,
        *,
        schema: Any = None,
        by: Any = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._function = function
        self._schema = schema if schema is not None else PState.map_schema(str, int)
        self._by = by if by is not None else Agg.count()
        self._options = options or {}

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*closed", Depot.disallow())
        setup.declare_tick_depot("*tick", 86_400_000)
        for name, value in self._options.items():
            setup.set_launch_module_dynamic_option(name, value)
        mb = topologies.microbatch("tally")
        mb.pstate("$$counts", self._schema)
        mb.pstate("$$hidden", PState.map_schema(str, int)).make_private()
        mb.pstate("$$nested", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        (mb.source("*words").out("*microbatch")
           .explode_microbatch("*microbatch").out("*record")
           .each(self._function, "*record").out("*word")
           .hash_partition("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", self._by)))  # fmt: skip


def launch(cluster: InProcessCluster, module: Module | None = None) -> None:
    cluster.launch_module(module or Tally(), LaunchConfig(2, 1))


def append(cluster: InProcessCluster, *records: Any) -> None:
    cluster.cluster_depot(NAME, "*words").append_many(list(records))


def wait(cluster: InProcessCluster, count: int, timeout_millis: int = 30_000) -> None:
    cluster.wait_for_microbatch_processed_count(NAME, "tally", count, timeout_millis=timeout_millis)


def counts(cluster: InProcessCluster, *words: str) -> list[Any]:
    handle = cluster.cluster_pstate(NAME, "$$counts")
    return [handle.select_one(Path.key(word)) for word in words]


def state(cluster: InProcessCluster) -> RunnerState:
    return cluster._running[NAME].topologies["tally"].state


def failure(cluster: InProcessCluster) -> Failure:
    """Why the newest attempt failed; waits for one."""
    runner = cluster._running[NAME].topologies["tally"]
    found: Failure | None = runner.wait_for(lambda now: now.report.failure is not None, 20).report.failure
    assert found is not None
    return found


def commit_log(cluster: InProcessCluster) -> CommitLog:
    definition = cluster._client(NAME).definition()
    return CommitLog(cluster.store, definition.topology_prefix("tally"))


def faulty(url: str, plan: FaultPlan) -> FaultyObjectStore:
    """The store of this URL, for everything in this process, with faults."""
    store = FaultyObjectStore(urls.connect(url), plan)
    urls._opened[os.getpid(), url] = store
    return store


def objects(folder: Folder) -> dict[str, bytes]:
    """Every object of a store in a folder; leases and probes are none."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in sorted(files.items())
        if "/lease/" not in name and not path.name.startswith(".")
    }


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return when `condition` is true; fail after `seconds`."""
    pace, clock = threading.Event(), SystemClock()
    end = clock.monotonic_ms() + 1000 * seconds
    while not condition():
        assert clock.monotonic_ms() < end, f"not true after {seconds} s"
        pace.wait(0.01)
