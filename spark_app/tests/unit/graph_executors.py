"""Executors that tests of the runtime of task graphs use; those of the library have tests of their own."""

from __future__ import annotations

from typing import Any

import polars as pl

from tidemill import Dataset, Executor, StatelessExecutor
from tidemill.graphs.executor import Output


class Killed(BaseException):
    """What no handler of the code under test may catch, as nothing catches a kill."""


def results(*datasets: Dataset) -> list[Any]:
    """The rows of Datasets; batches have no order that counts."""
    return [sorted(dataset.to_polars().rows()) for dataset in datasets]


class Pass(StatelessExecutor):
    """Sends on what it gets."""

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return batch


class Count(Executor):
    """Counts rows by key; sends them at the end."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.parts: list[pl.DataFrame] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self.parts += [batch.group_by(self.key).agg(pl.len().alias("n")) for batch in batches]
        return None

    def done(self, channel: int) -> Output:
        return pl.concat(self.parts).group_by(self.key).agg(pl.col("n").sum()) if self.parts else None


class Join(Executor):
    """The symmetric join of the document: each batch with all that came from the other side before."""

    def __init__(self, on: str) -> None:
        self.on = on
        self.sides: dict[int, list[pl.DataFrame]] = {0: [], 1: []}

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        others = self.sides[1 - stream_id]
        self.sides[stream_id] += batches
        for batch in batches:
            for other in others:
                left, right = (batch, other) if stream_id == 0 else (other, batch)
                yield left.join(right, on=self.on, suffix=f"_{left.width}")


class Log(Executor):
    """Sends at the end a row for each call and each batch of it: what came, from where, in which order."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.calls: list[tuple[int, str]] = []

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self.calls += [(stream_id, str(value)) for batch in batches for value in batch[self.column]]
        return []

    def done(self, channel: int) -> Output:
        return pl.DataFrame(self.calls, schema=["stream", "value"], orient="row")


class First(Executor):
    """The first rows, and no more are needed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows = pl.DataFrame()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self.rows = pl.concat([self.rows, *batches], how="diagonal").head(self.limit)
        if self.rows.height >= self.limit:
            self.early_termination()
        return None

    def done(self, channel: int) -> Output:
        return self.rows


class Adds(Executor):
    """Adds a number to each row, and cannot do the fourth one before it is mended."""

    def __init__(self, number: int, is_mended: bool = False) -> None:
        self.number, self.is_mended = number, is_mended

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Any:
        if not self.is_mended and any(batch["n"].item() >= 3 for batch in batches):
            raise ValueError("not this one")
        return [batch + self.number for batch in batches]

    def serialize(self) -> Any:
        return None

    def deserialize(self, state: Any) -> None:
        """Nothing is kept: what is added is in the code."""
