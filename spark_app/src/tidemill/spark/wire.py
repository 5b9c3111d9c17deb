"""What else than payloads travels between stages: reports and failures, marked so that a step never sees them.

A user's exception is data here, not a failed Spark task: it needs no parsing of Java stack traces, Spark retries
nothing, and nothing is logged twice. The stages after it only pass it on.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from tidemill.values import errors

CONTROL = b"\x00tidemill-control\x00"
"""No payload starts with it: those of `engine` begin with a length or a letter."""


@dataclass(frozen=True)
class TaskFailure:
    """What one task raised, as bytes: where they are read, its class need not be importable until then."""

    error: bytes


@dataclass
class Inbox:
    """The records of one partition, sorted by what they are."""

    payloads: list[bytes] = field(default_factory=list)
    controls: list[Any] = field(default_factory=list)

    @property
    def failure(self) -> TaskFailure | None:
        """The first failure among the control records; None if every task did its work."""
        return next((control for control in self.controls if isinstance(control, TaskFailure)), None)


def pack_control(control: Any) -> bytes:
    """A control record as bytes; `unpack_control` is its inverse."""
    return CONTROL + pickle.dumps(control, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_control(record: bytes) -> Any:
    """The object in a control record. For bytes of our own workers only: unpickling runs code."""
    return pickle.loads(record[len(CONTROL) :])


def read_inbox(records: Iterable[bytes]) -> Inbox:
    """Sorts records; the empty one with which a job starts is none."""
    inbox = Inbox()
    for record in records:
        if record.startswith(CONTROL):
            inbox.controls.append(unpack_control(record))
        elif record:
            inbox.payloads.append(record)
    return inbox


def pack_failure(error: BaseException) -> TaskFailure:
    """Any exception as data; one that cannot be pickled keeps its text, and one of ours all of its facts that can."""
    if not isinstance(error, Exception):
        text = f"A function of the module ended the process: {type(error).__name__}({errors.message_of(error)})"
        error = errors.UserCodeError(text)
    try:
        return TaskFailure(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception's own pickling may raise anything
        return TaskFailure(pickle.dumps(_plain(error)))


def _plain(error: BaseException) -> errors.TidemillError:
    if not isinstance(error, errors.TidemillError):
        return errors.InvariantViolation(f"{type(error).__name__}: {errors.message_of(error)}")
    kind = next(known for known in type(error).__mro__ if known.__module__.startswith("tidemill."))
    plain: errors.TidemillError = kind(errors.message_of(error))
    plain.__dict__.update(_that_travel(vars(error)), context=_that_travel(error.context))
    return plain


def _that_travel(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if _travels(value)}


def _travels(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - a value's own pickling may raise anything
        return False
    return True


def raise_failure(failure: TaskFailure) -> None:
    """Raises in the driver what a task raised."""
    raise pickle.loads(failure.error)
