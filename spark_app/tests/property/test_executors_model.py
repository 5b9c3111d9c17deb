"""Every executor of the library against Polars or plain Python, in any interleaving and batching, nulls included."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from datetime import date, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest
from executor_runs import check, run
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tidemill.graphs.executors.aggregation import AggExecutor, CountExecutor
from tidemill.graphs.executors.asof import AsOfJoinExecutor
from tidemill.graphs.executors.block_arrays import BlockArrays, BlockNames
from tidemill.graphs.executors.joins import JoinExecutor
from tidemill.graphs.executors.rows import (
    DistinctExecutor,
    FilterExecutor,
    LimitExecutor,
    MergedStorageExecutor,
    ProjectExecutor,
    StorageExecutor,
    UnionExecutor,
)
from tidemill.graphs.executors.sort import SortExecutor, TopKExecutor
from tidemill.graphs.executors.spilling_join import OOCJoinExecutor
from tidemill.graphs.executors.spmv import SpMVExecutor
from tidemill.graphs.executors.windows import HoppingWindowExecutor, SessionWindowExecutor, TumblingWindowExecutor
from tidemill.testing import check_confluence

KEYS = st.one_of(st.none(), st.integers(-3, 3))
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ü"]))
FLOATS = st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, math.nan, math.inf]))
TIMES = st.one_of(st.none(), st.integers(-30, 30))
EXAMPLES = settings(max_examples=40)


def frames(**columns: tuple[Any, Any]) -> st.SearchStrategy[pl.DataFrame]:
    """Frames of up to 25 rows; each column is a strategy and a type."""
    schema = {name: kind for name, (_, kind) in columns.items()}
    row = st.tuples(*(values for values, _ in columns.values()))
    return st.lists(row, max_size=25).map(lambda rows: pl.DataFrame(rows, schema=schema, orient="row"))


LEFTS = frames(k=(KEYS, pl.Int64), w=(WORDS, pl.String), v=(st.integers(0, 3), pl.Int32))
RIGHTS = frames(k=(KEYS, pl.Int64), w=(WORDS, pl.String), v=(st.integers(0, 3), pl.Int32))
NUMBERS = frames(k=(KEYS, pl.Int64), w=(WORDS, pl.String), i=(KEYS, pl.Int8), f=(FLOATS, pl.Float64))


@EXAMPLES
@given(NUMBERS, st.sampled_from([[], ["k"], ["k", "w"], ["f"]]))
def test_aggregates_are_those_of_polars(rows: pl.DataFrame, keys: list[str]) -> None:
    finite = pl.col("f").is_finite()
    rows = rows if keys == ["f"] else rows.with_columns(pl.when(finite).then("f"))
    aggregations = {
        "n": ("i", "count"), "rows": "len", "least": ("w", "min"), "most": ("i", "max"), "i": "mean",
        "f_sum": ("f", "sum"), "i_sum": ("i", "sum"), "words": ("w", "count_distinct"), "ints": ("i", "count_distinct"),
    }  # fmt: skip
    ints, words = pl.col("i"), pl.col("w")
    made = [
        ints.count().cast(pl.Int64).alias("n"), pl.len().cast(pl.Int64).alias("rows"), words.min().alias("least"),
        ints.max().alias("most"), ints.mean(), pl.col("f").sum().alias("f_sum"),
        ints.cast(pl.Int64).sum().alias("i_sum"), words.drop_nulls().n_unique().alias("words"),
        ints.drop_nulls().n_unique().alias("ints"),
    ]  # fmt: skip
    expected = rows.group_by(keys).agg(made) if keys else rows.select(made).head(rows.height)

    check(AggExecutor(keys, aggregations), {0: rows}, expected)


@EXAMPLES
@given(NUMBERS)
def test_aggregates_are_those_of_sql(rows: pl.DataFrame) -> None:
    rows = rows.with_columns(pl.when(pl.col("f").is_finite()).then("f"))
    query = "select k, avg(f) m, min(w) l, max(f) h, count(distinct w) d, count(f) c from rows group by k"
    with duckdb.connect() as database:
        database.register("rows", rows.to_arrow())
        found = database.sql(query).to_arrow_table()
    expected = pl.DataFrame(found)
    aggregations = {
        "m": ("f", "mean"),
        "l": ("w", "min"),
        "h": ("f", "max"),
        "d": ("w", "count_distinct"),
        "c": ("f", "count"),
    }

    check(AggExecutor("k", aggregations), {0: rows}, expected)


@EXAMPLES
@given(LEFTS)
def test_columns_are_summed_when_no_aggregation_is_given(rows: pl.DataFrame) -> None:
    check(AggExecutor("w"), {0: rows}, rows.group_by("w").agg(pl.col("k").sum(), pl.col("v").cast(pl.Int64).sum()))


@EXAMPLES
@given(LEFTS, RIGHTS, st.sampled_from(["inner", "left", "semi", "anti"]), st.sampled_from([["k"], ["w", "k"], ["v"]]))
@pytest.mark.parametrize("kind", ["symmetric", "build", "spilling"])
def test_joins_are_those_of_polars(kind: str, left: pl.DataFrame, right: pl.DataFrame, how: Any, on: list[str]) -> None:
    expected = left.join(right, on=on, how=how)
    schema = right.schema
    made = {
        "symmetric": lambda: JoinExecutor(on, how=how, right_schema=schema),
        "build": lambda: JoinExecutor(on, how=how, build=1, right_schema=schema),
        "spilling": lambda: OOCJoinExecutor(on, how=how, memory_limit=100, right_schema=schema),
    }[kind]()

    check(made, {0: left, 1: right}, expected)


@EXAMPLES
@given(LEFTS, RIGHTS)
def test_an_inner_join_may_build_its_left_side(left: pl.DataFrame, right: pl.DataFrame) -> None:
    executor = JoinExecutor(left_on="k", right_on="v", build=0)
    right = right.with_columns(pl.col("v").cast(pl.Int64))

    check(executor, {0: left, 1: right}, left.join(right, left_on="k", right_on="v"), dependents={1: [0]})


@EXAMPLES
@given(LEFTS, RIGHTS, st.booleans(), st.booleans(), st.sampled_from([None, 1, 300]))
def test_a_join_gives_all_pairs_when_keys_of_a_side_are_there_once(
    left: pl.DataFrame, right: pl.DataFrame, left_primary: bool, right_primary: bool, memory_limit: int | None
) -> None:
    left = left.filter(pl.col("k").is_first_distinct() | pl.col("k").is_null()) if left_primary else left
    right = right.filter(pl.col("k").is_first_distinct() | pl.col("k").is_null()) if right_primary else right
    given: dict[str, Any] = {"left_primary": left_primary, "right_primary": right_primary}
    executor = JoinExecutor("k", **given)
    if memory_limit is not None:
        executor = OOCJoinExecutor("k", memory_limit=memory_limit, **given)

    check(executor, {0: left, 1: right}, left.join(right, on="k"))


@EXAMPLES
@given(NUMBERS, st.sampled_from([None, ["k"], ["f", "w"]]))
def test_distinct_rows_are_those_of_polars(rows: pl.DataFrame, keys: list[str] | None) -> None:
    check(DistinctExecutor(keys), {0: rows}, rows.select(keys or rows.columns).unique())


@EXAMPLES
@given(NUMBERS, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans(), st.sampled_from([1, 200, 1 << 20]))
def test_rows_are_sorted_as_polars_sorts_them(rows: pl.DataFrame, falling: list[bool], last: bool, limit: int) -> None:
    by = ["w", "f", "k"]
    executor = SortExecutor(by, falling, nulls_last=last, memory_limit=limit)
    expected = rows.sort(by, descending=falling, nulls_last=last)
    check(executor, {0: rows}, expected)

    found = run(executor, {0: list(rows.iter_slices(4))})

    assert found.is_empty() == rows.is_empty()
    assert rows.is_empty() or found.select(by).equals(expected.select(by))


@EXAMPLES
@given(NUMBERS, st.integers(0, 9), st.booleans())
def test_the_first_rows_are_those_of_polars(rows: pl.DataFrame, k: int, falling: bool) -> None:
    order = ["i", "k", "w", "f"]
    expected = rows.sort(order, descending=[falling, False, False, False], nulls_last=True).head(k)

    check(TopKExecutor(k, "i", falling), {0: rows}, expected)


@EXAMPLES
@given(LEFTS, st.integers(0, 9))
def test_a_limit_gives_as_many_rows_as_there_are(rows: pl.DataFrame, limit: int) -> None:
    check_confluence(LimitExecutor(limit), {0: rows}, view=lambda made: pl.DataFrame({"rows": [made.height]}))

    assert run(LimitExecutor(limit), {0: [rows]}).height == min(limit, rows.height)


@EXAMPLES
@given(LEFTS, RIGHTS)
def test_rows_go_on_as_they_are_when_nothing_is_kept(first: pl.DataFrame, second: pl.DataFrame) -> None:
    both = pl.concat([first, second])
    check(UnionExecutor(first.columns), {0: first, 1: second.select("v", "w", "k")}, both)
    check(StorageExecutor(), {0: first, 1: second}, both)
    check(MergedStorageExecutor(), {0: first, 1: second}, both)
    check(CountExecutor(), {0: first, 1: second}, pl.DataFrame({"count": [both.height]}))
    check(FilterExecutor(pl.col("k") > 0), {0: first}, first.filter(pl.col("k") > 0))
    check(ProjectExecutor([pl.lit(1).alias("one"), "w"]), {0: first}, first.select(pl.lit(1).alias("one"), "w"))


TIMED = frames(t=(TIMES, pl.Int64), k=(KEYS, pl.Int64))


@EXAMPLES
@given(TIMED, TIMED, st.booleans())
def test_the_last_row_before_is_joined(left: pl.DataFrame, right: pl.DataFrame, is_sorted: bool) -> None:
    left, right = (rows.sort("t", maintain_order=True) if is_sorted else rows for rows in (left, right))
    right = right.with_row_index("price")
    expected = []
    for t, k in left.rows():
        before = [(time, price) for price, time, key in right.rows() if key == k is not None and time is not None]
        last = max((each for each in before if t is not None and each[0] <= t), default=(None, None))
        expected.append((t, k, last[1]))
    schema = {"t": pl.Int64, "k": pl.Int64, "price": pl.UInt32}
    wanted = pl.DataFrame(expected, schema=schema, orient="row")

    found = wanted if right.height else wanted.drop("price")
    check(AsOfJoinExecutor("t", by="k", is_sorted=is_sorted), {0: left, 1: right}, found)


@EXAMPLES
@given(TIMED, TIMED, st.sampled_from(["forward", "nearest"]))
def test_the_next_row_or_the_nearest_one_is_joined(left: pl.DataFrame, right: pl.DataFrame, strategy: Any) -> None:
    """Of rows that are as near the later one counts, of rows of one time the one that came last."""
    right = right.with_row_index("price")
    expected = []
    for t, k in left.rows():
        others = [(time, price) for price, time, key in right.rows() if key == k is not None and time is not None]
        fits = [each for each in others if t is not None and (strategy == "nearest" or each[0] >= t)]
        nearest = min(fits, key=lambda each: (abs(each[0] - t), -each[0], -each[1]), default=(None, None))
        expected.append((t, k, nearest[1]))
    schema = {"t": pl.Int64, "k": pl.Int64, "price": pl.UInt32}
    wanted = pl.DataFrame(expected, schema=schema, orient="row")

    found = wanted if right.height else wanted.drop("price")
    check(AsOfJoinExecutor("t", by="k", strategy=strategy), {0: left, 1: right}, found)


def windows_of(rows: pl.DataFrame, size: int, hop: int) -> pl.DataFrame:
    """The sums of hopping windows, made row by row."""
    sums: dict[Any, int] = defaultdict(int)
    for t, k, v in rows.rows():
        for start in range(-200, 200) if t is not None else ():
            if start * hop <= t < start * hop + size:
                sums[k, start * hop, start * hop + size] += v
    schema = {"k": pl.Int64, "window_start": pl.Int64, "window_end": pl.Int64, "sum": pl.Int64}
    return pl.DataFrame([(*key, value) for key, value in sums.items()], schema=schema, orient="row")


EVENTS = frames(t=(TIMES, pl.Int64), k=(KEYS, pl.Int64), v=(st.integers(0, 9), pl.Int64))
SUM = {"sum": ("v", "sum")}


@EXAMPLES
@given(EVENTS, st.integers(1, 12), st.integers(1, 12))
def test_windows_hold_the_rows_of_their_time(rows: pl.DataFrame, size: int, hop: int) -> None:
    check(HoppingWindowExecutor("t", size, hop, "k", aggregations=SUM), {0: rows}, windows_of(rows, size, hop))


@EXAMPLES
@given(EVENTS, EVENTS, st.integers(1, 12), st.integers(0, 20))
def test_late_rows_are_left_out_whatever_the_batches(
    a: pl.DataFrame, b: pl.DataFrame, size: int, lateness: int
) -> None:
    on_time = []
    for rows in (a, b):
        newest = -(10**9)
        for row in rows.drop_nulls("t").rows():
            on_time += [row] if row[0] >= newest - lateness else []
            newest = max(newest, row[0])
    expected = windows_of(pl.DataFrame(on_time, schema=a.schema, orient="row"), size, size)
    executor = TumblingWindowExecutor("t", size, "k", aggregations=SUM, allowed_lateness=lateness, streams=2)

    check(executor, {0: a, 1: b}, expected)


@EXAMPLES
@given(EVENTS, EVENTS, st.integers(1, 12), st.one_of(st.none(), st.integers(0, 40)))
def test_sessions_end_where_a_gap_begins(a: pl.DataFrame, b: pl.DataFrame, gap: int, lateness: int | None) -> None:
    on_time: list[Any] = []
    for rows in (a, b):
        newest = -(10**9)
        for row in rows.drop_nulls("t").rows():
            on_time += [row] if lateness is None or row[0] >= newest - lateness else []
            newest = max(newest, row[0])
    sessions: dict[Any, list[list[int]]] = defaultdict(list)
    for t, k, v in sorted(on_time, key=lambda row: row[0]):
        if sessions[k] and t < sessions[k][-1][1]:
            sessions[k][-1] = [sessions[k][-1][0], t + gap, sessions[k][-1][2] + v]
        else:
            sessions[k].append([t, t + gap, v])
    made = [(k, *session) for k, found in sessions.items() for session in found]
    schema = {"k": pl.Int64, "window_start": pl.Int64, "window_end": pl.Int64, "sum": pl.Int64}
    executor = SessionWindowExecutor("t", gap, "k", aggregations=SUM, allowed_lateness=lateness, streams=2)

    check(executor, {0: a, 1: b}, pl.DataFrame(made, schema=schema, orient="row"))


@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns", "UTC")])
def test_windows_of_days_begin_at_midnight(kind: Any) -> None:
    times = pl.Series("t", [date(2020, 1, 1), date(2020, 1, 2), date(1969, 12, 31)]).cast(kind)
    rows = pl.DataFrame({"t": times, "v": [1, 2, 3]})

    found = run(TumblingWindowExecutor("t", timedelta(days=1), aggregations=SUM), {0: [rows]}).sort("window_start")

    starts = [time.replace(tzinfo=None) for time in found["window_start"]]
    assert starts == [datetime(1969, 12, 31), datetime(2020, 1, 1), datetime(2020, 1, 2)]
    assert found["sum"].to_list() == [3, 1, 2]


class Matrix:
    """A dataset of one channel."""

    def __init__(self, block: pl.DataFrame) -> None:
        self.block = block

    def channel(self, number: int) -> list[pl.DataFrame]:
        return [self.block] if self.block.height else []


EDGES = frames(x=(st.integers(0, 5), pl.Int64), y=(st.integers(0, 5), pl.Int64), w=(st.integers(-3, 3), pl.Int64))


@EXAMPLES
@given(EDGES, frames(y=(st.integers(0, 5), pl.Int64), val=(st.integers(-3, 3), pl.Int64)))
def test_a_matrix_is_multiplied_with_a_vector(matrix: pl.DataFrame, vector: pl.DataFrame) -> None:
    product: dict[int, int] = defaultdict(int)
    for x, y, weight in matrix.rows():
        for column, value in vector.rows():
            product[x] += weight * value if column == y else 0
    stored = matrix.join(vector, on="y")["x"].to_list()
    kept = [(x, product[x]) for x in sorted(set(stored))]
    expected = pl.DataFrame(kept, schema={"y": pl.Int64, "val": pl.Int64}, orient="row")

    check(SpMVExecutor(weight="w"), {0: vector}, expected, datasets=[Matrix(matrix)])


INDEXES = st.sampled_from([pl.Int8, pl.Int64, pl.UInt32])
PLACES = st.one_of(st.integers(0, 5), st.sampled_from([-1, 100_000, None]))


@st.composite
def blocks_and_vectors(draw: Any) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """A block, some with numbers that are unknown, negative or far apart, and a vector of floats in batches."""
    places = draw(st.sampled_from([st.integers(0, 5), st.integers(-2, 100), PLACES]))
    kinds = [draw(INDEXES) for _ in range(2)]
    weight = draw(st.sampled_from([pl.Float64, pl.Int64, pl.Float32]))
    found = draw(frames(x=(places, pl.Int64), y=(places, pl.Int64), w=(st.integers(-3, 3), weight)))
    vector = draw(frames(y=(places, pl.Int64), val=(FLOATS, pl.Float64)))
    casts = [pl.col(name).cast(kind, strict=False) for name, kind in zip("xy", kinds, strict=True)]
    block, vector = found.with_columns(casts), vector.with_columns(casts[1:])
    if draw(st.booleans()):
        vector = vector.unique("y", keep="first", maintain_order=True)
    cut = draw(st.integers(0, vector.height))
    return block, [vector[:cut], vector[cut:]]


@EXAMPLES
@given(blocks_and_vectors(), st.booleans())
def test_arrays_multiply_as_a_join_does(given_: tuple[pl.DataFrame, list[pl.DataFrame]], is_weighted: bool) -> None:
    block, vectors = given_
    found = []
    for of in (BlockArrays.of, lambda *_: None):
        executor = SpMVExecutor(weight="w" if is_weighted else None)
        executor.initialize([Matrix(block)], 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlockArrays, "of", staticmethod(of))
            for vector in vectors:
                executor.execute([vector], 0, 0)
            found.append(executor.done(0))

    assert (found[0] is None) == (found[1] is None)
    if found[0] is not None:
        assert_frame_equal(found[0], found[1], check_row_order=False, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("block", "is_made"),
    [
        ({"x": [7, 9], "y": [0, 3]}, True),
        ({"x": [-7, 9], "y": [0, 3]}, True),
        ({"x": [7, 9], "y": [-1, 3]}, False),
        ({"x": [7, 1_000_000], "y": [0, 3]}, False),
        ({"x": [7, 9], "y": [0, 1_000_000]}, False),
        ({"x": [7, None], "y": [0, 3]}, False),
        ({"x": [7, 9], "y": [0.0, 3.0]}, False),
        ({"x": [7, 9], "y": [0, 3], "val": [1, 2]}, False),
    ],
)
def test_arrays_are_made_when_numbers_are_close_together(block: dict[str, Any], is_made: bool) -> None:
    found = BlockArrays.of(pl.DataFrame(block), BlockNames("x", "y", "val", None))

    assert (found is not None) == is_made


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("kind", [pl.Datetime, pl.Duration])
@pytest.mark.parametrize("falling", [False, True])
def test_times_are_sorted_to_their_last_digit_when_runs_are_merged(kind: Any, unit: Any, falling: bool) -> None:
    rows = pl.DataFrame({"t": [10**18 + number * 7919 % 100 for number in range(100)]}).cast(kind(unit))
    executor = SortExecutor("t", falling, memory_limit=100)
    for batch in rows.iter_slices(10):
        executor.execute([batch], 0, 0)

    made: Any = executor.done(0)
    found = list(itertools.islice(made, 1000))  # a merge that takes no row goes on for ever

    assert pl.concat(found).equals(rows.sort("t", descending=falling))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize(("one", "other"), [(pl.Int32, pl.Int64), (pl.Int8, pl.UInt64), (pl.Float32, pl.Float64)])
def test_keys_meet_on_disk_when_their_columns_have_other_widths(how: Any, one: Any, other: Any) -> None:
    left = pl.DataFrame({"k": range(100), "a": range(100)}, schema_overrides={"k": one})
    right = pl.DataFrame({"k": range(50, 120), "b": range(70)}, schema_overrides={"k": other})

    made = OOCJoinExecutor("k", how=how, memory_limit=1, right_schema=right.schema)

    check(made, {0: left, 1: right}, left.join(right, on="k", how=how))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("make", [JoinExecutor, OOCJoinExecutor])
def test_nan_meets_nan_however_few_rows_come_at_once(make: Any, how: Any) -> None:
    left = pl.DataFrame({"f": [math.nan, 1.0, 2.0, None]})
    right = pl.DataFrame({"f": [2.0, math.nan, 0.0], "x": [1, 2, 3]})
    expected = {
        "inner": [(math.nan, 2), (2.0, 1)], "left": [(math.nan, 2), (1.0, None), (2.0, 1), (None, None)],
        "semi": [(math.nan,), (2.0,)], "anti": [(1.0,), (None,)],
    }[how]  # fmt: skip
    streams = {0: list(left.iter_slices(1)), 1: list(right.sort("f").iter_slices(1))}

    found = run(make("f", how=how, right_schema=right.schema), streams, ())

    assert sorted(map(str, found.rows())) == sorted(map(str, expected))
