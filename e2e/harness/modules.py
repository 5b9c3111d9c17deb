"""Manifests of Modules and Topologies as a user writes them."""

from __future__ import annotations

from typing import Any

from e2e.harness.kubernetes import Object

API = "tidemill.dev/v1alpha1"
COUNTS = {"image": "localhost/tidemill/counts:v1", "entry": "counts:Counts", "tasks": 4, "threads": 2}
FLIGHTS = {"image": "localhost/tidemill/flights:dev", "entry": "flights.module:FlightsModule", "tasks": 4, "threads": 2}
EXAMPLES = {"image": "localhost/tidemill/examples:dev", "tasks": 4, "threads": 2}
SMALL_SPARK: Object = {
    "executors": {"count": 1},
    "driver": {"resources": {"requests": {"cpu": "100m", "memory": "700Mi"}, "limits": {"memory": "1200Mi"}}},
    "executor": {"resources": {"requests": {"cpu": "100m", "memory": "700Mi"}, "limits": {"memory": "1200Mi"}}},
}
"""A driver and one executor that fit on a small machine several times."""


def module(namespace: str, name: str, store_url: str, base: Object, **spec: Any) -> Object:
    """A Module; `spec` is merged over `base`."""
    merged = {**base, "store": {"url": store_url, "credentialsSecretRef": {"name": "store"}}, **spec}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "Module", "metadata": metadata, "spec": merged}


def topology(namespace: str, name: str, module_name: str, topology_name: str, **spec: Any) -> Object:
    """A Topology."""
    metadata = {"name": name, "namespace": namespace}
    content = {"moduleRef": {"name": module_name}, "topology": topology_name, **spec}
    return {"apiVersion": API, "kind": "Topology", "metadata": metadata, "spec": content}


def image(variant: str) -> str:
    """The image of a revision of the `Counts` module."""
    return f"localhost/tidemill/counts:{variant}"
