"""The rows of a graph in a table of PostgreSQL: all of them at once or none, once for each run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.bucket_outputs import BucketFolder, is_bucket
from tidemill.graphs.executors.outputs import forget_staged
from tidemill.language.external import Delivery
from tidemill.sinks.postgres_server import PostgresServer, checked_conninfo
from tidemill.sinks.postgres_table import PostgresTable, checked_key, checked_table
from tidemill.sinks.records import as_json, checked_library, checked_seconds
from tidemill.values.columns import check_times
from tidemill.values.ids import nonce

if TYPE_CHECKING:
    from tidemill.sinks.postgres_server import Connection


class PostgresPublishExecutor(Executor):
    """Brings the rows that an `OutputParquetExecutor(folder)` wrote into a table of PostgreSQL; use one channel.

    All of them and the name of the run are one transaction, so a run that is resumed publishes once. A program that is
    started again with the same `id` of its graph must say by `run` that it is the same run; another one of that name
    would write nothing into the table. `conninfo` and `key` are those of a `PostgresSink`; the columns are those of the
    rows, lists and structs go as JSON. Gives one row (`table`, `rows`).

    Raises BadInput where an argument is wrong, ExternalUnavailable where the server does not take the rows.
    """

    HAS_EFFECTS = True
    NEEDS_ONE_CHANNEL = True

    def __init__(
        self, folder: str | os.PathLike[str], table: str, conninfo: str = "", *, key: str | Sequence[str] = (),
        run: str | None = None, timeout_seconds: float = 600.0,
    ) -> None:  # fmt: skip
        checked_library("psycopg", "PostgreSQL", "postgres")
        self._folder = os.fspath(folder) if is_bucket(folder) else os.path.abspath(folder)
        self._table, self._key, self._run = checked_table(table), key, run or nonce()
        self._settings = checked_conninfo(conninfo)
        self._seconds = checked_seconds("timeout_seconds", timeout_seconds)
        self._files: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._files += batches
        return None

    def done(self, channel: int) -> Output:
        written = pl.concat([pl.DataFrame(schema={"file": pl.String, "rows": pl.Int64}), *self._files], how="diagonal")
        files, count = written.sort("file").get_column("file").to_list(), int(written.get_column("rows").sum())
        if files:
            server = PostgresServer(self._settings, self._seconds, self._table)
            try:
                server.write(self._delivery(count), lambda connection: self._write(connection, files))
            finally:
                server.close()
        if is_bucket(self._folder):
            BucketFolder(self._folder).forget(files)
        else:
            forget_staged(self._folder, files)
        return pl.DataFrame({"table": [self._table], "rows": [count]})

    def _delivery(self, count: int) -> Delivery:
        return Delivery("", "a graph's run", self._run, self._table, 1, "", count, lambda: iter(()))

    def _write(self, connection: Connection, files: list[str]) -> None:
        frames = BucketFolder(self._folder).frames(files) if is_bucket(self._folder) else map(pl.read_parquet, files)
        first = next(iter(frames))
        table = PostgresTable(self._table, first.columns, checked_key(self._key, first.columns))
        table.write(connection, _rows(first, frames))


def _rows(first: pl.DataFrame, others: Iterator[pl.DataFrame]) -> Iterator[Sequence[Any]]:
    nested = [name for name, dtype in first.schema.items() if dtype.is_nested()]
    for frame in (first, *others):
        check_times(frame)
        for row in frame.select(first.columns).iter_rows(named=True):
            yield [as_json(name, row[name]) if name in nested and row[name] is not None else row[name] for name in row]
