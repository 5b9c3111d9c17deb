"""Writes what a channel of a blocking node sends as objects of its Dataset."""

from __future__ import annotations

import polars as pl

from tidemill.graphs.columns import stacked
from tidemill.graphs.dataset import FOLDER, DatasetObject, KVDataset, write_object
from tidemill.graphs.nodes import DatasetSink
from tidemill.graphs.partitions import split
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput
from tidemill.values.ids import nonce

OBJECT_ROWS = 1_000_000
OBJECT_BYTES = 64 * 1024 * 1024


class DatasetWriter:
    """Gathers small batches to objects of OBJECT_ROWS or OBJECT_BYTES; a larger batch is an object of its own.

    `pending` are batches that wait for more: they are part of the channel's state.
    """

    def __init__(self, store: ObjectStore, sink: DatasetSink, channel: int, channels: int) -> None:
        self._store = store
        self._sink = sink
        self._channel = channel
        self._channels = channels
        self.pending: list[pl.DataFrame] = []

    def write(self, frame: pl.DataFrame) -> list[DatasetObject]:
        """Take a batch; the objects that are written now."""
        written = self._flush() if frame.height and self.pending and not self._fits(frame) else []
        if frame.height or not self.pending:
            self.pending = [*(each for each in self.pending if each.height), frame]
        return written

    def end(self) -> list[DatasetObject]:
        """No batch comes any more: what waits is written, and in the first channel the columns if none ever came."""
        if not self.pending and not self._channel and self._sink.schema is not None:
            self.pending = [self._sink.schema.to_frame()]
        return self._flush() if self.pending else []

    def _fits(self, frame: pl.DataFrame) -> bool:
        together = [*self.pending, frame]
        return (
            dict(self.pending[0].schema) == dict(frame.schema)
            and sum(each.height for each in together) <= OBJECT_ROWS
            and sum(each.estimated_size() for each in together) <= OBJECT_BYTES
        )

    def _flush(self) -> list[DatasetObject]:
        frame, self.pending = stacked(self.pending), []
        missing = [column for column in self._sink.key if column not in frame.columns]
        if missing:
            raise BadInput(f"The key {', '.join(missing)} of {self._sink.dataset} is no column of its batches.")
        if self._sink.kind != KVDataset.KIND or not frame.height:
            return [self._create(frame, 0)]
        pieces = split(frame, self._sink.key, self._channel, self._channels)
        return [self._create(piece, partition) for partition, piece in pieces]

    def _create(self, frame: pl.DataFrame, partition: int) -> DatasetObject:
        key = f"{FOLDER}/{self._sink.dataset}/{self._channel:05d}-{nonce()}.parquet"
        return write_object(self._store, key, frame, self._channel, partition)
