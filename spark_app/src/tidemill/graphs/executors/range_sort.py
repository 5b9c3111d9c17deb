"""One order over all channels: bounds from a sample, sorted runs that are cut at them, and a merge per range.

Rows are held once, as runs; what is sent are slices of them, which are no copies. So the sort is bounded in memory as
that of one channel is, where channels share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.levels import concatenated
from tidemill.graphs.executors.sort import Order, SortExecutor

SAMPLED = 32
"""Of so many rows of a batch one is looked at to find bounds."""
SAMPLE_ROWS = 1 << 16
RANGE = "__tidemill_range"
ROWS, BOUNDS = 0, 1


class SampledKeys:
    """Of each batch some rows, their columns to sort by only, to one channel."""

    def __init__(self, order: Order) -> None:
        self._by = order.by

    def __call__(self, batch: pl.DataFrame, source_channel: int, channels: int) -> dict[int, pl.DataFrame]:
        # Not each 32nd row: keys may repeat in such a step.
        return {0: batch.select(self._by).sample(-(-batch.height // SAMPLED), seed=batch.height)}


class BoundsExecutor(Executor):
    """At the end the rows that part an order into ranges of about as many rows: those up to the first are in range 0.

    Takes a sample; holds up to SAMPLE_ROWS rows of it. Ranges of rows that are equal in the order are empty but one.
    """

    def __init__(self, order: Order, ranges: int) -> None:
        self._order, self._ranges = order, ranges
        self._rows: list[pl.DataFrame] = []
        self._every = 1

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._rows += [batch.gather_every(self._every) for batch in batches]
        while sum(frame.height for frame in self._rows) > SAMPLE_ROWS:
            self._rows, self._every = [concatenated(self._rows).gather_every(2)], 2 * self._every
        return None

    def done(self, channel: int) -> Output:
        if not self._rows:
            return None
        rows = self._order.sorted(concatenated(self._rows))
        at = sorted({number * rows.height // self._ranges for number in range(1, self._ranges)})
        return rows[at]


class RangeRunsExecutor(SortExecutor):
    """Sorts the rows of stream 0 into runs, on disk if they are many, and cuts them at the bounds of stream 1.

    From `done` come the pieces, each with the column RANGE, for `to_range`.
    """

    def __init__(self, order: Order, **bounded: Any) -> None:
        super().__init__(order.by, order.descending, nulls_last=order.nulls_last, **bounded)
        self._bounds: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        if stream_id == BOUNDS:
            self._bounds += batches
            return None
        return super().execute(batches, stream_id, channel)

    def done(self, channel: int) -> Output:
        if self._waiting:
            self._runs.append(self._sorted())
        return (piece for run in self._runs for piece in self._pieces(run))

    def _pieces(self, run: pl.DataFrame) -> Iterator[pl.DataFrame]:
        bounds = concatenated(self._bounds)
        within = [self._order.up_to(bounds.slice(number, 1)) for number in range(bounds.height)]
        ends = run.select(each.sum().cast(pl.Int64).alias(str(n)) for n, each in enumerate(within)).row(0)
        start = 0
        for number, end in enumerate((*ends, run.height)):
            if end > start:
                yield run.slice(start, end - start).with_columns(pl.lit(number, pl.UInt16).alias(RANGE))
            start = max(start, end)


def to_range(batch: pl.DataFrame, source_channel: int, channels: int) -> dict[int, pl.DataFrame]:
    """Deals the pieces of `RangeRunsExecutor`: each has rows of one range."""
    return {int(batch.item(0, RANGE)): batch.drop(RANGE)}


class MergeRunsExecutor(SortExecutor):
    """All rows of a channel in order, of batches that are each in order; what came of `RangeRunsExecutor`."""

    def __init__(self, order: Order, batch_func: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        super().__init__(order.by, order.descending, nulls_last=order.nulls_last, batch_func=batch_func)

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._runs += batches
        return None
