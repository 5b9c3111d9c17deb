"""The join whose sides may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from tidemill.graphs.executor import Output
from tidemill.graphs.executors.joins import LEFT, RIGHT, How, JoinExecutor
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.graphs.executors.spilled_frames import MEMORY_LIMIT, PARTITIONS, SpilledParts
from tidemill.values.errors import BadInput

SLICE_ROWS = 1 << 16
"""Left rows that are joined at a time in `done`, so that results need not be held."""


class OOCJoinExecutor(JoinExecutor):
    """A join as `JoinExecutor` makes it, for sides that are larger than memory.

    Up to `memory_limit` bytes it gives matches as they come. Beyond, rows of both sides go to files in `spill_folder`,
    in 64 parts by the hash of their keys, and the matches that are missing come from `done`, part by part. Memory: at
    most about twice `memory_limit`, or one part (a 64th of the sides; all rows of one key are in one part).
    """

    def __init__(
        self,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        *,
        how: How = "inner",
        suffix: str = "_right",
        left_primary: bool = False,
        right_primary: bool = False,
        batch_func: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
        right_schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
        memory_limit: int = MEMORY_LIMIT,
        spill_folder: str | None = None,
    ) -> None:
        super().__init__(
            on,
            left_on,
            right_on,
            how=how,
            suffix=suffix,
            left_primary=left_primary,
            right_primary=right_primary,
            batch_func=batch_func,
            right_schema=right_schema,
        )
        if memory_limit <= 0:
            raise BadInput(f"memory_limit is a number of bytes above 0, this one is {memory_limit}")
        self._memory_limit = memory_limit
        self._spill_folder = spill_folder
        self._early: tuple[SpilledParts, SpilledParts] | None = None
        self._late: tuple[SpilledParts, SpilledParts] | None = None

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        if self._late is None:
            made = super().execute(batches, stream_id, channel)
            if self._left.bytes + self._right.bytes > self._memory_limit:
                self._early, self._late = self._spilled(), self._parts()
            return made
        for rows in batches:
            if stream_id == RIGHT:
                self._right_columns = rows.clear() if self._right_columns is None else self._right_columns
                self._late[RIGHT].add(self._shape.kept(rows))
            else:
                self._late[LEFT].add(rows)
        return None

    def done(self, channel: int) -> Output:
        if self._early is None or self._late is None:
            return super().done(channel)
        for side in (*self._early, *self._late):
            side.flush()
        return self._sent(self._rest(self._early, self._late))

    def deserialize(self, state: Any) -> None:
        super().deserialize(state)
        for side in (*(self._early or ()), *(self._late or ())):
            side.remap()

    def _parts(self) -> tuple[SpilledParts, SpilledParts]:
        limit = self._memory_limit // 4
        left = SpilledParts(self._shape.left_on, limit, self._spill_folder)
        return left, SpilledParts(self._shape.right_on, limit, self._spill_folder)

    def _spilled(self) -> tuple[SpilledParts, SpilledParts]:
        sides = self._parts()
        for side, rows in zip(sides, (self._left, self._right), strict=True):
            for frame in rows.take():
                side.add(frame)
            side.flush()
        return sides

    def _rest(
        self, early: tuple[SpilledParts, SpilledParts], late: tuple[SpilledParts, SpilledParts]
    ) -> Iterator[pl.DataFrame]:
        """The matches in which one row at least came after the first ones went to disk, and what has no partner."""
        for number in range(PARTITIONS):
            met = _levels(early[RIGHT].part(number))
            new = _levels([self._unknown(frame, met) for frame in late[RIGHT].part(number)])
            self._right = _levels([*met, *late[RIGHT].part(number)])
            yield from self._joined(early[LEFT].part(number), new)
            yield from self._joined(late[LEFT].part(number), self._right)

    def _unknown(self, right: pl.DataFrame, met: Levels) -> pl.DataFrame:
        """Of right rows those that early left rows have not met; by keys, a left row goes on with the first one."""
        for known in list(met) if self._shape.is_by_keys else ():
            right = self._shape.of_right_keys.unmatched(right, known)
        return right

    def _joined(self, lefts: Sequence[pl.DataFrame], rights: Levels) -> Iterator[pl.DataFrame]:
        right = concatenated(list(rights)) if rights.rows else None
        for left in lefts:
            for rows in left.iter_slices(SLICE_ROWS):
                if right is not None and self._shape.how != "anti":
                    yield self._shape.matched(rows, right)
                yield from self._without_partner([rows])


def _levels(frames: Sequence[pl.DataFrame]) -> Levels:
    made = Levels()
    for frame in frames:
        made.add(frame)
    return made
