"""Large frames are joined and grouped by Polars' streaming engine: to the same rows as by the other one."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tidemill.graphs.executors import polars_engine
from tidemill.graphs.executors.aggregation import Aggregation, Groups
from tidemill.graphs.executors.joins import JoinShape

KEYS = st.one_of(st.none(), st.integers(-2, 2))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]))
ROWS = st.lists(st.tuples(KEYS, FLOATS, st.sampled_from([None, "", "a"])), max_size=12).map(
    lambda rows: pl.DataFrame(rows, schema={"k": pl.Int64, "f": pl.Float64, "w": pl.String}, orient="row")
)
COLUMNS = st.sampled_from([["k"], ["f"], ["w"], ["k", "w"], ["f", "k"]])


def in_both(make: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What a function gives where all frames count as large, and where none does; in one order."""
    made = []
    for rows in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(polars_engine, "STREAMING_ROWS", rows)
            found = make()
        made.append(found.sort(found.columns, nulls_last=True))
    return made[0], made[1]


@settings(max_examples=120)
@given(ROWS, ROWS, COLUMNS, st.sampled_from(["inner", "left", "semi", "anti"]))
def test_joins_are_the_same_when_frames_are_large(
    left: pl.DataFrame, right: pl.DataFrame, on: list[str], how: Any
) -> None:
    shape = JoinShape.of(on, None, None, how, "_right")

    assert_frame_equal(*in_both(lambda: shape.joined(left, right, how)))


@settings(max_examples=80)
@given(ROWS, COLUMNS)
def test_groups_are_the_same_when_frames_are_large(rows: pl.DataFrame, keys: list[str]) -> None:
    kinds = [("k", "sum"), ("k", "min"), ("w", "max"), ("k", "mean"), ("w", "count"), ("k", "len")]
    made = [Aggregation(f"{kind}_{column}", column, kind) for column, kind in kinds]

    def grouped() -> pl.DataFrame:
        groups = Groups(keys, made)
        for batch in (rows, rows.head(3)):
            groups.add(batch)
        found = groups.result()
        return rows.select(keys) if found is None else found

    assert_frame_equal(*in_both(grouped))
