"""Joins whose rows have a few heavy keys: these are split among all channels, and the result is that of Polars."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill import (
    AggExecutor,
    AsOfJoinExecutor,
    BadInput,
    DefinitionError,
    DistinctExecutor,
    FilterExecutor,
    JoinExecutor,
    OOCJoinExecutor,
    RangePartition,
    SessionWindowExecutor,
    SplitPartition,
    StorageExecutor,
    TaskGraph,
    TumblingWindowExecutor,
    UnionExecutor,
)
from tidemill.graphs.multisets import difference
from tidemill.graphs.partitions import split

CHANNELS = 4


def joined(store: Any, left: list[pl.DataFrame], right: list[pl.DataFrame], executor: Any, keys: Any) -> Any:
    graph = TaskGraph(store)
    sources = {0: graph.new_input_frames(left, 2), 1: graph.new_input_frames(right, 1)}
    made = graph.new_blocking_node(sources, executor, CHANNELS, keys)
    graph.run()
    return made, graph


def sides(heavy: Any, left_copied: bool = False) -> dict[int, SplitPartition]:
    return {
        0: SplitPartition("k", heavy, copied=left_copied),
        1: SplitPartition("k", heavy, copied=not left_copied),
    }


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("kind", [JoinExecutor, OOCJoinExecutor])
def test_a_join_is_that_of_polars_when_heavy_keys_are_split(tmp_path: Path, how: Any, kind: Any) -> None:
    left = [pl.DataFrame({"k": [7, 7, 7, n, None, 8], "a": range(6 * n, 6 * n + 6)}) for n in range(10)]
    right = [pl.DataFrame({"k": [7, n, 7, None], "b": range(4 * n, 4 * n + 4)}) for n in range(4)]
    made, _ = joined(tmp_path, left, right, kind("k", how=how), sides([7, None, 8]))

    expected = pl.concat(left).join(pl.concat(right), on="k", how=how)
    assert difference(made.to_polars(), expected) == ""


def test_the_right_side_is_split_when_a_join_is_inner(tmp_path: Path) -> None:
    left = [pl.DataFrame({"k": [7, 1], "a": [1, 2]})]
    right = [pl.DataFrame({"k": [7] * 9, "b": range(9)})]
    made, _ = joined(tmp_path / "inner", left, right, JoinExecutor("k"), sides([7], left_copied=True))
    assert difference(made.to_polars(), left[0].join(right[0], on="k")) == ""

    with pytest.raises(DefinitionError, match="would give them several times"):
        joined(tmp_path / "left", left, right, JoinExecutor("k", how="left"), sides([7], left_copied=True))


def test_an_as_of_join_gives_each_left_row_once_when_heavy_keys_are_split(tmp_path: Path) -> None:
    left = [pl.DataFrame({"k": [7, 7, 1, n], "t": [n, n + 5, n, n], "a": range(4 * n, 4 * n + 4)}) for n in range(6)]
    right = [pl.DataFrame({"k": [7, 1], "t": [2 * n, n], "b": [n, -n]}) for n in range(6)]
    join = AsOfJoinExecutor("t", by="k", right_schema=right[0].schema)
    made, _ = joined(tmp_path / "left", left, right, join, sides([7]))
    clean, _ = joined(tmp_path / "clean", left, right, join, {0: "k", 1: "k"})
    assert difference(made.to_polars(), clean.to_polars()) == ""

    with pytest.raises(DefinitionError, match="would give them several times"):
        joined(tmp_path / "right", left, right, join, sides([7], left_copied=True))


def test_a_key_that_is_no_number_is_split_when_it_is_heavy(tmp_path: Path) -> None:
    left = [pl.DataFrame({"k": [float("nan"), 1.0, None], "a": [1, 2, 3]})]
    right = [pl.DataFrame({"k": [float("nan"), 2.0], "b": [1, 2]})]
    keys = {0: SplitPartition("k", [float("nan")]), 1: SplitPartition("k", [float("nan")], copied=True)}
    made, _ = joined(tmp_path, left, right, JoinExecutor("k"), keys)
    assert made.to_polars().select("a", "b").rows() == [(1, 1)]


@pytest.mark.parametrize(
    "keys",
    [
        {0: SplitPartition("k", [7]), 1: "k"},
        {0: SplitPartition("k", [7]), 1: SplitPartition("k", [7])},
        {0: SplitPartition("k", [7]), 1: SplitPartition("k", [8], copied=True)},
        {0: SplitPartition("k", [7], copied=True), 1: SplitPartition("k", [7], copied=True)},
    ],
)
def test_heavy_keys_are_refused_when_they_would_not_meet(tmp_path: Path, keys: Any) -> None:
    rows = [pl.DataFrame({"k": [7], "a": [1]})]
    with pytest.raises(DefinitionError, match="on each other stream only"):
        joined(tmp_path, rows, rows, JoinExecutor("k"), keys)


TYPED = pl.DataFrame({"k": [7], "day": [date(2026, 1, 7)], "w": ["a"]})


@pytest.mark.parametrize(
    "key",
    [
        SplitPartition("k", ["7"]),
        SplitPartition("w", [7]),
        SplitPartition("day", ["2026-01-07"]),
        SplitPartition(["k", "w"], [(7, 7)]),
        RangePartition("k", ["a"]),
        RangePartition("w", [7]),
    ],
)
def test_keys_of_another_type_are_refused_before_anything_runs(tmp_path: Path, key: Any) -> None:
    graph = TaskGraph(tmp_path)
    rows = graph.new_input_frames([TYPED], 1)
    graph.new_blocking_node({0: rows}, StorageExecutor(), 2, {0: key})
    with pytest.raises(DefinitionError, match=r"test_graph_heavy_keys.py:\d+.* not of the type of"):
        graph.initialize()


def test_keys_of_another_type_are_told_with_their_node_when_nobody_knew_the_columns(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    rows = graph.new_non_blocking_node(
        {0: graph.new_input_frames([TYPED], 1)}, FilterExecutor(pl.col("k") > 0), 1, {0: None}
    )
    graph.new_blocking_node({0: rows}, StorageExecutor(), 2, {0: SplitPartition("k", ["7"])})
    with pytest.raises(BadInput, match=r"node 1 .*heavy keys .7. are not of the type of k \(Int64\)"):
        graph.run()


def test_a_heavy_key_is_refused_when_it_has_not_a_value_for_each_column() -> None:
    for keys in ([7], [(7,)], ["ab"]):
        with pytest.raises(BadInput, match="is a tuple of 2 values"):
            SplitPartition(["k", "w"], keys)


@pytest.mark.parametrize(
    "executor",
    [
        AggExecutor("k", {"n": ("k", "count")}),
        DistinctExecutor("k"),
        TumblingWindowExecutor("k", 10, "w", aggregations={"n": "len"}),
        SessionWindowExecutor("k", 10, "w", aggregations={"n": "len"}),
    ],
)
def test_an_aggregation_is_refused_when_its_keys_are_split(tmp_path: Path, executor: Any) -> None:
    graph = TaskGraph(tmp_path)
    graph.new_blocking_node({0: graph.new_input_frames([TYPED], 1)}, executor, 2, {0: SplitPartition("k", [7])})
    with pytest.raises(DefinitionError, match=r"test_graph_heavy_keys.py:\d+.* a part of the result in each channel"):
        graph.initialize()


def test_copies_are_refused_when_nothing_joins_them(tmp_path: Path) -> None:
    copied, split_key = SplitPartition("k", [7], copied=True), SplitPartition("k", [7])
    for executor, keys in ((StorageExecutor(), [copied]), (UnionExecutor(), [split_key, copied])):
        graph = TaskGraph(tmp_path)
        sources = {number: graph.new_input_frames([TYPED], 1) for number in range(len(keys))}
        graph.new_blocking_node(sources, executor, 2, dict(enumerate(keys)))
        with pytest.raises(DefinitionError, match="once for each channel"):
            graph.initialize()


def test_no_channel_has_a_third_more_than_others_when_most_rows_have_one_key(tmp_path: Path) -> None:
    # A wave lasts as long as its fullest channel: with a key alone this one would have 80 % of the rows and not 25 %.
    batch = pl.DataFrame({"k": [7 if n % 5 else n for n in range(10_000)]})
    split_rows = [piece.height for _, piece in split(batch, SplitPartition("k", [7]), 0, CHANNELS)]
    by_key = [piece.height for _, piece in split(batch, "k", 0, CHANNELS)]

    assert max(by_key) > 3 * batch.height / CHANNELS
    assert len(split_rows) == CHANNELS and max(split_rows) <= 1.3 * batch.height / CHANNELS


@settings(max_examples=50)
@given(
    rows=st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from(["x", "y"])), max_size=30),
    channels=st.integers(1, 5),
    heavy=st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from(["x", "y"])), max_size=3),
)
def test_each_row_goes_once_or_to_all_when_its_key_is_heavy(rows: Any, channels: int, heavy: Any) -> None:
    frame = pl.DataFrame(rows, schema={"k": pl.Int64, "t": pl.String}, orient="row").with_row_index("row")
    for copied in (False, True):
        pieces = split(frame, SplitPartition(["k", "t"], heavy, copied=copied), 1, channels) if rows else []
        got = sorted(row for _, piece in pieces for row in piece["row"])
        times = [channels if copied and row in heavy else 1 for row in rows]
        assert got == sorted(number for number, count in enumerate(times) for _ in range(count))
        assert all(piece["row"].is_sorted() for _, piece in pieces)
