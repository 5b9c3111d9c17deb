"""Windows with every kind of aggregation against plain Python, step by step: what goes on, and when."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import polars as pl
import pytest
from executor_runs import frames_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.graphs.executors.aggregation import KINDS
from tidemill.graphs.executors.windows import HoppingWindowExecutor, SessionWindowExecutor
from tidemill.graphs.multisets import difference

STREAMS = 2
SCHEMA = {"t": pl.Int64, "k": pl.Int64, "v": pl.Int64}
TYPES = {"k": pl.Int64, "window_start": pl.Int64, "window_end": pl.Int64} | {
    kind: pl.Float64 if kind == "mean" else pl.Int64 for kind in KINDS
}
Row = tuple[int | None, int | None, int | None]
Window = tuple[int, int, list[int | None]]
"""The start, the end and the values of one key."""

KEYS = st.one_of(st.none(), st.integers(0, 2))
VALUES = st.one_of(st.none(), st.integers(-2, 2))
ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(-20, 40)), KEYS, VALUES), min_size=1, max_size=5)
STEPS = st.lists(st.tuples(st.integers(0, STREAMS - 1), ROWS), max_size=8)
LATENESS = st.sampled_from([None, 0, 0, 2, 15])


def aggregated(values: Sequence[int | None]) -> Mapping[str, Any]:
    """What each kind makes of values."""
    known = [value for value in values if value is not None]
    return {
        "count": len(known), "count_distinct": len(set(known)), "len": len(values), "max": max(known, default=None),
        "mean": sum(known) / len(known) if known else None, "min": min(known, default=None), "sum": sum(known),
    }  # fmt: skip


def hopping(size: int, hop: int) -> Callable[[list[Row]], Iterator[Window]]:
    """The windows of one key's rows."""

    def windows(rows: list[Row]) -> Iterator[Window]:
        found: dict[int, list[int | None]] = defaultdict(list)
        for t, _, value in rows:
            assert t is not None
            for start in range(t // hop * hop, t - size, -hop):
                found[start].append(value)
        return ((start, start + size, values) for start, values in found.items())

    return windows


def sessions(gap: int) -> Callable[[list[Row]], Iterator[Window]]:
    """The sessions of one key's rows."""

    def windows(rows: list[Row]) -> Iterator[Window]:
        found: list[Window] = []
        for t, _, value in sorted(rows, key=lambda row: row[0] or 0):
            assert t is not None
            start, end, values = found.pop() if found and t < found[-1][1] else (t, t, [])
            found.append((start, t + gap, [*values, value]))
        return iter(found)

    return windows


class Model:
    """All rows that were on time, and which of their windows went on."""

    def __init__(self, windows: Callable[[list[Row]], Iterator[Window]], lateness: int | None) -> None:
        self._windows = windows
        self._lateness = lateness
        self._rows: list[Row] = []
        self._newest: dict[int, int] = {}
        self._gone: set[tuple[int | None, int]] = set()
        self.dropped = 0

    def take(self, stream: int, rows: Sequence[Row]) -> pl.DataFrame:
        """The windows that these rows end."""
        for row in rows:
            t, newest = row[0], self._newest.get(stream)
            if t is None or not (self._lateness is None or newest is None or t >= newest - self._lateness):
                self.dropped += 1
                continue
            self._rows.append(row)
            self._newest[stream] = t if newest is None else max(t, newest)
        if self._lateness is None or len(self._newest) < STREAMS:
            return self.end(-(10**9))
        return self.end(min(self._newest.values()) - self._lateness)

    def end(self, limit: int = 10**9) -> pl.DataFrame:
        """The windows up to a time that did not go on before."""
        made = []
        by_key = groupby(sorted(self._rows, key=lambda row: str(row[1])), key=lambda row: row[1])
        for key, rows in by_key:
            for start, end, values in self._windows(list(rows)):
                if end <= limit and (key, start) not in self._gone:
                    self._gone.add((key, start))
                    made.append({"k": key, "window_start": start, "window_end": end, **aggregated(values)})
        return pl.DataFrame(made, schema=TYPES)


def compare(executor: Any, model: Model, steps: Sequence[tuple[int, list[Row]]]) -> None:
    """After each step the executor, which becomes a copy each time, gives what the model does."""
    for stream, rows in steps:
        made = frames_of(executor.execute([pl.DataFrame(rows, schema=SCHEMA, orient="row")], stream, 0))
        assert difference(pl.concat([pl.DataFrame(schema=TYPES), *made]), model.take(stream, rows)) == ""
        assert executor.dropped_rows == model.dropped
        executor = pickle.loads(pickle.dumps(executor))
    assert difference(pl.concat([pl.DataFrame(schema=TYPES), *frames_of(executor.done(0))]), model.end()) == ""


AGGREGATIONS = {kind: ("v", kind) for kind in KINDS}


@settings(max_examples=60)
@given(STEPS, st.sampled_from([(10, 10), (10, 3), (3, 10), (20, 10), (1, 1)]), LATENESS)
def test_windows_go_on_once_and_whole_when_rows_come_in_steps(steps: Any, spans: Any, lateness: int | None) -> None:
    executor = HoppingWindowExecutor(
        "t", *spans, "k", aggregations=AGGREGATIONS, allowed_lateness=lateness, streams=STREAMS
    )

    compare(executor, Model(hopping(*spans), lateness), steps)


@settings(max_examples=60)
@given(STEPS, st.sampled_from([1, 4, 10]), LATENESS)
def test_sessions_go_on_once_and_whole_when_rows_come_in_steps(steps: Any, gap: int, lateness: int | None) -> None:
    executor = SessionWindowExecutor(
        "t", gap, "k", aggregations=AGGREGATIONS, allowed_lateness=lateness, streams=STREAMS
    )

    compare(executor, Model(sessions(gap), lateness), steps)


@pytest.mark.parametrize("kind", KINDS)
def test_only_windows_that_ended_go_on_when_others_are_open(kind: str) -> None:
    executor = HoppingWindowExecutor("t", 10, 10, aggregations={"made": ("v", kind)}, allowed_lateness=0)
    rows = pl.DataFrame({"t": [1, 2, 12], "v": [5, 5, 7]})

    (ended,) = frames_of(executor.execute([rows], 0, 0))

    assert ended["made"].to_list() == [aggregated([5, 5])[kind]]


def test_values_of_ended_windows_are_forgotten_when_distinct_ones_are_counted() -> None:
    executor = HoppingWindowExecutor("t", 10, 10, aggregations={"n": ("t", "count_distinct")}, allowed_lateness=0)
    sizes = []
    for start in range(0, 10_000, 100):
        executor.execute([pl.DataFrame({"t": range(start, start + 100)})], 0, 0)
        sizes.append(sum(values.rows for values in executor._groups._values.values()))

    assert max(sizes) == 10
