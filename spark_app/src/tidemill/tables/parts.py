"""Loading parts: containers by name and checksum, kept decoded in memory and on disk, so a hit is always right."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidemill.journal.snapshot import Part, Snapshot
from tidemill.tables.container import (
    CHECKED_BYTES_MAX,
    MAPPED_BYTES_MIN,
    Container,
    TableKey,
    TooManyMapped,
    decode,
    map_file,
)
from tidemill.tables.part_cache import PartCache
from tidemill.tables.part_memory import Key, PartMemory, PartUser
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import Table
from tidemill.values.errors import CorruptState, asked_twice, reading_object

CACHED_BYTES_MIN: Final = 1024 * 1024
"""Smaller parts are not worth files: they are decoded again in a few milliseconds."""

_owners = itertools.count()


class PartLoader:
    """Decoded containers of one topology, in the `memory` of the process; safe for several threads.

    `read` gives a part's bytes by its name. Where `local_path` finds a file for a name (a store on this machine), it is
    mapped instead, unless it is small. Large parts that cannot be searched in place (runs, and all that comes over a
    network) are decoded into `cache` once for all processes, if there is one.

    What is read is compared with the size and the checksum that were committed; of a large mapped file, whose pages
    nobody wants to read for that, the size and its name inside.
    """

    def __init__(
        self,
        read: Callable[[str], Any],
        cache: PartCache | None = None,
        *,
        local_path: Callable[[str], Path | None] | None = None,
        memory: PartMemory | None = None,
        cached_bytes_min: int = CACHED_BYTES_MIN,
        mapped_bytes_min: int = MAPPED_BYTES_MIN,
    ) -> None:
        self._read, self._cache, self._local_path = read, cache, local_path
        self._memory = memory if memory is not None else PartMemory()
        self._cached_bytes_min, self._mapped_bytes_min = cached_bytes_min, mapped_bytes_min
        self._owner = next(_owners)
        self._newest: tuple[Snapshot, frozenset[tuple[str, str]]] = (Snapshot(), frozenset())
        self._lock = threading.Lock()
        self._missing: dict[Key, threading.Lock] = {}

    def load(self, part: Part) -> Container:
        """The decoded container of a part.

        Threads that miss the same part wait for the one that reads it, so that it is decoded once.

        Raises:
            CorruptState: it is not what was committed.
            Whatever `read` raises, for example if the object is gone.
        """
        key = (self._owner, part.name, part.checksum)
        container = self._memory.get(key)
        if container is not None:
            return container
        with self._lock:
            missing = self._missing.setdefault(key, threading.Lock())
        try:
            with missing:
                return self._memory.get(key) or self._loaded(key, part)
        finally:
            with self._lock:
                self._missing.pop(key, None)

    def _loaded(self, key: Key, part: Part) -> Container:
        with reading_object(part.name):
            container = asked_twice(lambda: self._open(part))
        self._memory.put(key, container)
        return container

    def table(self, part: Part, key: TableKey, table: Table) -> SortedTable:
        """A table of a part for search, shared by its readers for as long as the part is held.

        Raises:
            SchemaOutdated: the part was written with a wider schema than that of `table`.
            As `load`.
        """
        container = self.load(part)
        found = container.opened.get(key)
        wanted = table.of_generation(container.meta[key].table.generation)
        if not isinstance(found, SortedTable) or found.table is not wanted:
            with reading_object(part.name):
                meta = container.meta[key]
                found = SortedTable(table, container.tables[key], meta.combiner_names, meta.table)
            container.opened[key] = found
        return found

    def tell(self, user: PartUser) -> None:
        """As `PartMemory.tell`."""
        self._memory.tell(user)

    def note(self, snapshot: Snapshot) -> None:
        """This is the newest state: what neither it nor the one before names will hardly be read again, and goes."""
        with self._lock:
            before, names = self._newest
            if snapshot == before:
                return
            self._newest = snapshot, frozenset((part.name, part.checksum) for part in snapshot.parts())
            self._memory.retain(self._owner, self._newest[1] | names)

    def keep(self, part: Part, data: Any) -> None:
        """Remember a container that this process just wrote; a large one for all processes."""
        if self._is_cached(part.name, data):
            self._decode(part, data)

    def release(self) -> None:
        """Give back the memory of mapped parts after a pass over them; they stay open."""
        for container in self._memory.of(self._owner):
            container.release()

    def _open(self, part: Part) -> Container:
        found = self._cache.get(part) if self._cache is not None and _is_object(part.name) else None
        if found is not None:
            return found
        mapped = self._mapped(part)
        if mapped is None:
            return self._decode(part, self._read(part.name))
        if part.name.startswith("runs/"):
            return self._decode(part, mapped)
        return _in_place(part, mapped)

    def _mapped(self, part: Part) -> Any:
        if self._local_path is None or not _is_object(part.name) or part.bytes < self._mapped_bytes_min:
            return None
        path = self._local_path(part.name)
        try:
            return None if path is None else self._map(path)
        except OSError:
            return None  # `read` tells what is wrong in the store's words

    def _map(self, path: Path) -> Any:
        try:
            return map_file(path)
        except TooManyMapped:
            self._memory.drop_mapped()
            return map_file(path)

    def _decode(self, part: Part, data: Any) -> Container:
        part.check(data)
        if self._is_cached(part.name, data):
            assert self._cache is not None
            container = self._cache.fill(part, data)
            if container is not None:
                return container
        return decode(data, is_checked=False)

    def _is_cached(self, name: str, data: Any) -> bool:
        return self._cache is not None and _is_object(name) and len(data) >= self._cached_bytes_min


def _in_place(part: Part, mapped: Any) -> Container:
    """A mapped file as it is."""
    is_small = len(mapped) <= CHECKED_BYTES_MAX
    if is_small:
        part.check(mapped)
    else:
        part.check_size(mapped)
    container = decode(mapped, is_checked=False)
    if not is_small and not container.key.endswith(f"/{part.name}"):
        raise CorruptState(f"holds the object {container.key}; objects changed their places")
    if not container.is_compact:
        container.pages.append(mapped)
        container.is_in_place = True
    return container


def _is_object(name: str) -> bool:
    """Whether a part is an object, named by a nonce; others are members of log entries, whose names are not unique to
    a store.
    """
    return "#" not in name
