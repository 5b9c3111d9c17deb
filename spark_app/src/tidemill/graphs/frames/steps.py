"""What a batch goes through between two exchanges, one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from tidemill.graphs.executor import Output, StatelessExecutor
from tidemill.graphs.executors.polars_engine import collected
from tidemill.graphs.executors.sort import Order
from tidemill.values.errors import BadInput

SAMPLE_ROWS = 4_096
SHRINKS_BELOW = 0.7
"""A batch is aggregated before it is sent if a sample of it has fewer groups than this share of its rows."""


WINDOWS_MAX = 1_000
"""A row is in so many windows at most: it is copied for each of them."""
_START = "__tidemill_start"


class RowStep(Protocol):
    """A function of a frame; those here are records, so that they pickle and can be read."""

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that go on."""


@dataclass(frozen=True)
class KeepRows:
    """The rows of which an expression is true."""

    predicate: pl.Expr

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(self.predicate)


@dataclass(frozen=True)
class MakeColumns:
    """New columns, beside those that are there or instead of them."""

    expressions: tuple[pl.Expr, ...]
    keeps: bool

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self.keeps:
            return rows.with_columns(self.expressions)
        # A literal alone would give one row for the whole batch.
        return rows.with_columns(self.expressions).select(rows.clear().select(self.expressions).columns)


@dataclass(frozen=True)
class SpreadWindows:
    """Each row once for each window `[start, start + period)` that has it, with the start in place of its time.

    Windows begin at each multiple of `every`. Rows without a time are in none.

    Raises:
        BadInput: a row is in more than WINDOWS_MAX windows.
    """

    column: str
    every: str | int
    period: str | int

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        time, start, kind = pl.col(self.column), pl.col(_START), rows.schema[self.column]
        starts = time // self.every * self.every if isinstance(self.every, int) else time.dt.truncate(self.every)
        rows = rows.with_columns(starts.alias(_START)).filter(_later(start, self.every) > start)
        found = list[pl.DataFrame]()
        if self.every == self.period:  # up to the next start, which is later where clocks are put back
            return rows.with_columns(start.alias(self.column)).drop(_START)
        while True:
            within = rows.filter(_moment(time, kind) < _later(_moment(start, kind), self.period))
            if found and within.is_empty():
                return pl.concat(found)
            if len(found) == WINDOWS_MAX:
                raise BadInput(f"{self.period} is more than {WINDOWS_MAX} times {self.every}: too many windows a row")
            found.append(within.with_columns(start.alias(self.column)).drop(_START))
            rows = rows.with_columns(self._start_before(kind).alias(_START))

    def _start_before(self, kind: pl.DataType) -> pl.Expr:
        """The start of the window before: an hour of the clock is no hour where clocks are changed."""
        start = pl.col(_START)
        if isinstance(self.every, int):
            return start - self.every
        return start.dt.offset_by(f"-1{getattr(kind, 'time_unit', 'd')}").dt.truncate(self.every)


def _later(time: pl.Expr, span: str | int) -> pl.Expr:
    return time + span if isinstance(span, int) else time.dt.offset_by(span)


def _moment(time: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Of a date its first moment, behind which hours can be counted."""
    return time.cast(pl.Datetime("us")) if kind == pl.Date else time


@dataclass(frozen=True)
class PickColumns:
    """Columns by their names, in this order and of these types."""

    schema: pl.Schema

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(pl.col(name).cast(kind) for name, kind in self.schema.items())


@dataclass(frozen=True)
class UniqueRows:
    """Each row once."""

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.unique()


@dataclass(frozen=True)
class FirstRows:
    """The first rows of an order."""

    order: Order
    limit: int

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.order.first(rows, self.limit) if rows.height > self.limit else rows


@dataclass(frozen=True)
class GatherGroups:
    """Partial aggregates: of groups where that makes fewer rows, else of each row by itself, in equal columns."""

    keys: tuple[str, ...]
    grouped: tuple[pl.Expr, ...]
    single: tuple[pl.Expr, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        if not self.keys:
            return rows.select(self.grouped)
        sample = rows.select(self.keys).head(SAMPLE_ROWS)
        if sample.height == SAMPLE_ROWS and sample.n_unique() > SHRINKS_BELOW * SAMPLE_ROWS:
            return rows.select(*self.keys, *self.single)
        return collected(rows.lazy().group_by(self.keys).agg(self.grouped), rows.height)


@dataclass(frozen=True)
class RowSteps:
    """Several steps as one function of a batch."""

    steps: tuple[RowStep, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        if isinstance(rows, pl.LazyFrame):
            # An input offers a batch that is not read yet first; it knows already what of it is needed.
            raise TypeError("steps take frames")
        for step in self.steps:
            rows = step(rows)
        return rows

    @property
    def __name__(self) -> str:
        return ", ".join(type(step).__name__ for step in self.steps) or "nothing"


class StepsExecutor(StatelessExecutor):
    """Takes each batch through steps."""

    def __init__(self, steps: Sequence[RowStep]) -> None:
        self._steps = RowSteps(tuple(steps))

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return self._steps(batch)


def same_channel(batch: pl.DataFrame, source_channel: int, channels: int) -> dict[int, pl.DataFrame]:
    """Deals batches whole, from channel to channel of the same number."""
    return {source_channel % channels: batch}
