"""Aggregation by windows of event time: tumbling, hopping and by session."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

import polars as pl

from tidemill.graphs.executor import Executor, Output
from tidemill.graphs.executors.aggregation import Aggregations, Groups, aggregations_of
from tidemill.graphs.executors.levels import Levels, concatenated
from tidemill.graphs.executors.rows import columns_of
from tidemill.values.errors import BadInput

Span = int | timedelta
START, END = "window_start", "window_end"


class WindowExecutor(Executor):
    """What all windows share: the time of each stream, and rows that are late.

    The time of a stream is its newest row. A row is late if it is older than the newest row before it in its stream by
    more than `allowed_lateness`; late rows, and rows without a time, are left out and counted in `dropped_rows`. A
    window goes on as soon as it ends before what may still come from any of the `streams` streams; of one that has
    ended nothing may. Without
    `allowed_lateness` no row is late, and all windows come from `done`.

    Which rows are late depends on the order within a stream alone, so give a stream that several channels send enough
    lateness for the distance between these channels.

    Where the inputs found nothing new for `idle_after`, all open windows go on; rows that come for them then are late.
    """

    NEEDS_WHOLE_KEYS: ClassVar[bool] = True
    _followed: int | None = None
    """The time that other channels reached, while this one got no rows: rows before it are late."""
    _ended_at: int | None = None
    """What an idle input ended: of hopping windows the last start, of sessions the newest row."""
    _skipped: tuple[str, Any] | None = None
    """The column and the value of the last window that ended in other channels."""

    def __init__(
        self,
        time: str,
        keys: str | Sequence[str] | None,
        aggregations: Aggregations,
        allowed_lateness: Span | None,
        streams: int | None,
        idle_after: timedelta | None,
    ) -> None:
        self._time = time
        self._keys = columns_of(keys)
        self._aggregations = aggregations_of(aggregations)
        if allowed_lateness is not None and _is_below_zero(allowed_lateness):
            raise BadInput(f"allowed_lateness is 0 or more, this one is {allowed_lateness}")
        if idle_after is not None and idle_after <= timedelta(0):
            raise BadInput(f"idle_after is above 0, this one is {idle_after}")
        self._lateness = allowed_lateness
        self.idle_after = idle_after
        self._streams = streams
        self._newest: dict[int, int] = {}
        self._over: frozenset[int] = frozenset()
        self._kind: pl.DataType | None = None

    @property
    def awaited(self) -> int | None:
        """How many streams its windows wait for; None where nobody said, or where all windows wait for `done`."""
        return None if self._lateness is None else self._streams

    def of_streams(self, streams: int) -> Self:
        """What a node with so many sources takes: a copy that waits for them, where nobody said for how many."""
        if self._streams is not None:
            return self
        made = copy(self)
        made._streams = streams
        return made

    def deserialize(self, state: Any) -> None:
        streams = self._streams  # the node says it: states of older versions have 1 where nobody said
        super().deserialize(state)
        self._streams = streams

    @staticmethod
    def keeps_ends(state: Any) -> bool:
        """Whether a state has the streams that ended: those of older versions have not, so ends are told again."""
        return not isinstance(state, dict) or "_over" in state

    def execute(self, batches: list[pl.DataFrame], stream_id: int, channel: int) -> Output:
        given = concatenated([self._with_ticks(batch) for batch in batches])
        rows = self._on_time(given.drop_nulls("__tidemill_tick"), stream_id)
        self.dropped_rows += given.height - rows.height
        if rows.is_empty():
            return None
        newest_tick = rows.get_column("__tidemill_tick").max()
        assert isinstance(newest_tick, int)
        self._newest[stream_id] = max(newest_tick, self._newest.get(stream_id, newest_tick))
        self._add(rows)
        return self._finished_windows()

    def _on_time(self, rows: pl.DataFrame, stream_id: int) -> pl.DataFrame:
        """The rows that are not late."""
        if rows.is_empty():  # the unit of their times is perhaps not known yet
            return rows
        self._end_skipped()
        if self._lateness is not None:
            newest = pl.col("__tidemill_tick").cum_max().shift(1)
            if stream_id in self._newest:
                newest = pl.max_horizontal(newest, pl.lit(self._newest[stream_id], dtype=pl.Int64))
            oldest = newest - self._ticks(self._lateness)
            if self._followed is not None:
                oldest = pl.max_horizontal(oldest, pl.lit(self._followed_tick(), dtype=pl.Int64))
            rows = rows.filter((pl.col("__tidemill_tick") >= oldest).fill_null(True))
        return rows if self._ended_at is None else rows.filter(self._is_open(self._ended_at))

    def skip_windows(self, column: str, last: Any, channel: int) -> None:
        self._skipped = (column, last)

    def _end_skipped(self) -> None:
        """Take over what is skipped, now that the unit of times is known."""
        if self._skipped is not None and self._skipped[0] in (START, END):
            column, last = self._skipped
            epoch = datetime(1970, 1, 1, tzinfo=getattr(last, "tzinfo", None))
            ended_at = self._skipped_end(column, self._ticks(last - epoch if isinstance(last, datetime) else last))
            self._ended_at = ended_at if self._ended_at is None else max(ended_at, self._ended_at)
        self._skipped = None

    def time_reached(self) -> int | None:
        reached = self._reached()
        return None if reached is None else reached * self._tick_size()

    def follow(self, time: int, channel: int) -> Output:
        self._followed = time if self._followed is None else max(time, self._followed)
        return self._finished_windows()

    def ended(self, stream_id: int, channel: int) -> Output:
        self._over |= {stream_id}
        return self._finished_windows()

    def _finished_windows(self) -> Output:
        """The windows to which no row on time can be added."""
        reached = self._reached()
        return None if reached is None else self._shown(self._closed(reached))

    def _reached(self) -> int | None:
        """The tick before which rows are late in all streams."""
        if self._kind is None or self._lateness is None:
            return None
        known = [self._followed_tick()] if self._followed is not None else []
        newest = [tick for stream, tick in self._newest.items() if stream not in self._over]
        if newest and len(newest) >= (self._streams or 1) - len(self._over):
            known.append(min(newest) - self._ticks(self._lateness))
        return max(known, default=None)

    def _followed_tick(self) -> int:
        assert self._followed is not None
        return -(-self._followed // self._tick_size())

    def _tick_size(self) -> int:
        """Of times in nanoseconds, so that channels whose times have other units understand each other."""
        return {"ms": 1_000_000, "us": 1_000}.get(str(getattr(self._kind, "time_unit", None)), 1)

    def idle(self, channel: int) -> Output:
        made = self._closed(None)
        if made is not None and made.height:
            self._ended_at = self._end_of(made)
        return self._shown(made)

    def done(self, channel: int) -> Output:
        return self._shown(self._closed(None))

    def _add(self, rows: pl.DataFrame) -> None:
        raise NotImplementedError

    def _closed(self, tick: int | None) -> pl.DataFrame | None:
        """The windows that end at this tick or before (None: all), which are forgotten."""
        raise NotImplementedError

    def _end_of(self, windows: pl.DataFrame) -> int:
        """What `_ended_at` is when these windows ended."""
        raise NotImplementedError

    def _skipped_end(self, column: str, tick: int) -> int:
        """What `_ended_at` is when the window ended that has this tick in a column."""
        raise NotImplementedError

    def _is_open(self, ended_at: int) -> pl.Expr:
        """Whether a row goes into a window that has not ended by that."""
        raise NotImplementedError

    def _with_ticks(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The column `__tidemill_tick`: the time as a whole number."""
        kind = rows.schema[self._time]
        if kind == pl.Date:
            rows = rows.with_columns(pl.col(self._time).cast(pl.Datetime("us")))
            kind = rows.schema[self._time]
        if not (kind.is_integer() or isinstance(kind, (pl.Datetime, pl.Duration)) or kind == pl.Null):
            raise BadInput(
                f"column {self._time!r} is {kind}: windows need a date, a time with a date, or a whole number"
            )
        if kind != pl.Null:
            self._take_kind(pl.Int64() if kind.is_integer() else kind)
        return rows.with_columns(pl.col(self._time).cast(pl.Int64).alias("__tidemill_tick"))

    def _take_kind(self, kind: pl.DataType) -> None:
        """Ticks of several units, or of other zones, would be mixed silently."""
        known = self._kind
        if known is not None and known != kind and not (known.is_integer() and kind.is_integer()):
            raise BadInput(f"column {self._time!r} is {kind} and was {known} before: cast it to one type")
        self._kind = kind

    def _ticks(self, span: Span) -> int:
        """A span in the unit of the time column."""
        unit = getattr(self._kind, "time_unit", None)
        if (unit is None) != isinstance(span, int):
            raise BadInput(
                f"the span {span!r} does not fit column {self._time!r}: whole numbers go with whole numbers, "
                f"a timedelta with dates and times"
            )
        if isinstance(span, int):
            return span
        micros = span // timedelta(microseconds=1)
        ticks = {"ms": micros // 1000, "us": micros, "ns": micros * 1000}[str(unit)]
        if unit == "ms" and micros % 1000:
            raise BadInput(f"the span {span!r} has parts of a millisecond, and the times in {self._time!r} have none")
        return ticks

    def _shown(self, windows: pl.DataFrame | None) -> pl.DataFrame | None:
        if windows is None or windows.is_empty():
            return None
        times = [pl.col(name).cast(self._kind or pl.Int64) for name in (START, END)]
        # In their order, so that for windows over these windows none is late.
        return windows.sort(START).select(*self._keys, *times, *(made.name for made in self._aggregations))


class HoppingWindowExecutor(WindowExecutor):
    """One row per window and key: `keys`, `window_start`, `window_end` (not in the window), and the aggregations.
    Start and end have the type of the time; of dates they are times with a date, of whole numbers Int64.

    Windows are `size` long and begin at each multiple of `hop`, counted from 0 or 1970. A row is in each window that
    spans its time. `time` names a column of dates, times with a date (then spans are timedeltas) or whole numbers.
    Of time and lateness: a row is late if it is older than the newest row before it in its stream by more than
    `allowed_lateness`; such rows are left out and counted in `dropped_rows`. Without `allowed_lateness` none is late,
    and all windows come from `done`; with it, a window goes on when none of the `streams` streams can add to it, as
    one that has ended cannot; None: as many as the node has sources.
    `idle_after`: how long the inputs have nothing new, by the clock, before all open windows go on; rows that come for
    these later are late. None is for ever. At least a window and the lateness, and no row of now is late by it.
    """

    def __init__(
        self,
        time: str,
        size: Span,
        hop: Span,
        keys: str | Sequence[str] | None = None,
        *,
        aggregations: Aggregations,
        allowed_lateness: Span | None = None,
        streams: int | None = None,
        idle_after: timedelta | None = None,
    ) -> None:
        super().__init__(time, keys, aggregations, allowed_lateness, streams, idle_after)
        _check_span("size", size)
        _check_span("hop", hop)
        self._size, self._hop = size, hop
        self._groups = Groups([START, *self._keys], self._aggregations)

    def _add(self, rows: pl.DataFrame) -> None:
        size, hop = self._ticks(self._size), self._ticks(self._hop)
        last = pl.col("__tidemill_tick") // hop * hop
        starts = [(last - back * hop).alias(START) for back in range(-(-size // hop))]
        for start in starts:
            is_within = pl.col("__tidemill_tick") < pl.col(START) + size
            if self._ended_at is not None:
                is_within &= pl.col(START) > self._ended_at
            self._groups.add(rows.with_columns(start).filter(is_within))

    def _end_of(self, windows: pl.DataFrame) -> int:
        return _greatest(windows[START])

    def _skipped_end(self, column: str, tick: int) -> int:
        return tick if column == START else tick - self._ticks(self._size)

    def _is_open(self, ended_at: int) -> pl.Expr:
        hop = self._ticks(self._hop)
        return pl.col("__tidemill_tick") // hop * hop > ended_at

    def _closed(self, tick: int | None) -> pl.DataFrame | None:
        if self._kind is None:
            return None
        size = self._ticks(self._size)
        made = self._groups.take(pl.lit(True) if tick is None else pl.col(START) + size <= tick)
        return None if made is None else made.with_columns((pl.col(START) + size).alias(END))


class TumblingWindowExecutor(HoppingWindowExecutor):
    """Hopping windows that begin where the one before ends."""

    def __init__(
        self,
        time: str,
        size: Span,
        keys: str | Sequence[str] | None = None,
        *,
        aggregations: Aggregations,
        allowed_lateness: Span | None = None,
        streams: int | None = None,
        idle_after: timedelta | None = None,
    ) -> None:
        super().__init__(
            time,
            size,
            size,
            keys,
            aggregations=aggregations,
            allowed_lateness=allowed_lateness,
            streams=streams,
            idle_after=idle_after,
        )


class SessionWindowExecutor(WindowExecutor):
    """One row per session and key: rows of a key of which each is less than `gap` after the one before.

    `window_start` is the time of the first row, `window_end` that of the last one plus `gap`. The other arguments are
    those of `HoppingWindowExecutor`. Holds the rows of open sessions in memory.
    """

    def __init__(
        self,
        time: str,
        gap: Span,
        keys: str | Sequence[str] | None = None,
        *,
        aggregations: Aggregations,
        allowed_lateness: Span | None = None,
        streams: int | None = None,
        idle_after: timedelta | None = None,
    ) -> None:
        super().__init__(time, keys, aggregations, allowed_lateness, streams, idle_after)
        _check_span("gap", gap)
        self._gap = gap
        self._rows = Levels()

    def _add(self, rows: pl.DataFrame) -> None:
        self._rows.add(rows)

    def _end_of(self, windows: pl.DataFrame) -> int:
        return _greatest(windows[END]) - self._ticks(self._gap)

    def _is_open(self, ended_at: int) -> pl.Expr:
        return pl.col("__tidemill_tick") > ended_at

    def _closed(self, tick: int | None) -> pl.DataFrame | None:
        if not self._rows.rows:
            return None
        gap = self._ticks(self._gap)
        # Nulls are a key like any other: `is_same` has to be true for two of them.
        rows = concatenated(self._rows.take()).sort([*self._keys, "__tidemill_tick"])
        is_same = pl.all_horizontal(pl.lit(True), *(pl.col(key).eq_missing(pl.col(key).shift(1)) for key in self._keys))
        since = pl.col("__tidemill_tick") - pl.col("__tidemill_tick").shift(1)  # below 0 is above the greatest number
        begins = ~(is_same & since.is_between(0, gap, closed="left").fill_null(False))
        rows = rows.with_columns(begins.cum_sum().alias("__tidemill_session"))
        ends = pl.col("__tidemill_tick").max().over("__tidemill_session") + gap
        rows = rows.with_columns(
            pl.col("__tidemill_tick").min().over("__tidemill_session").alias(START), ends.alias(END)
        )
        closed = rows if tick is None else rows.filter(pl.col(END) <= tick)
        if tick is not None:
            self._rows.add(rows.filter(pl.col(END) > tick).drop("__tidemill_session", START, END))
        groups = Groups(["__tidemill_session", *self._keys, START, END], self._aggregations)
        groups.add(closed)
        return groups.result()


def _greatest(ticks: pl.Series) -> int:
    found = ticks.max()
    assert isinstance(found, int)
    return found


def _is_below_zero(span: Span) -> bool:
    return span < timedelta(0) if isinstance(span, timedelta) else span < 0


def _check_span(name: str, span: Span) -> None:
    if (span <= timedelta(0)) if isinstance(span, timedelta) else (span <= 0):
        raise BadInput(f"the {name} of a window is above 0, this one is {span}")
