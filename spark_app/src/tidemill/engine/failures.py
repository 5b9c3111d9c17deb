"""Errors of the module's own code, with all that its author needs: the step, the traceback, a sample of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.language.dataflow import Location
from tidemill.store.objects import NotFound
from tidemill.values.errors import (
    AttemptTimeout,
    BadInput,
    BudgetExceeded,
    CorruptState,
    InvariantViolation,
    NewerFormat,
    RecordsTrimmed,
    RetryableError,
    SnapshotExpired,
    UserCodeError,
    message_of,
    own_trace,
)
from tidemill.values.texts import shortened

SAMPLE_CHARS_MAX = 2000
_NOT_THE_MODULES = (
    UserCodeError,
    BudgetExceeded,
    RetryableError,
    InvariantViolation,
    AttemptTimeout,
    CorruptState,
    NewerFormat,
    RecordsTrimmed,
    SnapshotExpired,
    NotFound,
)
"""What a step raises that is not the fault of the module's code: its state cannot be read, or it was stopped."""

_OF_NONE = "A value is None, as one is that a path does not find: give a default with null_to_val(…), or leave it out."


def user_error(
    error: BaseException, step: str, at: Location, sample: Mapping[str, Any] | None, *, is_general: bool = False
) -> BaseException:
    """`error` as the `UserCodeError` to raise from it; errors that are not the module's pass as they are.

    `is_general`: the step takes more time or room than it may, which is no fault of the record; any TimeoutError too.
    """
    if isinstance(error, _NOT_THE_MODULES):
        return error
    said = message_of(error)
    text = f"{step} at {at} raised {type(error).__name__}: {said}"
    if isinstance(error, TypeError) and "NoneType" in said:
        text += f"{'' if said.endswith('.') else '.'} {_OF_NONE}"
    shown = sample_text(sample) if sample is not None else ""
    if shown:
        text += f" (record: {shown[:300]})"
    found = UserCodeError(text, step=f"{step} at {at}", trace=own_trace(error), sample=shown)
    found.row = sample
    if is_general or isinstance(error, (TimeoutError, MemoryError)):
        found.context["is_general"] = True
    return found


def failing_row(rows: int, is_good: Callable[[int, int], None]) -> int:
    """The row that makes an operation on many rows fail: `is_good(first, last)` raises where it is among them.

    Halves the rows again and again, so it costs about as much as the operation; only where an attempt is lost anyway.
    """
    first, last = 0, rows
    while last - first > 1:
        middle = (first + last) // 2
        try:
            is_good(first, middle)
        except Exception:  # noqa: BLE001 - whatever the operation raises
            last = middle
        else:
            first = middle
    return first


def error_of(operation: Callable[[], object]) -> Exception | None:
    """What an operation raises. Of many rows several may fail; what is said should be said of the row that is shown."""
    try:
        operation()
    except Exception as error:  # noqa: BLE001 - whatever the operation raises
        return error
    return None


def sample_text(sample: Mapping[str, Any]) -> str:
    """The variables of one row, as short as they must be."""
    parts = []
    for name, value in sample.items():
        try:
            parts.append(f"{name.split(chr(39))[0]}={value!r}")
        except Exception as error:  # noqa: BLE001 - a value whose repr fails must not hide the error itself
            parts.append(f"{name}=<{type(error).__name__} in repr>")
    return shortened(", ".join(parts), SAMPLE_CHARS_MAX)


def out_of_range(step: str, at: Location, target: Any, tasks: int) -> UserCodeError:
    """A partitioner that chose a task which does not exist."""
    error = BadInput(f"chose task {target!r}, but tasks are 0 to {tasks - 1}")
    return UserCodeError(f"{step} at {at} {error}.", step=f"{step} at {at}", trace=str(error), sample=repr(target))
