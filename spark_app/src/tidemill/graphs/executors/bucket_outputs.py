"""Results in a bucket. A bucket cannot rename, so what is to be seen at once must be one object.

Channels write their rows beside the folder. The one channel that publishes says by an object, created if absent, that
the folder is this run's, and then writes all rows into one object, which is there when its upload is complete.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.graphs.inputs.files import open_bucket
from tidemill.store.objects import AlreadyExists
from tidemill.store.s3 import S3ObjectStore
from tidemill.values.errors import BadInput

MANIFEST = "_manifest.json"
PART_BYTES = 16 << 20
"""Bytes of a part of an upload; there are at most 10,000, so a result is at most about 160 GB."""


@dataclass(frozen=True)
class FileForm:
    """How a result is written: the end of its name; of CSV what is between columns, and if their names come first."""

    suffix: str
    separator: str = ","
    header: bool = True


def is_bucket(folder: str | os.PathLike[str]) -> bool:
    """Whether this is a folder of a bucket."""
    return os.fspath(folder).startswith("s3://")


@dataclass(frozen=True)
class BucketFolder:
    """A folder of a bucket by its URL, `s3://bucket/path?endpoint=URL`. Credentials are those of a store."""

    url: str

    def __post_init__(self) -> None:
        if not self._path:
            raise BadInput(f"{self.url} names no folder of its bucket: use s3://bucket/folder?endpoint=URL")

    @property
    def _path(self) -> str:
        return urlsplit(self.url).path.strip("/")

    @property
    def _bucket(self) -> S3ObjectStore:
        parts = urlsplit(self.url)
        return open_bucket(f"s3://{parts.netloc}" + (f"?{parts.query}" if parts.query else ""), os.getpid())

    @property
    def _staging(self) -> str:
        parent, _, name = self._path.rpartition("/")
        return f"{parent}/.{name}.unpublished".lstrip("/")

    # --- rows on their way -------------------------------------------------------------------------------------------

    def stage(self, name: str, rows: pl.DataFrame) -> tuple[str, int]:
        """Write rows where nobody looks for them: the key and its bytes."""
        buffer, key = io.BytesIO(), f"{self._staging}/{name}"
        rows.write_parquet(buffer, compression="zstd")
        self._bucket.create(key, buffer.getvalue())
        return key, buffer.tell()

    def forget(self, keys: list[str]) -> None:
        """Delete rows that were staged."""
        for key in keys:
            self._bucket.delete(key)

    # --- publishing --------------------------------------------------------------------------------------------------

    def visible(self) -> list[str]:
        """The keys that readers find in the folder."""
        return [key for key in self._bucket.list(self._path) if not key.rpartition("/")[2].startswith(("_", "."))]

    def check_free(self) -> None:
        """Raises BadInput where there is anything in the folder."""
        if self.visible() or self._bucket.exists(f"{self._path}/{MANIFEST}"):
            raise self._taken()

    def publish(self, run: str, form: FileForm | None, staged: list[str]) -> list[tuple[str, int]]:
        """Make one object of the rows that were staged, once for each run: its URL and bytes; none where no row came.

        Raises:
            BadInput: the folder is another run's. StoreUnavailable: the bucket does not answer; nothing is to be seen.
        """
        self._claim(run)
        if form is None:
            return []
        key = f"{self._path}/part-00000-{run}{form.suffix}"
        if not self._bucket.exists(key):
            self._upload(key, form, staged)
        return [(f"s3://{urlsplit(self.url).netloc}/{key}", self._bucket.size(key))]

    def _claim(self, run: str) -> None:
        key = f"{self._path}/{MANIFEST}"
        with suppress(AlreadyExists):
            if not self.visible():
                self._bucket.create(key, json.dumps({"run": run}).encode())
        if not self._bucket.exists(key) or json.loads(self._bucket.get(key)).get("run") != run:
            raise self._taken()

    def _taken(self) -> BadInput:
        return BadInput(f"{self.url} is there already: remove it, or write to another folder")

    def _upload(self, key: str, form: FileForm, staged: list[str]) -> None:
        target = self._bucket.writer(key, PART_BYTES)
        write = _CsvRows(target, form) if form.suffix == ".csv" else _ParquetRows(target)
        for frame in self.frames(staged):
            write.add(frame)
        write.end()
        target.close()  # not in a `finally`: this is what makes it seen

    def frames(self, staged: list[str]) -> Iterator[pl.DataFrame]:
        """The rows that were staged, a file at a time."""
        return (pl.read_parquet(io.BytesIO(self._bucket.get(key))) for key in staged)


class _Rows(Protocol):
    def add(self, frame: pl.DataFrame) -> None:
        """Write rows."""

    def end(self) -> None:
        """Write what comes behind them."""


class _CsvRows:
    def __init__(self, target: Any, form: FileForm) -> None:
        self._target, self._form = target, form
        self._columns: list[str] = []

    def add(self, frame: pl.DataFrame) -> None:
        is_first = not self._columns
        self._columns = self._columns or frame.columns
        buffer = io.BytesIO()
        has_header = self._form.header and is_first
        frame.select(self._columns).write_csv(buffer, separator=self._form.separator, include_header=has_header)
        self._target.write(buffer.getvalue())

    def end(self) -> None:
        pass


class _ParquetRows:
    def __init__(self, target: Any) -> None:
        self._target = target
        self._sink = _Sink()
        self._writer: pq.ParquetWriter | None = None

    def add(self, frame: pl.DataFrame) -> None:
        table = frame.to_arrow()
        if self._writer is None:
            self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, "w"), table.schema, compression="zstd")
        schema = self._writer.schema
        self._writer.write_table(table.select(schema.names).cast(schema))
        self._send()

    def end(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._send()

    def _send(self) -> None:
        pieces, self._sink.pieces = self._sink.pieces, []
        self._target.write(b"".join(pieces))


class _Sink(io.RawIOBase):
    """What was written and is not sent yet, and how much there was in all: the end of a file tells where its parts are.

    PyArrow closes what it writes to, also where it failed, and closing an upload would let it be seen.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        """Keep bytes."""
        self.pieces.append(bytes(content))
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        """The bytes written so far."""
        return self._size


def form_text(form: FileForm) -> str:
    """A form as it travels beside the names of files."""
    return json.dumps(asdict(form))


def form_of(texts: list[str]) -> FileForm | None:
    """The form in which all of these were written; None of none."""
    return FileForm(**json.loads(texts[0])) if texts else None
