"""Objects that a module declares: opened once in each process that needs them, closed with the module.

An object's name is a variable wherever a module says so: where an argument stands, it becomes an expression without
arguments, whose function is the declared object itself. So nothing behind this file knows a new kind of argument.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidemill.language.dataflow import Function, Location, RecordedExpr, Var
from tidemill.language.recorded_parts import inner_parts, rewritten
from tidemill.values.errors import BadInput, SchemaOutdated, UserCodeError, message_of

CLOSED_MAX: Final = 1_000
"""So many closed modules a process remembers, to open nothing for a step that comes late."""


@dataclass(frozen=True)
class TaskGlobalContext:
    """What an object is told when it is opened: the module that declares it, and the name there, with its `*`."""

    module: str
    name: str


class TaskGlobalObject:
    """A base for objects that are more than data: a connection, a model that is loaded where it is used.

    It is declared as it is, and travels pickled; each process opens a copy of its own with `prepare_for_task`. Several
    threads may use it at once where a module has several topologies or queries.
    """

    is_used_once: bool = False
    """Whether a module may name it at one place of its dataflow only."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def prepare_for_task(self, context: TaskGlobalContext) -> None:
        """Open it; called once in each process that needs it, before anything else. What it raises fails the attempt,
        which is tried again.
        """

    def close(self) -> None:
        """Free what it holds; called once when the module stops or is updated, and at the end of the process."""


@dataclass(frozen=True)
class DeclaredObject:
    """One `setup.declare_object(…)`. `value` is the object, or with `is_factory` the function that makes it.

    `scope` is what no other recording of a module has. Called without arguments, it gives the opened object.
    """

    name: str
    value: Any = field(compare=False)
    at: Location
    is_factory: bool = False
    module: str = ""
    scope: str = ""

    def __call__(self) -> Any:
        """The object of this process, which is opened if it is not open yet.

        Raises:
            UserCodeError: it cannot be opened; the text names it.
            SchemaOutdated: the module was closed or updated in this process.
        """
        try:
            return _values[self.scope, self.name]
        except KeyError:
            return _open(self)

    def expression(self) -> RecordedExpr:
        """The object as an argument."""
        return RecordedExpr(Function(self.name, "function", self), ())


Key = tuple[str, str]  # scope and name

_lock: Final = threading.Lock()
_gates: dict[Key, threading.Lock] = {}
_values: dict[Key, Any] = {}
_opened: dict[Key, Any] = {}  # those of them that are to be closed, in the order in which they were opened
_owners: dict[str, str] = {}
_closed: deque[str] = deque(maxlen=CLOSED_MAX)


def _open(declared: DeclaredObject) -> Any:
    """Opened by one thread, while others that need it wait."""
    key = (declared.scope, declared.name)
    with _lock:
        gate = _gates.setdefault(key, threading.Lock())
    with gate:
        if key not in _values:
            _check_open(declared)
            value = _prepared(declared)
            try:
                _keep(declared, value)
            except SchemaOutdated:
                _close_one(value)
                raise
        return _values[key]


def _check_open(declared: DeclaredObject) -> None:
    if declared.scope in _closed:
        text = f"Module {declared.module} was closed or updated here, and its object '{declared.name}' with it."
        raise SchemaOutdated(f"{text} Ask again.", name=declared.name)


def _keep(declared: DeclaredObject, value: Any) -> None:
    key = (declared.scope, declared.name)
    with _lock:
        _check_open(declared)
        _values[key] = value
        if declared.is_factory or isinstance(value, TaskGlobalObject):
            _opened[key] = value


def _prepared(declared: DeclaredObject) -> Any:
    """A fresh object; the declared one stays as it was written, so that it can travel."""
    value = None
    try:
        value = declared.value() if declared.is_factory else declared.value
        if isinstance(value, TaskGlobalObject):
            if declared.is_factory and value.is_used_once:
                kind = type(value).__name__
                raise BadInput(f"declare the {kind} itself: behind a function nobody sees that it is used once")
            value = value if declared.is_factory else copy.copy(value)
            value.prepare_for_task(TaskGlobalContext(declared.module, declared.name))
    except Exception as error:
        if isinstance(value, TaskGlobalObject):
            _close_one(value)  # it may be half open
        raise _not_opened(declared, error) from error
    return value


def _not_opened(declared: DeclaredObject, error: Exception) -> UserCodeError:
    step = f"declare_object({declared.name}) at {declared.at}"
    said = f"{type(error).__name__}: {message_of(error)}"
    text = f"The object '{declared.name}', declared at {declared.at}, cannot be opened: {said}"
    return UserCodeError(text, step=step, trace="".join(traceback.format_exception(error)), is_general=True)


def close_objects(objects: Iterable[DeclaredObject]) -> None:
    """Close those that are open in this process, for good: nothing of their modules may run here any more."""
    for scope in {declared.scope for declared in objects}:
        _close(scope)


def keep_only(owner: str, objects: Iterable[DeclaredObject]) -> None:
    """In a process that runs one step at a time for many: `owner` runs another version of a module now, so what is open
    of the one before is closed.
    """
    for declared in objects:
        before = _owners.get(owner)
        if before != declared.scope:
            _owners[owner] = declared.scope
            if before is not None:
                _close(before)


def open_names() -> list[str]:
    """The names of the objects that are open in this process and are to be closed, sorted."""
    with _lock:
        return sorted(name for _, name in _opened)


def _close(scope: str) -> None:
    with _lock:
        if scope not in _closed:
            _closed.append(scope)
        closing = [_opened.pop(key) for key in [*_opened][::-1] if key[0] == scope]
        for held in (_values, _gates):
            for key in [key for key in held if key[0] == scope]:
                del held[key]
    for value in closing:
        _close_one(value)


def _close_one(value: Any) -> None:
    """An object that fails to close keeps no other one open."""
    close = getattr(value, "close", None)
    if callable(close):
        with contextlib.suppress(Exception):
            close()


@atexit.register
def _close_all() -> None:
    for scope in {scope for scope, _ in _opened}:
        _close(scope)


def with_objects(part: Any, objects: Mapping[str, DeclaredObject]) -> Any:
    """The recorded part with an expression in the place of each variable that is the name of an object."""

    def expression(inner: Any) -> Any:
        found = objects.get(inner.name) if isinstance(inner, Var) else None
        return inner if found is None else found.expression()

    return rewritten(part, expression)


def objects_in(part: Any) -> Iterator[DeclaredObject]:
    """The objects that a recorded part names, once for each place."""
    if isinstance(part, RecordedExpr) and isinstance(part.function.call, DeclaredObject):
        yield part.function.call
    else:
        for inner in inner_parts(part):
            yield from objects_in(inner)
