"""Sorting and the first rows of an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.graphs.executors.rows import columns_of
from tidemill.graphs.executors.spilled_frames import MEMORY_LIMIT, spilled
from tidemill.values.errors import BadInput

BATCH_ROWS = 1 << 17
"""Rows of a sorted batch that goes on, and of the window that is read of each sorted run at a time."""


class Order:
    """Columns to sort by, each ascending or descending; nulls come first, or last if `nulls_last`."""

    def __init__(self, by: str | Sequence[str], descending: bool | Sequence[bool], nulls_last: bool) -> None:
        self.by = columns_of(by)
        self.descending = [descending] * len(self.by) if isinstance(descending, bool) else list(descending)
        self.nulls_last = nulls_last
        if not self.by or len(self.by) != len(self.descending):
            raise BadInput(f"an order needs columns, and `descending` for each of them or one for all: {self.by}")

    def sorted(self, rows: pl.DataFrame, *ties: str) -> pl.DataFrame:
        """The rows in this order; rows that are equal in it by the columns `ties`."""
        falling = [*self.descending, *(False for _ in ties)]
        return rows.sort([*self.by, *ties], descending=falling, nulls_last=self.nulls_last)

    def first(self, rows: pl.DataFrame, count: int) -> pl.DataFrame:
        """The first rows; those that are equal in the order are told apart by their other columns."""
        ties = [name for name, kind in rows.schema.items() if not kind.is_nested() and name not in self.by]
        return self.sorted(rows, *ties).head(count)

    def has_bounds(self, schema: pl.Schema) -> bool:
        """Whether rows can be compared with one of them: lists and structures are sorted, and not compared."""
        return not any(schema[name].is_nested() for name in self.by)

    def up_to(self, row: pl.DataFrame) -> pl.Expr:
        """Whether a row comes before this one, the first of a frame, or is equal to it in this order."""
        within = pl.lit(True)
        for name, falling in reversed(list(zip(self.by, self.descending, strict=True))):
            # A value of Python would lose the nanoseconds of a time.
            column, value = pl.col(name), pl.lit(row.get_column(name).head(1)).first()
            if row.get_column(name).head(1).null_count():
                before, same = pl.lit(False) if not self.nulls_last else column.is_not_null(), column.is_null()
            else:
                less = (column > value) if falling else (column < value)
                before, same = less.fill_null(not self.nulls_last), column.eq_missing(value)
            within = before | (same & within)
        return within


class SortExecutor(Executor):
    """All rows of the channel in order, from `done`, in batches of up to 131,072 rows.

    For one order over several channels, partition the stream by ranges of the first column: channel 0 then has the
    lowest rows. Rows that are equal in the order come in any order.
    Beyond `memory_limit` bytes sorted runs go to files in `spill_folder` and are merged at the end; memory: about three
    times `memory_limit`, and a window of each run. Rows that are sorted by lists or structures stay in memory.
    """

    def __init__(
        self,
        by: str | Sequence[str],
        descending: bool | Sequence[bool] = False,
        *,
        nulls_last: bool = False,
        memory_limit: int | None = None,
        spill_folder: str | None = None,
        batch_func: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    ) -> None:
        """`batch_func` takes each sorted batch, and what it gives is sent on."""
        self._batch_func = batch_func
        self._order = Order(by, descending, nulls_last)
        self._memory_limit = MEMORY_LIMIT if memory_limit is None else memory_limit
        self._spill_folder = spill_folder
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._runs: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._waiting += batches
        self._waiting_bytes += int(sum(batch.estimated_size() for batch in batches))
        if self._waiting_bytes > self._memory_limit and self._order.has_bounds(batches[-1].schema):
            self._runs.append(spilled(self._sorted(), self._spill_folder))
        return None

    def done(self, channel: int) -> Output:
        if self._waiting:
            self._runs.append(self._sorted())
        batches = self._merged()
        return batches if self._batch_func is None else map(self._batch_func, batches)

    def deserialize(self, state: Any) -> None:
        super().deserialize(state)
        self._runs = [spilled(run, self._spill_folder) for run in self._runs]

    def _sorted(self) -> pl.DataFrame:
        rows = self._order.sorted(concatenated(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        return rows

    def _merged(self) -> Iterator[pl.DataFrame]:
        if len(self._runs) == 1:
            yield from self._runs[0].iter_slices(BATCH_ROWS)
            return
        starts = [0] * len(self._runs)
        window = max(1, BATCH_ROWS // max(1, len(self._runs)))
        while True:
            heads = [run.slice(start, window) for run, start in zip(self._runs, starts, strict=True)]
            taken = self._below_every_end([head for head in heads if not head.is_empty()])
            if not taken:
                return
            numbers = [number for number, head in enumerate(heads) if not head.is_empty()]
            for number, rows in zip(numbers, taken, strict=True):
                starts[number] += rows.height
            yield self._order.sorted(concatenated(taken))

    def _below_every_end(self, heads: list[pl.DataFrame]) -> list[pl.DataFrame]:
        """Of each window the rows up to the lowest of the windows' last rows: no row of what follows is before them."""
        if not heads:
            return []
        lasts = self._order.sorted(concatenated([head.select(self._order.by).tail(1) for head in heads]))
        within = self._order.up_to(lasts)
        return [head.filter(within) for head in heads]


class TopKExecutor(Executor):
    """The first `k` rows of an order, from `done`.

    Rows that are equal in the order are told apart by their other columns, so that the same rows come whatever came
    first. Each channel gives up to `k` rows of its own: use one channel, or a second node with one behind it.
    """

    def __init__(
        self, k: int, by: str | Sequence[str], descending: bool | Sequence[bool] = True, *, nulls_last: bool = True
    ) -> None:
        if k < 0:
            raise BadInput(f"the number of first rows is 0 or more, this one is {k}")
        self._k = k
        self._order = Order(by, descending, nulls_last)
        self._first = Levels()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._first.add(self._cut(batches), self._cut)
        return None

    def done(self, channel: int) -> Output:
        return self._cut(self._first.take()) if self._first.rows else None

    def _cut(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return self._order.first(concatenated(frames), self._k)
