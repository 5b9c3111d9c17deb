"""Batches that a Spark job appends to a depot, each exactly once, whatever is tried again.

Tasks only stage: what they write is in objects of the depot's folder that nobody reads, under names that are never used
again. When all tasks of a batch are done, its driver creates the batch's list of these objects, if there is none yet.
That create decides what the batch is: a driver that died and began anew finds the list, and goes on with it, however
Spark divided the rows the second time. Then the objects are appended in their order, numbered by batch and place, as
one idempotent producer, and a mark says that it is done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import xxhash

from tidemill.clients.depot import DepotHandle
from tidemill.clients.module import ModuleClient
from tidemill.depot.appender import chunks
from tidemill.scans.frames import opened
from tidemill.spark.source_columns import records_of
from tidemill.spark.staged import DONE, LIST, STAGED, batch_key, batch_of, read_list, read_rows, rows_key
from tidemill.store.objects import AlreadyExists, ObjectStore
from tidemill.values.errors import BadInput

STAGED_BYTES: Final = 32 * 1024 * 1024
"""Rows of a task go to an object of their own when they are as many; more are not held."""

PARTS_MAX: Final = 1 << 20
"""So many appends have numbers in one batch."""

BATCH_MAX: Final = (1 << 43) - 1


@dataclass(frozen=True)
class DepotBatches:
    """The batches of one `producer` for a depot; plain data, which travels to tasks. `column` as in `records_of`."""

    store: str
    module: str
    depot: str
    producer: str
    column: str = ""

    def stage(self, batches: Iterable[pa.RecordBatch], batch: int | None = None) -> tuple[str, ...]:
        """Write what a task has into objects of bounded size; their names, which say of which `batch` they are.

        Raises:
            RecordRefused, BadInput: a row is no record of this depot; so the task fails, before anything is appended.
        """
        store, folder = opened(self.store), self._folder()
        handle = DepotHandle(ModuleClient(store, self.module), self.depot)
        names: list[str] = []
        held: list[pa.RecordBatch] = []
        for rows in batches:
            held += [rows] if rows.num_rows else []
            if sum(each.nbytes for each in held) >= STAGED_BYTES:
                names.append(self._written(handle, store, folder, batch, held))
                held = []
        names += [self._written(handle, store, folder, batch, held)] if held else []
        return tuple(name.removeprefix(f"{folder}/") for name in names)

    def discard(self, batch: int, names: Iterable[str]) -> None:
        """Delete what tasks staged for a try that failed, but for what the batch's list names.

        Spark also aborts a batch whose commit failed. With the list there it is decided what the batch is, and part of
        it may be appended: who commits it again appends these objects.
        """
        store, folder = opened(self.store), self._folder()
        is_listed = store.exists(batch_key(folder, batch, LIST))
        kept = set(read_list(store, folder, batch)) if is_listed else set()
        for name in set(names) - kept:
            store.delete(f"{folder}/{name}")

    def commit(self, batch: int, names: Sequence[str]) -> None:
        """Append the batch that these objects are, unless it is appended already. Batches of a producer rise.

        Raises:
            BadInput: the batch cannot be numbered, or is older than one that was appended.
            RecordRefused: a row is no record of this depot any more.
            CorruptState: what was staged is not what the tasks wrote; what comes before it may be appended.
            StoreUnavailable, OutcomeUnknown: commit it again.
        """
        if not 0 <= batch <= BATCH_MAX:
            raise BadInput(f"Batches have the numbers 0 to {BATCH_MAX}, not {batch}.")
        if not names:  # what marks the batch before it stays
            return
        store, folder = opened(self.store), self._folder()
        listed, done = (batch_key(folder, batch, end) for end in (LIST, DONE))
        if store.exists(done):
            return
        _create(store, listed, json.dumps(list(names)).encode())
        handle = DepotHandle(ModuleClient(store, self.module), self.depot)
        number = batch * PARTS_MAX
        for name in read_list(store, folder, batch):
            number = self._append(handle, read_rows(store, f"{folder}/{name}"), number)
        _create(store, done, b"")
        self._clean(store, folder, batch, {listed, done})

    def finish(self) -> None:
        """Forget the producer, which appends nothing any more."""
        self._clean(opened(self.store), self._folder(), BATCH_MAX, set())

    def _append(self, handle: DepotHandle, rows: pa.Table, number: int) -> int:
        for column in chunks(records_of(rows, self.column)):
            handle.append_column_async(column, producer=self.producer, sequence=number).result()
            number += 1
        return number

    def _written(
        self, handle: DepotHandle, store: ObjectStore, folder: str, batch: int | None, batches: Sequence[pa.RecordBatch]
    ) -> str:
        for column in chunks(records_of(pa.Table.from_batches(batches), self.column)):
            handle.check(column)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for each in batches:
                writer.write_batch(each)
        content = sink.getvalue().to_pybytes()
        key = rows_key(folder, batch, content)
        store.create(key, content)
        return key

    def _clean(self, store: ObjectStore, folder: str, batch: int, kept: set[str]) -> None:
        """Delete what batches up to this one left, and what was staged by tasks that were tried again. A driver that
        was replaced may come here late: what the next batches are stays. Lists go first: one without its mark is of a
        batch that is to be appended.
        """
        gone = [key for key in store.list(folder) if key not in kept and batch_of(key) <= batch]
        for key in sorted(gone, key=lambda key: not key.endswith(LIST)):
            store.delete(key)

    def _folder(self) -> str:
        """In the depot's own folder, with which it goes."""
        definition = ModuleClient(opened(self.store), self.module).definition()
        prefix = definition.depot_prefix(definition.depot(self.depot).name)
        return f"{prefix}/{STAGED}/{xxhash.xxh3_128_hexdigest(self.producer.encode())}"


def _create(store: ObjectStore, key: str, content: bytes) -> None:
    try:
        store.create(key, content)
    except AlreadyExists:
        return
