"""Loading parts: containers by name and checksum, kept decoded in memory and on disk, so a hit is always right."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidemill.model.errors import CorruptState, asked_twice, reading_object
from tidemill.model.snapshot import Part
from tidemill.state.container import CHECKED_BYTES_MAX, Container, decode, map_file
from tidemill.state.part_cache import PartCache

MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
MAPPED_WEIGHT: Final = 512 * 1024
"""What a mapped part counts in memory: its pages are the system's, but it keeps a file open."""

CACHED_BYTES_MIN: Final = 1024 * 1024
"""Smaller parts are not worth files: they are decoded again in a few milliseconds."""


class PartLoader:
    """Decoded containers, least recently used out first; one loader a process and topology, safe for several threads.

    `read` gives a part's bytes by its name. Where `local_path` finds a file for a name (a store on this machine), it is
    mapped instead. Large parts that cannot be searched in place (runs, and all that comes over a network) are decoded
    into `cache` once for all processes, if there is one.

    What is read is compared with the size and the checksum that were committed; of a large mapped file, whose pages
    nobody wants to read for that, the size and its name inside.
    """

    def __init__(
        self,
        read: Callable[[str], Any],
        cache: PartCache | None = None,
        *,
        local_path: Callable[[str], Path | None] | None = None,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        cached_bytes_min: int = CACHED_BYTES_MIN,
    ) -> None:
        self._read, self._cache, self._local_path = read, cache, local_path
        self._memory_bytes_max, self._cached_bytes_min = memory_bytes_max, cached_bytes_min
        self._loaded: OrderedDict[tuple[str, str], Container] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def load(self, part: Part) -> Container:
        """The decoded container of a part.

        Raises:
            CorruptState: it is not what was committed.
            Whatever `read` raises, for example if the object is gone.
        """
        named = (part.name, part.checksum)
        with self._lock:
            container = self._loaded.get(named)
            if container is not None:
                self._loaded.move_to_end(named)
                return container
        with reading_object(part.name):
            container = asked_twice(lambda: self._open(part))
        self._keep(named, container)
        return container

    def keep(self, part: Part, data: Any) -> None:
        """Remember a container that this process just wrote; a large one for all processes."""
        if self._is_cached(part.name, data):
            self._decode(part, data)

    def release(self) -> None:
        """Give back the memory of mapped parts after a pass over them; they stay open."""
        with self._lock:
            containers = list(self._loaded.values())
        for container in containers:
            container.release()

    def _keep(self, named: tuple[str, str], container: Container) -> None:
        with self._lock:
            if named not in self._loaded:
                self._bytes += _weight(container)
                self._loaded[named] = container
            while self._bytes > self._memory_bytes_max and len(self._loaded) > 1:
                _, oldest = self._loaded.popitem(last=False)
                self._bytes -= _weight(oldest)

    def _open(self, part: Part) -> Container:
        found = self._cache.get(part) if self._cache is not None and _is_object(part.name) else None
        if found is not None:
            return found
        mapped = self._mapped(part.name)
        if mapped is None:
            return self._decode(part, self._read(part.name))
        if part.name.startswith("runs/"):
            return self._decode(part, mapped)
        return _in_place(part, mapped)

    def _mapped(self, name: str) -> Any:
        path = self._local_path(name) if self._local_path is not None and _is_object(name) else None
        try:
            return None if path is None else map_file(path)
        except OSError:
            return None  # `read` tells what is wrong in the store's words

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
    return container


def _is_object(name: str) -> bool:
    """Whether a part is an object, named by a nonce; others are members of log entries, whose names are not unique to
    a store.
    """
    return "#" not in name


def _weight(container: Container) -> int:
    return min(container.bytes, MAPPED_WEIGHT) if container.pages else container.bytes
