"""Columns give back equal values in every form."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.values import columns
from tidemill.values.message_pack import pack, unpack

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
)
pairs = st.tuples(st.integers(0, 9), st.text(max_size=2)).map(list)
records = st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.lists(st.booleans(), min_size=2, max_size=2)})
uniform = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.text(max_size=4)), st.lists(pairs),
    st.lists(records), st.lists(values),
)  # fmt: skip


def _typed(value: Any) -> Any:
    """Distinguishes 1, 1.0 and True, which Python calls equal."""
    if isinstance(value, list):
        return [_typed(v) for v in value]
    if isinstance(value, dict):
        return {k: _typed(v) for k, v in value.items()}
    return (type(value).__name__, value)


@given(uniform)
def test_values_come_back_equal_when_a_column_is_made_of_them(data: list[Any]) -> None:
    column = columns.from_values(data)

    assert _typed(columns.to_values(column)) == _typed(data)
    assert not data or columns.length(column) == len(data)


@given(uniform)
def test_values_come_back_equal_when_flattened(data: list[Any]) -> None:
    layout, series = columns.flatten(columns.from_values(data))

    assert columns.width(layout) == len(series)
    assert _typed(columns.to_values(columns.unflatten(layout, series))) == _typed(data)


@given(uniform, uniform)
def test_concat_equals_list_addition_when_forms_differ(left: list[Any], right: list[Any]) -> None:
    joined = columns.concat([columns.from_values(left), columns.from_values(right)])

    assert _typed(columns.to_values(joined)) == _typed(left + right)


@given(uniform, st.randoms())
def test_filter_and_gather_equal_python_when_applied(data: list[Any], random: Any) -> None:
    keep = [random.random() < 0.5 for _ in data]
    column = columns.from_values(data)

    filtered = columns.filter_rows(column, pl.Series("", keep, dtype=pl.Boolean))
    assert _typed(columns.to_values(filtered)) == _typed([v for v, k in zip(data, keep, strict=True) if k])
    order = list(range(len(data)))[::-1]
    gathered = columns.gather_rows(column, np.array(order, dtype=np.int64))
    assert _typed(columns.to_values(gathered)) == _typed(data[::-1])


@given(values)
def test_a_value_comes_back_equal_when_packed(value: Any) -> None:
    assert _typed(unpack(pack(value))) == _typed(value)


def test_a_datetime_comes_back_as_aware_utc_when_packed() -> None:
    moment = datetime.datetime(1965, 2, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)

    assert unpack(pack({"at": moment, "s": {1, 2}})) == {"at": moment, "s": {1, 2}}


def test_packing_is_refused_when_a_value_is_no_data() -> None:
    with pytest.raises(TypeError, match="function is not data"):
        pack([1, test_packing_is_refused_when_a_value_is_no_data])


def test_tuples_become_records_when_about_to_be_stored() -> None:
    column = columns.from_values([("a", 1), ["b", 2]], tuples_as_lists=True)

    assert isinstance(column, columns.RecordColumn)
    assert columns.to_values(column) == [["a", 1], ["b", 2]]


@pytest.mark.parametrize("kind", [pl.UInt64, pl.Int128, pl.UInt128])
def test_numbers_beyond_64_bits_become_values_when_a_frame_has_them(kind: Any) -> None:
    frame = pl.DataFrame({"n": pl.Series([5, 2**63], dtype=kind)})

    assert columns.to_values(columns.from_frame(frame)) == [{"n": 5}, {"n": 2**63}]
