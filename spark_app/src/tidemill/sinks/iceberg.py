"""`IcebergSink`: what a topology appends to a table of Apache Iceberg, a microbatch as one commit of the table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any, Final

from tidemill.api.schemas import PState
from tidemill.language.external import Delivery, ExternalSink
from tidemill.language.objects import TaskGlobalContext
from tidemill.sinks.deliveries import Progress, is_delivered
from tidemill.sinks.idle import IdleConnections
from tidemill.sinks.records import PLAIN, as_json, cell, checked_columns, checked_library, checked_seconds
from tidemill.values.errors import BadInput, ExternalUnavailable, TidemillError, message_of
from tidemill.values.ids import nonce
from tidemill.values.threads import in_thread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""So many bytes of rows in memory become files of their own; a microbatch is one commit all the same."""

TRIES: Final = 4
"""A commit that others were faster than is made anew so often, before that is told as trouble."""

LATE_MAX: Final = 4
"""So many calls that took too long may still hang before no more are begun: each holds a thread and its rows."""

_LOOK_ONCE: Final = {
    "commit.retry.num-retries": "1",
    "commit.retry.min-wait-ms": "0",
    "commit.retry.total-timeout-ms": "86400000",
}
"""After a commit that was refused pyiceberg asks for the table once, and `_looking` answers."""

_ATTEMPT: Final = "tidemill.attempt"


class IcebergSink(ExternalSink):
    """A table of Iceberg to which topologies append: `setup.declare_object("*orders", IcebergSink("sales.orders", …))`,
    and `.depot_partition_append("*orders", "*row")`, where a row is a dict of its columns.

    Exactly once: the files of a committed microbatch and its ID, a property of the table, are one commit. Who delivers
    it again finds the ID there and writes nothing.
    """

    def __init__(
        self, table: str, *, columns: Mapping[str, Any], catalog: str = "default",
        properties: Mapping[str, str] | None = None, timeout_seconds: float = 300.0,
    ) -> None:  # fmt: skip
        """`catalog` and its `properties` are those of `pyiceberg.catalog.load_catalog`, which also reads
        `.pyiceberg.yaml` and the environment of the process that leads. `columns` are the columns that are written,
        name -> type: str, int, float, bool, bytes and datetime go as they are, any other type or schema of PState as
        JSON in a column of texts. A commit may take `timeout_seconds`, with its files.

        Raises:
            BadInput: an argument is wrong, or `pyiceberg` is not installed.
        """
        checked_library("pyiceberg", "Iceberg", "iceberg")
        if not isinstance(table, str) or "." not in table:
            raise BadInput(f"The name of a table is a text such as 'namespace.table', not {table!r}.")
        self.table, self.columns = table, checked_columns(columns)
        self.schema = PState.fixed_keys_schema(*(part for pair in self.columns.items() for part in pair))
        self._catalog_name, self._properties = catalog, dict(properties or {})
        self._seconds = checked_seconds("timeout_seconds", timeout_seconds)

    def check(self, record: Any) -> None:
        """Raises BadInput: JSON does not hold a value of it."""
        for name, value in record.items():
            if value is not None and self.columns[name] not in PLAIN:
                as_json(name, value)

    # --- lifecycle ---

    def prepare_for_task(self, context: TaskGlobalContext) -> None:
        """Nothing is connected yet: the catalog may be away for a while."""
        self._catalogs = IdleConnections(self._connected)
        self._late: list[Future[None]] = []

    def close(self) -> None:
        """Close the catalogs."""
        self._catalogs.close()

    def _connected(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self._catalog_name, **self._properties)

    # --- a microbatch ---

    def deliver(self, delivery: Delivery) -> None:
        """Append all rows and set the property in one commit.

        What a call does later that nobody waits for any more does no harm: a commit counts only for the table that it
        has looked at.

        Raises:
            CorruptState: another copy of the store, or other records of the microbatch, are there.
            ExternalUnavailable: the catalog or the files do not answer, or the table does not take the rows.
        """
        if not delivery.count:
            return  # a commit of the property alone would count whatever was delivered since its look at the table
        self._late = [each for each in self._late if not each.done()]
        if len(self._late) >= LATE_MAX:
            text = f"{LATE_MAX} commits still wait for an answer after {self._seconds:g} s"
            raise ExternalUnavailable(f"Iceberg: table {self.table}: {text}. If this lasts, start the process anew.")
        outcome = in_thread("tidemill Iceberg commit", lambda: self._deliver(delivery))
        try:
            outcome.result(self._seconds)
        except FutureTimeout as error:
            if outcome.done():
                raise self._unavailable(error) from error
            self._late = [*self._late, outcome]
            text = f"the catalog or the files took longer than timeout_seconds, {self._seconds:g}"
            raise ExternalUnavailable(f"Iceberg: table {self.table}: {text}") from None

    def _deliver(self, delivery: Delivery) -> None:
        from pyiceberg.exceptions import CommitFailedException

        for left in reversed(range(TRIES)):
            try:
                with self._catalogs.one() as catalog:
                    self._commit(catalog.load_table(self.table), delivery)
                return
            except CommitFailedException as error:
                if not left:
                    raise self._unavailable(error) from error
            except TidemillError:
                raise
            except Exception as error:  # of the catalog, of Arrow and of three file systems, without a base
                raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> ExternalUnavailable:
        return ExternalUnavailable(f"Iceberg: table {self.table}: {type(error).__name__}: {message_of(error)}")

    def _commit(self, table: Table, delivery: Delivery) -> None:
        name = f"tidemill.{delivery.module}.{delivery.topology}.{delivery.sink}"
        mark = table.metadata.properties.get(name)
        found = Progress(delivery.store) if mark is None else Progress(*json.loads(mark))
        if is_delivered(found, delivery, lambda number: _advice(name, found, delivery, number)):
            return
        summary = {
            "tidemill.module": delivery.module,
            "tidemill.topology": delivery.topology,
            "tidemill.microbatch": str(delivery.microbatch_id),
            _ATTEMPT: nonce(),
        }
        _looking(table, summary[_ATTEMPT])
        with table.transaction() as transaction:
            for rows in self._tables(table, delivery):
                transaction.append(rows, snapshot_properties=summary)
            transaction.set_properties({name: json.dumps(found.after(delivery))})

    def _tables(self, table: Table, delivery: Delivery) -> Iterator[pa.Table]:
        """The rows as tables of about `FILE_BYTES_MAX`, one file each where the table is not partitioned."""
        import pyarrow as pa

        schema = self._arrow_schema(table)
        waiting: list[pa.Table] = []
        for rows in delivery.rows():
            waiting.append(self._table_of(rows, schema))
            if sum(each.nbytes for each in waiting) >= FILE_BYTES_MAX:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    def _arrow_schema(self, table: Table) -> pa.Schema:
        import pyarrow as pa

        whole = table.schema().as_arrow()
        missing = [name for name in self.columns if name not in whole.names]
        if missing:
            raise BadInput(f"{self.table} has no column {', '.join(missing)}; it has {', '.join(whole.names)}")
        return pa.schema([whole.field(name) for name in self.columns])

    def _table_of(self, rows: list[Any], schema: pa.Schema) -> pa.Table:
        import pyarrow as pa

        plain = {name: kind in PLAIN for name, kind in self.columns.items()}
        cells = {name: [cell(name, row.get(name), is_plain) for row in rows] for name, is_plain in plain.items()}
        arrays = [_array(name, values, schema.field(name).type) for name, values in cells.items()]
        for name, array in zip(plain, arrays, strict=True):
            if array.null_count and not schema.field(name).nullable:
                raise BadInput(f"the column {name} is required, and a row has none")
            _check_same(name, array, cells[name])
        return pa.Table.from_arrays(arrays, schema=schema)


def _looking(table: Table, attempt: str) -> None:
    """From now on a commit to this table that is refused has a look at what is there, and is never repeated as it is.

    A client that repeats a request whose answer was lost is refused though the first one counted. pyiceberg deletes
    the manifests of a refused commit, unless the table that it asks for once more has its snapshots.
    """
    from pyiceberg.exceptions import CommitFailedException

    refresh = table.refresh

    def look() -> Table:
        found = refresh()
        summaries = [snapshot.summary for snapshot in found.metadata.snapshots]
        if not any(summary is not None and summary.get(_ATTEMPT) == attempt for summary in summaries):
            raise CommitFailedException("another commit was faster")
        return found

    table.metadata.properties.update(_LOOK_ONCE)
    table.refresh = look  # of this object only, which nobody else has


def _array(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Arrow's own errors, where the column does not take one of the values, name it."""
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise type(error)(f"the column {name} is {kind}: {error}") from error


def _check_same(name: str, array: pa.Array, values: Sequence[Any]) -> None:
    """Arrow takes bytes for texts and texts for bytes, 16 of either for a UUID, bytes for lists of numbers, truths and
    whole numbers for others, cuts off what follows the point where a column has whole numbers, takes numbers for times,
    cuts a time to its day where it has days, and makes an infinite number of one that is too large for 32 bits.
    """
    import pyarrow as pa

    for kind in set(map(type, values)) - {type(None)}:
        if not _takes(array.type, kind):
            found = next(value for value in values if type(value) is kind)
            shown = "a number" if kind in (int, float) else repr(found)
            raise BadInput(f"the column {name} is {array.type}, and a row has {shown}")
    if pa.types.is_integer(array.type):
        cut = [value for value in values if isinstance(value, float) and not value.is_integer()]
        if cut:
            raise BadInput(f"the column {name} has whole numbers, and a row has {cut[0]!r}")
    if pa.types.is_date(array.type):
        late = [value for value in values if isinstance(value, datetime) and value.astimezone(UTC).time() != time()]
        if late:
            raise BadInput(f"the column {name} has days, and a row has the time {late[0].isoformat()}")
    if pa.types.is_float32(array.type):
        for value, narrow in zip(values, array.to_pylist(), strict=True):
            if narrow is not None and value is not None and math.isinf(narrow) and not math.isinf(value):
                raise BadInput(f"the column {name} is a float of 32 bits, and a row has {value!r}")


def _takes(column: pa.DataType, kind: type) -> bool:
    """Whether values of a type can be the same ones in a column; JSON is a text."""
    from pyarrow import types

    if kind is str:
        return bool(types.is_string(column) or types.is_large_string(column) or types.is_string_view(column))
    if kind is bytes:
        stored = getattr(column, "storage_type", column)  # a UUID is 16 bytes
        return bool(types.is_binary(stored) or types.is_large_binary(stored) or types.is_fixed_size_binary(stored))
    if kind is bool:
        return bool(types.is_boolean(column))
    if kind is datetime:
        return bool(types.is_timestamp(column) or types.is_date(column))
    is_number = types.is_integer(column) or types.is_floating(column)
    return bool(is_number or (kind is int and types.is_decimal(column)))


def _advice(name: str, found: Progress, delivery: Delivery, number: int) -> str:
    mark = [delivery.store, min(found.microbatch_id, number), ""]
    return f"set the table's property {name} to {json.dumps(mark)}"
