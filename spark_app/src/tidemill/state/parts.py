"""Loading parts: containers by name, kept decoded in memory and on local disk. Names are of immutable objects, so a
hit is always right.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from tidemill.model.errors import CorruptState, reading_object
from tidemill.state.container import Container, TableRows, decode, decode_file, encode

MEMORY_BYTES_MAX = 256 * 1024 * 1024
DISK_BYTES_MAX = 8 * 1024**3
_DISK_SHARE_MIN = 64 * 1024
"""Smaller parts are not worth a file: they are read again in a fraction of a millisecond."""


class PartLoader:
    """Decoded containers, least recently used out first; one loader a process and store, safe for several threads.

    `read` gives a part's bytes by its name. Where `local_path` finds a file for a name (a store on this machine), Arrow
    containers are mapped from there; else big parts are kept in `cache_dir`, re-encoded as Arrow.
    """

    def __init__(
        self,
        read: Callable[[str], Any],
        cache_dir: Path | None = None,
        *,
        local_path: Callable[[str], Path | None] | None = None,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        disk_bytes_max: int = DISK_BYTES_MAX,
    ) -> None:
        self._read, self._cache_dir, self._local_path = read, cache_dir, local_path
        self._memory_bytes_max, self._disk_bytes_max = memory_bytes_max, disk_bytes_max
        self._loaded: OrderedDict[str, Container] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def load(self, name: str) -> Container:
        """The decoded container of a part.

        Raises:
            CorruptState: it is not what was written.
            Whatever `read` raises, for example if the object is gone.
        """
        with self._lock:
            container = self._loaded.get(name)
            if container is not None:
                self._loaded.move_to_end(name)
                return container
        with reading_object(name):
            container = self._open(name)
        self._keep(name, container)
        return container

    def keep(self, name: str, data: bytes) -> None:
        """Remember a container that this process just wrote."""
        self._keep(name, decode(data))

    def _keep(self, name: str, container: Container) -> None:
        with self._lock:
            if name not in self._loaded:
                self._bytes += container.bytes
            self._loaded[name] = container
            while self._bytes > self._memory_bytes_max and len(self._loaded) > 1:
                _, oldest = self._loaded.popitem(last=False)
                self._bytes -= oldest.bytes

    def _open(self, name: str) -> Container:
        path = self._local_path(name) if self._local_path is not None else None
        if path is not None and name.endswith(".zip"):
            container = decode_file(path)
            if not container.is_compact:
                return container
        cached = self._cached_path(name)
        if cached is not None and cached.exists():
            try:
                os.utime(cached)
                return decode_file(cached)
            except (CorruptState, OSError):
                cached.unlink(missing_ok=True)
        container = decode(self._read(name))
        if cached is not None and container.bytes >= _DISK_SHARE_MIN:
            return self._write_cached(cached, container)
        return container

    def _cached_path(self, name: str) -> Path | None:
        if self._cache_dir is None:
            return None
        return self._cache_dir / f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}.zip"

    def _write_cached(self, path: Path, container: Container) -> Container:
        """Keep it as a file that can be mapped; a full disk only costs the cache."""
        tables = {
            key: TableRows(pl.DataFrame(pl.from_arrow(table)), container.meta[key].identities)
            for key, table in container.tables.items()
        }
        temporary = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(encode(tables, "arrow", container.bounds))
            os.replace(temporary, path)
            self._trim_disk()
            return decode_file(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            return container

    def _trim_disk(self) -> None:
        assert self._cache_dir is not None
        files = []
        for path in self._cache_dir.glob("*.zip"):
            try:
                stat = path.stat()
            except OSError:
                continue
            files.append((stat.st_mtime, stat.st_size, path))
        excess = sum(size for _, size, _ in files) - self._disk_bytes_max
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size
