"""Whether reconciling gets on, as liveness probes and people see it."""

from __future__ import annotations

import time
from typing import Any, Final

from tidemill_operator.apply.metrics import OBJECTS
from tidemill_operator.observe.object_cache import ObjectCache
from tidemill_operator.reconcile.queue import WorkQueue

STUCK_SECONDS: Final = 120.0
"""An object that is due and not taken for so long means that the workers hang."""


def report(queue: WorkQueue, is_leader: bool) -> dict[str, Any]:
    """`isHealthy` false means that only a restart helps. The age is that of the last reconcile, in seconds."""
    age = time.monotonic() - queue.last_done if queue.last_done else None
    waited = queue.oldest_wait_seconds()
    return {
        "isHealthy": waited < STUCK_SECONDS,
        "isLeader": is_leader,
        "lastReconcileAgeSeconds": None if age is None else round(age, 1),
        "oldestWaitSeconds": round(waited, 1),
        "queueLength": len(queue),
    }


def count_objects(cache: ObjectCache) -> None:
    """Set the gauges of Modules and Topologies by state."""
    OBJECTS.clear()
    for kind in ("Module", "Topology"):
        for obj in cache.all(kind):
            OBJECTS.labels(kind=kind, state=_state(obj.get("status", {}).get("conditions", ()))).inc()


def _state(conditions: Any) -> str:
    found = {item["type"] for item in conditions if item["status"] == "True"}
    return next((kind for kind in ("Stalled", "Reconciling", "Ready") if kind in found), "Unknown")
