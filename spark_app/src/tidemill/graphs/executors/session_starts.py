"""Sessions of rows: the start of its session in the place of each row's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.levels import Levels, concatenated


class SessionStartsExecutor(Executor):
    """Gives at the end all rows that have a time, in whose place is the time of the first row of their session.

    A session are rows of equal `keys` of which each is less than `gap` after the one before: text as Polars has it for
    dates and times ("30m"), a whole number for whole numbers. Holds all rows in memory.
    """

    NEEDS_WHOLE_KEYS: ClassVar[bool] = True

    def __init__(self, time: str, gap: str | int, keys: Sequence[str]) -> None:
        self._time, self._gap, self._keys = time, gap, list(keys)
        self._rows = Levels()

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        self._rows.add(concatenated(batches).drop_nulls(self._time))
        return None

    def done(self, channel: int) -> Output:
        return (
            with_session_starts(concatenated(self._rows.take()), self._time, self._gap, self._keys)
            if self._rows.rows
            else None
        )


def with_session_starts(rows: pl.DataFrame, time: str, gap: str | int, keys: Sequence[str]) -> pl.DataFrame:
    """Rows in order of their keys and times, with the start of its session in the place of each time."""
    at, before = pl.col(time), pl.col(time).shift(1)
    if isinstance(gap, int):
        is_near = (at - before).is_between(0, gap, closed="left")  # what is below 0 is above the greatest number
    else:
        moment = pl.Datetime("us") if rows.schema[time] == pl.Date else rows.schema[time]  # a day has hours
        is_near = at.cast(moment) < before.cast(moment).dt.offset_by(gap)
    # Nulls are a key like any other: `is_same` has to be true for two of them.
    is_same = pl.all_horizontal(pl.lit(True), *(pl.col(key).eq_missing(pl.col(key).shift(1)) for key in keys))
    begins = ~(is_same & is_near.fill_null(False))
    return rows.sort([*keys, time]).with_columns(pl.when(begins).then(at).forward_fill().alias(time))
