"""Merges a user's part of a pod template over ours.

Objects merge by key. Lists whose elements have a merge key in a pod's schema (containers, volumes, env, ports, mounts,
image pull secrets, host aliases) merge by it, other lists are replaced. A `null` takes a field away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemill_operator.resources.names import Json

MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}

IDENTITY: Final = ("serviceAccountName", "serviceAccount", "restartPolicy")
"""Fields of a pod's spec that are ours alone. The custom resource refuses them; an older one of a cluster may not."""


def merge_template(ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> Json:
    """`ours` with `theirs` over it.

    Our labels win, because selectors and the operator read them, and so does what says whose rights the pod has.
    """
    if not theirs:
        return dict(ours)
    spec = {field: value for field, value in (theirs.get("spec") or {}).items() if field not in IDENTITY}
    merged = merge(ours, {**theirs, "spec": spec})
    kept = ours.get("metadata", {}).get("labels", {})
    if kept:
        merged["metadata"]["labels"] = {**merged["metadata"].get("labels", {}), **kept}
    return merged


def merge(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Json:
    """`theirs` over `ours`, by the rules at the head of this file; neither is changed."""
    result = dict(ours)
    for key, value in theirs.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merge(result[key], value)
        elif key in MERGE_KEYS and isinstance(result.get(key), list) and isinstance(value, list):
            result[key] = _merge_list(result[key], value, MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _merge_list(ours: Sequence[Any], theirs: Sequence[Any], merge_key: str) -> list[Any]:
    result = list(ours)
    places = {item.get(merge_key): place for place, item in enumerate(result) if isinstance(item, Mapping)}
    for item in theirs:
        place = places.get(item.get(merge_key)) if isinstance(item, Mapping) else None
        if place is None:
            result.append(item)
        else:
            result[place] = merge(result[place], item)
    return result
