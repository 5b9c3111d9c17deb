"""Checksums of frames: of their values alone, not of how they lie in memory."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidemill.graphs.inputs.frame_marks import mark_of

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64: st.integers(-9, 9), pl.String: st.text(max_size=3), pl.Boolean: st.booleans(), pl.Float64: st.floats(),
    pl.Binary: st.binary(max_size=3), pl.Categorical: st.text(max_size=3), pl.Int128: st.integers(-9, 9),
    pl.List(pl.String): st.lists(st.none() | st.text(max_size=2), max_size=3),
    pl.Array(pl.Int8, 2): st.lists(st.integers(0, 9), min_size=2, max_size=2),
    pl.Struct({"a": pl.Int64, "b": pl.List(pl.Int8)}): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 9), "b": st.none() | st.lists(st.integers(0, 9), max_size=2)}
    ),
    pl.Decimal(10, 2): st.decimals(-9, 9, places=2), pl.Date: st.dates(), pl.Null: st.none(),
}  # fmt: skip


@given(data=st.data(), kind=st.sampled_from(list(VALUES)))
def test_marks_are_equal_when_equal_values_lie_otherwise_in_memory(data: st.DataObject, kind: Any) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=12))
    frame = pl.DataFrame({"c": pl.Series(values, dtype=kind)})
    cut = data.draw(st.integers(0, len(values)))
    pieces = [frame.head(0), frame.slice(0, cut), frame, frame.slice(cut)]
    others = pl.concat(pieces, rechunk=False)
    same = pl.concat([others.slice(0, cut), others.slice(cut + frame.height)], rechunk=False)

    assert mark_of([same]) == mark_of([frame])
    if frame.height:
        assert mark_of([frame, frame.head(0)]) != mark_of([frame.head(0), frame])
