"""`tidemill drive`, wired: the pod's facts from the environment, the API, the engine, the probes, the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tidemill.cluster.stores import absolute_url
from tidemill.journal.clock import Clock, SystemClock
from tidemill.kubernetes.api import ClusterApi
from tidemill.kubernetes.driver import Driver, DriverNames
from tidemill.kubernetes.engines import engine_opener
from tidemill.kubernetes.probes import DriverHealth, DriverMetrics, ProbeServer
from tidemill.kubernetes.revision_gate import RevisionPlan
from tidemill.spark.given_settings import pod_from_environment
from tidemill.store.urls import open_store
from tidemill.store.watched import WatchedStore
from tidemill.values.errors import RetryableError

START_MS: Final = 60_000.0
"""How long a start waits for the store, before its container ends with exit code 3."""

AGAIN_MS: Final = 1_000.0
Made = TypeVar("Made")
log = logging.getLogger("tidemill.drive")

__all__ = ["ResourceNames", "RevisionPlan", "drive"]


@dataclass(frozen=True)
class ResourceNames:
    """The Module and the Topology in the cluster, and the topology's name in the code."""

    module: str
    topology: str
    code_topology: str


def drive(
    plan: RevisionPlan,
    resources: ResourceNames,
    store_url: str,
    engine: str,
    conf: Path,
    port: int,
    stop: threading.Event,
) -> None:
    """Drive one topology until `stop` is set.

    Raises:
        DefinitionError, BadInput: the module or its settings must change.
        RetryableError: store, API or engine did not answer at the start.
    """
    pod = pod_from_environment("`tidemill drive` runs in a pod; use `tidemill run` elsewhere", resources.topology)
    clock, health = SystemClock(), DriverHealth()
    labels = {"module": resources.module, "topology": resources.topology, "revision": str(plan.revision)}
    metrics = DriverMetrics(health, labels)
    drivers: list[Driver] = []
    server = ProbeServer(port, health, metrics, lambda: drivers[0].trouble if drivers else "")
    api = ClusterApi(pod.namespace)
    try:
        names = DriverNames(resources.module, resources.topology, resources.code_topology, pod.name, pod.uid)
        opener = engine_opener(engine, conf, f"tidemill {plan.declaration.name} {names.code_topology}", pod, api)

        def make() -> Driver:
            store = WatchedStore(open_store(absolute_url(store_url)), clock.monotonic_ms)
            return Driver(names, plan, store, api, opener, health, metrics, clock, store.silence)

        driver = patiently(make, health, stop, clock)
        if driver is not None:
            drivers.append(driver)
            driver.run(stop)
    finally:
        api.close()
        server.close()


def patiently(make: Callable[[], Made], health: DriverHealth, stop: threading.Event, clock: Clock) -> Made | None:
    """What `make` makes, as soon as the store answers; None where `stop` came first.

    A driver that ends would only start again, with all that it costs, on a store that is busy already.

    Raises:
        RetryableError: the store has not answered for long.
    """
    end = clock.monotonic_ms() + START_MS
    while not stop.is_set():
        try:
            return make()
        except RetryableError as error:
            if clock.monotonic_ms() >= end:
                raise
            log.warning("%s", error)
            health.text = str(error)
            clock.wait(stop, AGAIN_MS)
    return None
