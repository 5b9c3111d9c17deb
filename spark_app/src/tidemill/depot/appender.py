"""Group commit: what waits while a segment is being written goes into the next one together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from typing import Any

import polars as pl
from numpy.typing import NDArray

from tidemill.depot.append_identity import Numbered, Producer
from tidemill.depot.commit import SegmentBatch
from tidemill.depot.header import Offsets
from tidemill.depot.log import DepotLog
from tidemill.depot.rows import (
    PartitionedRows,
    check_frame,
    check_records,
    estimated_bytes,
    in_one_partition,
    split_by_partition,
)
from tidemill.store.objects import ObjectStore
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import BadInput, OutcomeUnknown, TidemillError

CHUNK_RECORDS = 1_000_000
GROUP_BYTES_MAX = 64 * 1024 * 1024
_VALUES_CHUNK_RECORDS = 250_000
_IDLE_SECONDS_MAX = 10.0

Router = Callable[[Column, int], NDArray[Any]]
"""Called with a column of records and the number of its first one; gives the partition of each."""


@dataclass(frozen=True)
class _Waiting:
    batch: SegmentBatch
    size: int
    future: Future[Offsets]


class DepotAppender:
    """Appends from any number of threads to one depot; each call gets a future of its records' offsets.

    There is no linger: the first append goes at once, alone. A thread of its own writes, and ends when nothing comes.
    Futures raise what `DepotLog.append` raises; one that could be cancelled was not appended and never will be.
    """

    def __init__(self, depot: DepotLog) -> None:
        self.depot = depot
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_running = False
        self._is_closed = False

    def append_async(self, partition: int, record: Any, producer: Numbered | Producer | None = None) -> Future[Offsets]:
        """Append one record. Raises RecordRefused before anything is written."""
        check_records([record], None)
        return self._enqueue(SegmentBatch(in_one_partition([record], partition), producer), 0)

    def append(self, partition: int, record: Any, producer: Numbered | Producer | None = None) -> Offsets:
        """Append one record and wait for it. Raises as `DepotLog.append`, and RecordRefused."""
        return self.append_async(partition, record, producer).result()

    def append_rows(
        self, rows: PartitionedRows, producer: Numbered | Producer | None = None, *, is_checked: bool = False
    ) -> Future[Offsets]:
        """Append records that are sorted by partition already, as one segment. Raises RecordRefused."""
        if not is_checked:
            check_records(rows.column)
        return self._enqueue(SegmentBatch(rows, producer), estimated_bytes(rows.column))

    def append_many(self, records: Sequence[Any] | pl.DataFrame | Column, route: Router) -> list[Offsets]:
        """Append many records in chunks and wait for them; `route` gives the partition of each record of a column.

        Rows of a data frame are dict records. A later chunk is made while an earlier one is written; a failure leaves
        the chunks before it appended.

        Raises:
            RecordRefused: a record is not data or too large; the chunks before it are appended. The context of an
                error counts their records (`appended`) and has the `index` of the record.
        """
        futures: deque[Future[Offsets]] = deque()
        done: list[Offsets] = []
        first = 0
        try:
            for column in chunks(records):
                check_records(column, first)
                rows = split_by_partition(column, route(column, first))
                first += columns.length(column)
                futures.append(self._enqueue(SegmentBatch(rows, None), estimated_bytes(column)))
                if len(futures) > 1:
                    done.append(futures.popleft().result())
            done += [futures.popleft().result() for _ in range(len(futures))]
        except TidemillError as error:
            done += [future.result() for future in futures if future.exception() is None]
            raised = copy(error)  # all whose appends were refused together have the same one
            raised.context = {**error.context, "appended": sum(end - start for at in done for _, start, end in at)}
            raise raised from error
        return done

    def close(self) -> None:
        """Wait until everything that was handed in is settled; later appends are refused."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_running)

    # --- the writing thread ------------------------------------------------------------------------------------------

    def _enqueue(self, batch: SegmentBatch, size: int) -> Future[Offsets]:
        future: Future[Offsets] = Future()
        with self._changed:
            if self._is_closed:
                raise BadInput("This appender is closed; open the depot again.")
            if not self._is_running:  # it waits for this lock, and then finds what is handed in here
                threading.Thread(target=self._write_all, name="depot-appender", daemon=True).start()
                self._is_running = True
            self._waiting.append(_Waiting(batch, size, future))
            self._changed.notify_all()
        return future

    def _write_all(self) -> None:
        try:
            while group := self._next_group():
                self._write(group)
        finally:  # whatever ends it, the next append begins another
            with self._changed:
                self._is_running = False
                self._changed.notify_all()

    def _next_group(self) -> list[_Waiting]:
        """Everything that waits, up to a bound of bytes; empty when the thread shall end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout=_IDLE_SECONDS_MAX)
            group: list[_Waiting] = []
            size = 0
            while self._waiting and (not group or size + self._waiting[0].size <= GROUP_BYTES_MAX):
                waiting = self._waiting.popleft()
                if waiting.future.set_running_or_notify_cancel():
                    group.append(waiting)
                    size += waiting.size
            if not group:
                self._is_running = False
                self._changed.notify_all()
            return group

    def _write(self, group: Sequence[_Waiting]) -> None:
        """A group shares its fate; whatever is raised reaches the callers, a bug as well."""
        try:
            offsets = self.depot.append_group([waiting.batch for waiting in group])
        except TidemillError as error:
            for waiting in group:
                waiting.future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - a panic in native code is no Exception; the callers get it
            for waiting in group:
                waiting.future.set_exception(OutcomeUnknown(f"The append was cut off: {error!r}"))
        else:
            for waiting, at in zip(group, offsets, strict=True):
                if isinstance(at, BadInput):
                    waiting.future.set_exception(at)
                else:
                    waiting.future.set_result(at)


def opened_appender(store: ObjectStore, prefix: str, partitions: int, now_millis: Callable[[], int]) -> DepotAppender:
    """An appender of the depot below `prefix`."""
    return DepotAppender(DepotLog(store, prefix, partitions, now_millis))


def chunks(records: Sequence[Any] | pl.DataFrame | Column) -> Iterable[Column]:
    """Columns of bounded size, in order."""
    if isinstance(records, pl.DataFrame):
        check_frame(records)
        records = columns.from_frame(records)
    if isinstance(records, (pl.Series, columns.RecordColumn)):
        rows = _rows_per_chunk(records)
        for start in range(0, columns.length(records), rows):
            yield columns.slice_rows(records, start, rows)
        return
    for start in range(0, len(records), _VALUES_CHUNK_RECORDS):
        yield columns.from_values(records[start : start + _VALUES_CHUNK_RECORDS], tuples_as_lists=True)


def _rows_per_chunk(column: Column) -> int:
    count = max(1, columns.length(column))
    row_bytes = max(1, estimated_bytes(column) // count)
    return max(1, min(CHUNK_RECORDS, GROUP_BYTES_MAX // row_bytes))
