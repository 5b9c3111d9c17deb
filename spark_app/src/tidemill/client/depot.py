"""`DepotClient`: appends to a depot through a gateway, each done once however often it is tried; reads of records."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, overload
from urllib.parse import quote

from tidemill.api.depot_producer import DepotProducer
from tidemill.api.launch import AckLevel, check_ack
from tidemill.client.connection import MSGPACK, Connection, Request, in_url, packed
from tidemill.values.arrow_stream import ArrowStream
from tidemill.values.data import has_utf8
from tidemill.values.errors import BadInput, OutcomeUnknown, RecordRefused, StoreUnavailable, TidemillError
from tidemill.values.ids import nonce
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.object_info import ObjectInfo, PartitionInfo
from tidemill.values.record_checks import check_records

ARROW = "application/vnd.apache.arrow.stream"
CHUNK_RECORDS = 10_000
CHUNK_ROWS = 50_000
READ_RECORDS = 50_000
_TABLES = frozenset({"DataFrame", "Table", "RecordBatch"})


class ProducerPool:
    """Names under which appends are numbered; each has one append under way, so that its numbers arrive in order.

    A gateway remembers one number a name: a name for each append would fill its memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[tuple[str, int]] = []

    def take(self) -> tuple[str, int]:
        """A name, and the number of the append that it is taken for."""
        with self._lock:
            return self._free.pop() if self._free else (nonce(), 0)

    def give_back(self, name: str, sequence: int) -> None:
        """The append of this number is settled."""
        with self._lock:
            self._free.append((name, sequence + 1))


class DepotClient(ShownInNotebooks):
    """One depot of one module; safe for several threads."""

    def __init__(self, connection: Connection, module: str, name: str) -> None:
        self.name = "*" + name.removeprefix("*") if isinstance(name, str) else name
        self._connection = connection
        self._path = f"/modules/{in_url('module', module)}/depots/{in_url('depot', self.name, safe='*')}"
        self._producers = ProducerPool()
        self.get_object_info()

    def __repr__(self) -> str:
        return f"DepotClient({self._path!r})"

    def _facts(self) -> dict[str, Any]:
        info = self.get_object_info()
        return {"module": info.module_name, "depot": info.name, "partitions": info.num_partitions}

    # --- appending ---------------------------------------------------------------------------------------------------

    @overload
    def append(self, record: Any, ack: AckLevel = ...) -> dict[str, Any]: ...

    @overload
    def append(self, record: Any, ack: AckLevel = ..., *, producer: str, sequence: int) -> dict[str, Any]: ...

    def append(
        self,
        record: Any,
        ack: AckLevel = AckLevel.ACK,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> dict[str, Any]:
        """Append one record; when this returns it is durable, once. Returns {}.

        With AckLevel.NONE it returns at once, and what becomes of the record is not reported. `producer` (a name) and
        `sequence` (from 0 on, rising) make it safe to append the same record again.

        Raises:
            RecordRefused: the record is no data, or the depot takes none from clients; nothing was appended.
            UnknownName: the depot or its module was deleted; nothing was appended.
            KeyReused: the producer's append of this sequence was another one; nothing was appended.
            SequenceUnknown: it is below the producer's last one, and nothing is known of it; nothing was appended.
            StoreUnavailable: nothing was appended; the gateway or its store did not answer for too long.
            OutcomeUnknown: the record is in the depot once or not at all.
            BadInput: `ack`, `producer` or `sequence` is not possible.
        """
        return self._append_one(record, ack, producer, sequence).result()

    @overload
    def append_async(self, record: Any, ack: AckLevel = ...) -> Future[dict[str, Any]]: ...

    @overload
    def append_async(
        self, record: Any, ack: AckLevel = ..., *, producer: str, sequence: int
    ) -> Future[dict[str, Any]]: ...

    def append_async(
        self,
        record: Any,
        ack: AckLevel = AckLevel.ACK,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Future[dict[str, Any]]:
        """Append one record without waiting; the future gives or raises what `append` does.

        Raises:
            RecordRefused: the record is no data, at once.
        """
        return self._append_one(record, ack, producer, sequence)

    def _append_one(
        self, record: Any, ack: AckLevel, producer: str | None, sequence: int | None
    ) -> Future[dict[str, Any]]:
        check_ack(ack)
        check_records([record], None)
        numbered = _numbered(producer, sequence)
        body = packed({"record": record})
        return ack.answer(self._connection.later(lambda: self._append(body, MSGPACK, numbered)))

    @overload
    def append_many(self, records: Iterable[Any] | ArrowStream) -> None: ...

    @overload
    def append_many(self, records: Iterable[Any] | ArrowStream, *, producer: str, sequence: int) -> None: ...

    def append_many(
        self,
        records: Iterable[Any] | ArrowStream,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> None:
        """Append many records in chunks, in order; rows of a data frame or an Arrow table are dicts.

        It waits until they are durable. With `producer` and `sequence` all of them are one append.

        Raises:
            RecordRefused: a record is no data; the chunks before it are appended (`appended` of the error's context
                counts their records). And as `append`.
        """
        numbered = _numbered(producer, sequence)
        appended = 0
        for count, body, kind in _bodies(records, is_one=numbered is not None):
            try:
                self._append(body, kind, numbered)
            except TidemillError as error:
                error.context["appended"] = appended
                raise
            appended += count

    def open_producer(self, name: str) -> DepotProducer:
        """A producer of this name, whose appends count once and shut out those of whoever opened it before.

        Raises:
            BadInput: it is no name, or its numbers are used up by appends with numbers of one's own.
            RecordRefused: the depot takes no appends of clients.
            UnknownName: the depot or its module was deleted.
            StoreUnavailable, OutcomeUnknown: open it again.
        """
        _numbered(name, 0)
        asked = packed({"producer": in_header(name)})
        path = f"{self._path}/producers"
        opened = self._connection.send(Request("POST", path, asked, is_write=True, is_once=True))
        return DepotProducer(self, name, opened["sequence"])

    def _append(self, body: bytes, kind: str, numbered: tuple[str, int] | None) -> dict[str, Any]:
        name, sequence = numbered or self._producers.take()
        headers = {"idempotency-key": name, "idempotency-sequence": str(sequence)}
        try:
            self._connection.send(
                Request("POST", f"{self._path}/append", body, kind=kind, headers=headers, is_write=True)
            )
        except (OutcomeUnknown, StoreUnavailable):
            raise  # a try that is still on its way must not meet a later number of this name
        except TidemillError:
            if numbered is None:
                self._producers.give_back(name, sequence)
            raise
        if numbered is None:
            self._producers.give_back(name, sequence)
        return {}

    # --- reading -----------------------------------------------------------------------------------------------------

    def get_object_info(self) -> ObjectInfo:
        """Whose the depot is, its name and its number of partitions."""
        return ObjectInfo(**self._connection.send(Request("GET", self._path)))

    def get_partition_info(self, partition: int) -> PartitionInfo:
        """The offsets that a partition has now. Raises BadInput where there is no such partition."""
        return PartitionInfo(**self._connection.send(Request("GET", self._partition(partition))))

    def read(self, partition: int, start: int, end: int) -> list[Any]:
        """The records [start, end) of a partition; tuples come back as lists.

        Raises:
            BadInput: there is no such partition, or no record at one of these offsets.
        """
        path = f"{self._partition(partition)}/records"
        for offset in (start, end):
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise BadInput(f"An offset is a whole number, not {offset!r}.")
        found: list[Any] = []
        for first in range(start, max(end, start + 1), READ_RECORDS):
            params = {"start": first, "end": min(end, first + READ_RECORDS)}
            found += self._connection.send(Request("GET", path, params=params))
        return found

    def get_object_info_async(self) -> Future[ObjectInfo]:
        """`get_object_info` without waiting."""
        return self._connection.later(self.get_object_info)

    def get_partition_info_async(self, partition: int) -> Future[PartitionInfo]:
        """`get_partition_info` without waiting."""
        return self._connection.later(lambda: self.get_partition_info(partition))

    def read_async(self, partition: int, start: int, end: int) -> Future[list[Any]]:
        """`read` without waiting."""
        return self._connection.later(lambda: self.read(partition, start, end))

    def _partition(self, partition: int) -> str:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise BadInput(f"A partition is a whole number, not {partition!r}.")
        return f"{self._path}/partitions/{partition}"


def _numbered(producer: str | None, sequence: int | None) -> tuple[str, int] | None:
    if (producer is None) != (sequence is None):
        raise BadInput("An idempotent append needs both: producer= (a name) and sequence= (a number that rises).")
    if producer is None or sequence is None:
        return None
    if not isinstance(producer, str) or not producer:
        raise BadInput(f"producer= is a name, not {producer!r}.")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**53:
        raise BadInput(f"sequence= is a whole number from 0 on that fits 53 bits, not {sequence!r}.")
    if not has_utf8(producer):
        raise BadInput(f"producer= is a name without lone surrogates, not {producer!r}.")
    return in_header(producer), sequence


def in_header(producer: str) -> str:
    """A name as a header can hold it."""
    return quote(producer, safe="!#$&'()*+,/:;=?@[]")


def _bodies(records: Any, is_one: bool) -> Iterator[tuple[int, bytes, str]]:
    """(records, body, type) of each chunk."""
    if _is_table(records):
        from tidemill.client.tables import arrow_chunks  # loads Polars and PyArrow

        yield from ((rows, body, ARROW) for rows, body in arrow_chunks(records, None if is_one else CHUNK_ROWS))
        return
    if isinstance(records, (str, bytes, dict)) or not isinstance(records, Iterable):
        raise RecordRefused(f"append_many takes many records, not one {type(records).__name__}; use append for it.")
    values: Sequence[Any] = records if isinstance(records, list) else list(records)
    size = max(1, len(values)) if is_one else CHUNK_RECORDS
    for start in range(0, len(values), size):
        part = list(values[start : start + size])
        check_records(part, start)
        yield len(part), packed({"records": part}), MSGPACK


def _is_table(records: Any) -> bool:
    """Whether it is a table of Polars or PyArrow, asked without loading them."""
    return any(
        kind.__module__.partition(".")[0] in ("polars", "pyarrow") and kind.__name__ in _TABLES
        for kind in type(records).__mro__
    )
