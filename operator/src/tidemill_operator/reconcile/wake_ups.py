"""Whom a change concerns: the Module and the Topologies that must be looked at again."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_operator.observe.object_cache import ObjectCache, module_of
from tidemill_operator.reconcile.queue import WorkKey, WorkQueue
from tidemill_operator.resources import names
from tidemill_operator.resources.names import Json

_SHARED = ("Module", "ControllerRevision", "ConfigMap", "ServiceAccount")
"""A change of one of these may concern every Topology of the Module."""


def wake(cache: ObjectCache, queue: WorkQueue, obj: Json) -> None:
    """Wake everything that `obj` concerns."""
    for key in keys_of(cache, obj):
        queue.wake(key)


def keys_of(cache: ObjectCache, obj: Json) -> Iterator[WorkKey]:
    """The Module and the Topologies that a change of `obj` concerns; a key may come twice."""
    namespace, module = names.namespace_of(obj), module_of(obj)
    if module is None:
        return
    yield WorkKey("Module", namespace, module)
    if obj["kind"] == "Topology":
        yield WorkKey("Topology", namespace, names.name_of(obj))
    topology = obj["metadata"].get("labels", {}).get(names.TOPOLOGY_LABEL)
    if topology is not None:
        yield WorkKey("Topology", namespace, topology)
    is_twin = obj["kind"] == "Topology"
    if obj["kind"] in _SHARED or is_twin:
        for other in cache.of_module("Topology", namespace, module):
            if not is_twin or other["spec"]["topology"] == obj["spec"]["topology"]:
                yield WorkKey("Topology", namespace, names.name_of(other))
