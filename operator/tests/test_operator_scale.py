"""Fifty topologies in one operator: what it costs at rest, and while drivers write their status each second."""

from __future__ import annotations

import asyncio
import time

from api_double import ClusterDouble
from test_operator_rollouts import module, numbers

COUNT = 50


def fifty() -> ClusterDouble:
    cluster = ClusterDouble()
    cluster.images["flights:1"] = {"topologies": [f"t{number}" for number in range(COUNT)]}
    cluster.api.put(module())
    asyncio.run(cluster.settle(30))
    assert numbers(cluster) == (1, 1, 1)
    assert len(cluster.api.names("Deployment")) == COUNT + 1
    return cluster


def test_nothing_is_asked_of_the_api_server_when_fifty_drivers_only_commit() -> None:
    cluster = fifty()
    cluster.api.calls.clear()
    cluster.operator.reconciles.clear()

    asyncio.run(cluster.settle(30))

    assert sum(cluster.api.calls.values()) == 0
    assert cluster.operator.reconciles == {"Topology": 50}, "once, by time: whether its driver still reports"


def test_fifty_topologies_start_with_few_calls_each() -> None:
    cluster = fifty()

    made = {verb: count for verb, count in cluster.api.calls.items() if verb not in ("create",)}
    per_topology = sum(made.values()) / COUNT
    assert per_topology < 12, made


def test_a_reconcile_takes_milliseconds_when_there_are_fifty_topologies() -> None:
    cluster = fifty()
    keys = [("Module", "flights"), *(("Topology", name) for name in cluster.api.names("Topology"))]
    started = time.perf_counter()

    for kind, name in keys:
        cluster.operator.queue.wake(_key(kind, name))
    asyncio.run(cluster.operator.step())

    assert (time.perf_counter() - started) / len(keys) < 0.05


def _key(kind: str, name: str):  # type: ignore[no-untyped-def]
    from tidemill_operator.reconcile.queue import WorkKey

    return WorkKey(kind, "ns", name)
