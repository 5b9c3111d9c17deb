"""The revisions of a module's definition: `<module>/definition/<n>.json`."""

from __future__ import annotations

import json
from dataclasses import replace

from tidemill.model import definition as definitions
from tidemill.model.definition import StoredDefinition
from tidemill.model.errors import CorruptState, UnknownName, reading_object
from tidemill.model.ids import Ids
from tidemill.store.log import Log
from tidemill.store.objects import ObjectStore

SUFFIX = ".json"


class DefinitionLog:
    """The definitions of one module, newest last."""

    def __init__(self, store: ObjectStore, module: str, ids: Ids | None = None) -> None:
        self._log = Log(store, f"{module}/definition", SUFFIX, _read_nonce)
        self._ids = ids or Ids()
        self._newest: StoredDefinition | None = None

    def newest_number(self) -> int:
        """The number of the newest revision, 0 before any."""
        return self._log.newest(self._newest.number if self._newest else 0)

    def newest(self) -> StoredDefinition | None:
        """The newest revision; None if the store has no such module. Two probes where nothing is new.

        Raises:
            CorruptState: it cannot be read.
        """
        number = self.newest_number()
        if number and (self._newest is None or self._newest.number != number):
            self._newest = self.read(number)
        return self._newest

    def read(self, number: int) -> StoredDefinition:
        """One revision. Raises NotFound."""
        data = self._log.read_json(number)
        try:
            with reading_object(self._log.key(number)):
                return definitions.from_json(data)
        except (KeyError, TypeError, ValueError) as error:
            key = self._log.key(number)
            raise CorruptState(f"{key}: this definition cannot be read: {error!r}", key=key) from error

    def append(self, definition: StoredDefinition, now_ms: int = 0, after: int | None = None) -> StoredDefinition:
        """Make this the next revision; returns it with its number, which is one more than the newest, or than `after`.

        Raises:
            Lost: another process wrote a revision meanwhile; look at it first.
        """
        if after is None:
            after = self._newest.number if self._newest else self.newest_number()
        number = after + 1
        numbered = replace(definition, number=number, nonce=self._ids.nonce(), written_ms=now_ms)
        self._log.append_json(number, definitions.to_json(numbered), numbered.nonce)
        self._newest = numbered
        return numbered


def no_such_module(store: ObjectStore, name: str) -> UnknownName:
    """For a person whose name found no module, or one that was destroyed: those that are there."""
    every = modules_of(store)
    there = ", ".join(other for other in every if other != name and _is_there(store, other))
    what = f"Module '{name}' in {store.url} was destroyed" if name in every else None
    what = what or f"There is no module '{name}' in {store.url}"
    return UnknownName(f"{what}; {f'there is {there}' if there else 'it has no other modules'}.", name=name)


def _is_there(store: ObjectStore, name: str) -> bool:
    """A module whose definition cannot be read is there, too."""
    try:
        newest = DefinitionLog(store, name).newest()
    except CorruptState:
        return True
    return newest is not None and not newest.is_destroyed


def modules_of(store: ObjectStore) -> list[str]:
    """The modules of a store, those that were destroyed included; a local folder is not searched through."""
    folder = store.local_path("_")
    if folder is None:
        return module_names(store)
    if not folder.parent.is_dir():
        return []
    return sorted(child.name for child in folder.parent.iterdir() if (child / "definition").is_dir())


def module_names(store: ObjectStore) -> list[str]:
    """The modules of a store, those that were destroyed included; lists the whole store, so for people only."""
    return sorted({key.partition("/")[0] for key in store.list("") if "/definition/" in key})


def _read_nonce(content: bytes) -> str:
    nonce: str = json.loads(content)["nonce"]
    return nonce
