"""Every error that Tidemill raises, grouped by who must act.

    TidemillError
    ├── DefinitionError      the module's author: fix the module (lists all faults at once)
    ├── UserCodeError        the module's author: a function of the module raised
    │   └── MicrobatchFails  the same, for a caller who waits for the result (also a TimeoutError)
    ├── BadInput             the caller: what was passed does not fit (also a ValueError)
    │   ├── RecordRefused, KeyReused, SequenceUnknown, SchemaMismatch, BadPath, OptionError, StoreRefused
    │   ├── NotOneValue, NotSelectable, BudgetExceeded, UnknownName, ModuleExists, OwnedByAnother, MirrorBroken
    │   │   (of UnknownName: Deleted, DepotClosed; clients then look the name up again)
    │   ├── SnapshotExpired, Managed, CombinersDiffer
    ├── RetryableError       nobody: the same call may succeed later
    │   ├── StoreUnavailable, AttemptTimeout, AttemptLost, EngineUnavailable, ApiUnavailable,
    │   │   SchemaOutdated
    ├── Fenced               nobody: another leader took over, stop
    ├── StoreRestored        a person: the store was restored under this process; start it anew
    ├── OutcomeUnknown       the caller: look whether the write happened before anything else
    ├── CorruptState         a person: stored bytes are not what was written
    │   └── NewerFormat      a person: the store was written by a newer Tidemill
    └── InvariantViolation   Tidemill's developers: a bug

`code` is stable; it becomes a condition reason on Kubernetes and the `code` of a JSON error.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")


class TidemillError(Exception):
    """The root of all errors; `context` holds the facts as data, the text says them to a person."""

    code = "Error"

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.context = context

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[TidemillError], args: tuple[Any, ...], state: dict[str, Any]) -> TidemillError:
    """Unpickle without calling `__init__`, whose signature differs between errors."""
    error = kind.__new__(kind)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in a module's definition: where it is, what it is, what to do."""

    location: str
    text: str
    advice: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """The file and the line of its location; line 0 where it names none."""
        file, _, line = self.location.rpartition(":")
        return (file, int(line)) if line.isdigit() else (self.location, 0)

    def __str__(self) -> str:
        advice = f" {self.advice}" if self.advice else ""
        return f"{self.location}: {self.text}{advice}"


class DefinitionError(TidemillError):
    """A module cannot run as it is written; `faults` lists everything that is wrong with it."""

    code = "InvalidDefinition"

    def __init__(self, faults: Sequence[Fault] | str, **context: Any) -> None:
        self.faults = (Fault("module", faults),) if isinstance(faults, str) else tuple(faults)
        head = faults if isinstance(faults, str) else "\n".join(str(fault) for fault in self.faults)
        super().__init__(head, **context)


class DefinitionWarning(UserWarning):
    """Something in a module's definition that is allowed and most likely not meant; the module runs."""


class UserCodeError(TidemillError):
    """A function of the module raised; carries its own traceback, the step and a sample of the record.

    `row` are the variables of the failing row while the error is inside the engine, which names their record. In the
    context of one that no record is to blame for, `is_general` is true.
    """

    code = "UserCodeFailed"
    row: Mapping[str, Any] | None = None

    def __init__(self, message: str, *, step: str = "", trace: str = "", sample: str = "", **context: Any) -> None:
        super().__init__(message, **context)
        self.step = step
        self.trace = trace
        self.sample = sample


class MicrobatchFails(UserCodeError, TimeoutError):
    """A wait that ended early: the microbatch that it waits for fails in the same way each time."""

    code = "MicrobatchFails"


class BadInput(TidemillError, ValueError):
    """What the caller passed does not fit; nothing was changed."""

    code = "BadInput"


class RecordRefused(BadInput):
    """A record cannot be stored: no data, too large, not of the depot's schema, or without a partition."""

    code = "RecordRefused"


class SchemaMismatch(BadInput):
    """A value does not fit the schema of the PState it is written to."""

    code = "SchemaMismatch"


class BadPath(BadInput):
    """A path cannot be followed: a navigator met a value of another kind, or a transform has no terminal."""

    code = "BadPath"


class OptionError(BadInput):
    """An option is unknown, of the wrong type, or outside its bounds."""

    code = "BadOption"


class StoreRefused(BadInput):
    """A store cannot be used: its URL is wrong, or it ignores create-if-absent."""

    code = "StoreRefused"


class CombinersDiffer(BadInput):
    """Levels hold operands of different combiners: only a value, so only a merge down to the base, can hold both."""

    code = "CombinersDiffer"


class BudgetExceeded(BadInput):
    """A select asks for more steps, results, bytes or time than a gateway gives one request, or a query for more than
    its options allow; ask for less at once.
    """

    code = "BudgetExceeded"


class NotOneValue(BadInput):
    """`select_one` navigated to no value or to several, or a query gave no result or several."""

    code = "NotOneValue"


class NeedsCode(BadInput):
    """What was asked for runs the module's code, which is not loaded in this process, or in another version."""

    code = "NeedsCode"


class MirrorBroken(BadInput):
    """What was asked for reads another module's object, which an update of that module took away, or changed."""

    code = "MirrorBroken"


class NotSelectable(BadInput):
    """A subindexed structure was selected whole; navigate into it with `all` or a range instead."""

    code = "NotSelectable"


class UnknownName(BadInput):
    """There is no module, depot, PState, topology or source of this name."""

    code = "UnknownName"


class Deleted(UnknownName):
    """A depot or a topology that was there is deleted, alone or with its module; nothing was written to it."""


class DepotClosed(Deleted):
    """An update deleted the depot, and a rollback may still bring it back; nothing was appended."""


class ModuleExists(BadInput):
    """A module of this name is running elsewhere with another definition."""

    code = "ModuleExists"


class KeyReused(BadInput):
    """An append of this name and number was another one; nothing was appended."""

    code = "KeyReused"


class SequenceUnknown(BadInput):
    """An append whose number is below the last one of its producer is not known, so it cannot be called done."""

    code = "SequenceUnknown"


class OwnedByAnother(BadInput):
    """The store's module belongs to somebody else; nothing was changed. Taking it over must be asked for."""

    code = "OwnedByAnother"


class SnapshotExpired(BadInput):
    """A pinned snapshot was collected; pin a newer one."""

    code = "SnapshotExpired"


class Managed(BadInput):
    """A resource decides this option: change it there."""

    code = "Managed"


class RetryableError(TidemillError):
    """The same call may succeed later; Tidemill retries by itself where it can."""

    code = "Retryable"


class StoreUnavailable(RetryableError):
    """The store did not answer, is full, read-only or refuses the credentials."""

    code = "StoreUnavailable"


class Busy(StoreUnavailable):
    """As much is under way as may be at once; nothing was done."""

    code = "Busy"


class AttemptTimeout(RetryableError):
    """A phase of a microbatch attempt took longer than `topology.microbatch.phase.timeout.seconds`."""

    code = "PhaseTimeout"


class AttemptLost(RetryableError):
    """A worker that held part of an attempt is gone; the attempt starts again with version + 1."""

    code = "AttemptLost"


class EngineUnavailable(RetryableError):
    """The engine that runs attempts did not start, or gave too few workers in time."""

    code = "EngineUnavailable"


class ExternalUnavailable(RetryableError):
    """Another system, whose log the module reads, does not answer."""

    code = "ExternalUnavailable"


class SchemaOutdated(RetryableError):
    """A newer revision of the module wrote rows with a wider schema than this reader knows; look it up again."""

    code = "SchemaOutdated"


class ApiUnavailable(RetryableError):
    """The Kubernetes API did not answer, or refused."""

    code = "ApiUnavailable"


class Fenced(TidemillError):
    """Another leader claimed the topology: stop, do not retry."""

    code = "Fenced"


class StoreRestored(TidemillError):
    """The store was restored, or put back by hand, while this process had it open: start the process anew."""

    code = "StoreRestored"


class OutcomeUnknown(TidemillError):
    """The store gave no answer to a create and could not be asked: it may have happened. Read before you retry."""

    code = "OutcomeUnknown"


class CorruptState(TidemillError):
    """Stored bytes are missing or are not what was written; a person must look (`tidemill check`)."""

    code = "CorruptState"


class RecordsTrimmed(TidemillError):
    """Another system deleted records before they were processed; they are never skipped."""

    code = "RecordsTrimmed"


class NewerFormat(CorruptState):
    """The store was written by a newer Tidemill; use that version."""

    code = "NewerFormat"


@contextmanager
def reading_object(key: str) -> Iterator[None]:
    """Errors about stored bytes name the object that they come from; what else goes wrong passes as it is."""
    try:
        yield
    except CorruptState as error:
        if "key" in error.context:
            raise
        raise type(error)(f"{key}: {error}", **error.context, key=key) from error


def message_of(error: BaseException) -> str:
    """What an exception says; an exception whose `str` fails must not hide where it came from."""
    try:
        return str(error)
    except Exception as inner:  # noqa: BLE001 - user code
        return f"<{type(inner).__name__} in str>"


def ends_programs(error: BaseException) -> bool:
    """Whether a user's function raised what is no Exception, as sys.exit, a cancelled coroutine or a panic of Polars,
    which would end whoever called it. What comes from outside is none: Ctrl-C and exits reach the main thread only,
    where signals are handled.
    """
    is_in_main = threading.current_thread() is threading.main_thread()
    from_outside = (KeyboardInterrupt, SystemExit) if is_in_main else ()
    return not isinstance(error, (Exception, *from_outside))


def own_trace(error: BaseException) -> str:
    """The traceback as text without Tidemill's frames at its top: it begins where the user's code was called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_tidemill(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _is_tidemill(names: dict[str, Any]) -> bool:
    return str(names.get("__name__", "")).startswith("tidemill.")


def check_place(written: object, key: str) -> None:
    """Compare the key that an object says it was written under with the one at which it was found.

    Raises:
        CorruptState: the object stands in the place of another one.
    """
    if written != key:
        raise CorruptState(f"{key}: holds the object {written}; objects changed their places", key=key)


def asked_twice(read: Callable[[], _T]) -> _T:
    """What `read` fetches and decodes; bytes that make no sense are fetched once more before the error is raised: a
    network or a cache may have answered wrongly once.
    """
    try:
        return read()
    except NewerFormat:
        raise
    except CorruptState:
        return read()


class InvariantViolation(TidemillError):
    """A bug in Tidemill: something that must always hold does not. Nothing was committed."""

    code = "InvariantViolation"


def invariant(condition: bool, text: str, **context: Any) -> None:
    """Stop rather than go on wrong; always on (docs/invariants.md).

    Raises:
        InvariantViolation: the condition does not hold.
    """
    if not condition:
        facts = ", ".join(f"{key}={value!r}" for key, value in context.items())
        raise InvariantViolation(f"{text} ({facts})" if facts else text, **context)
