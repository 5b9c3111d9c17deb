"""Batches whose columns have several types: widened where each value stays what it is, else refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from executor_runs import run
from polars.exceptions import SchemaError

from tidemill.graphs import columns
from tidemill.graphs.columns import stacked, widened
from tidemill.graphs.dataset import together
from tidemill.graphs.executors.aggregation import AggExecutor
from tidemill.values.errors import BadInput

ODD = 2**53 + 1
"""The least whole number above 0 that no float is."""
FLOATS = pl.Series("k", [0.5])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pl.Series([ODD]), FLOATS),
        (pl.Series([None, 1, -ODD]), FLOATS),
        (pl.Series([2**63 - 1]), FLOATS),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), FLOATS),
        (pl.Series([2**100 + 1], dtype=pl.Int128), FLOATS.cast(pl.Float32)),
        (pl.Series([Decimal(ODD)]), FLOATS),
        (pl.Series([[1], [], None, [2, ODD]]), pl.Series([[0.5]])),
        (pl.Series([[1, ODD]], dtype=pl.Array(pl.Int64, 2)), pl.Series([[0.5, 1.0]], dtype=pl.Array(pl.Float64, 2))),
        (pl.Series([{"a": 1, "b": [{"c": ODD}]}]), pl.Series([{"b": [{"c": 0.5}], "a": 2}])),
    ],
)
def test_whole_numbers_are_refused_when_floats_would_change_them(one: pl.Series, other: pl.Series) -> None:
    frames = [one.to_frame("k"), other.to_frame("k")]

    for given in (frames, frames[::-1]):
        with pytest.raises(SchemaError, match=r"column 'k' is .* in several batches, and .* would become .*: cast it"):
            stacked(given)
        with pytest.raises(SchemaError, match="would become"):
            widened(given[0], given[1])


@pytest.mark.parametrize(
    "given",
    [
        pl.Series([2**60, -(2**53), None]), pl.Series([2**63], dtype=pl.UInt64), pl.Series([True]), pl.Series([None]),
        pl.Series([Decimal("0.10")]), pl.Series([1.5], dtype=pl.Float32), pl.Series([], dtype=pl.Int64),
    ],
)  # fmt: skip
def test_batches_are_widened_when_each_number_is_a_float(given: pl.Series) -> None:
    made = stacked([given.to_frame("k"), FLOATS.to_frame()])

    assert made["k"].to_list() == [*(None if value is None else float(value) for value in given), 0.5]


def test_whole_numbers_stay_exact_when_one_type_holds_those_of_all_batches() -> None:
    kinds = ((-1, pl.Int8), (ODD, pl.Int64), (2**63 + 1, pl.UInt64))

    made = stacked([pl.DataFrame({"k": pl.Series([value], dtype=kind)}) for value, kind in kinds])

    assert made["k"].to_list() == [-1, ODD, 2**63 + 1]


def test_no_value_is_looked_at_when_the_types_of_batches_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_changed", None)
    frames = [pl.DataFrame({"a": [ODD], "b": [0.5]}), pl.DataFrame({"a": [1], "b": [1.5]})]

    assert stacked(frames).rows() == [(ODD, 0.5), (1, 1.5)]


@pytest.mark.parametrize(
    ("kind", "called"),
    [("sum", "the sum of column 'v'"), ("max", "the max of column 'v'"), ("count_distinct", "column 'v'")],
)
def test_an_aggregation_names_its_column_when_a_number_would_change(kind: str, called: str) -> None:
    batches = [pl.DataFrame({"v": values}) for values in ([ODD], [0.5])]

    with pytest.raises(SchemaError, match=f"^{called} is Float64 and Int64 in several batches, and {ODD} would become"):
        run(AggExecutor(None, {"made": ("v", kind)}), {0: batches})


def test_a_dataset_is_no_one_frame_when_a_number_would_change() -> None:
    with pytest.raises(BadInput, match=r"column 'k' is Float64 and Int64 .* Iterate it to get each as it is"):
        together([pl.DataFrame({"k": [ODD]}), FLOATS.to_frame()])


def test_distinct_values_are_counted_when_a_batch_of_other_keys_has_none() -> None:
    batches: list[Any] = [{"k": [1, 2], "v": ["a", "b"]}, {"k": [0.5], "v": [None]}]
    frames = [pl.DataFrame(batch, schema_overrides={"v": pl.String}) for batch in batches]

    made = run(AggExecutor("k", {"n": ("v", "count_distinct")}), {0: frames})

    assert sorted(made.rows()) == [(0.5, 0), (1.0, 1), (2.0, 1)]
