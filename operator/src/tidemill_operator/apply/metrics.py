"""What the operator measures about itself (Prometheus)."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

API_CALLS: Final = Counter("tidemill_operator_api_calls", "Requests to the API server.", ["verb", "kind", "code"])
RECONCILES: Final = Counter("tidemill_operator_reconciles", "Reconciles by kind and result.", ["kind", "result"])
RECONCILE_SECONDS: Final = Histogram(
    "tidemill_operator_reconcile_seconds",
    "How long one reconcile took.",
    ["kind"],
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
QUEUE_SECONDS: Final = Histogram(
    "tidemill_operator_queue_seconds",
    "From waking an object to reconciling it.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)
QUEUE_LENGTH: Final = Gauge("tidemill_operator_queue_length", "Objects that wait to be reconciled.")
IS_LEADER: Final = Gauge("tidemill_operator_is_leader", "1 on the replica that reconciles.")
OBJECTS: Final = Gauge("tidemill_operator_objects", "Modules and Topologies by state.", ["kind", "state"])
LAST_RECONCILE: Final = Gauge("tidemill_operator_last_reconcile_timestamp_seconds", "When a reconcile last ended.")
REPAIRS: Final = Counter("tidemill_operator_repairs", "Objects of ours that were gone or changed.", ["kind"])
EVENTS: Final = Counter("tidemill_operator_events", "Events by reason.", ["reason"])
