"""The modules that a gateway serves: one client each, with handles on their depots, PStates and queries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from tidemill.clients.depot import DepotHandle
from tidemill.clients.hub import AppendHub
from tidemill.clients.module import ModuleClient
from tidemill.clients.module_history import ModuleHistory
from tidemill.clients.pstate import PStateHandle
from tidemill.definition.definition import StoredDefinition
from tidemill.gateway.depot_facts import DepotFacts
from tidemill.gateway.shared_answers import SharedAnswers
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.definition_log import DefinitionLog, modules_of
from tidemill.language.dataflow import ModuleDeclaration, QueryEngine
from tidemill.queries.handle import QueryHandle
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import UnknownName
from tidemill.values.names import is_folder_name

ABSENT_MILLIS = 1_000
"""For how long a name that was not in the store is refused without looking again."""

_ABSENT_MAX = 1_000


class ServedModule:
    """A module's client and its handles, made when they are first asked for."""

    def __init__(self, client: ModuleClient) -> None:
        self.client = client
        self.history = ModuleHistory(client.store, client.module)
        self.answers = SharedAnswers(client.clock)
        self._lock = threading.Lock()
        self._handles: dict[tuple[Any, ...], Any] = {}

    def depot(self, name: str) -> DepotHandle:
        """A depot by its name, with or without `*`. Raises UnknownName."""
        found: DepotHandle = self._handle("*" + name.removeprefix("*"), DepotHandle)
        return found

    def depot_facts(self, name: str) -> DepotFacts:
        """What is known of a depot by its name, with or without `*`. Raises UnknownName."""
        found: DepotFacts = self._handle("*" + name.removeprefix("*"), DepotFacts)
        return found

    def pstate(self, name: str) -> PStateHandle:
        """A PState by its name, with or without `$$`. Raises UnknownName, NotSelectable."""
        found: PStateHandle = self._handle("$$" + name.removeprefix("$$"), PStateHandle)
        return found

    def query(self, name: str, engine: QueryEngine | None = None) -> QueryHandle:
        """A query by its name, to run on `engine` instead of where its module says. Raises UnknownName, NeedsCode."""
        found: QueryHandle = self._handle(name, QueryHandle, *([] if engine is None else [engine]))
        return found

    def _handle(self, name: str, kind: Any, *more: str) -> Any:
        found = self._handles.get((kind, name, *more))
        if found is None:
            made = kind(self.client, name, *more)
            with self._lock:
                found = self._handles.setdefault((kind, name, *more), made)
        return found


def no_module(name: str, *, is_destroyed: bool = False) -> UnknownName:
    """What a gateway says of a module that it does not find; it names no other, which may be hidden."""
    why = ": it was destroyed" if is_destroyed else ""
    return UnknownName(f"There is no module {name!r} here{why}; GET /api/v1/modules lists those there are.", name=name)


class Modules:
    """The modules of one store, or `only` one of them; the code of the one that is declared is here."""

    def __init__(
        self,
        store: ObjectStore,
        only: str | None = None,
        declaration: ModuleDeclaration | None = None,
        hub: AppendHub | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self.only = only
        self.clock = clock or SystemClock()
        self._declaration = declaration
        self._hub = hub or AppendHub()
        self._lock = threading.Lock()
        self._served: dict[str, ServedModule] = {}
        self._absent: OrderedDict[str, float] = OrderedDict()

    def names(self) -> list[str]:
        """The modules there are now, without those that were destroyed."""
        if self.only is not None:
            return [self.only] if self._is_there(self.only) else []
        return [name for name in modules_of(self.store) if self._is_there(name)]

    def may_name(self, name: str) -> bool:
        """Whether this gateway tells of a module of this name, as far as it is restricted itself."""
        return self.only in (None, name)

    def forget(self, name: str) -> None:
        """Look for a module's definition at the next request: who was told that it is another one asks for it now."""
        with self._lock:
            served = self._served.get(name)
        if served is not None:
            served.client.forget()
            served.answers.drop()

    def changed(self, name: str) -> None:
        """What was seen of a module is not given to others any more: something of it is otherwise now."""
        with self._lock:
            served = self._served.get(name)
        if served is not None:
            served.answers.drop()

    def served(self) -> list[str]:
        """The modules that somebody asked this gateway for, and the one it is restricted to, or whose code it has."""
        with self._lock:
            home = self.only or (self._declaration.name if self._declaration is not None else None)
            return sorted({*self._served, *([home] if home else [])})

    def module(self, name: str) -> ServedModule:
        """The module of this name.

        Raises:
            UnknownName: there is none, or this gateway does not serve it.
        """
        with self._lock:
            found = self._served.get(name)
        if found is not None:
            return found
        if not self.may_name(name):
            raise UnknownName(f"This gateway serves the module {self.only} only.", name=name)
        if not is_folder_name(name) or self._is_known_absent(name) or not self._look_for(name):
            raise no_module(name)
        client = ModuleClient(self.store, name, self._hub, self.clock, gone=lambda: no_module(name, is_destroyed=True))
        if self._declaration is not None and self._declaration.name == name:
            client.declare(self._declaration)
        with self._lock:
            return self._served.setdefault(name, ServedModule(client))

    def close(self) -> None:
        """Settle what was handed in to be appended."""
        with self._lock:
            served, self._served = list(self._served.values()), {}
        for module in served:
            module.client.close()

    def _is_there(self, name: str) -> bool:
        found: StoredDefinition | None = DefinitionLog(self.store, name).newest()
        return found is not None and not found.is_destroyed

    def _is_known_absent(self, name: str) -> bool:
        with self._lock:
            return self.clock.monotonic_ms() - self._absent.get(name, float("-inf")) < ABSENT_MILLIS

    def _look_for(self, name: str) -> bool:
        is_there = self._is_there(name)
        with self._lock:
            self._absent.pop(name, None)
            if not is_there:
                self._absent[name] = self.clock.monotonic_ms()
            while len(self._absent) > _ABSENT_MAX:
                self._absent.popitem(last=False)
        return is_there
