"""A Dataset as a stream: each of its objects is one batch."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tidemill.graphs.dataset import Dataset
from tidemill.graphs.nodes import WINDOWS, Cursor


@dataclass(frozen=True)
class DatasetInput:
    """The objects of a complete Dataset, dealt so that channels read about as many bytes."""

    dataset: Dataset

    @property
    def schema(self) -> dict[str, pl.DataType] | None:
        return dict(self.dataset.schema) or None

    @property
    def batch_bytes(self) -> int:
        return max((each.bytes for each in self.dataset.record.objects), default=0)

    def describe(self) -> str:
        if self.dataset.KIND == WINDOWS:  # a graph that is resumed is the same one, whatever windows there are by now
            return f"Dataset {self.dataset.id}, its windows"
        return f"Dataset {self.dataset.id}, {self.dataset.num_rows:,} rows in {len(self.dataset)} objects"

    def plan(self, channels: int) -> list[Cursor]:
        """Keys and checksums of its objects for each channel: the next goes to the channel that has the least bytes."""
        dealt: list[list[tuple[str, str]]] = [[] for _ in range(channels)]
        load = [0] * channels
        for each in self.dataset.record.objects:
            if each.rows:
                channel = load.index(min(load))
                dealt[channel].append((each.key, each.checksum))
                load[channel] += each.bytes
        return [tuple(own) or None for own in dealt]

    def read(self, cursor: Cursor) -> tuple[pl.DataFrame | None, Cursor]:
        each, *rest = cursor
        key, checksum = each if isinstance(each, tuple) else (each, "")  # checkpoints were stored with keys only
        return self.dataset.read_object(key, checksum), tuple(rest) or None
