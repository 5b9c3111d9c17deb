"""A PostgreSQL server as a sink sees it: connections that nobody waits for, transactions that also move progress."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tidemill.language.external import Delivery
from tidemill.sinks.deliveries import Progress, is_delivered
from tidemill.sinks.idle import IdleConnections
from tidemill.values.errors import BadInput, ExternalUnavailable

if TYPE_CHECKING:
    from typing import TypeAlias

    import psycopg

    Connection: TypeAlias = psycopg.Connection[Any]

PROGRESS: Final = "tidemill_progress"
ANSWER_SECONDS: Final = 4.0
"""A connection, a lock and the first answer may take so long, so that trouble shows within 5 seconds."""

CREATE = f"""CREATE TABLE IF NOT EXISTS {PROGRESS} (
    module text, topology text, sink text, store text NOT NULL, microbatch bigint NOT NULL, digest text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (module, topology, sink))"""
_OF_SINK = "WHERE module = %s AND topology = %s AND sink = %s"
_READ = f"SELECT store, microbatch, digest FROM {PROGRESS} {_OF_SINK} FOR UPDATE"
_BEGIN = f"""INSERT INTO {PROGRESS} (module, topology, sink, store, microbatch, digest)
    VALUES (%s, %s, %s, %s, 0, '') ON CONFLICT DO NOTHING"""
_MOVE = f"UPDATE {PROGRESS} SET store = %s, microbatch = %s, digest = %s, written_at = now() {_OF_SINK}"
_SETTINGS = """SELECT set_config('statement_timeout', %(all)s, true), set_config('lock_timeout', %(lock)s, true),
    set_config('idle_in_transaction_session_timeout', %(all)s, true),
    set_config('tcp_keepalives_idle', '10', true), set_config('tcp_keepalives_interval', '5', true),
    set_config('tcp_keepalives_count', '3', true),
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"""
_ADVICE: Final = {
    "42P01": "make the table, or name it with its schema",
    "42P10": "make a unique index of the columns of the key, all of them and no others, without a condition",
}
"""What to do where the server gives no hint, by its code of the error."""

_CLIENT: Final[dict[str, Any]] = {
    "connect_timeout": int(ANSWER_SECONDS) - 1, "application_name": "tidemill", "keepalives_idle": 10,
    "keepalives_interval": 5, "keepalives_count": 3,
}  # fmt: skip


def checked_conninfo(conninfo: Any) -> dict[str, Any]:
    """What a conninfo says, with ours where it says nothing. Raises BadInput: it is none."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {**_CLIENT, **conninfo_to_dict(conninfo)}
    except (ProgrammingError, TypeError):  # its text may hold the password
        text = "conninfo is a URL such as 'postgresql://user@host/database', or a text such as 'host=… dbname=…'."
        raise BadInput(text) from None


class PostgresServer:
    """Connections of one process; several threads may use it at once. `table` is what errors name."""

    def __init__(self, settings: dict[str, Any], seconds: float, table: str) -> None:
        self._settings, self._seconds, self._table = settings, seconds, table
        self._connections: IdleConnections[Connection] = IdleConnections(self._connected)

    def close(self) -> None:
        """Close what is not in use; what is in use closes after it."""
        self._connections.close()

    def write(self, delivery: Delivery, write: Callable[[Connection], None]) -> None:
        """Call `write` and note the delivery, both in one transaction; nothing if it is there.

        Raises:
            CorruptState: another copy of the store, or other records of the microbatch, are there.
            ExternalUnavailable: the server does not answer, or refuses what it is given.
        """
        import psycopg

        watch: _Watch | None = None
        try:
            with (
                self._connections.one() as connection,
                _Watch(connection, ANSWER_SECONDS) as watch,
                connection.transaction(),
            ):
                found = self._found(connection, delivery)
                if not is_delivered(found, delivery, lambda number: _advice(delivery, number)):
                    watch.begin(self._seconds)
                    write(connection)
                    connection.execute(_MOVE, (*found.after(delivery), *_place(delivery)))
        except psycopg.Error as error:
            late = _late(watch.seconds, self._seconds) if watch is not None and watch.has_cut else ""
            raise ExternalUnavailable(f"PostgreSQL: table {self._table}: {late}{_said(error)}") from error

    def _found(self, connection: Connection, delivery: Delivery) -> Progress:
        """The row is locked from here on: whoever else delivers waits for this transaction."""
        millis = str(int(1000 * self._seconds))
        connection.execute(_SETTINGS, {"all": millis, "lock": str(int(1000 * ANSWER_SECONDS) - 500)})
        place = _place(delivery)
        row = connection.execute(_READ, place).fetchone()
        if row is None:
            connection.execute(_BEGIN, (*place, delivery.store))
            row = connection.execute(_READ, place).fetchone()
        assert row is not None, "it was made above, and nobody deletes rows of progress"
        return Progress(*row)

    def _connected(self) -> Connection:
        """No statement is prepared, as poolers between us and the server may give each transaction another session.
        Texts go as UTF-8 whatever the environment says: the server makes of them what its database holds.
        """
        import psycopg

        connection = psycopg.connect(**self._settings, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
        try:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            with _Watch(connection, ANSWER_SECONDS):
                _make_progress(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _make_progress(connection: Connection) -> None:
    """The table of progress is there. Of two that make it at one moment, the later one fails in one of these ways."""
    from psycopg.errors import DuplicateObject, DuplicateTable, UniqueViolation

    if _has_progress(connection):
        return
    try:
        connection.execute(CREATE)
    except (DuplicateObject, DuplicateTable, UniqueViolation):
        if not _has_progress(connection):
            raise


def _has_progress(connection: Connection) -> bool:
    return bool(connection.execute("SELECT to_regclass(%s)", (PROGRESS,)).fetchone() != (None,))


def _late(seconds: float, given: float) -> str:
    return f"it took longer than {'timeout_seconds, ' if seconds == given else ''}{seconds:g} s; "


def _place(delivery: Delivery) -> tuple[str, str, str]:
    return delivery.module, delivery.topology, delivery.sink


def _advice(delivery: Delivery, number: int) -> str:
    place = zip(("module", "topology", "sink"), _place(delivery), strict=True)
    where = " AND ".join("{} = '{}'".format(name, value.replace("'", "''")) for name, value in place)
    change = f"store = '{delivery.store}', digest = '', microbatch = LEAST(microbatch, {number})"
    return f"run UPDATE {PROGRESS} SET {change} WHERE {where}"


def _said(error: psycopg.Error) -> str:
    """What the server said in one line: the message, its detail, the row, and what to do."""
    said = error.diag
    advice = _ADVICE.get(error.sqlstate or "", said.message_hint)
    parts = (said.message_primary or str(error), said.message_detail, said.context, advice)
    return "; ".join(" ".join(part.split()) for part in parts if part)


class _Watch:
    """Cuts a connection that takes longer, its commit too: a client waits for ever for a server that is silent."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection, self.seconds = connection, seconds
        self.has_cut = False
        self._lock, self._is_over = threading.Lock(), False
        self._timer: threading.Timer | None = None

    def begin(self, seconds: float) -> None:
        """From now on so many seconds are left."""
        if self._timer is not None:
            self._timer.cancel()
        self.seconds = seconds
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> _Watch:
        self.begin(self.seconds)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._timer is not None
        self._timer.cancel()
        with self._lock:
            self._is_over = True  # its number may be that of another connection soon

    def _cut(self) -> None:
        import psycopg

        with self._lock, suppress(OSError, psycopg.Error):
            if not self._is_over:
                self.has_cut = True
                with socket.socket(fileno=os.dup(self._connection.fileno())) as cut:
                    cut.shutdown(socket.SHUT_RDWR)
