"""The revisions of a module's definition: `<module>/definition/<n>.json`."""

from __future__ import annotations

import json
from dataclasses import replace

from tidemill.model import definition as definitions
from tidemill.model.definition import StoredDefinition
from tidemill.model.errors import CorruptState, reading_object
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
        content = self._log.read(number)
        try:
            with reading_object(self._log.key(number)):
                return definitions.from_json(json.loads(content))
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
        self._log.append(number, json.dumps(definitions.to_json(numbered)).encode(), numbered.nonce)
        self._newest = numbered
        return numbered


def known_modules(store: ObjectStore) -> str:
    """The modules of a store, for a person whose name found none."""
    names = modules_of(store)
    return f"there is {', '.join(names)}" if names else "it has no modules"


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
