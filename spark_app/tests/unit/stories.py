"""What the stories share: a module made of one `define`, its cluster, and rows that a topology leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidemill import InProcessCluster, LaunchConfig, Module, PState

Define = Callable[[Any, Any], None]


def module_of(name: str, define: Define) -> Module:
    """A module of this name whose `define(setup, topologies)` is the given function."""

    class StoryModule(Module):
        def module_name(self) -> str:
            return name

        def define(self, setup: Any, topologies: Any) -> None:
            define(setup, topologies)

    return StoryModule()


class Story:
    """A launched module with a topology `mb`: one microbatch at a time, and what its PStates hold then."""

    def __init__(self, cluster: InProcessCluster, name: str, define: Define, tasks: int = 4, threads: int = 2) -> None:
        self.cluster = cluster
        self.name = name
        cluster.launch_module(module_of(name, define), LaunchConfig(tasks, threads))
        self._count = 0

    def batch(self, **records: Iterable[Any]) -> None:
        """One microbatch of these records of the depots `*<keyword>`, in their order."""
        self.cluster.pause_microbatch_topology(self.name, "mb")
        for depot, values in records.items():
            handle = self.cluster.cluster_depot(self.name, f"*{depot}")
            for value in values:
                handle.append(value)
                self._count += 1
        self.cluster.resume_microbatch_topology(self.name, "mb")
        self.cluster.wait_for_microbatch_processed_count(self.name, "mb", self._count)

    def pstate(self, name: str) -> Any:
        return self.cluster.cluster_pstate(self.name, name)


def rows_schema() -> Any:
    """A PState of rows that a topology wrote: `"label" -> [values…]`."""
    return PState.map_schema(str, PState.list_schema(object))
