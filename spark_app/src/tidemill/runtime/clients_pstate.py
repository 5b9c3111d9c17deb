"""`PStateHandle`: reads of a PState from anywhere, each from one committed entry of the topology that owns it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, TypeVar

from tidemill.api.path import Path, path_of
from tidemill.model import dataflow
from tidemill.model.definition import StoredDefinition, StoredPState
from tidemill.model.errors import BadInput, BadPath, NotOneValue, NotSelectable, SchemaOutdated, SnapshotExpired
from tidemill.model.values import route
from tidemill.runtime.clients_module import ModuleClient, ObjectInfo
from tidemill.runtime.clients_topology import Reading, TopologyReader
from tidemill.state.path_budget import Budget
from tidemill.state.paths import CompiledPath, compile_path
from tidemill.store.objects import NotFound

R = TypeVar("R")

_UNGIVEN: Any = object()
_TRIES = 4


class PStateHandle:
    """One PState of one module; safe for several threads, and still good after `update_module`.

    A select sees every commit that was durable before it was called, and never an older one than an earlier select
    of this handle. `entry` pins it to one entry of the commit log.
    """

    def __init__(self, module: ModuleClient, name: str, entry: int | None = None) -> None:
        self._module = module
        self.name = name
        self.entry = entry
        self._lock = threading.Lock()
        self._resolved: tuple[StoredDefinition, StoredPState, TopologyReader] | None = None
        self._resolve()

    def select(
        self,
        path: Path | dataflow.Path | None = None,
        *,
        pkey: Any = _UNGIVEN,
        max_staleness_ms: float = 0,
        budget: Budget | None = None,
    ) -> list[Any]:
        """What the path navigates to, in order.

        `pkey` is the key whose partition is asked; without it the path begins with `key`, or the PState has one
        partition. `max_staleness_ms` allows an answer that many milliseconds old, which spares asking the store.
        `budget` bounds the work, for paths of strangers.

        Raises:
            BudgetExceeded: the path asks for more than its budget.
            BadPath: the path cannot be followed, changes state, or says no partition.
            NotSelectable: it selects a subindexed structure whole, or the PState is private.
            UnknownName: the module or the PState is gone.
            SnapshotExpired: the pinned entry was collected.
        """
        with nullcontext() if budget is None else budget.placed():
            return self._selected(path, pkey, max_staleness_ms, budget)

    def _selected(
        self, path: Path | dataflow.Path | None, pkey: Any, max_staleness_ms: float, budget: Budget | None
    ) -> list[Any]:
        recorded = path if isinstance(path, dataflow.Path) else path_of(path)
        try:
            return self._select(recorded, pkey, max_staleness_ms, budget)
        except SchemaOutdated:
            self._module.forget()
            return self._select(recorded, pkey, max_staleness_ms, budget)

    def _select(self, recorded: dataflow.Path, pkey: Any, max_staleness_ms: float, budget: Budget | None) -> list[Any]:
        definition, pstate, reader = self._resolve()
        compiled = compile_path(recorded, pstate.schema, "select", pstate=self.name, budget=budget)
        values = [argument_value(argument) for argument in compiled.arguments]
        task = self._task(definition, pstate, compiled, pkey)

        def read(reading: Reading) -> list[Any]:
            return reading.select(self.name, task, compiled, values)

        return self._read(reader, max_staleness_ms, read)

    def select_one(
        self,
        path: Path | dataflow.Path | None = None,
        *,
        pkey: Any = _UNGIVEN,
        max_staleness_ms: float = 0,
        budget: Budget | None = None,
    ) -> Any:
        """The one value that the path navigates to; everything else as `select`.

        Raises:
            NotOneValue: it navigates to no value or to several.
        """
        values = self.select(path, pkey=pkey, max_staleness_ms=max_staleness_ms, budget=budget)
        if len(values) != 1:
            count = "no value" if not values else f"{len(values)} values"
            raise NotOneValue(f"{self.name}: the path navigates to {count}; use select(), or a path to exactly one.")
        return values[0]

    def select_async(
        self, path: Path | dataflow.Path | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Future[list[Any]]:
        """`select` without waiting; the future gives or raises what `select` does."""
        return self._module.later(lambda: self.select(path, pkey=pkey, max_staleness_ms=max_staleness_ms))

    def select_one_async(
        self, path: Path | dataflow.Path | None = None, *, pkey: Any = _UNGIVEN, max_staleness_ms: float = 0
    ) -> Future[Any]:
        """`select_one` without waiting; the future gives or raises what `select_one` does."""
        return self._module.later(lambda: self.select_one(path, pkey=pkey, max_staleness_ms=max_staleness_ms))

    def get_object_info(self) -> ObjectInfo:
        """Whose the PState is, its name and its number of partitions."""
        definition, pstate, _ = self._resolve()
        return ObjectInfo(definition.module, self.name, 1 if pstate.is_global else definition.tasks)

    def at(self, entry: int) -> PStateHandle:
        """A handle on the state as of this entry of the commit log, for as long as it is kept."""
        if isinstance(entry, bool) or not isinstance(entry, int):
            raise BadInput(f"An entry of the commit log is a whole number, as current_entry() gives it, not {entry!r}.")
        return PStateHandle(self._module, self.name, entry)

    def current_entry(self) -> int:
        """The entry that a select would read now, for `at`; 0 before the topology's first."""
        return self._resolve()[2].newest(0).number

    def _resolve(self) -> tuple[StoredDefinition, StoredPState, TopologyReader]:
        definition = self._module.definition()
        with self._lock:
            if self._resolved is not None and self._resolved[0] is definition:
                return self._resolved
            topology, pstate = definition.pstate(self.name)
            if pstate.is_private:
                raise NotSelectable(f"{self.name} is private: only its own topology reads it.", name=self.name)
            reader = self._module.reader(definition, topology)
            self._resolved = (definition, pstate, reader)
            return self._resolved

    def _task(self, definition: StoredDefinition, pstate: StoredPState, path: CompiledPath, pkey: Any) -> int:
        if pstate.is_global or definition.tasks == 1:
            return 0
        if pkey is _UNGIVEN:
            pkey = self._leading_key(path, definition.tasks)
        return self._partition(definition.tasks, pstate, pkey)

    def _leading_key(self, path: CompiledPath, tasks: int) -> Any:
        if path.leading_key is None:
            text = f"{self.name} has {tasks} partitions: begin the path with key(…), or pass pkey= to say which one."
            raise BadPath(text, pstate=self.name)
        return argument_value(path.leading_key)

    def _partition(self, tasks: int, pstate: StoredPState, key: Any) -> int:
        code = self._module.pstate_code(self.name)
        partitioner = code.key_partitioner if code is not None else None
        if partitioner is None:
            if code is None and pstate.has_key_partitioner:
                raise BadPath(f"{self.name} has a key partitioner of its own; it needs the module's code here.")
            return route(key, tasks)
        chosen = partitioner.call(tasks, key)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < tasks:
            raise BadPath(f"The key partitioner of {self.name} gave {chosen!r}, which is none of {tasks} partitions.")
        return chosen

    def _read(self, reader: TopologyReader, max_staleness_ms: float, read: Callable[[Reading], R]) -> R:
        """Read; begin again from the newest entry where an object was collected under the reader's feet."""
        for left in reversed(range(_TRIES)):
            try:
                reading = reader.newest(max_staleness_ms) if self.entry is None else reader.pinned(self.entry)
                return read(reading)
            except NotFound as error:
                if self.entry is not None:
                    raise SnapshotExpired(
                        f"Entry {self.entry} of {self.name} was collected; pin a newer one."
                    ) from error
                if left == 0:
                    raise
                reader.forget()
        raise AssertionError("unreachable")


def argument_value(argument: Any) -> Any:
    """The value of a client's argument; what looks like a variable is the string it is written as."""
    if isinstance(argument, dataflow.Const):
        return argument.value
    if isinstance(argument, dataflow.Var):
        return argument.name
    if isinstance(argument, dataflow.Expr):
        return argument.function.call(*map(argument_value, argument.args))
    raise BadPath(f"{argument!r} cannot be a key.")
