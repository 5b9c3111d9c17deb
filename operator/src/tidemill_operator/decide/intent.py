"""Which revisions a Module's status names, and which of them have drivers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision


@dataclass(frozen=True)
class Rollback:
    """Revision `failed` was not stable; `number` is `stable`'s template again."""

    failed: int
    stable: int
    number: int
    reason: str
    message: str

    @staticmethod
    def read(status: Mapping[str, Any]) -> Rollback | None:
        """The rollback that a Module's status names, if any."""
        found = status.get("rollback")
        if not found:
            return None
        return Rollback(
            found["failedRevision"], found["stableRevision"], found["revision"], found["reason"], found["message"]
        )

    def write(self) -> Json:
        """The field `rollback` of a Module's status; `read` is its inverse."""
        return {
            "failedRevision": self.failed,
            "stableRevision": self.stable,
            "revision": self.number,
            "reason": self.reason,
            "message": self.message,
        }


@dataclass(frozen=True)
class Intent:
    """`update` is described, warmed or watched; only `active` may begin to lead; `current` is the last stable one, of
    all that were (`stable`).
    """

    update: int = 0
    active: int = 0
    current: int = 0
    update_time: str = ""
    active_time: str = ""
    rollback: Rollback | None = None
    stable: tuple[int, ...] = ()

    @staticmethod
    def read(status: Mapping[str, Any]) -> Intent:
        """The revisions that a Module's status names; 0 where it names none."""
        current = int(status.get("currentRevision", 0))
        return Intent(
            update=int(status.get("updateRevision", 0)),
            active=int(status.get("activeRevision", 0)),
            current=current,
            update_time=status.get("updateTime", ""),
            active_time=status.get("activeTime", ""),
            rollback=Rollback.read(status),
            stable=tuple(status.get("stableRevisions") or ([current] if current else [])),
        )

    def write(self) -> Json:
        """The fields of a Module's status that hold these numbers, without empty ones; `read` is its inverse."""
        found: Json = {"updateRevision": self.update, "updateTime": self.update_time}
        if self.active:
            found |= {"activeRevision": self.active, "activeTime": self.active_time}
        if self.current:
            found["currentRevision"] = self.current
            found["stableRevisions"] = list(self.stable)
        if self.rollback is not None:
            found["rollback"] = self.rollback.write()
        return {name: value for name, value in found.items() if value}

    def updating(self, number: int, now: str) -> Intent:
        """With `number` as the update since `now`. A rollback to another revision is dropped."""
        keeps = self.rollback is not None and self.rollback.number == number
        return replace(self, update=number, update_time=now, rollback=self.rollback if keeps else None)

    def stabilized(self, number: int, known: Collection[int]) -> Intent:
        """With one more that was stable; of the others those that are still `known`."""
        others = [other for other in self.stable if other != number and other in known]
        return replace(self, current=number, stable=tuple(sorted([*others, number])))

    def activating(self, number: int, now: str) -> Intent:
        """With `number` as the revision that may lead, since `now`."""
        return replace(self, active=number, active_time=now)


def live_revisions(intent: Intent, revisions: Mapping[int, Revision], is_recreate: bool) -> list[int]:
    """Revisions that have drivers, newest first.

    With Recreate the old ones go first, and the new one comes once it is active.
    """
    wanted = {intent.current, intent.active, intent.update}
    if intent.rollback is not None and intent.rollback.number == intent.active != intent.current:
        wanted.add(intent.rollback.failed)
    if is_recreate and intent.rollback is not None and intent.rollback.number == intent.active != intent.current:
        back = revisions.get(intent.active)
        wanted = {intent.active} if back is not None and back.is_valid else {intent.rollback.failed}
    elif is_recreate and is_replacing(intent, revisions):
        wanted = {intent.active} if intent.active == intent.update else set()
    return sorted((number for number in wanted if number in revisions and revisions[number].is_valid), reverse=True)


def is_replacing(intent: Intent, revisions: Mapping[int, Revision]) -> bool:
    """Whether a valid update is on its way to take over from a running revision."""
    update = revisions.get(intent.update)
    is_update_valid = update is not None and update.is_valid
    return is_update_valid and intent.active != 0 and intent.current != intent.update
