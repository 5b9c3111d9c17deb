"""A gateway whose handles know a module that another process destroyed, and perhaps launched anew, meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from deleted_depots import Still, records
from gateways import served

from tidemill import Depot, LaunchConfig, Module
from tidemill.api.declaration import record_module
from tidemill.client import Client
from tidemill.cluster.launch import definition_for_launch, destroy
from tidemill.gateway.modules import Modules
from tidemill.journal.clock import SystemClock
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import UnknownName


class Shop(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*orders", Depot.random())


def launch(store: MemoryStore) -> None:
    definition_for_launch(store, record_module(Shop()), LaunchConfig(2, 1), SystemClock())


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    launch(made)
    return made


@pytest.fixture
def client(store: MemoryStore) -> Iterator[Client]:
    """It has appended one record already: the gateway's handle is warm."""
    with served(Modules(store, clock=Still())) as server, Client(server.url) as made:
        made.depot("Shop", "*orders").append("old", producer="p", sequence=1)
        yield made


def test_append_counts_in_the_new_depot_when_the_module_was_launched_anew(store: MemoryStore, client: Client) -> None:
    destroy(store, "Shop")
    launch(store)
    depot = client.depot("Shop", "*orders")
    depot.append("plain")
    for _ in range(2):
        depot.append("numbered", producer="p", sequence=2)
    depot.append_many(["many", "more"])
    assert records(store, "*orders") == ["many", "more", "numbered", "plain"]


def test_append_is_refused_in_a_sentence_when_the_module_was_destroyed(store: MemoryStore, client: Client) -> None:
    destroy(store, "Shop")
    for _ in range(2):
        with pytest.raises(UnknownName, match="was destroyed"):
            client.depot("Shop", "*orders").append("late")
