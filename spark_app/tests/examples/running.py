"""A launched example, as a client sees it."""

from __future__ import annotations

from typing import Any

from tidemill import InProcessCluster, LaunchConfig, Module, Path


class Running:
    """Use it in a `with`: it closes the cluster."""

    def __init__(self, module: Module, engine: str = "local", tasks: int = 4) -> None:
        self.name = module.module_name()
        self.cluster = InProcessCluster.create(engine)
        self.cluster.launch_module(module, LaunchConfig(tasks, min(2, tasks)))

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def append(self, depot: str, *records: Any) -> None:
        """Durable when it returns; not yet processed."""
        self.cluster.cluster_depot(self.name, depot).append_many(list(records))

    def settle(self) -> None:
        """Until each topology has processed all that was appended."""
        self.cluster.wait_until_processed(self.name)

    def send(self, depot: str, *records: Any) -> None:
        """Append, and wait until it is processed."""
        self.append(depot, *records)
        self.settle()

    def pause(self, topology: str) -> None:
        """What is appended until `resume` is one microbatch."""
        self.cluster.pause_microbatch_topology(self.name, topology)

    def resume(self, topology: str) -> None:
        self.cluster.resume_microbatch_topology(self.name, topology)

    def get(self, pstate: str, *keys: Any) -> Any:
        """The value at some keys, None if there is none."""
        return self.cluster.cluster_pstate(self.name, pstate).select_one(Path.key(*keys))

    def select(self, pstate: str, path: Path) -> list[Any]:
        return list(self.cluster.cluster_pstate(self.name, pstate).select(path))

    def entries(self, pstate: str, *keys: Any) -> dict[Any, Any]:
        """All entries of the map at some keys."""
        return dict(self.select(pstate, Path.key(*keys).all()))

    def ask(self, query: str, *arguments: Any) -> Any:
        return self.cluster.cluster_query(self.name, query).invoke(*arguments)
