"""Decoded parts in a folder that all processes of a user share: a run is decoded once a machine, then mapped.

An entry is a folder of Arrow files that got its name when it was whole. Entries are of immutable objects, named by a
nonce and the checksum of what was committed, so a hit is always right; names also hold the machine's boot, as nothing
here is synced and a crash of the machine may leave files of zeros. The oldest entries go when all together are too
large.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import shutil
import threading
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidemill.journal.snapshot import Part
from tidemill.tables.column_files import TableFile, allocated_bytes, open_table
from tidemill.tables.container import (
    MAPPED_BYTES_MIN,
    Container,
    Member,
    TooManyMapped,
    map_file,
    meta_from_json,
    reading_container,
)
from tidemill.values.errors import CorruptState

BYTES_MAX: Final = 8 * 1024**3
DISK_SHARE: Final = 4
"""The cache takes no more than one part in so many of what is free on its disk."""

UNFINISHED_SECONDS: Final = 3_600
"""An entry that was begun so long ago belongs to a process that died."""

_OF_THE_PROCESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing of the entry: this process has no place for it."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_META: Final = "meta.json"
_FORMAT: Final = 3
"""Entries of other formats are not found, and go when they are the oldest."""


class PartCache:
    """Entries of one store's topology in the shared `folder`; every failure of the disk only costs the cache."""

    def __init__(self, folder: Path, scope: str, bytes_max: int = BYTES_MAX) -> None:
        self._folder, self._bytes_max = folder, bytes_max
        boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        self._scope = f"{_FORMAT}\n{boot}\n{scope}\n"

    def _path(self, part: Part) -> Path:
        named = f"{self._scope}{part.name}\n{part.checksum}".encode()
        return self._folder / hashlib.blake2b(named, digest_size=16).hexdigest()

    def get(self, part: Part) -> Container | None:
        """The part, mapped; None if it is not here."""
        path = self._path(part)
        if not path.exists():
            return None
        try:
            meta = json.loads((path / _META).read_text())
            os.utime(path)
            return _open(path, meta)
        except TooManyMapped:
            return None
        except (OSError, ValueError, KeyError, pa.ArrowException, CorruptState) as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_PROCESS:
                return None
            shutil.rmtree(path, ignore_errors=True)
            return None

    def fill(self, part: Part, data: Any) -> Container | None:
        """Decode a part, whose bytes were compared with its checksum, into the cache, a row group at a time; None if
        the disk does not take it.

        Raises:
            CorruptState: the data is no whole container.
        """
        unfinished = self._path(part).with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            with reading_container(data, is_checked=False) as (members, bounds, _):
                if not self._write(unfinished, members, bounds):
                    return None
            with contextlib.suppress(OSError):  # another process was faster
                unfinished.rename(self._path(part))
            self._trim()
            return self.get(part)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _write(self, folder: Path, members: list[Member], bounds: dict[str, int]) -> bool:
        try:
            folder.mkdir(parents=True, mode=0o700)
            described = []
            for number, member in enumerate(members):
                layout = _write_table(folder / f"{number}.columns", member)
                described.append([*member.key, layout, member.meta.to_json()])
            (folder / _META).write_text(json.dumps({"tables": described, "bounds": bounds}))
        except OSError:
            return False
        return True

    def _trim(self) -> None:
        """Remove the least recently used entries beyond the limit, and what dead processes left."""
        entries = []
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    held = sum(map(allocated_bytes, path.iterdir()))
                    entries.append((path.stat().st_mtime, held, path))
            size = sum(held for _, held, _ in entries)
            limit = min(self._bytes_max, (shutil.disk_usage(self._folder).free + size) // DISK_SHARE)
            newest = max(changed for changed, _, _ in entries)
            for changed, held, path in sorted(entries):
                is_left = path.suffix == ".tmp"
                if (newest - changed > UNFINISHED_SECONDS) if is_left else (size > limit):
                    shutil.rmtree(path, ignore_errors=True)
                    size -= held


def _write_table(path: Path, member: Member) -> dict[str, Any]:
    file: TableFile | None = None
    try:
        for rows in member.chunks():
            if file is None:
                file = TableFile(path, rows.schema, member.meta.rows)
            file.append(rows)
        assert file is not None
        return file.finish()
    finally:
        if file is not None:
            file.close()


def _open(path: Path, meta: dict[str, Any]) -> Container:
    container = Container({}, {}, dict(meta["bounds"]))
    for number, (pstate, table, layout, described) in enumerate(meta["tables"]):
        file = path / f"{number}.columns"
        pages = _pages(file) if layout["rows"] else b""
        container.tables[pstate, table] = open_table(pages, layout)
        if isinstance(pages, bytes):
            container.bytes += len(pages)
        else:
            container.pages.append(pages)
        container.meta[pstate, table] = meta_from_json(table, described)
    return container


def _pages(file: Path) -> mmap.mmap | bytes:
    """A file of columns: read where it is small, so that it takes no place among the open files."""
    return map_file(file) if file.stat().st_size >= MAPPED_BYTES_MIN else file.read_bytes()


def default_folder() -> Path | None:
    """Where this user's caches are: `TIDEMILL_CACHE_DIR`, or as the XDG rules say; None where there is no home, or
    where a boot cannot be told from the next one.
    """
    if not _BOOT.exists():
        return None
    named = os.environ.get("TIDEMILL_CACHE_DIR")
    if named is not None:
        return Path(named) / "parts" if named else None
    caches = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):
        return (Path(caches) if caches else Path.home() / ".cache") / "tidemill" / "parts"
    return None
