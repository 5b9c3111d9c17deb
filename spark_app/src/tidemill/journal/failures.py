"""What a stored failure says: whether it lasts, and how people are told."""

from __future__ import annotations

from typing import Final

from tidemill.journal.entries import Failure
from tidemill.values.errors import MicrobatchFails, RetryableError, TidemillError

RECORD_QUARANTINED: Final = "RecordQuarantined"
"""The code of a failure at a record without which the next version of the microbatch runs."""

REPEATED: Final = 3
"""A microbatch that failed so often in the same way will fail again: a wait for its result ends with that error."""


class Repetition:
    """Counts how often in a row a microbatch fails in the same way."""

    def __init__(self) -> None:
        self._way: tuple[int, str, str] | None = None
        self._version = 0
        self._count = 0

    def sees(self, failure: Failure | None) -> bool:
        """Whether this failure (None: there is none) is one that time does not mend: it came for the third time."""
        if failure is None or not is_lasting(failure):
            self._way, self._count = None, 0
            return False
        way = (failure.microbatch_id, failure.code, failure.message)
        if way != self._way:
            self._way, self._version, self._count = way, failure.version, 1
        elif failure.version > self._version:
            self._version, self._count = failure.version, self._count + 1
        return self._count >= REPEATED


def is_lasting(failure: Failure) -> bool:
    """Whether the next attempt meets it again, as far as its code tells."""
    return failure.code not in _PASSING


def fails(failure: Failure, text: str) -> MicrobatchFails:
    """For who waits for a microbatch that fails in the same way each time."""
    return MicrobatchFails(text, step=failure.step, trace=failure.trace, sample=failure.sample)


def failure_text(failure: Failure) -> str:
    """A failure in one line."""
    is_named = not failure.step or failure.message.startswith(failure.step)
    step = "" if is_named else f" in {failure.step}"
    return f"{failure.code}{step}: {failure.message}"


def _codes(kind: type[TidemillError]) -> set[str]:
    return {kind.code}.union(*map(_codes, kind.__subclasses__()))


_PASSING: Final = _codes(RetryableError) | {RECORD_QUARANTINED, "OutcomeUnknown", "SnapshotExpired", "NotFound"}
"""What the next attempt may not meet again."""
