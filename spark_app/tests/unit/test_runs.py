"""Runs of equal keys: wherever their rows stand, the operands are those that Python comes to."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.language.combiners import COMBINERS
from tidemill.tables.row_order import key_runs, merge_order, run_starts, sort_rows
from tidemill.tables.runs import CombinerColumns, Runs, reduce_runs
from tidemill.values.columns import from_values, to_values
from tidemill.values.errors import BadInput

KEYS = ["task", "k0"]
INTS = st.none() | st.integers(-(2**60), 2**60)
FLOATS = st.none() | st.floats()


def a_frame(rows: dict[int, tuple[int | None, float | None]]) -> pl.DataFrame:
    """A level: one row a key, sorted."""
    keys = sorted(rows)
    return pl.DataFrame(
        {
            "task": [k % 3 for k in keys],
            "k0": [k // 3 for k in keys],
            "i": [rows[k][0] for k in keys],
            "f": [rows[k][1] for k in keys],
        },
        schema={"task": pl.Int32, "k0": pl.Int64, "i": pl.Int64, "f": pl.Float64},
    ).sort(KEYS)


LEVELS = st.lists(st.dictionaries(st.integers(0, 30), st.tuples(INTS, FLOATS)), min_size=1, max_size=5)


@pytest.mark.parametrize(("name", "column"), [("sum", "i"), ("min", "i"), ("max", "i"), ("min", "f"), ("max", "f")])
@given(levels=LEVELS)
def test_runs_are_reduced_alike_wherever_their_rows_stand(
    name: str, column: str, levels: list[dict[int, tuple[int, float]]]
) -> None:
    frames = [a_frame(level) for level in levels]
    rows = pl.concat(frames)
    found = merge_order(rows, KEYS)
    if found is None:
        assert rows.height == 0
        return
    order, starts = found
    in_order = sort_rows(rows, KEYS)
    assert rows[order].equals(in_order, null_equal=True)
    assert starts.tolist() == run_starts(in_order, KEYS).tolist()
    again, again_starts = key_runs(rows, KEYS) or (None, None)
    assert again_starts is not None and again_starts.tolist() == starts.tolist()
    assert again is None or again.tolist() == order.tolist()

    reduced = [
        reduce_runs(runs, [CombinerColumns(COMBINERS[name], (held[column],), is_merge=True, is_bounded=True)])[0]
        for runs, held in (
            (Runs(starts, rows.height, order), rows),
            (Runs(starts, rows.height), in_order),
        )
    ]
    assert len({repr(to_values(found)) for found in reduced}) == 1


NARROW, WIDE = st.integers(-3, 3), st.sampled_from([-(2**63), -(2**62), -1, 0, 1, 2**44, 2**62, 2**63 - 1])


@pytest.mark.parametrize("kinds", [(NARROW, NARROW), (WIDE, NARROW), (NARROW, WIDE), (WIDE, WIDE)])
@given(data=st.data())
def test_rows_are_sorted_as_tuples_are_however_wide_their_keys_are(kinds: tuple[Any, Any], data: Any) -> None:
    keys = data.draw(st.lists(st.tuples(st.integers(0, 3), st.booleans(), *kinds), max_size=40))
    schema = {"task": pl.Int32, "flag": pl.Boolean, "k0": pl.Int64, "k1": pl.Int64}
    rows = pl.DataFrame(keys, schema=schema, orient="row").with_row_index("row")
    expected = sorted(range(len(keys)), key=keys.__getitem__)

    assert sort_rows(rows, list(schema))["row"].to_list() == expected
    if keys:
        order, starts = merge_order(rows, list(schema)) or ((), ())
        assert list(order) == expected
        assert list(starts) == [i for i, row in enumerate(expected) if i == 0 or keys[expected[i - 1]] != keys[row]]


VALUES: dict[str, Any] = {
    "int": st.integers(-(2**63), 2**63 - 1), "float": st.floats(), "bool": st.booleans(),
    "str": st.sampled_from(["", "a", "b", "ä"]), "bytes": st.sampled_from([b"", b"a", b"b"]),
    "None or int": st.none() | st.integers(-5, 5), "None or bool": st.none() | st.booleans(),
    "any": st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", -0.0, [1]]),
}  # fmt: skip
UNFIT = {"sum", "min", "max", "merge", "map", "set", "set_remove", "multi_set"}
"""Combiners that refuse some values: where Python raises, nothing is compared."""


@pytest.mark.parametrize("name", [name for name in COMBINERS if name != "count"])
@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_raw_rows_are_reduced_as_python_does_whatever_they_hold(name: str, kind: str, data: Any) -> None:
    combiner = COMBINERS[name]
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=8))
    keys = sorted(data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values))))
    args = [values, values] if name == "map" else [[{"a": v} for v in values]] if name == "merge" else [values]
    starts = np.array([i for i, key in enumerate(keys) if i == 0 or keys[i - 1] != key])
    try:
        lifted = [combiner.lift(*row) for row in zip(*args, strict=True)]
        expected = [
            reduce(combiner.combine, lifted[start:end])
            for start, end in zip(starts.tolist(), [*starts.tolist()[1:], len(values)], strict=True)
        ]
    except (BadInput, TypeError):  # refused, or cannot be compared
        assert name in UNFIT
        return
    columns = [CombinerColumns(combiner, tuple(map(from_values, args)))]
    for order in (None, np.arange(len(values))):
        (found,) = reduce_runs(Runs(starts, len(values), order), columns)
        for value, wanted in zip(to_values(found), expected, strict=True):  # NaN equals no value, and 0.0 equals -0.0
            assert repr(value) == repr(wanted) or (value == wanted and name not in ("min", "max"))


def test_rows_are_counted_when_a_count_has_no_arguments() -> None:
    (found,) = reduce_runs(Runs(np.array([0, 2]), 5), [CombinerColumns(COMBINERS["count"], ())])

    assert to_values(found) == [2, 3]


def test_other_keys_than_numbers_are_left_to_the_frame_library() -> None:
    assert merge_order(pl.DataFrame({"task": [1, 1], "k0": ["a", "b"]}), KEYS) is None
    assert merge_order(pl.DataFrame({"task": [1, 1], "k0": [1, None]}), KEYS) is None
