"""The laws that let partial aggregates be merged anywhere: zero, associativity, finishing twice changes nothing."""

from __future__ import annotations

import math
import statistics
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.language.combiners import COMBINERS, Combiner, accumulator_of, combiner_named, combiner_of
from tidemill.language.dataflow import Aggregator, Const, Function, Var
from tidemill.language.operations import Ops
from tidemill.values.data import INT_MAX, INT_MIN, check_data

FIRST, LAST = (Function(op.name, "builtin", op) for op in (Ops.FIRST, Ops.LAST))
TOP = combiner_of(Aggregator("top_monotonic", "combiner", (Const(2), Var("*v"))))
TOP_BY_ID = combiner_of(
    Aggregator(
        "top_monotonic",
        "combiner",
        (Const(2), Var("*v")),
        options=(("id_function", FIRST), ("sort_val_function", LAST), ("ascending", True)),
    )
)
VALUES = st.one_of(st.none(), st.integers(-5, 5))
ARGUMENTS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "count": st.just(()),
    "sum": st.tuples(st.one_of(st.integers(), st.booleans())),
    "map": st.tuples(st.integers(0, 3), VALUES),
    "merge": st.tuples(st.one_of(st.none(), st.dictionaries(st.integers(0, 3), VALUES, max_size=3))),
    "and": st.tuples(st.one_of(VALUES, st.booleans())),
    "or": st.tuples(st.one_of(VALUES, st.booleans())),
}
ALL = [*COMBINERS.values(), TOP]


def operands(combiner: Combiner) -> st.SearchStrategy[list[Any]]:
    arguments = ARGUMENTS.get(combiner.name, st.tuples(st.integers(-5, 5)))
    return st.lists(arguments.map(lambda args: combiner.lift(*args)), max_size=8)


def fold(combiner: Combiner, items: list[Any]) -> Any:
    result = combiner.zero()
    for item in items:
        result = combiner.combine(result, item)
    return result


@pytest.mark.parametrize("combiner", ALL, ids=lambda combiner: combiner.name)
@given(data=st.data())
def test_same_value_when_operands_are_grouped_in_another_way(combiner: Combiner, data: st.DataObject) -> None:
    items = data.draw(operands(combiner))
    cut = data.draw(st.integers(0, len(items)))
    left, right = fold(combiner, items[:cut]), items[cut:]
    if right:
        grouped = right[-1]
        for item in reversed(right[:-1]):
            grouped = combiner.combine(item, grouped)
        left = combiner.combine(left, grouped)
    assert combiner.finish(left) == combiner.finish(fold(combiner, items))


@pytest.mark.parametrize("combiner", ALL, ids=lambda combiner: combiner.name)
@given(data=st.data())
def test_same_value_when_aggregated_into_a_stored_value(combiner: Combiner, data: st.DataObject) -> None:
    items = data.draw(operands(combiner))
    stored: Any = None
    for item in items:
        stored = combiner.onto(stored, item)
    if items:
        assert stored == combiner.finish(fold(combiner, items))
        assert combiner.finish(stored) == stored


def whole_numbers() -> st.SearchStrategy[int]:
    """Integers that can be stored, the outermost ones often."""
    return st.integers(INT_MIN, INT_MAX) | st.sampled_from([INT_MIN, INT_MAX, 2**62])


STORABLE: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "count": st.just(()),
    "map": st.tuples(whole_numbers(), whole_numbers()),
    "merge": st.tuples(st.dictionaries(whole_numbers(), whole_numbers(), max_size=3)),
}


@pytest.mark.parametrize("combiner", [c for c in ALL if c.is_stored], ids=lambda combiner: combiner.name)
@given(data=st.data())
def test_a_value_can_be_stored_when_storable_operands_were_combined(combiner: Combiner, data: st.DataObject) -> None:
    arguments = STORABLE.get(combiner.name, st.tuples(whole_numbers()))
    items = data.draw(st.lists(arguments.map(lambda args: combiner.lift(*args)), min_size=1, max_size=8))
    for item in items:
        check_data(item)
    if combiner.is_closed or sum(map(abs, items)) <= INT_MAX:
        check_data(reduce(combiner.combine, items))
        check_data(combiner.finish(fold(combiner, items)))


@pytest.mark.parametrize("combiner", [c for c in ALL if not c.is_order_dependent], ids=lambda combiner: combiner.name)
@given(data=st.data())
def test_same_value_when_order_differs(combiner: Combiner, data: st.DataObject) -> None:
    items = data.draw(operands(combiner))
    permuted = data.draw(st.permutations(items))
    assert combiner.finish(fold(combiner, permuted)) == combiner.finish(fold(combiner, items))


@given(st.lists(st.sampled_from([1, 1.0, True, 0.0, -0.0, float("nan"), 2]), max_size=8), st.data())
def test_same_ranking_of_equal_values_when_order_differs(values: list[Any], data: st.DataObject) -> None:
    permuted = data.draw(st.permutations(values))
    results = [TOP.finish(fold(TOP, [TOP.lift(2, value) for value in held])) for held in (values, permuted)]
    assert repr(results[0]) == repr(results[1])


@pytest.mark.parametrize(
    "combiner", [c for c in (*ALL, TOP_BY_ID) if c.stored_name], ids=lambda combiner: combiner.name
)
def test_a_stored_name_leads_back_when_looked_up(combiner: Combiner) -> None:
    assert combiner.stored_name is not None
    assert combiner_named(combiner.stored_name).stored_name == combiner.stored_name


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)).map(list), max_size=30))
def test_best_value_of_each_id_when_ranked(pairs: list[list[Any]]) -> None:
    best: dict[str, int] = {}
    for name, number in pairs:
        best[name] = min(number, best.get(name, number))
    ranked = TOP_BY_ID.finish(fold(TOP_BY_ID, [TOP_BY_ID.lift(2, pair) for pair in pairs]))
    assert [number for _, number in ranked] == sorted(best.values())[:2]
    assert all(best[name] == number for name, number in ranked)


def median_of(values: list[Any]) -> Any:
    median = accumulator_of(Aggregator("median", "accumulator", (Var("*v"),)))
    return median.finish(reduce(median.accumulate, values, median.init()))


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=32), min_size=1))
def test_the_middle_when_a_median_is_asked_for(numbers: list[Any]) -> None:
    assert median_of(numbers) == statistics.median(numbers)


@given(
    st.lists(st.sampled_from([1, 1.0, 0.0, -0.0, float("nan"), float("inf"), 2, True, 1.7e308, -1.7e308])), st.data()
)
def test_same_median_when_order_differs(values: list[Any], data: st.DataObject) -> None:
    found = median_of(values)
    assert repr(found) == repr(median_of(data.draw(st.permutations(values))))
    numbers = [value for value in values if not math.isnan(value)]
    if len(values) // 2 < len(numbers) and all(map(math.isfinite, numbers)):
        assert min(numbers) <= found <= max(numbers)


@given(st.lists(st.integers(-100, 100)))
def test_mean_when_accumulated(numbers: list[int]) -> None:
    avg = accumulator_of(Aggregator("avg", "accumulator", (Var("*v"),)))
    state = avg.init()
    for number in numbers:
        state = avg.accumulate(state, number)
    assert avg.finish(state) == (sum(numbers) / len(numbers) if numbers else None)
