"""What of an object can change a decision. A driver writes its status each second; most of that wakes nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_COMMITS_COUNTED: Final = 10
"""More commits since a claim than this count as equal here; a rollout that wants more is looked at by time."""


def change_fingerprint(obj: Mapping[str, Any]) -> Any:
    """A value that is equal for two states of an object between which nothing has to be decided."""
    metadata = obj["metadata"]
    frame = (metadata.get("generation"), metadata.get("deletionTimestamp"), metadata.get("labels"), metadata.get("uid"))
    match obj["kind"]:
        case "Topology":
            return frame, _topology(obj.get("status", {}))
        case "Pod":
            return frame, _pod(obj.get("status", {}))
        case "Deployment":
            return frame, _deployment(obj.get("status", {}))
        case _:
            return metadata.get("uid"), metadata.get("resourceVersion")


def _topology(status: Mapping[str, Any]) -> Any:
    return (
        *(
            status.get(name)
            for name in ("leader", "revision", "claimTime", "conditions", "startedFrom", "skippedCount")
        ),
        status.get("phase") == "Paused",
        bool(status.get("storeTrouble")),
        bool(status.get("inQuarantineCount")),
        min(int(status.get("commitsSinceClaim", 0)), _COMMITS_COUNTED),
        min(int(status.get("failuresInRow", 0)), 3),
        "lag" in status,
        any(status.get("lag", {}).values()),
    )


def _pod(status: Mapping[str, Any]) -> Any:
    conditions = [(item["type"], item["status"], item.get("reason")) for item in status.get("conditions", ())]
    containers = [
        (item["name"], item.get("ready"), item.get("restartCount"), _state(item.get("state", {})))
        for item in status.get("containerStatuses", ())
    ]
    return status.get("phase"), conditions, containers


def _state(state: Mapping[str, Any]) -> Any:
    return [(name, found.get("reason"), found.get("exitCode")) for name, found in state.items()]


def _deployment(status: Mapping[str, Any]) -> Any:
    counts = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas")
    conditions = [(item["type"], item["status"], item.get("reason")) for item in status.get("conditions", ())]
    return [status.get(name) for name in counts], conditions
