"""Numbers of other types in each batch: what comes of them is exact, as numbers of Python are, or an error."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from executor_runs import frames_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.graphs.executor import Executor
from tidemill.graphs.executors.aggregation import AggExecutor
from tidemill.graphs.executors.asof import AsOfJoinExecutor
from tidemill.graphs.executors.joins import JoinExecutor
from tidemill.graphs.executors.rows import DistinctExecutor, MergedStorageExecutor
from tidemill.graphs.executors.sort import SortExecutor, TopKExecutor
from tidemill.graphs.executors.spilling_join import OOCJoinExecutor
from tidemill.graphs.executors.windows import SessionWindowExecutor, TumblingWindowExecutor

EXACT = 2**53
NUMBERS: dict[Any, list[Any]] = {
    pl.Int8: [-1, 0, 1, 2],
    pl.Int64: [-EXACT - 1, 1, EXACT, EXACT + 1, 2**60 + 1],
    pl.UInt64: [1, EXACT + 1, 2**63 + 1],
    pl.Int128: [1, EXACT + 1, 2**63 + 1, 2**90 + 1],
    pl.Float64: [-1.0, 0.5, 1.0, float(EXACT), float(EXACT + 2), 2.0**63],
    pl.Boolean: [False, True],
}
COLUMNS = st.sampled_from(list(NUMBERS)).flatmap(
    lambda kind: st.lists(st.sampled_from(NUMBERS[kind]), min_size=1, max_size=4).map(
        lambda values: pl.Series("n", values, dtype=kind)
    )
)
BATCHES = st.lists(COLUMNS, min_size=1, max_size=4)
ORDER = st.randoms(use_true_random=False)


def framed(columns: Sequence[pl.Series]) -> list[pl.DataFrame]:
    """A frame for each column, whose rows are numbered."""
    numbers = itertools.count()
    return [column.to_frame().with_columns(pl.Series("i", [next(numbers) for _ in column])) for column in columns]


def rows_of(executor: Executor, steps: Sequence[tuple[int, pl.DataFrame]]) -> list[Any]:
    """The rows that come of batches of streams, one batch after the other."""
    made = [frame for stream, batch in steps for frame in frames_of(executor.execute([batch], stream, 0))]
    made += [frame for stream in (0, 1) for frame in frames_of(executor.ended(stream, 0))]
    return [row for frame in [*made, *frames_of(executor.done(0))] for row in frame.rows()]


def exact_or_refused(
    run: Callable[[], list[Any]], *columns: pl.Series, largest: Callable[[list[int]], int] = max
) -> list[Any] | None:
    """What a run gave; None where it was refused, for which the `largest` whole number must be too large for floats."""
    try:
        return run()
    except pl.exceptions.SchemaError as error:
        assert "cast it to one type" in str(error)
        assert any(column.dtype.is_float() for column in columns)
        whole = [abs(int(value)) for column in columns if not column.dtype.is_float() for value in column]
        assert largest(whole) > EXACT
        return None


def grouped(values: Sequence[Any]) -> Counter[Any]:
    return Counter(Counter(values).items())


ONE_STREAM: dict[str, tuple[Callable[[], Executor], Callable[[list[Any]], Counter[Any]]]] = {
    "keys": (lambda: AggExecutor("n", {"rows": "len"}), grouped),
    "extremes": (
        lambda: AggExecutor(None, {"least": ("n", "min"), "most": ("n", "max")}),
        lambda values: Counter([(min(values), max(values))]),
    ),
    "distinct values": (
        lambda: AggExecutor(None, {"d": ("n", "count_distinct")}),
        lambda values: Counter([(len(set(values)),)]),
    ),
    "distinct values by key": (
        lambda: AggExecutor("n", {"d": ("n", "count_distinct")}),
        lambda values: Counter((value, 1) for value in set(values)),
    ),
    "distinct": (lambda: DistinctExecutor("n"), lambda values: Counter((value,) for value in set(values))),
    "windows": (
        lambda: TumblingWindowExecutor("i", 100, "n", aggregations={"rows": "len"}, allowed_lateness=0),
        lambda values: Counter((value, 0, 100, rows) for value, rows in Counter(values).items()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_STREAM)
@settings(max_examples=60)
@given(BATCHES)
def test_groups_are_exact_or_refused_when_types_differ_between_batches(name: str, columns: list[pl.Series]) -> None:
    make, expected = ONE_STREAM[name]
    steps = [(0, frame) for frame in framed(columns)]

    found = exact_or_refused(lambda: rows_of(make(), steps), *columns)

    assert found is None or Counter(found) == expected([value for column in columns for value in column])


@settings(max_examples=60)
@given(BATCHES)
@example([pl.Series("n", [-1], pl.Int8), pl.Series("n", [EXACT, EXACT]), pl.Series("n", [-1.0])])
def test_sums_are_near_or_refused_when_types_differ_between_batches(columns: list[pl.Series]) -> None:
    columns = [column for column in columns if column.dtype != pl.UInt64] or [pl.Series("n", [1])]  # they wrap around

    steps = [(0, frame) for frame in framed(columns)]
    found = exact_or_refused(lambda: rows_of(AggExecutor(None, {"sum": ("n", "sum")}), steps), *columns, largest=sum)

    values = [Fraction(value) for column in columns for value in column]
    if found is not None:
        assert abs(Fraction(found[0][0]) - sum(values)) <= sum(map(abs, values)) * Fraction(1, 10**15)


@settings(max_examples=60)
@given(BATCHES)
def test_sessions_are_exact_or_refused_when_types_differ_between_batches(columns: list[pl.Series]) -> None:
    executor = SessionWindowExecutor("i", 1000, "n", aggregations={"rows": "len"}, allowed_lateness=0)

    found = exact_or_refused(lambda: rows_of(executor, [(0, frame) for frame in framed(columns)]), *columns)

    counted = Counter(value for column in columns for value in column)
    assert found is None or {key: rows for key, _, _, rows in found} == counted


@settings(max_examples=60)
@given(BATCHES, st.sampled_from([1, 100, 1 << 20]), st.booleans())
def test_orders_are_exact_or_refused_when_types_differ_between_batches(
    columns: list[pl.Series], limit: int, falling: bool
) -> None:
    frames = framed(columns)
    given_ = sorted(((value, i) for frame in frames for value, i in frame.rows()), reverse=falling)
    steps = [(0, frame) for frame in frames]

    found = exact_or_refused(lambda: rows_of(SortExecutor("n", falling, memory_limit=limit), steps), *columns)
    first = exact_or_refused(lambda: rows_of(TopKExecutor(3, "n", falling), steps), *columns)
    merged = exact_or_refused(lambda: rows_of(MergedStorageExecutor(), steps), *columns)

    assert found is None or [value for value, _ in found] == [value for value, _ in given_]
    assert first is None or [value for value, _ in first] == [value for value, _ in given_[:3]]
    assert all(rows is None or Counter(rows) == Counter(given_) for rows in (found, merged))


JOINS: dict[str, Callable[..., Executor]] = {
    "symmetric": JoinExecutor,
    "build": lambda *on, **how: JoinExecutor(*on, build=1, **how),
    "spilling": lambda *on, **how: OOCJoinExecutor(*on, memory_limit=1, **how),
}


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("kind", JOINS)
@settings(max_examples=60)
@given(BATCHES, BATCHES, ORDER)
def test_joins_are_exact_or_refused_when_types_differ_between_batches(
    kind: str, how: Any, lefts: list[pl.Series], rights: list[pl.Series], order: Any
) -> None:
    left, right = framed(lefts), [frame.rename({"i": "j"}) for frame in framed(rights)]
    steps = [*((0, frame) for frame in left), *((1, frame) for frame in right)]
    order.shuffle(steps)

    executor = JOINS[kind]("n", how=how)
    found = exact_or_refused(lambda: rows_of(executor, steps), *lefts, *rights)

    pairs = [
        (value, i, [j for frame in right for other, j in frame.rows() if other == value])
        for frame in left
        for value, i in frame.rows()
    ]
    expected = Counter(
        row
        for value, i, met in pairs
        for row in {
            "inner": [(value, i, j) for j in met],
            "left": [(value, i, j) for j in met or [None]],
            "semi": [(value, i)] if met else [],
            "anti": [] if met else [(value, i)],
        }[how]
    )
    assert found is None or Counter(found) == expected


@settings(max_examples=60)
@given(BATCHES, BATCHES)
def test_as_of_joins_are_exact_or_refused_when_types_differ_between_batches(
    lefts: list[pl.Series], rights: list[pl.Series]
) -> None:
    right = [frame.rename({"i": "j"}).with_columns(pl.lit(-1).alias("i")) for frame in framed(rights)]
    steps = [*((0, frame) for frame in framed(lefts)), *((1, frame) for frame in right)]

    found = exact_or_refused(lambda: rows_of(AsOfJoinExecutor("i", by="n"), steps), *lefts, *rights)

    last = {value: j for frame in right for value, j, _ in frame.rows()}
    expected = Counter((value, i, last.get(value)) for frame in framed(lefts) for value, i in frame.rows())
    assert found is None or Counter(found) == expected
