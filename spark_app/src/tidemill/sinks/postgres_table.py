"""A table of PostgreSQL that is written by COPY: rows are inserted, or take the place of those with their key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemill.sinks.postgres_columns import TYPES, ColumnType, unchanged
from tidemill.values.errors import BadInput

if TYPE_CHECKING:
    import psycopg

_ROWS: Final = "tidemill_rows"
_ROW: Final = "tidemill_row"


def checked_table(table: Any) -> str:
    """Raises BadInput: this names no table."""
    if not isinstance(table, str) or not all(table.split(".")):
        raise BadInput(f"The name of a table is a text such as 'totals' or 'schema.totals', not {table!r}.")
    if table == _ROWS:
        raise BadInput(f"{_ROWS} is the name of a temporary table; name yours with its schema: 'public.{_ROWS}'.")
    return table


def checked_key(key: str | Sequence[str], columns: Iterable[str]) -> tuple[str, ...]:
    """The columns of a key. Raises BadInput: they are no columns of the table."""
    found = (key,) if isinstance(key, str) else tuple(key)
    unknown = [name for name in found if name not in set(columns)]
    if found and _ROW in columns:
        raise BadInput(
            f"A table that is written by a key cannot have a column {_ROW}: rows are numbered under that name."
        )
    if unknown or len(set(found)) < len(found):
        raise BadInput(f"key names columns, each once: {', '.join(columns)}; not {key!r}.")
    return found


class PostgresTable:
    """`columns` of a table, `key` those of them that a unique index or its primary key has; none: rows are inserted."""

    def __init__(self, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        self.name = table
        self._columns, self._key = tuple(columns), tuple(key)

    def write(self, connection: psycopg.Connection[Any], rows: Iterable[Sequence[Any]]) -> None:
        """Rows of values in the order of the columns. Of rows with one key the last one counts.

        Raises:
            psycopg.Error: the table is missing, or takes one of them not.
            BadInput: a column would make another value of one.
        """
        from psycopg.sql import SQL, Identifier

        table = Identifier(*self.name.split("."))
        names = {name: Identifier(name) for name in (*self._columns, *self._key)}
        columns = SQL(", ").join(names[name] for name in self._columns)
        types = {found[0]: ColumnType(*found) for found in connection.execute(TYPES, (table.as_string(connection),))}
        rows = unchanged([types.get(name) for name in self._columns], rows)
        if not self._key:
            self._copy(connection, SQL("COPY {} ({}) FROM STDIN").format(table, columns), rows)
            return
        key = SQL(", ").join(names[name] for name in self._key)
        named: dict[str, Any] = {
            "table": table, "columns": columns, "key": key, "rows": Identifier(_ROWS), "row": Identifier(_ROW),
            "change": self._change(names),
        }  # fmt: skip
        connection.execute(SQL(_MAKE).format(**named))
        numbered = ((number, *row) for number, row in enumerate(rows))
        self._copy(connection, SQL("COPY {rows} FROM STDIN").format(**named), numbered)
        connection.execute(SQL(_MERGE).format(**named))

    def _copy(self, connection: psycopg.Connection[Any], statement: Any, rows: Iterable[Sequence[Any]]) -> None:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def _change(self, names: dict[str, Any]) -> Any:
        from psycopg.sql import SQL

        others = [names[name] for name in self._columns if name not in self._key]
        if not others:
            return SQL("NOTHING")
        changes = [SQL("{name} = EXCLUDED.{name}").format(name=name) for name in others]
        return SQL("UPDATE SET {}").format(SQL(", ").join(changes))


_MAKE: Final = (
    "CREATE TEMPORARY TABLE {rows} ON COMMIT DROP AS SELECT 0::bigint AS {row}, {columns} FROM {table} WITH NO DATA"
)
_MERGE: Final = (
    "INSERT INTO {table} ({columns}) SELECT {columns} FROM (SELECT DISTINCT ON ({key}) * FROM {rows} "
    "ORDER BY {key}, {row} DESC) AS newest ON CONFLICT ({key}) DO {change}"
)
