"""A module with depots of times for task graphs without end, and what tests do while such a graph runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidemill import Depot, InProcessCluster, LaunchConfig, Module, TaskGraph, WindowedDataset
from tidemill.graphs import run
from tidemill.graphs.waves import Waves

PARTITIONS = 4


class Ticks(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*ticks", Depot.random())
        setup.declare_depot("*out", Depot.random())


class Flow:
    """A store with the depots, and what is appended to them."""

    def __init__(self, cluster: InProcessCluster, store: str) -> None:
        self.cluster = cluster
        self.store = store

    def append(self, first: int, last: int) -> None:
        """Records of these times; keys are their remainders by 3."""
        self.append_rows([{"at": n, "k": n % 3} for n in range(first, last)])

    def append_rows(self, rows: list[dict[str, int]], depot: str = "*ticks") -> None:
        self.cluster.cluster_depot("Ticks", depot).append_many(rows)

    def out(self) -> list[int]:
        depot = self.cluster.cluster_depot("Ticks", "*out")
        ends = [depot.get_partition_info(number).end_offset for number in range(PARTITIONS)]
        return sorted(row["at"] for number, end in enumerate(ends) for row in depot.read(number, 0, end))


@contextmanager
def flowing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    """A store with the module, for graphs that make a checkpoint whenever they may and hardly wait."""
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(run, "IDLE_SECONDS", (0.001, 0.001))
    with InProcessCluster.create(store=folder / "store") as cluster:
        cluster.launch_module(Ticks(), LaunchConfig(PARTITIONS, 2))
        yield Flow(cluster, str(folder / "store"))


def on_idle(graph: TaskGraph, *actions: Callable[[], object], first_wave: int = 1) -> None:
    """Do one of these each time that a graph has nothing to do and has published all, and stop it after them."""
    left = [*actions, graph.stop]

    def look(waves: Waves) -> None:
        published = not waves.staged_rows and not any(each.windows for each in waves.channels.values())
        if waves.is_idle and published and left and waves.wave >= first_wave:
            left.pop(0)()

    graph.observe(look)


def when_told(graph: TaskGraph, *actions: Callable[[], object]) -> None:
    """Do one of these each time that all nodes were told that inputs idle and all is published; stop after them."""
    left = [*actions, graph.stop]

    def look(waves: Waves) -> None:
        published = not any(each.windows for each in waves.channels.values())
        if waves.is_idle and waves.wave and published and not waves.untold and left:
            left.pop(0)()

    graph.observe(look)


def totals(windows: WindowedDataset) -> dict[str, int]:
    """The rows that were counted in each window."""
    return {each.id.rpartition("/")[2]: each.to_polars()["n"].sum() for each in windows.windows()}
