"""Clients append all the time while their module is destroyed and launched anew, and while updates delete their depot
and add one of the same name: what is acknowledged in a life of the depot is counted in that life, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Module, PState
from tidemill.api.launch import UpdateOptions
from tidemill.clients.barrier import ProcessedWatch
from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect
from tidemill.testing.faulty_store import FaultyObjectStore
from tidemill.values.errors import UnknownName

LIVES = 4
APPENDS = 5
SECONDS = 120.0
BEGINNING = MicrobatchSourceOptions.start_from_beginning()
Append = Callable[[DepotHandle, str, int], Any]


class Shop(Module):
    """Counts each order."""

    def module_name(self) -> str:
        return "Shop"

    def define(self, setup: Any, topologies: Any) -> None:
        self.keep(setup, topologies)
        setup.declare_depot("*orders", Depot.random())
        count = topologies.microbatch("count")
        count.pstate("$$counts", PState.map_schema(str, int))
        stream = count.source("*orders", BEGINNING).out("*m").explode_microbatch("*m").out("*order")
        stream.hash_partition("*order").compound_agg("$$counts", CompoundAgg.map("*order", Agg.count()))

    def keep(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*others", Depot.random())
        topologies.microbatch("keep").source("*others").out("*m")


class Closed(Shop):
    """Takes no orders."""

    def define(self, setup: Any, topologies: Any) -> None:
        self.keep(setup, topologies)


class Client:
    """Appends `<name>-1`, `<name>-2`, … in a thread; what it is told that there is no depot for is given up."""

    def __init__(self, store: ObjectStore, name: str, append: Append) -> None:
        self.name, self._append = name, append
        self._module = ModuleClient(store, "Shop")
        self._over = threading.Event()
        self.begun = 0
        self.acknowledged: list[int] = []
        self.refused = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        handle: DepotHandle | None = None
        try:
            while not self._over.is_set():
                self.begun += 1
                try:
                    handle = handle or DepotHandle(self._module, "*orders")
                    self._append(handle, f"{self.name}-{self.begun}", self.begun)
                    self.acknowledged.append(self.begun)
                except UnknownName:
                    self.refused += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def acknowledged_since(self, begun: int) -> set[str]:
        """What was begun after that, and is acknowledged by now."""
        assert self.error is None, self.error
        return {f"{self.name}-{number}" for number in list(self.acknowledged) if number > begun}

    def close(self) -> None:
        self._over.set()
        self._thread.join(SECONDS)
        self._module.close()


def twice(handle: DepotHandle, record: str, number: int) -> None:
    """A producer that always repeats itself."""
    for _ in range(2):
        handle.append(record, producer="p", sequence=number)


WAYS: dict[str, Append] = {
    "one": lambda handle, record, number: handle.append(record),
    "many": lambda handle, record, number: handle.append_many([record]),
    "twice": twice,
}


@contextmanager
def clients(store_url: str) -> Iterator[list[Client]]:
    """Each with a connection of its own, and with the pace of looks that clients have where objects are no files."""
    made = [Client(FaultyObjectStore(connect(store_url)), name, append) for name, append in WAYS.items()]
    try:
        yield made
    finally:
        for client in made:
            client.close()


def destroyed(cluster: InProcessCluster) -> None:
    cluster.destroy_module("Shop")
    cluster.launch_module(Shop(), LaunchConfig(2, 1))


def deleted(cluster: InProcessCluster) -> None:
    cluster.update_module(Closed(), UpdateOptions.objects_to_delete("*orders", "$$counts"))
    cluster.update_module(Shop())


def counted(cluster: InProcessCluster) -> dict[str, int]:
    """The counts, with all that was appended before."""
    definition = DefinitionLog(cluster.store, "Shop").newest()
    assert definition is not None
    ProcessedWatch.of_all(cluster.store, definition, "count").wait(SECONDS, SystemClock())
    return dict(cluster.cluster_pstate("Shop", "$$counts").scan())


@pytest.mark.slow
@pytest.mark.parametrize("change", [destroyed, deleted])
def test_acknowledged_records_count_once_when_the_depot_is_deleted_and_made_anew_under_their_clients(
    store_url: str, change: Callable[[InProcessCluster], None]
) -> None:
    with InProcessCluster.create(store=store_url) as cluster:
        cluster.launch_module(Shop(), LaunchConfig(2, 1))
        with clients(store_url) as appending:
            for _ in range(LIVES):
                check_life(cluster, appending)
                change(cluster)


def check_life(cluster: InProcessCluster, appending: list[Client]) -> None:
    """What was begun in this life, and acknowledged in it, is counted once; nothing is counted twice."""
    begun = [(client, client.begun) for client in appending]
    eventually(lambda: all(len(client.acknowledged_since(n)) >= APPENDS for client, n in begun), SECONDS)
    acknowledged = set().union(*(client.acknowledged_since(n) for client, n in begun))
    counts = counted(cluster)
    assert acknowledged <= counts.keys(), "an acknowledged record of this life is not counted"
    assert set(counts.values()) == {1}
