"""Stored parts by their names: their bytes, and the loaders that processes share."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tidemill.journal import entries
from tidemill.store.log import Log
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.store.patient import PatientStore
from tidemill.store.urls import open_store
from tidemill.tables import part_cache
from tidemill.tables.part_cache import PartCache
from tidemill.tables.part_memory import PartMemory
from tidemill.tables.parts import PartLoader
from tidemill.values.errors import reading_object

_memory = PartMemory()
"""One for all topologies that this process runs or reads."""


@lru_cache(maxsize=64)
def part_loader(store_url: str, prefix: str, checks_floor: bool = False) -> PartLoader:
    """The loader of one topology's parts; one a process, so that what it holds is shared by attempts.

    `checks_floor` is for those who read an older state than the newest, or another topology's: for them an entry may
    have been trimmed, and its slot filled again by a leader that slept. Loading then raises NotFound. The
    topology's own attempts need not ask: what they read wrongly could not be committed.
    """
    store = PatientStore(open_store(store_url, probe=False))
    log = Log(store, f"{prefix}/log", ".zip")

    def read(name: str) -> bytes:
        content = read_part(store, prefix, name)
        number = entry_of(name) if checks_floor else None
        if number is not None and not log.is_entry(number):  # asked after it was read
            raise NotFound(f"{name} of {prefix} was collected.", name=name)
        return content

    def local_path(name: str) -> Path | None:
        return store.local_path(f"{prefix}/{name}")

    folder = part_cache.default_folder()
    cache = PartCache(folder, f"{store.url}\n{prefix}") if folder is not None else None
    return PartLoader(read, cache, local_path=local_path, memory=_memory)


def entry_of(name: str) -> int | None:
    """The number of the log entry that holds a part; None where the part is an object of its own."""
    key, mark, _ = name.partition("#")
    return int(key.rpartition("/")[2].partition(".")[0]) if mark else None


def read_part(store: ObjectStore, prefix: str, name: str) -> bytes:
    """The bytes of a part: an object below the topology's prefix, or `<key>#<member>` of a log entry there."""
    key, _, member = name.partition("#")
    content = store.get(f"{prefix}/{key}")
    with reading_object(f"{prefix}/{name}"):
        return entries.member(content, member) if member else content
