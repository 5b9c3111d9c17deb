"""Joins of two streams: stream 0 is the left side, stream 1 the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from tidemill.graphs.columns import typed
from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.graphs.executors.polars_engine import collected
from tidemill.graphs.executors.rows import columns_of
from tidemill.values.errors import BadInput

How = Literal["inner", "left", "semi", "anti"]
LEFT, RIGHT = 0, 1
_ONE = "__tidemill_one"
"""A second key beside a float: Polars merges single keys that are in order, as those of one row, and loses NaN then."""


@dataclass(frozen=True)
class JoinShape:
    """Which columns meet, and what rows come of it. Null meets nothing, as in SQL."""

    left_on: list[str]
    right_on: list[str]
    how: How
    suffix: str

    @staticmethod
    def of(
        on: str | Sequence[str] | None,
        left_on: str | Sequence[str] | None,
        right_on: str | Sequence[str] | None,
        how: How,
        suffix: str,
    ) -> JoinShape:
        """From the arguments of a join. Raises BadInput where they do not fit."""
        left, right = columns_of(left_on if on is None else on), columns_of(right_on if on is None else on)
        if on is not None and (left_on is not None or right_on is not None):
            raise BadInput("a join takes either `on` or `left_on` and `right_on`, not both")
        if not left or len(left) != len(right):
            raise BadInput(f"a join needs as many columns on the left ({left}) as on the right ({right})")
        if how not in ("inner", "left", "semi", "anti"):
            raise BadInput(f"a join is inner, left, semi or anti, not {how!r}")
        return JoinShape(left, right, how, suffix)

    @property
    def turned(self) -> JoinShape:
        """The same join with its sides exchanged."""
        return JoinShape(self.right_on, self.left_on, self.how, self.suffix)

    @property
    def of_right_keys(self) -> JoinShape:
        """What tells keys of the right side that are known from new ones."""
        return JoinShape(self.right_on, self.right_on, "semi", self.suffix)

    @property
    def is_by_keys(self) -> bool:
        """Whether only the keys of the right side count."""
        return self.how in ("semi", "anti")

    def kept(self, right: pl.DataFrame) -> pl.DataFrame:
        """What has to be kept of the right side."""
        right = right.drop_nulls(self.right_on)
        return right.select(self.right_on).unique() if self.is_by_keys else right

    def matched(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """The pairs of an inner or left join; of the others, the left rows that have a partner."""
        how: Literal["inner", "semi"] = "semi" if self.is_by_keys else "inner"
        return self.joined(left, right, how)

    def unmatched(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """The left rows without a partner."""
        return self.joined(left, right, "anti")

    def padded(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Left rows without a partner as the left join gives them: null in the columns of the right side."""
        return self.joined(left, right.clear(), "left") if self.how == "left" else left

    def joined(
        self, left: pl.DataFrame, right: pl.DataFrame, how: Literal["inner", "left", "semi", "anti"]
    ) -> pl.DataFrame:
        """A join of two frames in one of these ways."""
        left, right = typed(left, right, self.left_on, self.right_on)
        left_on, right_on = list(self.left_on), list(self.right_on)
        is_float = len(left_on) == 1 and left.schema[left_on[0]].is_float()
        if is_float:
            one = pl.lit(1, pl.Int8).alias(_ONE)
            left, right = left.with_columns(one), right.with_columns(one)
            left_on, right_on = [*left_on, _ONE], [*right_on, _ONE]
        suffix = "_right" if self.is_by_keys else self.suffix
        pairs = left.lazy().join(right.lazy(), left_on=left_on, right_on=right_on, how=how, suffix=suffix)
        made = collected(pairs, left.height + right.height)
        return made.drop(_ONE) if is_float else made


class JoinExecutor(Executor):
    """An equi-join of streams 0 (left) and 1 (right), columns as Polars' `join` gives them.

    A match goes on when its second row comes; rows that the absence of a partner decides (left, anti) come from `done`.
    Both sides are held in memory; of the right one only the keys if the join is semi or anti.

    With `build=0` or `build=1` only that side is held, and rows of the other one wait until it has ended: let the
    inputs of the other side start later (`dependents`), and few of them wait. With `build=0` a join must be inner.

    `left_primary=True` says that each key is on the left side once, `right_primary` the same of the right one: rows of
    the other side that have met their one partner are then not held. Such a join is inner and has no `build`. A key
    that comes twice all the same raises BadInput while its first row is held in memory.

    `batch_func` takes and gives each frame of the result. A left join whose channel got no row of the right side knows
    its columns only from `right_schema`; without it, the columns of the left side alone go on.
    """

    def __init__(
        self,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        *,
        how: How = "inner",
        suffix: str = "_right",
        build: int | None = None,
        left_primary: bool = False,
        right_primary: bool = False,
        batch_func: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
        right_schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
    ) -> None:
        self._shape = JoinShape.of(on, left_on, right_on, how, suffix)
        if build not in (None, LEFT, RIGHT) or (build == LEFT and how != "inner"):
            raise BadInput(f"build={build} does not fit a join that is {how}: use 1 (or 0 if it is inner)")
        self._primary = (left_primary, right_primary)
        if any(self._primary) and (how != "inner" or build is not None):
            raise BadInput("left_primary and right_primary are for inner joins that hold both sides; leave them out")
        self._build = build
        self._is_built = False
        self._batch_func = batch_func
        self._left, self._right = Levels(), Levels()
        self._right_columns = None if right_schema is None else pl.DataFrame(schema=dict(right_schema))

    @property
    def may_copy_left(self) -> bool:
        """Whether several channels may have one left row: its pairs alone count then."""
        return self._shape.how == "inner"

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        rows = concatenated(batches)
        if stream_id == RIGHT and self._right_columns is None:
            self._right_columns = rows.clear()
        if self._build is not None:
            made = self._probed([rows]) if self._is_built else self._held(rows, stream_id)
        elif stream_id == LEFT:
            made = self._left_came(rows)
        else:
            made = self._right_came(self._shape.kept(rows))
        return list(self._sent(made))

    def ended(self, stream_id: int, channel: int) -> Output:
        """Called when a stream has ended: behind the side that is built, the rows that waited can go on."""
        if stream_id != self._build:
            return None
        return list(self._sent(self._built()))

    def done(self, channel: int) -> Output:
        if self._build is None:
            return self._sent(self._without_partner(self._left.take()))
        return None if self._is_built else self._sent(self._built())

    def _left_came(self, left: pl.DataFrame) -> Iterator[pl.DataFrame]:
        waiting = left
        for right in self._right:
            if self._shape.how != "anti":
                yield self._shape.matched(waiting, right)
            if self._shape.is_by_keys:
                waiting = self._shape.unmatched(waiting, right)
        self._left.add(self._to_hold(waiting, LEFT))

    def _right_came(self, right: pl.DataFrame) -> Iterator[pl.DataFrame]:
        if self._shape.is_by_keys:
            # A left row goes on with the first of its keys that comes: keys that came before bring it no second time.
            for known in self._right:
                right = self._shape.of_right_keys.unmatched(right, known)
        if self._shape.how != "anti":
            for left in self._left:
                yield self._shape.matched(left, right)
        self._right.add(self._to_hold(right, RIGHT))

    def _to_hold(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Of new rows of a side those that may meet a partner yet."""
        shape, own, others = self._shape, self._left, self._right
        if side == RIGHT:
            shape, own, others = shape.turned, others, own
        if self._primary[side]:
            self._check_once(rows, shape.left_on, own)
        for partners in others if self._primary[1 - side] else ():
            rows = shape.unmatched(rows, partners)
        return rows

    def _check_once(self, rows: pl.DataFrame, keys: list[str], held: Levels) -> None:
        shape = JoinShape(keys, keys, "semi", self._shape.suffix)
        rows = rows.drop_nulls(keys)
        twice = [rows.filter(rows.select(keys).is_duplicated()), *(shape.matched(rows, known) for known in held)]
        for found in twice:
            if not found.is_empty():
                first = found.select(keys).row(0)
                raise BadInput(f"the key {first} comes twice, on the side that the join was told has each key once")

    def _without_partner(self, lefts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        if self._shape.how not in ("left", "anti"):
            return
        for left in lefts:
            waiting = left
            for right in self._right:
                waiting = self._shape.unmatched(waiting, right)
            yield waiting if self._right_columns is None else self._shape.padded(waiting, self._right_columns)

    def _held(self, rows: pl.DataFrame, stream_id: int) -> list[pl.DataFrame]:
        if stream_id == RIGHT:
            self._right.add(self._shape.kept(rows))
        else:
            self._left.add(rows)
        return []

    def _built(self) -> Iterator[pl.DataFrame]:
        self._is_built = True
        built, waiting = (self._left, self._right) if self._build == LEFT else (self._right, self._left)
        built.settle()
        return self._probed(waiting.take())

    def _probed(self, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        for frame in frames:
            if self._build == LEFT:
                yield from (self._shape.matched(left, self._shape.kept(frame)) for left in self._left)
                continue
            waiting = frame
            for right in self._right:
                if self._shape.how != "anti":
                    yield self._shape.matched(waiting, right)
                if self._shape.is_by_keys:
                    waiting = self._shape.unmatched(waiting, right)
            yield from self._without_partner([waiting])

    def _sent(self, made: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        rows = (frame for frame in made if not frame.is_empty())
        return rows if self._batch_func is None else map(self._batch_func, rows)
