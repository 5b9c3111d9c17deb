"""Files as the end of a graph: written beside their folder first, and moved into place all at once.

Channels write files of names that nobody else has, and send on which ones count. One channel of a second node moves
these into the folder when all of them are there. So a run that fails, or writes a part again, leaves nothing to see.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.bucket_outputs import MANIFEST, BucketFolder, FileForm, form_of, form_text, is_bucket
from tidemill.graphs.executors.levels import concatenated
from tidemill.values.errors import BadInput
from tidemill.values.ids import nonce

FILE_BYTES = 128 << 20
"""Bytes of rows in memory of which one file is made, if not told otherwise."""


class _OutputExecutor(Executor):
    """Writes the rows of a channel to files, and gives a row (`file`, `rows`, `bytes`) for each."""

    HAS_EFFECTS = True
    suffix: str

    def __init__(self, folder: str | os.PathLike[str], *, file_bytes: int = FILE_BYTES) -> None:
        if file_bytes <= 0:
            raise BadInput(f"file_bytes is a number of bytes above 0, this one is {file_bytes}")
        self._folder = os.fspath(folder) if is_bucket(folder) else os.path.abspath(folder)
        if is_bucket(folder):
            BucketFolder(self._folder)  # says what is wrong with the URL
        self._file_bytes = file_bytes
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._files = 0

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._waiting += batches
        self._waiting_bytes += int(sum(batch.estimated_size() for batch in batches))
        return list(self._written(channel)) if self._waiting_bytes >= self._file_bytes else None

    def done(self, channel: int) -> Output:
        return list(self._written(channel))

    def _written(self, channel: int) -> Iterator[pl.DataFrame]:
        if not self._waiting:
            return
        rows = concatenated(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if is_bucket(self._folder):
            name = f"part-{channel:05d}-{self._files:05d}-{nonce()}.parquet"
            self._files += 1
            key, size = BucketFolder(self._folder).stage(name, rows)
            made = {"file": [key], "rows": [rows.height], "bytes": [size], "form": [form_text(self._form)]}
            yield pl.DataFrame(made)
            return
        path = staging_of(self._folder) / f"part-{channel:05d}-{self._files:05d}-{nonce()}{self.suffix}"
        self._files += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            self._write(rows, file)
            file.flush()
            os.fsync(file.fileno())
        yield pl.DataFrame({"file": [str(path)], "rows": [rows.height], "bytes": [path.stat().st_size]})

    @property
    def _form(self) -> FileForm:
        return FileForm(self.suffix)

    def _write(self, rows: pl.DataFrame, file: Any) -> None:
        raise NotImplementedError


class OutputCSVExecutor(_OutputExecutor):
    """Writes rows as CSV files. They are seen when a `PublishExecutor` behind it is done.

    `folder` must not exist at the end of the run. `file_bytes` are the bytes in memory of which one file is made. Use
    it in a non-blocking node of any number of channels, and `PublishExecutor(folder)` in a blocking one behind it.
    """

    suffix = ".csv"

    def __init__(
        self, folder: str | os.PathLike[str], *, separator: str = ",", header: bool = True, file_bytes: int = FILE_BYTES
    ) -> None:
        super().__init__(folder, file_bytes=file_bytes)
        self._separator, self._header = separator, header

    @property
    def _form(self) -> FileForm:
        return FileForm(self.suffix, self._separator, self._header)

    def _write(self, rows: pl.DataFrame, file: Any) -> None:
        rows.write_csv(file, separator=self._separator, include_header=self._header)


class OutputParquetExecutor(_OutputExecutor):
    """Writes rows as Parquet files. They are seen when a `PublishExecutor` behind it is done, as CSV files are."""

    suffix = ".parquet"

    def _write(self, rows: pl.DataFrame, file: Any) -> None:
        rows.write_parquet(file, compression="zstd", statistics=True)


class PublishExecutor(Executor):
    """Moves the files that outputs wrote into their folder, which then appears whole; use one channel.

    Gives a row (`file`, `rows`, `bytes`) for each file; the folder also holds them in `_manifest.json`, and nothing
    else where no row came. A run that is resumed publishes once: what it published before it was killed stays. A
    program that is started again with the same `id` of its graph must say by `run` that it is the same run.

    In a bucket (`s3://bucket/folder?endpoint=URL`) it makes one object of all rows, which appears when its upload is
    complete; `_manifest.json` says before that whose folder it is.

    Raises BadInput if the folder is there already, of another run.
    """

    HAS_EFFECTS = True
    NEEDS_ONE_CHANNEL = True

    def __init__(self, folder: str | os.PathLike[str], run: str | None = None) -> None:
        self._url = os.fspath(folder) if is_bucket(folder) else ""
        self._folder = Path(os.path.abspath(folder))
        self._run = run or nonce()
        self._files: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._files += batches
        return None

    def done(self, channel: int) -> Output:
        schema = {"file": pl.String, "rows": pl.Int64, "bytes": pl.Int64}
        if self._url:
            return self._in_bucket(schema)
        written = pl.concat([pl.DataFrame(schema=schema), *self._files]).sort("file")
        names = {path: Path(path).name for path in written.get_column("file")}
        files = written.with_columns(pl.col("file").replace_strict(names, return_dtype=pl.String))
        published = self._published()
        if published is None:
            self._publish(names, files)
        else:
            files = pl.DataFrame(published, schema=schema)
        _remove(staging_of(self._folder), list(names))
        return files.with_columns((pl.lit(f"{self._folder}/") + pl.col("file")).alias("file"))

    def _in_bucket(self, schema: dict[str, Any]) -> pl.DataFrame:
        """One object of all rows, in the order of their channels."""
        written = pl.concat([pl.DataFrame(schema=schema | {"form": pl.String}), *self._files]).sort("file")
        folder, staged = BucketFolder(self._url), written.get_column("file").to_list()
        found = folder.publish(self._run, form_of(written.get_column("form").to_list()), staged)
        folder.forget(staged)
        rows = written.get_column("rows").sum()
        return pl.DataFrame([(url, rows, size) for url, size in found], schema=schema, orient="row")

    def _publish(self, names: dict[str, str], files: pl.DataFrame) -> None:
        made = staging_of(self._folder) / nonce()
        made.mkdir(parents=True)
        for path, name in names.items():
            os.link(path, made / name)
        with (made / MANIFEST).open("x", encoding="utf-8") as file:
            json.dump({"run": self._run, "files": files.to_dicts()}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _sync(made)
        try:
            made.rename(self._folder)
        except OSError as error:
            shutil.rmtree(made)
            raise BadInput(f"{self._folder} is there already: remove it, or write to another folder") from error
        _sync(self._folder.parent)

    def _published(self) -> list[dict[str, Any]] | None:
        """The files that this run published already."""
        try:
            found = json.loads((self._folder / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
            return None
        files: list[dict[str, Any]] | None = found["files"] if found.get("run") == self._run else None
        return files


def staging_of(folder: str | os.PathLike[str]) -> Path:
    """Where the files of a folder are until it is published. What failed runs left there may be deleted."""
    path = Path(folder)
    return path.parent / f".{path.name}.unpublished"


def forget_staged(folder: str, files: list[str]) -> None:
    """Delete rows that were written beside a folder."""
    _remove(staging_of(folder), files)


def _remove(staging: Path, files: list[str]) -> None:
    for file in files:
        Path(file).unlink(missing_ok=True)
    if staging.is_dir() and not any(staging.iterdir()):
        staging.rmdir()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
