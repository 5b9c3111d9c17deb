"""Files of a folder or of a bucket: found once, then read by ranges from any process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tidemill.store.objects import NotFound
from tidemill.store.s3 import S3ObjectStore
from tidemill.store.urls import connect
from tidemill.values.errors import BadInput

LINE_BYTES = 64 * 1024


@dataclass(frozen=True)
class SourceFile:
    """A file: `bucket` is "" for one of this machine, else the URL of the bucket; `size` in bytes."""

    bucket: str
    path: str
    size: int

    def read(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; fewer at the file's end.

        Raises:
            BadInput: the file is gone, or shorter than it was. StoreUnavailable: the bucket does not answer.
        """
        length = min(length, self.size - start)
        if length <= 0:
            return b""
        if self.bucket:
            found = open_bucket(self.bucket, os.getpid()).get_range(self.path, start, length)
        else:
            found = self._read_here(start, length)
        if len(found) < length:  # who looks for the end of a row would look for ever
            raise BadInput(f"{self.path} is shorter than it was when the graph was defined.")
        return found

    def _read_here(self, start: int, length: int) -> bytes:
        try:
            with open(self.path, "rb", buffering=0) as file:
                found = os.pread(file.fileno(), length, start)
                while len(found) < length and (
                    more := os.pread(file.fileno(), length - len(found), start + len(found))
                ):
                    found += more  # at most 2 GB come at once
            return found
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read: {error.strerror}.") from error

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
        return [
            SourceFile("", str(each), each.stat().st_size) for each in sorted(path.rglob("*")) if _is_data(path, each)
        ]
    if path.is_file():
        return [SourceFile("", str(path), path.stat().st_size)]
    advice = "" if folder.is_dir() else f" {bucket!r} is no folder; a bucket's name begins with s3://."
    raise BadInput(f"There is no file {str(path)!r}.{advice}")


def _is_data(folder: Path, path: Path) -> bool:
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _in_bucket(bucket: str, key: str) -> list[SourceFile]:
    store = open_bucket(bucket, os.getpid())
    key = key.strip("/")
    try:
        return [SourceFile(bucket, key, store.size(key))]
    except NotFound:
        names = [name for name in store.list(key) if not name.rpartition("/")[2].startswith((".", "_"))]
    return [SourceFile(bucket, name, store.size(name)) for name in names]


@lru_cache(maxsize=32)
def open_bucket(url: str, process: int) -> S3ObjectStore:
    """The client of a bucket; one of its own in each process."""
    store = connect(url)
    if not isinstance(store, S3ObjectStore):
        raise BadInput(f"{url!r} is no bucket; use s3://bucket?endpoint=URL.")
    return store
