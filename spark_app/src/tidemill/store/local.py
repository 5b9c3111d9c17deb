"""A store in a local folder: a create is a synced temporary file that gets its name by an exclusive hard link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemill.store.objects import RESERVED, AlreadyExists, Buffer, NotFound, count_request
from tidemill.values.errors import OutcomeUnknown, StoreUnavailable
from tidemill.values.ids import nonce

_TEMPORARY = ".create-"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_ABSENT = (FileNotFoundError, NotADirectoryError)
_ADVICE = {
    errno.ENOSPC: "is full; free some space",
    errno.EDQUOT: "is over its quota; free some space",
    errno.EROFS: "is read-only; mount it writable",
    errno.EACCES: "may not be written by this user; give it permission",
    errno.EPERM: "may not be written by this user, or its file system has no hard links; use another folder",
    errno.ENOTSUP: "is on a file system without hard links; use another folder",
    errno.EMFILE: "cannot be opened: too many open files; raise the limit (ulimit -n)",
}


class LocalStore:
    """Objects as files below one folder. Files whose names begin with a dot are unfinished creates and no objects.

    The first create makes the folder; once it was met it is never made again, and what is absent in it counts as absent
    only while it is there: it may have been moved away or unmounted, and come back.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._root, self._reserved = str(self.folder), str(self.folder / RESERVED)
        self._was_there, self._was_store = False, False
        self.check_there()
        self.url = self.folder.as_uri()
        self.counts: dict[str, int] = {}
        self._unsynced: set[Path] = set()

    def get(self, key: str) -> bytes:
        count_request(self.counts, "get")
        with self._reading(key), open(self._path(key), "rb") as file:
            self._sync_again(self._path(key).parent)
            return file.read()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        count_request(self.counts, "get")
        with self._reading(key), open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(length)

    def create(self, key: str, data: Buffer) -> None:
        count_request(self.counts, "create")
        path = self._path(key)
        with self._writing(key):
            temporary = self._write_temporary(path.parent, data)
        try:
            with self._writing(key):
                os.link(temporary, path)
            self._sync_name(path)
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def exists(self, key: str) -> bool:
        count_request(self.counts, "exists")
        is_there = stat.S_ISREG(self._mode(self._name(key)))
        if not is_there:
            self.check_there()
        return is_there

    def delete(self, key: str) -> None:
        count_request(self.counts, "delete")
        with self._writing(key), suppress(*_ABSENT):
            os.unlink(self._path(key))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        count_request(self.counts, "list")
        keys: list[str] = []
        with self._writing(prefix), suppress(*_ABSENT):
            _collect(self._name(prefix) if prefix else str(self.folder), prefix, keys)
        if not keys:
            self.check_there()
        return iter(sorted(key for key in keys if key > after))

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def check_there(self) -> None:
        """Raises StoreUnavailable where there is no folder any more, or an empty one: a mount point without its disk.

        A store that was put back is another matter (`store.incarnations` finds it). Inodes would not do: they change
        where a file system is mounted again.
        """
        # What was there is asked first: another thread may make the folder between the two.
        was_there, was_store = self._was_there, self._was_store
        is_there, is_store = stat.S_ISDIR(self._mode(self._root)), stat.S_ISDIR(self._mode(self._reserved))
        if (was_there and not is_there) or (was_store and not is_store):
            what = "is another folder than the one that this process opened" if is_there else "is not there"
            raise StoreUnavailable(f"The store {self.folder} {what}; bring it back, or restart with the right one.")
        self._was_there |= is_there
        self._was_store |= is_store

    def _mode(self, name: str) -> int:
        """The kind of file that has this name; 0 where there is none."""
        try:
            return os.stat(name).st_mode
        except _ABSENT:
            return 0
        except OSError as error:
            raise StoreUnavailable(f"{self._fault(error)}.", key=name) from error

    def make_folder(self, folder: Path) -> None:
        """Make a folder below this one, whose name survives a crash."""
        self.check_there()
        _make_folder(folder)
        self.check_there()

    def _write_temporary(self, folder: Path, data: Buffer) -> str:
        try:
            return _write_temporary(folder, data)
        except FileNotFoundError:
            self.make_folder(folder)
            return _write_temporary(folder, data)

    def _path(self, key: str) -> Path:
        return Path(self._name(key))

    def _name(self, key: str) -> str:
        """The path as text: what is asked before each read needs no more."""
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"not a key: {key!r}")
        return f"{self._root}/{key}"

    def _sync_name(self, path: Path) -> None:
        """A name lasts only when its folder is synced; without, the object is there, but perhaps not after a crash."""
        try:
            _sync_folder(path.parent)
        except OSError as error:
            self._unsynced.add(path.parent)
            raise OutcomeUnknown(f"{self._fault(error)} while its folder was synced.", key=str(path)) from error

    def _sync_again(self, folder: Path) -> None:
        """Whoever finds the object after such a failure takes it for durable, so it must be."""
        if folder in self._unsynced:
            _sync_folder(folder)
            self._unsynced.discard(folder)

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except _ABSENT as error:
            self.check_there()
            raise NotFound(f"No object {key} in {self.url}.", key=key) from error
        except OSError as error:
            raise StoreUnavailable(f"{self._fault(error)}.", key=key) from error

    @contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            raise AlreadyExists(f"An object {key} exists in {self.url}.", key=key) from error
        except OSError as error:
            raise StoreUnavailable(f"{self._fault(error)}.", key=key) from error

    def _fault(self, error: OSError) -> str:
        advice = _ADVICE.get(error.errno or 0, "cannot be used")
        return f"The store {self.folder} {advice} ({error.strerror or error})"


def sweep_unfinished(folder: Path, before_ms: int) -> int:
    """Delete the unfinished creates below a folder that were last written before `before_ms`; how many there were.

    Only a process that died leaves one. A create that is under way all the same fails, and is tried again.
    """
    count = 0
    for path in folder.rglob(f"{_TEMPORARY}*"):
        with suppress(OSError):
            if path.stat().st_mtime_ns < before_ms * 1_000_000:
                path.unlink()
                count += 1
    return count


def _write_temporary(folder: Path, data: Buffer) -> str:
    """A synced file with a passing name in the folder where it shall get its name."""
    name = str(folder / f"{_TEMPORARY}{nonce()}")
    handle = os.open(name, _NEW_FILE, 0o666)
    try:
        with open(handle, "wb", buffering=0) as file:
            _write_all(file.fileno(), memoryview(data).cast("B"))
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return name


def _write_all(handle: int, data: memoryview) -> None:
    """One `write` call takes at most 2 GiB and may take less."""
    while data:
        data = data[os.write(handle, data) :]


def _make_folder(folder: Path) -> None:
    """Make a folder whose name survives a crash: each new level is synced in the one above."""
    if not folder.parent.exists():
        _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _collect(folder: str, prefix: str, keys: list[str]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_dir(follow_symlinks=False):
                with suppress(*_ABSENT):
                    _collect(entry.path, key, keys)
            elif not entry.name.startswith(_TEMPORARY):
                keys.append(key)
