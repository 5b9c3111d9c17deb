"""Batches whose columns have several types: widened where each value stays what it is, else refused."""

from __future__ import annotations

import pickle
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
from tidemill.graphs.executors.asof import AsOfJoinExecutor
from tidemill.graphs.executors.joins import JoinExecutor
from tidemill.graphs.executors.spilled_frames import PARTITIONS, SpilledParts
from tidemill.graphs.executors.spilling_join import OOCJoinExecutor
from tidemill.graphs.executors.spmv import SpMVExecutor
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


@pytest.mark.parametrize("kinds", [(pl.Int32, pl.Int64), (pl.Int64, pl.UInt64), (pl.Float32, pl.Float64)])
def test_rows_meet_in_an_as_of_join_when_their_keys_have_other_widths(kinds: Any) -> None:
    left, right = (pl.DataFrame({"time": [1], "k": pl.Series([2], dtype=kind)}) for kind in kinds)

    made = run(AsOfJoinExecutor(by="k"), {1: [right.with_columns(b=7)], 0: [left]})

    assert made.rows() == [(1, 2, 7)]


def test_the_key_is_named_when_a_join_would_change_it() -> None:
    with pytest.raises(SchemaError, match=f"the key 'k' is Float64 and Int64 on two sides of a join, and {ODD} would"):
        run(JoinExecutor("k"), {0: [pl.DataFrame({"k": [ODD]})], 1: [FLOATS.to_frame()]})


class Matrix:
    """A dataset of one channel."""

    def channel(self, number: int) -> list[pl.DataFrame]:
        return [pl.DataFrame({"x": [1, 1], "y": [10**9, 2]})]


def test_a_vector_meets_its_matrix_when_its_rows_are_floats() -> None:
    vector = pl.DataFrame({"y": [2.0, 1e9], "val": [3, 4]})

    assert run(SpMVExecutor(), {0: [vector]}, [Matrix()]).rows() == [(1, 7)]


def spilled_join() -> OOCJoinExecutor:
    """A join on disk whose left side has floats."""
    executor = OOCJoinExecutor("k", memory_limit=1)
    executor.execute([pl.DataFrame({"k": [1.0, 2.0, 0.5]})], 0, 0)
    return executor


def test_equal_keys_meet_on_disk_when_one_side_has_ints_and_the_other_floats() -> None:
    executor = spilled_join()
    executor.execute([pl.DataFrame({"k": [1, 2], "a": [10, 20]})], 1, 0)

    made: Any = executor.done(0)
    assert sorted(row for frame in made for row in frame.rows()) == [(1.0, 10), (2.0, 20)]


def test_parts_go_on_by_the_old_rule_when_an_older_version_began_them() -> None:
    keys = pl.DataFrame({"k": [float(number) for number in range(50)]})
    old, new = SpilledParts(["k"], 1, None), SpilledParts(["k"], 1, None)
    del old._are_numbers_alike  # as in checkpoints of that version
    restored = pickle.loads(pickle.dumps(old))
    for parts in (restored, new):
        parts.add(keys)
        parts.add(keys.cast(pl.Int64))

    assert all(sum(frame.height for frame in new.part(number)) % 2 == 0 for number in range(PARTITIONS))
    assert any(sum(frame.height for frame in restored.part(number)) % 2 for number in range(PARTITIONS))
