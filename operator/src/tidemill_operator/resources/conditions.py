"""Conditions as kstatus and Flux read them: Ready always; Reconciling and Stalled only while they are true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_operator.resources.names import Json
from tidemill_operator.resources.reasons import Reason

MESSAGE_LIMIT = 4000


@dataclass(frozen=True)
class State:
    """What an object's conditions say together. `kind` is ready, reconciling or stalled.

    `is_serving` says whether it works all the same, such as on the old revision during an update or after one failed:
    then Ready stays true beside Reconciling, and is false beside Stalled, as GitOps tools expect of a failed change.
    """

    kind: str
    reason: Reason
    message: str
    is_serving: bool = False


def ready(reason: Reason, message: str) -> State:
    """The object works as its spec asks."""
    return State("ready", reason, message, is_serving=True)


def reconciling(reason: Reason, message: str, is_serving: bool = False) -> State:
    """The operator is at work on a change; `is_serving` says whether the object works meanwhile."""
    return State("reconciling", reason, message, is_serving)


def stalled(reason: Reason, message: str, is_serving: bool = False) -> State:
    """The change cannot go on before somebody acts; `is_serving` says whether the object works all the same."""
    return State("stalled", reason, message, is_serving)


def conditions(state: State, old: Sequence[Mapping[str, Any]], generation: int, now: str) -> list[Json]:
    """The conditions of `state`; lastTransitionTime moves only where a status changes."""
    message = state.message[:MESSAGE_LIMIT]
    is_ready = state.kind == "ready" or (state.kind == "reconciling" and state.is_serving)
    wanted = [("Ready", "True" if is_ready else "False", state.reason, message)]
    if state.kind == "reconciling":
        wanted.append(("Reconciling", "True", state.reason, message))
    if state.kind == "stalled":
        wanted.append(("Stalled", "True", state.reason, message))
    before = {item["type"]: item for item in old}
    return [_condition(before.get(item[0]), item, generation, now) for item in wanted]


def _condition(before: Mapping[str, Any] | None, item: tuple[str, str, Reason, str], generation: int, now: str) -> Json:
    kind, status, reason, message = item
    is_same = before is not None and before["status"] == status
    return {
        "type": kind,
        "status": status,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": before["lastTransitionTime"] if before is not None and is_same else now,
        "observedGeneration": generation,
    }


def is_stalled(old: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these conditions have Stalled with status True."""
    return any(item["type"] == "Stalled" and item["status"] == "True" for item in old)


def stalled_before(old: Sequence[Mapping[str, Any]], generation: int, is_serving: bool = False) -> State | None:
    """The Stalled condition last reported of this generation: it stays so while a retry of it has not ended."""
    for item in old:
        if item["type"] == "Stalled" and item["status"] == "True" and item.get("observedGeneration") == generation:
            return stalled(Reason(item["reason"]), str(item.get("message", "")), is_serving)
    return None


def stalled_reason(old: Sequence[Mapping[str, Any]]) -> str | None:
    """The reason of the condition Stalled; None if there is no such condition."""
    return next((item["reason"] for item in old if item["type"] == "Stalled"), None)
