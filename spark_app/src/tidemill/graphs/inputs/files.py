"""Files of a folder or of a bucket: found once, then read by ranges from any process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tidemill.journal.snapshot import checksum_of
from tidemill.store.objects import NotFound
from tidemill.store.s3 import S3ObjectStore
from tidemill.store.urls import connect
from tidemill.values.errors import BadInput

LINE_BYTES = 64 * 1024
_CHANGED = (
    "is gone, or another one than it was when the graph was defined: a run would mix both. Give a new graph an id."
)
PLACES, PLACE_BYTES = 16, 4 * 1024
MARKS_MAX = 10_000
"""Files whose marks a process remembers, some 300 bytes each."""
SETTLED_NS = 2_000_000_000
"""How long ago a file must have changed for its mark to be remembered: a file system may give what is written twice
within some milliseconds, or within two seconds, one time.
"""
_marks: dict[tuple[int, ...], str] = {}


@dataclass(frozen=True)
class SourceFile:
    """A file: `bucket` is "" for one of this machine, else the URL of the bucket; `size` in bytes.

    `mark` tells it from another one of its name and size: of a file of this machine a checksum of bytes from places all
    over it, of an object its ETag. A file that grew behind `size` is the same.
    """

    bucket: str
    path: str
    size: int
    mark: str = ""

    def read(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; fewer at the file's end.

        Raises:
            BadInput: the file is gone, shorter than it was, or another one. StoreUnavailable: the bucket does not
                answer.
        """
        length = min(length, self.size - start)
        if length <= 0:
            return b""
        if self.bucket:
            return self._read_there(start, length)
        with self._opened() as file:
            return _pread(file, start, length)

    def check(self) -> None:
        """Raises BadInput where a file of this machine is gone, shorter, or another one than the graph was defined on:
        for those who read it by its path. An object of a bucket is compared by who reads it.
        """
        if not self.bucket:
            with self._opened():
                pass

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file, which is the same one before and after what is done with it."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                self._compare(file.fileno())
                yield file.fileno()
                self._compare(file.fileno())
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read: {error.strerror}.") from error

    def _compare(self, file: int) -> None:
        if os.fstat(file).st_size < self.size:  # who looks for the end of a row would look for ever
            raise BadInput(f"{self.path} is shorter than it was when the graph was defined.")
        if self.mark and _mark(file, self.size) != self.mark:
            raise BadInput(f"{self.path} {_CHANGED}")

    def _read_there(self, start: int, length: int) -> bytes:
        try:
            return open_bucket(self.bucket, os.getpid()).get_range(self.path, start, length, self.mark)
        except NotFound as error:
            raise BadInput(f"{self.path} in {self.bucket} {_CHANGED}") from error

    def line_end(self, start: int, length: int) -> int:
        """Where a read of `length` bytes from `start` on should end so that nothing behind its last line is copied.

        A hint: that is the end itself where no line ends shortly before it, and in a bucket, where looking is slow.
        """
        end = min(start + length, self.size)
        if self.bucket or end == self.size:
            return end
        first = max(start, end - LINE_BYTES)
        found = self.read(first, end - first).rfind(b"\n")
        return end if found < 0 else first + found + 1


def find_files(bucket: str, key: str | Sequence[str]) -> tuple[SourceFile, ...]:
    """The files that `key` names in a folder or a bucket (`s3://…`): a file, several, or all below a folder.

    Names that begin with a dot or an underscore are left out, as other readers do.

    Raises:
        BadInput: there is none, or no such folder. StoreUnavailable: the bucket does not answer.
    """
    keys = [key] if isinstance(key, (str, os.PathLike)) else list(key)
    find = _in_bucket if str(bucket).startswith("s3://") else _in_folder
    found = tuple(file for each in keys for file in find(str(bucket), str(each)))
    if not found:
        raise BadInput(f"There is no file {key!r} in {bucket!r}.")
    return found


def _in_folder(bucket: str, key: str) -> list[SourceFile]:
    folder = Path(bucket or ".").expanduser()
    path = (folder / key).absolute()
    if path.is_dir():
        return [_here(each) for each in sorted(path.rglob("*")) if _is_data(path, each)]
    if path.is_file():
        return [_here(path)]
    advice = "" if folder.is_dir() else f" {bucket!r} is no folder; a bucket's name begins with s3://."
    raise BadInput(f"There is no file {str(path)!r}.{advice}")


def _here(path: Path) -> SourceFile:
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return SourceFile("", str(path), size, _mark(file.fileno(), size))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error


def _mark(file: int, size: int) -> str:
    """The mark of the first `size` bytes of an open file; looked at anew once it was written, or is another one."""
    stat = os.fstat(file)
    # Who writes may set the time of that as he likes, as copies do, but not the time of the last change.
    known = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, size)
    found = _marks.get(known)
    if found is None:
        found = _made_mark(file, size)
        if time.time_ns() - stat.st_ctime_ns > SETTLED_NS:
            if len(_marks) >= MARKS_MAX:
                _marks.clear()
            _marks[known] = found
    return found


def _made_mark(file: int, size: int) -> str:
    places = sorted({place * max(0, size - PLACE_BYTES) // (PLACES - 1) for place in range(PLACES)})
    return checksum_of(b"".join(_pread(file, place, min(PLACE_BYTES, size - place)) for place in places))


def _pread(file: int, start: int, length: int) -> bytes:
    found = os.pread(file, length, start)
    while len(found) < length and (more := os.pread(file, length - len(found), start + len(found))):
        found += more  # at most 2 GB come at once
    return found


def _is_data(folder: Path, path: Path) -> bool:
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _in_bucket(bucket: str, key: str) -> list[SourceFile]:
    store = open_bucket(bucket, os.getpid())
    key = key.strip("/")
    try:
        return [SourceFile(bucket, key, *store.size_and_etag(key))]
    except NotFound:
        names = [name for name in store.list(key) if not name.rpartition("/")[2].startswith((".", "_"))]
    return [SourceFile(bucket, name, *store.size_and_etag(name)) for name in names]


@lru_cache(maxsize=32)
def open_bucket(url: str, process: int) -> S3ObjectStore:
    """The client of a bucket; one of its own in each process."""
    store = connect(url)
    if not isinstance(store, S3ObjectStore):
        raise BadInput(f"{url!r} is no bucket; use s3://bucket?endpoint=URL.")
    return store
