"""Folding rows where they stand gives what folding them sorted gives."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.tables.sorting import merge_order, reduce_runs, reduce_slots, run_starts, slots_of, sort_rows

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


@pytest.mark.parametrize(("identity", "column"), [("sum", "i"), ("min", "i"), ("max", "i"), ("min", "f"), ("max", "f")])
@given(levels=LEVELS)
def test_slots_and_runs_fold_alike(identity: str, column: str, levels: list[dict[int, tuple[int, float]]]) -> None:
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
    slots = slots_of(order, starts)
    by_slots = reduce_slots(identity, rows[column], slots, len(starts), [frame.height for frame in frames])
    assert by_slots.equals(reduce_runs(identity, in_order[column], starts), null_equal=True)


def test_other_keys_than_numbers_are_left_to_the_frame_library() -> None:
    assert merge_order(pl.DataFrame({"task": [1, 1], "k0": ["a", "b"]}), KEYS) is None
    assert merge_order(pl.DataFrame({"task": [1, 1], "k0": [1, None]}), KEYS) is None
