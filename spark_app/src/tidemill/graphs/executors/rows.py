"""Executors that treat each row by itself, or hand rows on as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import polars as pl

from tidemill.graphs.columns import widened
from tidemill.graphs.executor import Executor, Output, StatelessExecutor
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.values.errors import BadInput

Predicate = pl.Expr | Callable[[pl.DataFrame], pl.DataFrame]


def columns_of(names: str | Sequence[str] | None) -> list[str]:
    """One name or several as a list."""
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)


class FilterExecutor(StatelessExecutor):
    """Keeps the rows for which a Polars expression is true (null is not), or what a function of a frame gives."""

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return batch.filter(self._predicate) if isinstance(self._predicate, pl.Expr) else self._predicate(batch)


class ProjectExecutor(StatelessExecutor):
    """Gives each row these columns: names, or Polars expressions that look at one row at a time."""

    def __init__(self, columns: str | pl.Expr | Iterable[str | pl.Expr]) -> None:
        self._columns = [columns] if isinstance(columns, (str, pl.Expr)) else list(columns)

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        # With literals alone Polars would give one row for the whole batch.
        return batch.with_columns(self._columns).select(pl.DataFrame(schema=batch.schema).select(self._columns).columns)


class UnionExecutor(StatelessExecutor):
    """The rows of all its streams. Give `columns` where streams have them in another order, or have more of them."""

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = columns

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return batch if self._columns is None else batch.select(self._columns)


class StorageExecutor(StatelessExecutor):
    """The rows as they come: in a blocking node they become a Dataset."""

    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Output:
        return batch


class MergedStorageExecutor(Executor):
    """All rows of the channel as one frame, so that object i of its Dataset is all that channel i holds.

    `final_func` takes and gives that frame. Holds all rows in memory. A channel without rows gives nothing.
    """

    def __init__(self, final_func: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        self._final_func = final_func
        self._rows = Levels()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._rows.add(concatenated(batches))
        return None

    def done(self, channel: int) -> Output:
        if not self._rows.rows:
            return None
        merged = concatenated(self._rows.take())
        return merged if self._final_func is None else self._final_func(merged)


class LimitExecutor(Executor):
    """Any `limit` rows: they go on as they come, and then the sources may stop.

    Each channel gives up to `limit`; use one channel, or a second node with one channel behind it.
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise BadInput(f"a limit is 0 or more, this one is {limit}")
        self._left = limit

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        rows = concatenated(batches).head(self._left)
        self._left -= rows.height
        if self._left == 0:
            self.early_termination()
        return rows

    def comparable(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(pl.len())  # any rows are right


class DistinctExecutor(Executor):
    """Each row once, or each combination of `keys` once, as soon as it is seen. Nulls are equal to each other.

    With `keys` only their columns go on: which of the other values would stay depends on who comes first.
    """

    NEEDS_WHOLE_KEYS: ClassVar[bool] = True

    def __init__(self, keys: str | Sequence[str] | None = None) -> None:
        self._keys = columns_of(keys)
        self._seen = Levels()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        rows = concatenated(batches)
        fresh = rows.select(self._keys or rows.columns).unique()
        for seen in self._seen:
            seen, fresh = widened(seen, fresh)
            # The many seen rows look up the few new ones, not the other way round, which would index all of them.
            known = seen.join(fresh, on=fresh.columns, how="semi", nulls_equal=True)
            fresh = fresh.join(known, on=fresh.columns, how="anti", nulls_equal=True)
        self._seen.add(fresh)
        return fresh
