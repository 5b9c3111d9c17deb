"""Why an attempt or a compaction failed, as an event: the code says who must act."""

from __future__ import annotations

import traceback

from tidemill.leader.events import AttemptFailed, CompactionFailed
from tidemill.values.data import with_utf8
from tidemill.values.errors import TidemillError, UserCodeError, ends_programs, message_of

TRACE_CHARS_MAX = 8_000
SAMPLE_CHARS_MAX = 2_000
MESSAGE_CHARS_MAX = 2_000


def attempt_failed(token: int, error: BaseException) -> AttemptFailed:
    """The event for an error of an attempt; long texts are cut, because log entries must stay small."""
    code = _code(error)
    message = _cut(_message(error), MESSAGE_CHARS_MAX)
    if isinstance(error, UserCodeError):
        trace = _cut(error.trace, TRACE_CHARS_MAX)
        why = "what fails is no record, but a bound or something outside" if error.context.get("is_general") else ""
        sample = _cut(error.sample, SAMPLE_CHARS_MAX)
        return AttemptFailed(token, code, message, error.step, trace, sample, not_found=why)
    trace = "" if isinstance(error, TidemillError) else "".join(traceback.format_exception(error))
    return AttemptFailed(token, code, message, trace=_cut(trace, TRACE_CHARS_MAX))


def compaction_failed(token: int, error: BaseException) -> CompactionFailed:
    """The event for an error of a compaction."""
    return CompactionFailed(token, _code(error), with_utf8(f"{type(error).__name__}: {message_of(error)}"))


def is_of_record(error: BaseException) -> bool:
    """Whether the module's code raised, as it may do because of one record; not where it takes more than it may."""
    if isinstance(error, UserCodeError):
        return not error.context.get("is_general")
    return ends_programs(error)


def _code(error: BaseException) -> str:
    if not isinstance(error, Exception):
        return UserCodeError.code
    return error.code if isinstance(error, TidemillError) else "InternalError"


def _message(error: BaseException) -> str:
    text = message_of(error)
    if not isinstance(error, Exception):
        return f"A function of the module raised {type(error).__name__} ({text}), which ends programs; return instead."
    return text or type(error).__name__


def _cut(text: str, chars_max: int) -> str:
    """The text, or its beginning and its end; the end of a traceback says what went wrong."""
    text = with_utf8(text)  # before it is cut: it may become longer
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
