"""Every built-in operation that has a column form gives what its row form gives, type for type."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tidemill.engine.columns.arithmetic import FAST, get_field, truth
from tidemill.language.operations import ALL_OPS, Ops, is_true
from tidemill.values.columns import from_values, to_values

ints = st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)
floats = st.floats(width=64)
texts = st.text(max_size=3)
records = st.tuples(ints, texts).map(list)
plain = [ints, st.integers(-4, 4), floats, texts, st.booleans(), records, st.none() | ints, st.none() | texts]
mixed = st.one_of(ints, floats, texts, st.booleans(), st.none(), records)


@st.composite
def columns(draw: Any, count: int) -> list[list[Any]]:
    rows = draw(st.integers(1, 6))
    same = draw(st.sampled_from([*plain, mixed]))
    kinds = [same if draw(st.booleans()) else draw(st.sampled_from(plain)) for _ in range(count)]
    return [draw(st.lists(kind, min_size=rows, max_size=rows)) for kind in kinds]


def typed(value: Any) -> Any:
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return float, "nan"
    return type(value), repr(value)


@pytest.mark.parametrize("name", sorted(FAST))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_column_form_equals_row_form_where_there_is_one(name: str, data: Any) -> None:
    op = ALL_OPS[name]
    most = op.args_max if op.args_max is not None else 3
    lists = data.draw(columns(data.draw(st.integers(max(op.args_min, 1), most))))
    found = FAST[name]([from_values(values) for values in lists])
    assume(found is not None)
    expected = [op(*row) for row in zip(*lists, strict=True)]
    assert typed(to_values(found)) == typed(expected)


@given(columns(1))
def test_truth_of_a_column_is_truth_of_its_values(lists: list[list[Any]]) -> None:
    assert truth(from_values(lists[0])).to_list() == [is_true(value) for value in lists[0]]


@given(st.lists(st.tuples(ints, texts).map(list), min_size=1), st.integers(-3, 3))
def test_constant_index_of_records_is_a_column(rows: list[list[Any]], index: int) -> None:
    found = get_field([from_values(rows)], index)
    assert (found is not None) == (0 <= index < 2)
    if found is not None:
        assert to_values(found) == [Ops.GET(row, index) for row in rows]
