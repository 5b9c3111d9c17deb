"""Publishing what committed microbatches appended to depots: what is to be published, when, and what waits for it.

An entry of the log lists the appends of committed microbatches until a later entry leaves out those that are in their
depots. So a leader that finds some publishes them first; that a leader before did so already shows in the depot, for an
append has a number that counts once (`leader.publisher`, invariant S8).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Final

from tidemill.engine.work import AttemptOutcome
from tidemill.journal.entries import AppendIdentity, Entry, StagedAppend
from tidemill.leader import events
from tidemill.leader.events import Instruction
from tidemill.values.errors import invariant

MICROBATCHES_MAX: Final = 16
"""So many committed microbatches may wait for their appends to be published before nothing new is begun."""

PARTS_MAX: Final = 512
"""And so many parts of theirs: entries must stay small."""

MICROBATCH_PARTS_MAX: Final = 1_000
"""A microbatch with more parts is not committed, for its entry could not be written."""

BACK_OFF_MS: Final = (100.0, 500.0, 2_000.0, 5_000.0)


def refusal_of(outcome: AttemptOutcome) -> str:
    """Why an attempt appends too much to be committed; empty if it does not."""
    parts = len(outcome.appends)
    if parts <= MICROBATCH_PARTS_MAX:
        return ""
    size = sum(part.part.bytes for part in outcome.appends)
    return (
        f"it appends {size:,} bytes to depots, in {parts:,} parts, {MICROBATCH_PARTS_MAX:,} are the most; "
        "append less for each record, or lower depot.microbatch.max.records and launch the module anew"
    )


@dataclass
class Publication:
    """At most one publication at a time. `depots` are those that the module has, as entries name them, `sinks` those of
    them that are in other systems.
    """

    depots: Set[str]
    sinks: Set[str] = frozenset()
    trouble: str = ""
    _token: int | None = None
    _failures: int = 0
    _next_at: float = 0.0
    _delivered: set[AppendIdentity] = field(default_factory=set)

    def waiting(self, entry: Entry) -> tuple[StagedAppend, ...]:
        """What is to be published. What is for a depot that an update deleted waits too, but for a rollback."""
        there = (each for each in entry.appends if each.depot in self.depots)
        return tuple(each for each in there if each.identity not in self._delivered)

    def work(self, entry: Entry, token: int, at: float) -> list[Instruction]:
        """What is to be started now."""
        if self._token is not None or at < self._next_at or not entry.appends:
            return []
        waiting = self.waiting(entry)
        if not waiting:
            return []
        is_committed = all(each.microbatch_id <= entry.last_id for each in waiting)
        invariant(is_committed, "S8: only what is committed is published", last_id=entry.last_id)
        self._token = token
        return [events.PublishAppends(token, waiting)]

    def take(self, event: events.AppendsPublished, at: float) -> None:
        """Note what a publication came to."""
        if event.token != self._token:
            return
        self._token = None
        self._delivered.update(event.delivered)
        self.trouble = event.text
        self._failures = self._failures + 1 if event.text else 0
        if event.text:
            self._next_at = at + BACK_OFF_MS[min(self._failures, len(BACK_OFF_MS)) - 1]

    def without_delivered(self, entry: Entry) -> Entry:
        """The entry to go on from, without what is published."""
        if not self._delivered:
            return entry
        return replace(entry, appends=tuple(each for each in entry.appends if each.identity not in self._delivered))

    def has_news(self, entry: Entry) -> bool:
        """Whether an entry lists what a sink has by now.

        What is in a depot its log tells; what another system holds nobody else knows, and an update may send to another
        place what is listed.
        """
        if self._token is not None or not self._delivered:
            return False
        return any(each.depot in self.sinks and each.identity in self._delivered for each in entry.appends)

    def note_written(self, entry: Entry) -> None:
        """What this entry leaves out need not be remembered."""
        self._delivered.intersection_update([each.identity for each in entry.appends])

    def is_crowded(self, entry: Entry) -> bool:
        """Whether so much is not published that nothing new is begun."""
        waiting = self.waiting(entry) if entry.appends else ()
        microbatches = {each.microbatch_id for each in waiting}
        return len(microbatches) >= MICROBATCHES_MAX or sum(len(each.parts) for each in waiting) >= PARTS_MAX

    def look_at(self, entry: Entry, until: float) -> float:
        """When there is something to do, at the latest at `until`."""
        return min(until, self._next_at) if self._token is None and self.waiting(entry) else until
