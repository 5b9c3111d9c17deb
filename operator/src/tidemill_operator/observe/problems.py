"""What keeps a pod from working, in one of our reasons and a sentence with the cluster's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidemill_operator.resources.jobs import RETRY_EXIT_CODE
from tidemill_operator.resources.names import Json, name_of
from tidemill_operator.resources.reasons import Reason

_PULL: Final = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG: Final = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_PASSING: Final = "failed to sync"
"""A kubelet says this of a Secret that it has not read yet; it reads it within seconds."""

_REFUSED_EXIT_CODE: Final = 1
_OWNED_EXIT_CODE: Final = 5
_CRASHES: Final = 2
_SCHEDULING_GRACE_SECONDS: Final = 10
"""A pod may wait so long for a node that is about to be free before it counts."""

_LAST_WORDS: Final = 1200
_SECRETS: Final = re.compile(
    r"(?i)\b([\w-]*(?:secret|password|passwd|token|access_?key(?:_?id)?|authorization)[\w-]*)(\s*[=:]\s*)(\S+)"
)


@dataclass(frozen=True)
class Problem:
    """A reason that the conditions may name, with a sentence in the cluster's own words."""

    reason: Reason
    message: str


def parse_time(text: str | None) -> datetime | None:
    """A time that the API server wrote (RFC 3339), with its time zone; None for None and ""."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def age_seconds(text: str | None, now: datetime) -> float:
    """Seconds since a time of the API server; 0 if there is none."""
    then = parse_time(text)
    return 0.0 if then is None else (now - then).total_seconds()


def redacted(text: str) -> str:
    """Last words without what follows the name of a secret."""
    return _SECRETS.sub(r"\1\2***", text)


def last_words(text: str) -> str:
    """The last 1,200 characters of a log or message, with the values of secrets masked."""
    return redacted(text.strip())[-_LAST_WORDS:]


def pod_problem(pod: Mapping[str, Any], now: datetime) -> Problem | None:
    """Why the pod does not work, if something is wrong with it; None also while it is only starting."""
    if pod["metadata"].get("deletionTimestamp"):
        return None
    for status in _container_statuses(pod):
        problem = _container_problem(pod, status)
        if problem is not None:
            return problem
    return _scheduling_problem(pod, now)


def _container_statuses(pod: Mapping[str, Any]) -> Iterator[Json]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def _container_problem(pod: Mapping[str, Any], status: Mapping[str, Any]) -> Problem | None:
    waiting = status.get("state", {}).get("waiting", {})
    reason, text = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _PULL:
        return Problem(Reason.IMAGE_PULL_FAILED, f"{reason} of image {status.get('image')}: {redacted(text)}")
    if reason in _CONFIG and _PASSING not in text:
        return Problem(Reason.CONTAINER_CONFIG, f"pod {name_of(pod)}: {reason}: {redacted(text)}")
    if status.get("ready"):
        return None
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
    return None if ended is None else _ending(pod, status, ended)


def _ending(pod: Mapping[str, Any], status: Mapping[str, Any], ended: Mapping[str, Any]) -> Problem | None:
    code = ended.get("exitCode", 0)
    if code == 0:
        return None
    words = f"container {status['name']} of pod {name_of(pod)} ended with code {code}"
    if ended.get("reason") not in (None, "Error"):
        words += f" ({ended['reason']})"
    words += f": {last_words(ended.get('message', ''))}" if ended.get("message") else ""
    if code in (_REFUSED_EXIT_CODE, _OWNED_EXIT_CODE):
        return Problem(Reason.REFUSED if code == _REFUSED_EXIT_CODE else Reason.OWNED_BY_ANOTHER, words)
    is_restarted = pod.get("spec", {}).get("restartPolicy") != "Never"
    if is_restarted and int(status.get("restartCount", 0)) < _CRASHES:
        return None
    return Problem(Reason.STORE_UNAVAILABLE if code == RETRY_EXIT_CODE else Reason.CRASH_LOOP, words)


def _scheduling_problem(pod: Mapping[str, Any], now: datetime) -> Problem | None:
    for condition in pod.get("status", {}).get("conditions", ()):
        is_stuck = condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
        if is_stuck and age_seconds(condition.get("lastTransitionTime"), now) >= _SCHEDULING_GRACE_SECONDS:
            return Problem(Reason.UNSCHEDULABLE, f"pod {name_of(pod)} has no node: {condition.get('message', '')}")
    return None


def is_pod_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has the condition Ready and is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
