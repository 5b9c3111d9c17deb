"""The as-of join: each left row with the right row that is next to it in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import polars as pl

from tidemill.graphs.columns import typed
from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.joins import LEFT, RIGHT
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.graphs.executors.rows import columns_of
from tidemill.values.errors import BadInput

AsOfStrategy = Literal["backward", "forward", "nearest"]


def check_strategy(strategy: str) -> None:
    """Raises BadInput where an as-of join has no such strategy."""
    if strategy not in get_args(AsOfStrategy):
        raise BadInput(f"the strategy of an as-of join is {', '.join(get_args(AsOfStrategy))}, not {strategy!r}")


def asof_joined(
    left: pl.DataFrame,
    right: pl.DataFrame,
    left_on: str,
    right_on: str,
    by: Sequence[str],
    suffix: str,
    strategy: AsOfStrategy,
) -> pl.DataFrame:
    """Polars' as-of join of two frames that are sorted by their times."""
    return left.join_asof(
        right, left_on=left_on, right_on=right_on, by=list(by) or None, suffix=suffix, strategy=strategy,
        check_sortedness=False,
    )  # fmt: skip


class AsOfJoinExecutor(Executor):
    """Gives each row of stream 0 (trades) the last row of stream 1 (quotes) at its time or before, per `by`; with the
    strategy "forward" the first one at its time or later, with "nearest" the next one in time, of two the later one.

    All left rows go on, with nulls where there is no such right row, or where the time or a column of `by` is null. Of
    right rows of one time the one that came last counts.

    Rows may come in any order, and go on from `done`. With `is_sorted=True` each stream must come in the order of time
    (from one channel, or from a sorted one); then left rows go on as soon as a later right row was seen, and right rows
    are forgotten when no left row can need them. A row that breaks that order raises BadInput.
    This goes with the strategy "backward" only.
    A channel that got no right row knows their columns only from `right_schema`; without it, left rows go on alone.
    """

    def __init__(
        self,
        left_on: str = "time",
        right_on: str | None = None,
        by: str | Sequence[str] | None = None,
        *,
        suffix: str = "_right",
        is_sorted: bool = False,
        strategy: AsOfStrategy = "backward",
        right_schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
    ) -> None:
        self._left_on, self._right_on = left_on, right_on or left_on
        self._by = columns_of(by)
        self._suffix = suffix
        self._is_sorted = is_sorted
        check_strategy(strategy)
        self._strategy = strategy
        if is_sorted and strategy != "backward":
            raise BadInput(f"is_sorted=True goes with the strategy backward, not with {strategy}: leave it out")
        self._left, self._right = Levels(), Levels()
        self._right_columns = None if right_schema is None else pl.DataFrame(schema=dict(right_schema))
        self._newest: dict[int, Any] = {}

    @property
    def may_copy_left(self) -> bool:
        """Never: each channel gives all left rows that it has."""
        return False

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        rows = concatenated(batches)
        if self._is_sorted:
            self._go_on(rows.get_column(self._left_on if stream_id == LEFT else self._right_on), stream_id)
        if stream_id == RIGHT and self._right_columns is None:
            self._right_columns = rows.clear()
        (self._left if stream_id == LEFT else self._right).add(rows)
        return self._ready() if self._is_sorted else None

    def done(self, channel: int) -> Output:
        return self._joined(concatenated(self._left.take())) if self._left.rows else None

    def _go_on(self, times: pl.Series, stream_id: int) -> None:
        """Note the newest time of a stream."""
        times, newest = times.drop_nulls(), self._newest.get(stream_id)
        if times.is_empty():
            return
        if not times.is_sorted() or (newest is not None and times[0] < newest):
            raise BadInput(
                f"column {times.name!r} is not in order, though is_sorted=True says so: read the stream in one channel "
                f"from a sorted source, or leave is_sorted out."
            )
        self._newest[stream_id] = times[-1]

    def _ready(self) -> Output:
        """The left rows before the newest right row: a right row that is yet to come is no earlier than that one."""
        newest = self._newest.get(RIGHT)
        if newest is None or not self._left.rows:
            return None
        lefts = concatenated(self._left.take())
        is_ready = (pl.col(self._left_on) < newest).fill_null(True)
        self._left.add(lefts.filter(~is_ready))
        ready = lefts.filter(is_ready)
        if ready.is_empty():
            return None
        made = self._joined(ready)
        if LEFT in self._newest:
            self._forget(min(newest, self._newest[LEFT]))
        return made

    def _forget(self, time: Any) -> None:
        """Of right rows up to a time keep the last per `by`: left rows that wait or will come are no earlier."""
        frames = self._right.take()
        if not frames:
            return
        rows = concatenated(frames).drop_nulls([self._right_on, *self._by])
        is_old = pl.col(self._right_on) <= time
        old = rows.filter(is_old).sort(self._right_on, maintain_order=True)
        lasts = old.unique(self._by, keep="last", maintain_order=True) if self._by else old.tail(1)
        self._right.add(pl.concat([lasts, rows.filter(~is_old)]))

    def _joined(self, left: pl.DataFrame) -> pl.DataFrame:
        if self._right_columns is None:
            return left
        right = concatenated([self._right_columns, *self._right]).drop_nulls([self._right_on, *self._by])
        if self._strategy != "backward":  # Polars would take the first one
            right = right.unique([self._right_on, *self._by], keep="last", maintain_order=True)
        keys = [self._left_on, *self._by]
        left, right = typed(left, right, [self._left_on], [self._right_on])
        left, right = typed(left, right, self._by, self._by, exactly=True)
        has_keys = pl.all_horizontal(pl.col(key).is_not_null() for key in keys)
        found = (
            left.filter(has_keys)
            .sort(self._left_on, maintain_order=True)
            .pipe(asof_joined, right.sort(self._right_on, maintain_order=True), self._left_on, self._right_on, self._by,
                  self._suffix, self._strategy)
        )  # fmt: skip
        return pl.concat([found, left.filter(~has_keys)], how="diagonal")
