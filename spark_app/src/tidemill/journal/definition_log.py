"""The revisions of a module's definition: `<module>/definition/<n>.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from tidemill.definition.definition import StoredDefinition
from tidemill.definition.stored_json import JSON
from tidemill.journal.commit_log import CommitLog
from tidemill.store.entry_log import EntryLog
from tidemill.store.json_codec import SUFFIX
from tidemill.store.log import FIRST, Log
from tidemill.store.objects import RESERVED, ObjectStore
from tidemill.values.errors import CorruptState, UnknownName
from tidemill.values.ids import Ids
from tidemill.values.names import is_folder_name

DATA_FOLDERS: Final = ("depots", "topologies")


class DefinitionLog(EntryLog[StoredDefinition]):
    """The definitions of one module, newest last."""

    def __init__(self, store: ObjectStore, module: str, ids: Ids | None = None, by: str = "") -> None:
        """`by` is who writes definitions through this, for people."""
        log = Log(store, f"{module}/definition", SUFFIX, JSON.read_nonce)
        super().__init__(log, JSON.decode, attrgetter("number"))
        self._ids, self._by = ids or Ids(), by

    def newest(self) -> StoredDefinition | None:
        """The newest revision; None if the store has no such module. Raises as `head`."""
        head = self.head()
        return head[1] if head else None

    def append(self, definition: StoredDefinition, now_ms: int = 0, after: int | None = None) -> StoredDefinition:
        """Make this the next revision; returns it with its number, which is one more than the newest, or than `after`.

        Raises:
            Lost: another process wrote a revision meanwhile; look at it first.
            CorruptState: definitions were lost: it would be the first and the module has data, or a topology was
                claimed with it or a later one.
        """
        if after is None:
            after = self.known or self.newest_number()
        number = after + 1
        if number == FIRST:
            self._check_new(definition.module)
        else:
            self._check_next(number)
        numbered = replace(definition, number=number, nonce=self._ids.nonce(), written_ms=now_ms, by=self._by)
        self.put(number, numbered, JSON.sealed(numbered, self.log.key(number)))
        return numbered

    def _check_new(self, module: str) -> None:
        """A module that is launched anew beside its own data would begin from nothing, and nobody would notice."""
        key = orphan(self.log.store, module)
        if key is not None:
            raise CorruptState(f"{lost_definition(module, key)} in {self.log.store.url}.", key=key)

    def _check_next(self, number: int) -> None:
        """An update that takes the place of a lost one would give what that had added new ids, and so begin it anew."""
        newest = self.newest()
        if newest is None or newest.is_destroyed:
            return
        for name in newest.topologies:
            head = CommitLog(self.log.store, newest.topology_prefix(name)).head()
            if head is not None and head[1].definition >= number and not self.log.has(number):
                text = f"The topology {name} was claimed with definition {head[1].definition} of module {newest.module}"
                text = f"{text}, but the newest one in {self.log.store.url} is {number - 1}: definitions are lost"
                raise CorruptState(f"{text}. {_RESTORE}.", key=self.log.key(number))


_RESTORE = "Restore the store from a backup (`tidemill restore`)"


def orphan(store: ObjectStore, module: str) -> str | None:
    """A key of a depot or a topology of a module; None if it has none."""
    return next((key for part in DATA_FOLDERS for key in store.list(f"{module}/{part}")), None)


def lost_definition(module: str, key: str) -> str:
    """What it means that there is data of a module, but no definition."""
    return (
        f"There is data of module {module} ({key}), but no definition: it was lost. {_RESTORE}, "
        f"or delete the folder {module}/ to begin anew"
    )


def no_such_module(store: ObjectStore, name: str) -> UnknownName | CorruptState:
    """For a person whose name found no module, or one that was destroyed: those that are there. Where the module has
    data, but no definition, that.
    """
    every = modules_of(store)
    if name not in every and is_folder_name(name) and (key := orphan(store, name)) is not None:
        return CorruptState(f"{lost_definition(name, key)}.", key=key)
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
    return sorted(child.name for child in folder.parent.iterdir() if _has_definition(child))


def _has_definition(module: Path) -> bool:
    """Whether a folder of a module has a definition; an empty folder is what a lost one left."""
    folder = module / "definition"
    return folder.is_dir() and any(path.suffix == SUFFIX for path in folder.iterdir())


def module_names(store: ObjectStore) -> list[str]:
    """The modules of a store, those that were destroyed included; lists the whole store, so for people only."""
    return sorted({key.partition("/")[0] for key in _keys_of_modules(store) if "/definition/" in key})


def orphans(store: ObjectStore) -> list[tuple[str, str]]:
    """(name, a key) of each module that has data, but no definition; lists the whole store, or the folders of one."""
    known = set(modules_of(store))
    folder = store.local_path("_")
    if folder is None:
        names = {key.partition("/")[0] for key in _keys_of_modules(store)}
    else:
        names = {child.name for child in folder.parent.iterdir() if child.is_dir()} if folder.parent.is_dir() else set()
    found = ((name, orphan(store, name)) for name in sorted(names - known) if name != RESERVED)
    return [(name, key) for name, key in found if key is not None]


def _keys_of_modules(store: ObjectStore) -> Iterator[str]:
    return (key for key in store.list("") if not key.startswith(f"{RESERVED}/"))
