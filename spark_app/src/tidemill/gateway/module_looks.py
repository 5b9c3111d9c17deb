"""How one module stands as a whole, for those who look at its parts: each is told when to ask again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidemill.clients.source_ends import SourceEnd
from tidemill.clients.status_reader import StatusReader
from tidemill.definition.definition import StoredDefinition
from tidemill.gateway import faults
from tidemill.gateway.live import Event, Tell
from tidemill.gateway.modules import Modules, no_module
from tidemill.gateway.overview import brief_status
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.values.errors import StoreUnavailable, TidemillError

UNREAD_MAX: Final = 32
"""Depots of one module that no topology of it reads, and that are looked at for themselves: the first by name."""


class ModuleLook:
    """The numbers of a module's definition and of its options, how its topologies stand, and how far the depots reach
    that none of them reads; it keeps what it needs to ask again. For one thread.
    """

    def __init__(self, modules: Modules, module: str) -> None:
        self._modules, self._module = modules, module
        self._forget()

    def _forget(self) -> None:
        self._definitions = DefinitionLog(self._modules.store, self._module)
        self._options = OptionsLog(self._modules.store, self._module)
        self._opened = 0
        self._last: dict[str, Any] = {}
        self._readers: dict[str, StatusReader] = {}
        self._unread: dict[str, SourceEnd] = {}

    def look(self) -> dict[str, Any]:
        """`definition`, `options`, `topologies` and `depots` by name.

        Raises:
            UnknownName: there is no such module now.
            StoreUnavailable: the store does not answer.
        """
        try:
            definition = self._definitions.newest()
            if definition is None or definition.is_destroyed:
                self._modules.forget(self._module)
                raise no_module(self._module)
            self._open(definition)
            return self._told({
                "definition": definition.number,
                "options": self._options.read().number,
                "topologies": {name: _status(reader) for name, reader in self._readers.items()},
                "depots": {name: list(depot.ends()) for name, depot in self._unread.items()},
            })  # fmt: skip
        except StoreUnavailable:
            raise
        except TidemillError:
            self._forget()  # a store that was put back has other logs
            raise

    def _told(self, found: dict[str, Any]) -> dict[str, Any]:
        """Who is told of a change, and asks what it is, must not be given what was seen before it."""
        if found != self._last:
            self._modules.changed(self._module)
        self._last = found
        return found

    def _open(self, definition: StoredDefinition) -> None:
        if self._opened == definition.number:
            return
        self._modules.forget(self._module)
        store, topologies = self._modules.store, definition.topologies
        self._readers = {name: StatusReader(store, definition, name, self._modules.clock) for name in topologies}
        read = {source.depot for topology in topologies.values() for source in topology.sources}
        unread = sorted(name for name, depot in definition.depots.items() if depot.has_log and name not in read)
        self._unread = {name: SourceEnd(store, definition, name) for name in unread[:UNREAD_MAX]}
        self._opened = definition.number


def _status(reader: StatusReader) -> dict[str, Any]:
    try:
        return brief_status(reader)
    except StoreUnavailable:
        raise
    except TidemillError as error:
        return {"trouble": faults.text_of(error)}


def module_news() -> Tell:
    """Events for one client of a module: `module` with all numbers, and of its topologies those that changed."""
    known: dict[str, Any] | None = None

    def tell(found: dict[str, Any]) -> Iterator[Event]:
        nonlocal known
        if found == known:
            return
        before = known["topologies"] if known is not None else {}
        changed = {name: one for name, one in found["topologies"].items() if before.get(name) != one}
        known = found
        yield "module", {**found, "topologies": changed}

    return tell
