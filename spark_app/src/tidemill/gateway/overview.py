"""How all modules of the store stand, for those who look at many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from tidemill.clients.status_reader import StatusReader
from tidemill.definition.definition import StoredDefinition
from tidemill.gateway import faults
from tidemill.gateway.modules import Modules
from tidemill.journal.definition_log import DefinitionLog, modules_of
from tidemill.values.errors import StoreUnavailable, TidemillError

THREADS: Final = 8
"""Topologies that are asked at once."""

_Place = tuple[str, int, str]
"""Module, number of its definition, topology."""


class Overview:
    """All topologies of the modules that a gateway serves; it keeps what it needs to ask again. For one thread."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._logs: dict[str, DefinitionLog] = {}
        self._readers: dict[_Place, StatusReader] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tidemill-overview")

    def look(self) -> dict[str, dict[str, Any]]:
        """Of each module its definition in short and its topologies; `trouble` of one that cannot be read says why.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        store, only = self._modules.store, self._modules.only
        found: dict[str, dict[str, Any]] = {}
        places: dict[_Place, dict[str, Any]] = {}
        self._logs = {name: self._log(name) for name in ([only] if only is not None else modules_of(store))}
        for name in list(self._logs):
            try:
                definition = self._logs[name].newest()
            except StoreUnavailable:
                raise
            except TidemillError as error:
                del self._logs[name]  # a store that was put back has another log
                found[name] = {"module": name, "topologies": [], "trouble": faults.text_of(error)}
                continue
            if definition is not None and not definition.is_destroyed:
                found[name] = _shown(definition)
                places |= {(name, definition.number, one["topology"]): one for one in found[name]["topologies"]}
                self._open(definition)
        self._readers = {place: self._readers[place] for place in places}  # the others are of topologies that are gone
        for one, status in zip(places.values(), self._threads.map(_status, self._readers.values()), strict=True):
            one.update(status)
        return found

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False)

    def _log(self, name: str) -> DefinitionLog:
        return self._logs.get(name) or DefinitionLog(self._modules.store, name)

    def _open(self, definition: StoredDefinition) -> None:
        for topology in definition.topologies:
            place = (definition.module, definition.number, topology)
            if place not in self._readers:
                self._readers[place] = StatusReader(self._modules.store, definition, topology, self._modules.clock)


def _shown(definition: StoredDefinition) -> dict[str, Any]:
    return {
        "module": definition.module,
        "number": definition.number,
        "tasks": definition.tasks,
        "threads": definition.threads,
        "topologies": [{"topology": name} for name in definition.topologies],
    }


def _status(reader: StatusReader) -> dict[str, Any]:
    try:
        return brief_status(reader)
    except TidemillError as error:
        return {"trouble": faults.text_of(error)}


BY_PARTITION: Final = ("progress", "start_from", "lag_by_partition")
"""What a status tells of each partition; the view of the one topology has it."""


def brief_status(reader: StatusReader) -> dict[str, Any]:
    """How one of many topologies stands. Without what is told of each partition: of 20 topologies with 4,096 of them
    that is a megabyte, which would be made anew for each client, in the loop in which all others wait.

    Raises: as `StatusReader.read`.
    """
    found = replace(reader.read(faults.mirror_text_of), progress={}, start_from={}, lag_by_partition=None)
    return {name: value for name, value in faults.told_failure(found.to_json()).items() if name not in BY_PARTITION}
