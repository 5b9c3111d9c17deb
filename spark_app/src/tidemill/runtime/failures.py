"""Why an attempt failed, as an event: the code says who must act, the trace is that of the user's function."""

from __future__ import annotations

import traceback
from typing import Final

from tidemill.engine.failures import message_of
from tidemill.model.entries import Failure
from tidemill.model.errors import MicrobatchFails, RetryableError, TidemillError, UserCodeError
from tidemill.runtime.events import AttemptFailed, CompactionFailed

REPEATED: Final = 3
"""A microbatch that failed so often in the same way will fail again: people who wait are told."""

TRACE_CHARS_MAX = 8_000
SAMPLE_CHARS_MAX = 2_000
MESSAGE_CHARS_MAX = 2_000


def attempt_failed(token: int, error: BaseException) -> AttemptFailed:
    """The event for an error of an attempt; long texts are cut, because log entries must stay small."""
    code = _code(error)
    message = _cut(_message(error), MESSAGE_CHARS_MAX)
    if isinstance(error, UserCodeError):
        trace = _cut(error.trace, TRACE_CHARS_MAX)
        return AttemptFailed(token, code, message, error.step, trace, _cut(error.sample, SAMPLE_CHARS_MAX))
    trace = "" if isinstance(error, TidemillError) else "".join(traceback.format_exception(error))
    return AttemptFailed(token, code, message, trace=_cut(trace, TRACE_CHARS_MAX))


def compaction_failed(token: int, error: BaseException) -> CompactionFailed:
    """The event for an error of a compaction."""
    return CompactionFailed(token, _code(error), f"{type(error).__name__}: {error}")


def _code(error: BaseException) -> str:
    if not isinstance(error, Exception):
        return UserCodeError.code
    return error.code if isinstance(error, TidemillError) else "InternalError"


class Repetition:
    """Counts how often in a row a microbatch fails in the same way."""

    def __init__(self) -> None:
        self._way: tuple[int, str, str] | None = None
        self._version = 0
        self._count = 0

    def sees(self, failure: Failure | None) -> bool:
        """Whether the failure as it is told now, None for none, is one that time does not mend: it came for the third
        time.
        """
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


_PASSING: Final = _codes(RetryableError) | {"OutcomeUnknown", "SnapshotExpired", "NotFound"}
"""What the next attempt may not meet again."""


def _message(error: BaseException) -> str:
    text = message_of(error)
    if not isinstance(error, Exception):
        return f"A function of the module raised {type(error).__name__} ({text}), which ends programs; return instead."
    return text or type(error).__name__


def _cut(text: str, chars_max: int) -> str:
    """The text, or its beginning and its end; the end of a traceback says what went wrong."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
