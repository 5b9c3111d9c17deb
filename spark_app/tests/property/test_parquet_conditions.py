"""Conditions on Parquet files give the rows that Polars gives, whatever the statistics of row groups say of them."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill import TaskGraph
from tidemill.graphs.frames.expressions import comparisons
from tidemill.graphs.inputs.files import find_files
from tidemill.graphs.inputs.parquet_input import parquet_input

HOW = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
NAN = float("nan")
START = datetime(2026, 1, 1)
TIMES = [START, START + timedelta(milliseconds=1), START - timedelta(days=1)]
INTS = [0, 1, 2, 127]
VALUES: list[tuple[Any, list[Any], list[Any]]] = [
    (pl.Int64, [*INTS, -1, 2**53, 2**53 + 1], [0, 1, 1.0, 0.5, float(2**53), -(2**40), NAN]),
    (pl.UInt64, [*INTS, 2**64 - 1, 2**63], [0, 1, -1, 0.5, 2**63, 1e19]),
    (pl.Int8, [*INTS, -128], [0, 1, 0.5, 127, -1]),
    (pl.Float32, [0.0, -0.0, 0.1, 0.2, NAN, float("inf")], [0, 0.1, 0.2, 0.1 + 1e-9, NAN, 1]),
    (pl.Float64, [0.0, -0.0, 0.1, float(2**53), NAN, float("-inf")], [0, 0.1, NAN, 2**53 + 1, -0.0]),
    (pl.Decimal(10, 2), [Decimal("1.10"), Decimal("-0.50"), Decimal("0.30")], [1.1, 0.3, 1, Decimal("1.10")]),
    (pl.String, ["", "a", "ab", "é", "z" * 90], ["", "a", "é", "z" * 90, "z" * 89]),
    (pl.Enum(["z", "a"]), ["z", "a"], ["z", "a"]),
    (pl.Categorical, ["z", "a"], ["z", "a", "b"]),
    (pl.Boolean, [True, False], [True, False]),
    (pl.Date, [each.date() for each in TIMES], [date(2026, 1, 1), START, TIMES[2]]),
    (pl.Datetime("ms"), TIMES, [START, START + timedelta(microseconds=1500), date(2026, 1, 1)]),
    (pl.Datetime("us"), TIMES, [*TIMES, date(2026, 1, 1)]),
    (pl.Datetime("ns"), TIMES, [*TIMES, date(2026, 1, 1)]),
    (pl.Duration("us"), [timedelta(0), timedelta(days=-1)], [timedelta(0), timedelta(hours=1)]),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=150)
@given(st.sampled_from(VALUES), st.data())
def test_rows_are_those_of_polars_when_row_groups_are_left_out(folder: Path, values: Any, data: Any) -> None:
    kind, held, asked = values
    rows = pl.DataFrame({"k": data.draw(st.lists(st.sampled_from([*held, None]), max_size=8))}, schema={"k": kind})
    how, value = data.draw(st.sampled_from([*HOW, "in"])), data.draw(st.sampled_from(asked))
    predicate = HOW[how](pl.col("k"), value) if how != "in" else pl.col("k").is_in([value])
    try:
        expected = rows.filter(predicate)
    except (pl.exceptions.PolarsError, TypeError):
        return
    rows.write_parquet(folder / "rows.parquet", row_group_size=data.draw(st.integers(1, 3)))
    conditions = [("k", how, [value] if how == "in" else value)]
    found = parquet_input(find_files(str(folder), "rows.parquet"), None, conditions, 1)
    assert pl.concat([rows.clear(), *_all(found)]).equals(expected)


def _all(found: Any) -> list[pl.DataFrame]:
    frames = []
    (cursor,) = found.plan(1)
    while cursor is not None:
        batch, cursor = found.read(cursor)
        frames.append(batch.collect())
    return frames


@pytest.mark.parametrize("kind", [pl.Float32, pl.Decimal(10, 2)])
def test_a_frame_has_the_rows_that_are_equal_once_a_literal_is_rounded(tmp_path: Path, kind: Any) -> None:
    rows = pl.DataFrame({"k": ["0.10", "0.20"], "v": [1, 2]}).with_columns(pl.col("k").cast(kind))
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    frame = TaskGraph(tmp_path / "store", parallelism=2).read_parquet(str(tmp_path / "rows.parquet"))
    for predicate in (pl.col("k") == 0.1, pl.col("k") <= 0.1, pl.col("k").is_between(0.1, 0.1)):
        assert frame.filter(predicate).collect()["v"].to_list() == [1]


def test_times_of_nanoseconds_are_filtered_though_their_statistics_are_no_times(tmp_path: Path) -> None:
    times = pl.Series("t", [10_000_000_500, 20]).cast(pl.Datetime("ns"))
    pl.DataFrame({"t": times, "v": [1, 2]}).write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    frame = TaskGraph(tmp_path / "store", parallelism=2).read_parquet(str(tmp_path / "rows.parquet"))
    assert frame.filter(pl.col("t") > datetime(1970, 1, 1, 0, 0, 9)).collect()["v"].to_list() == [1]
    assert frame.filter(pl.col("v") > 1).collect()["v"].to_list() == [2]


def test_a_comparison_with_a_literal_that_has_a_type_is_left_to_the_rows() -> None:
    assert comparisons(pl.col("k") > 0.1) == [("k", ">", 0.1)]
    assert comparisons(pl.col("k") > pl.lit(0.1, pl.Float64)) == []
    assert comparisons(pl.col("k").is_between(1, pl.lit(2, pl.Int8))) == []
