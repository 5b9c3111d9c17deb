"""Gateways for tests: a test cluster whose depots and PStates are reached over HTTP, on a real port of loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidemill import InProcessCluster, LaunchConfig, Module
from tidemill.api.declaration import record_module
from tidemill.client import Client
from tidemill.gateway.modules import Modules
from tidemill.gateway.server import GatewayServer
from tidemill.gateway.settings import GatewaySettings

WAYS = ("process", "http")


class Reached:
    """A cluster's own methods, but handles that go through a gateway."""

    def __init__(self, cluster: InProcessCluster, client: Client) -> None:
        self._cluster = cluster
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def cluster_depot(self, module: str, name: str) -> Any:
        return self.client.cluster_depot(module, name)

    def cluster_pstate(self, module: str, name: str) -> Any:
        return self.client.cluster_pstate(module, name)

    def cluster_query(self, module: str, name: str) -> Any:
        return self.client.cluster_query(module, name)


@contextmanager
def served(modules: Modules, settings: GatewaySettings | None = None) -> Iterator[GatewayServer]:
    """A gateway that answers on a free port."""
    server = GatewayServer(modules, settings or GatewaySettings(), "127.0.0.1", 0)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def launched(way: str, module: Module, config: LaunchConfig) -> Iterator[Any]:
    """A cluster that runs the module, reached in this process or over HTTP."""
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(module, config)
        if way == "process":
            yield cluster
            return
        modules = Modules(cluster.store, declaration=record_module(module))
        with served(modules) as server, Client(server.url) as client:
            yield Reached(cluster, client)
