"""`PostgresSink`: what a topology appends to a table of PostgreSQL, a microbatch as one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemill.api.schemas import PState
from tidemill.language.external import Delivery, ExternalSink
from tidemill.language.objects import TaskGlobalContext
from tidemill.sinks.postgres_server import PostgresServer, checked_conninfo
from tidemill.sinks.postgres_table import PostgresTable, checked_key, checked_table
from tidemill.sinks.records import PLAIN, as_json, cell, checked_columns, checked_library, checked_seconds
from tidemill.values.errors import BadInput


class PostgresSink(ExternalSink):
    """A table of PostgreSQL to which topologies append: `setup.declare_object("*totals", PostgresSink("totals", …))`,
    and `.depot_partition_append("*totals", "*row")`, where a row is a dict of its columns.

    Exactly once: the rows of a committed microbatch, and its ID in the table `tidemill_progress` beside them, are one
    transaction. Who delivers it again finds the ID there and writes nothing.
    """

    def __init__(
        self,
        table: str,
        conninfo: str = "",
        *,
        columns: Mapping[str, Any],
        key: str | Sequence[str] = (),
        timeout_seconds: float = 60.0,
    ) -> None:
        """`conninfo` is a URL or a text of libpq; what it leaves out comes from the environment of the process that
        leads (PGHOST, PGPASSWORD, PGPASSFILE, …). `columns` are the columns that are written, name -> type: str, int,
        float, bool, bytes and datetime go as they are, any other type or schema of PState as JSON. With a `key`, rows
        take the place of those with their key, for which the table needs a unique index; without, they are inserted.
        A transaction may take `timeout_seconds`.

        Raises:
            BadInput: an argument is wrong, or `psycopg` is not installed.
        """
        checked_library("psycopg", "PostgreSQL", "postgres")
        self.columns = checked_columns(columns)
        self.key = checked_key(key, self.columns)
        self.schema = PState.fixed_keys_schema(*(part for pair in self.columns.items() for part in pair))
        self._table = PostgresTable(checked_table(table), list(self.columns), self.key)
        self._settings = checked_conninfo(conninfo)
        self._seconds = checked_seconds("timeout_seconds", timeout_seconds)

    def check(self, record: Any) -> None:
        """Raises BadInput: a part of the key is None, a text holds the character 0, or JSON does not hold a value."""
        for name in self.key:
            if record.get(name) is None:
                raise BadInput(f"The column {name!r} of the key is None.")
        for name, value in record.items():
            if value is not None and self.columns[name] not in PLAIN:
                as_json(name, value)
            if any("\0" in text for text in _texts(value)):
                raise BadInput(f"The column {name!r} holds the character 0, which PostgreSQL has in no text.")

    # --- lifecycle ---

    def prepare_for_task(self, context: TaskGlobalContext) -> None:
        """Nothing is connected yet: the server may be away for a while."""
        self._server = PostgresServer(self._settings, self._seconds, self._table.name)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def deliver(self, delivery: Delivery) -> None:
        """Write it in one transaction. Raises CorruptState, ExternalUnavailable: as `PostgresServer.write`."""
        self._server.write(delivery, lambda connection: self._table.write(connection, self._cells(delivery)))

    def _cells(self, delivery: Delivery) -> Iterator[list[Any]]:
        forms = [(name, kind in PLAIN) for name, kind in self.columns.items()]
        for rows in delivery.rows():
            for row in rows:
                yield [cell(name, row.get(name), is_plain) for name, is_plain in forms]


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value if isinstance(value, list) else [*value.keys(), *value.values()]:
            yield from _texts(inner)
