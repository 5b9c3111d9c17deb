"""`DepotHandle`: appends to a depot from anywhere, and reads of its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import polars as pl
import pyarrow as pa

from tidemill.api.depot_producer import DepotProducer
from tidemill.api.launch import AckLevel, check_ack
from tidemill.clients.depot_target import MOVES_MAX, DepotTarget, FollowingAppend, moved, moves_often, target_of
from tidemill.clients.module import ModuleClient
from tidemill.clients.partition_choice import Partitions, check_takes_appends, partition_of, partitions_of
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.append_identity import Producer, digest_of
from tidemill.depot.appender import Router, chunks
from tidemill.depot.epochs import open_epoch
from tidemill.depot.header import Offsets
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import check_own_name
from tidemill.depot.rows import check_records, frame_of, split_by_partition
from tidemill.language.dataflow import StartFrom
from tidemill.language.schema import to_text
from tidemill.tables.migrated_records import migrated_records
from tidemill.tables.record_schema import check_column, check_record
from tidemill.values import columns
from tidemill.values.arrow_stream import ArrowStream
from tidemill.values.call_checks import checked_whole
from tidemill.values.columns import Column
from tidemill.values.data import INT_MAX, has_utf8
from tidemill.values.errors import BadInput, Deleted, RecordRefused, StoreUnavailable
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.object_info import ObjectInfo, PartitionInfo

T = TypeVar("T")


class Appended(NamedTuple):
    """Where the records of one append are, in the depot as this definition has it."""

    definition: StoredDefinition
    offsets: Offsets


class DepotHandle(ShownInNotebooks):
    """One depot of one module; safe for several threads, and still good after `update_module`.

    What several threads of a process append at once is committed together. `producer` and `sequence` make an append
    idempotent: a producer's sequences rise, and an append of the same name, number and content is done already.
    """

    def __init__(self, module: ModuleClient, name: str) -> None:
        self._module = module
        self.name = name
        self._lock = threading.Lock()
        self._resolved: DepotTarget | None = None
        self._resolve()

    def __repr__(self) -> str:
        return f"DepotHandle({self._module.module!r}, {self.name!r})"

    def _facts(self) -> dict[str, Any]:
        info = self.get_object_info()
        depot = self._module.definition().depot(self.name)
        schema = "any data" if depot.schema is None else to_text(depot.schema)
        return {"module": info.module_name, "depot": info.name, "partitions": info.num_partitions, "records": schema}

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
        """Append one record; when this returns it is durable, and seen by every topology. Returns {}.

        The result maps topologies to what they answered; microbatch topologies never take part in an append.

        Raises:
            RecordRefused: the record is no data, or the depot takes none from clients; nothing was appended.
            UnknownName: the depot or its module was deleted; nothing was appended.
            StoreUnavailable: nothing was appended; try again.
            OutcomeUnknown: the record is in the depot once or not at all; `producer` and `sequence` make a repeat safe.
            KeyReused: the producer's append of this sequence was another one; nothing was appended.
            SequenceUnknown: it is below the producer's last one, and nothing is known of it; nothing was appended.
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
            RecordRefused: as `append`, at once.
        """
        return self._append_one(record, ack, producer, sequence)

    def _append_one(
        self, record: Any, ack: AckLevel, producer: str | None, sequence: int | None
    ) -> Future[dict[str, Any]]:
        check_ack(ack)
        if producer is not None:
            check_records([record], None)  # its digest is made of data
        numbered = _programs_own(producer, sequence, [record])

        def hand_in(target: DepotTarget) -> Future[Offsets]:
            depot, code = target.definition.depot(self.name), self._module.depot_code(self.name)
            check_record(depot, record)
            partition = partition_of(depot, code, record, target.appender.depot.partitions)
            return target.appender.append_async(partition, record, numbered)

        return ack.answer(self._handed_in(hand_in, lambda target, at: {}))

    def _handed_in(
        self, hand_in: Callable[[DepotTarget], Future[Offsets]], answer: Callable[[DepotTarget, Offsets], T]
    ) -> Future[T]:
        def result_of(target: DepotTarget, at: Offsets) -> T:
            self._module.hub.notify(target.prefix)
            return answer(target, at)

        return FollowingAppend(self._module, self.name, self._resolve(), hand_in, result_of)

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
        """Append many records; rows of a data frame or an Arrow table are dicts.

        They are appended in chunks, in order. With `producer` and `sequence` all of them are one idempotent append.

        Raises:
            RecordRefused: a record is no data; the chunks before it are appended. And as `append`.
        """
        target, given = self._resolve(), _in_bulk(records)
        for _ in range(MOVES_MAX):
            try:
                self._append_all(target, given, producer, sequence)
                return
            except Deleted as error:
                found = moved(self._module, self.name, target, error)
                appended = error.context.get("appended", 0)
                if found.prefix == target.prefix and appended:
                    text = f"{self.name} was deleted and brought back meanwhile, when {appended} records were appended."
                    raise StoreUnavailable(text, appended=appended) from error
                # All of them go to another depot, also those that went with the one before.
                target = found
            finally:
                self._module.hub.notify(target.prefix)
        raise moves_often(self.name)

    def _append_all(
        self, target: DepotTarget, given: Sequence[Any] | pl.DataFrame, producer: str | None, sequence: int | None
    ) -> None:
        appender, route = target.appender, self._router(target)
        if producer is None and sequence is None:
            appender.append_many(given, route)
            return
        batch = list(chunks(given))
        if len(batch) > 1:
            raise RecordRefused(
                "These are too many records for one idempotent append; give each part its own sequence."
            )
        for column in batch:
            check_records(column)
            rows = split_by_partition(column, route(column, 0))
            appender.append_rows(rows, _programs_own(producer, sequence, column)).result()

    def open_producer(self, name: str) -> DepotProducer:
        """A producer of this name, whose appends count once and shut out those of whoever opened it before.

        Names that are opened through gateways are others.

        Raises:
            BadInput: it is no name, or its numbers are used up by appends with numbers of one's own.
            RecordRefused: the depot takes no appends of clients.
            UnknownName: the depot or its module was deleted.
            StoreUnavailable, OutcomeUnknown: open it again.
        """
        _programs_own(name, 0, [])
        return DepotProducer(self, name, self.open_epoch(name))

    def open_epoch(self, name: str, number_max: int = INT_MAX) -> int:
        """Begin the next epoch of a producer: the number above which its appends go on, up to `number_max`. Raises as
        `open_producer`.
        """
        _producer(name, 0, [])
        target = self._resolve()
        check_takes_appends(target.definition.depot(self.name))
        for _ in range(MOVES_MAX):
            try:
                return open_epoch(target.appender.depot, name, number_max)
            except Deleted as error:
                target = moved(self._module, self.name, target, error)
        raise moves_often(self.name)

    def check(self, records: Column) -> None:
        """Raises RecordRefused, as an append of these records would at once; nothing is appended."""
        check_records(records)
        self._router(self._resolve())(records, 0)

    def _router(self, target: DepotTarget) -> Router:
        """Gives the partitions of a column's records; raises RecordRefused for one that the depot does not take."""
        depot, code = target.definition.depot(self.name), self._module.depot_code(self.name)
        partitions = target.appender.depot.partitions

        def route(column: Column, first: int) -> Partitions:
            check_column(depot, column, first)
            return partitions_of(depot, code, column, partitions, first)

        return route

    def append_column_async(
        self, records: Column, *, producer: str | None = None, sequence: int | None = None, digest: str = ""
    ) -> Future[Appended]:
        """Append a column of records as one, whole or not at all; the future gives where they are.

        Cancelling the future, where that succeeds, means that nothing is appended. `digest` tells the append from
        another one of the same number; left out, the records do.

        Raises:
            RecordRefused: as `append`, at once.
        """
        check_records(records)  # before they are sorted: a refusal counts them as the caller does
        numbered = _producer(producer, sequence, records, digest)

        def hand_in(target: DepotTarget) -> Future[Offsets]:
            rows = split_by_partition(records, self._router(target)(records, 0))
            return target.appender.append_rows(rows, numbered, is_checked=True)

        return self._handed_in(hand_in, lambda target, at: Appended(target.definition, at))

    # --- reading -----------------------------------------------------------------------------------------------------

    def get_object_info(self) -> ObjectInfo:
        """Whose the depot is, its name and its number of partitions."""
        definition, _, appender = self._resolve()
        return ObjectInfo(definition.module, self.name, appender.depot.partitions)

    def get_partition_info(self, partition: int) -> PartitionInfo:
        """The offsets that a partition has now.

        Raises:
            BadInput: there is no such partition.
        """

        def look(log: DepotLog) -> PartitionInfo:
            log.follow()
            return PartitionInfo(log.starts()[partition], log.ends()[partition])

        return self._read(partition, look)

    def offsets_after(self, millis: int) -> tuple[int, ...]:
        """Of each partition the offset from which on all records were appended after a time, in ms since 1970.

        It is the next offset where none was; the time of a record is that of the append that brought it.
        """

        checked_whole("A time in milliseconds", millis)

        def look(log: DepotLog) -> tuple[int, ...]:
            return log.resolve_start(StartFrom("after_timestamp", millis), log.now_millis())

        return self._read(0, look)

    def read(self, partition: int, start: int, end: int) -> list[Any]:
        """The records [start, end) of a partition, without those that a migration took away; tuples come back as lists.

        Raises:
            BadInput: there is no such partition, or no record at one of these offsets (any more).
        """
        for offset in (start, end):
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise BadInput(f"An offset is a whole number, not {offset!r}.")

        def read(log: DepotLog) -> list[Any]:
            log.check_kept(partition, start, end)
            column = log.read_columns(partition, start, end)
            depot = self._module.definition().depots.get(self.name)
            migration = None if depot is None else self._module.depot_migration(depot)
            if depot is not None and migration is not None:
                partitions = np.full(columns.length(column), partition, dtype=np.int32)
                column, _ = migrated_records(depot, migration, column, partitions, {partition: start})
            return columns.to_values(column)

        return self._read(partition, read)

    def get_object_info_async(self) -> Future[ObjectInfo]:
        """`get_object_info` without waiting."""
        return self._module.later(self.get_object_info)

    def get_partition_info_async(self, partition: int) -> Future[PartitionInfo]:
        """`get_partition_info` without waiting."""
        return self._module.later(lambda: self.get_partition_info(partition))

    def read_async(self, partition: int, start: int, end: int) -> Future[list[Any]]:
        """`read` without waiting."""
        return self._module.later(lambda: self.read(partition, start, end))

    def _read(self, partition: int, read: Callable[[DepotLog], T]) -> T:
        """Read; once more from the depot that has the name now, where the one before was deleted meanwhile."""
        target = self._resolve()
        try:
            return read(self._log(target, partition))
        except Deleted as error:
            return read(self._log(moved(self._module, self.name, target, error), partition))

    def _log(self, target: DepotTarget, partition: int) -> DepotLog:
        log = target.appender.depot
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < log.partitions:
            raise BadInput(f"{self.name} has the partitions 0 to {log.partitions - 1}, not {partition!r}.")
        return log

    def _resolve(self) -> DepotTarget:
        definition = self._module.definition()
        with self._lock:
            if self._resolved is None or self._resolved.definition is not definition:
                self._resolved = target_of(self._module, self.name, definition)
            return self._resolved


def _programs_own(producer: str | None, sequence: int | None, records: Column) -> Producer | None:
    """As `_producer`, of a name that a program chose."""
    if isinstance(producer, str):
        check_own_name(producer)
    return _producer(producer, sequence, records)


def _producer(producer: str | None, sequence: int | None, records: Column, digest: str = "") -> Producer | None:
    """The append as its producer numbers it; its digest is of the records as they came, before they are placed."""
    if (producer is None) != (sequence is None):
        raise BadInput("An idempotent append needs both: producer= (a name) and sequence= (a number that rises).")
    if producer is None or sequence is None:
        return None
    if not isinstance(producer, str) or not producer:
        raise BadInput(f"producer= is a name, not {producer!r}.")
    if not has_utf8(producer):
        raise BadInput(f"producer= is a name without lone surrogates, not {producer!r}.")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= INT_MAX:
        raise BadInput(f"sequence= is a whole number from 0 on that fits 64 bits, not {sequence!r}.")
    return Producer(producer, sequence, digest or digest_of(records))


def _in_bulk(records: Iterable[Any] | ArrowStream) -> Sequence[Any] | pl.DataFrame:
    if isinstance(records, (list, pl.DataFrame)):
        return records
    if isinstance(records, (str, bytes, dict)) or not isinstance(records, (Iterable, pa.Table, pa.RecordBatch)):
        raise RecordRefused(f"append_many takes many records, not one {type(records).__name__}; use append for it.")
    if isinstance(records, (pa.Table, pa.RecordBatch)):
        return frame_of(records)
    return list(records)
