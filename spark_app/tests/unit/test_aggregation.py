"""Single results of aggregators that the laws do not settle: zeros, None, NaN, errors, the module's own code."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import pytest

from tidemill.language.combiners import ACCUMULATORS, COMBINERS, accumulator_of, combiner_named, combiner_of
from tidemill.language.dataflow import Aggregator, Const, Function, Var
from tidemill.paths.variables import compile_aggregation
from tidemill.values.columns import from_values, to_values
from tidemill.values.errors import BadInput, DefinitionError

ZEROS: list[tuple[str, Any]] = [
    ("count", 0), ("sum", 0), ("min", None), ("max", None), ("and", True), ("or", False), ("first", None),
    ("last", None), ("list", []), ("set", None), ("map", None),
]  # fmt: skip


class Longest:
    def combine(self, a: str, b: str) -> str:
        return b if len(b) > len(a) else a

    def zero_val(self) -> str:
        return ""

    def is_flush_required(self) -> bool:
        return True


class Joined:
    def accumulate(self, current: str, value: str, separator: str) -> str:
        return current + separator + value

    def init_val(self) -> str:
        return ">"


@pytest.mark.parametrize(("name", "zero"), ZEROS)
def test_published_zero_when_nothing_is_aggregated(name: str, zero: Any) -> None:
    combiner = COMBINERS[name]
    assert combiner.finish(combiner.zero()) == zero


def test_last_true_or_first_false_when_and() -> None:
    combine, lift = COMBINERS["and"].combine, COMBINERS["and"].lift
    assert combine(1, 2) == 2
    assert combine(lift(None), 2) is False
    assert combine(0, "") == ""  # zero and the empty string are true


def test_first_true_or_last_false_when_or() -> None:
    combine = COMBINERS["or"].combine
    assert combine(1, 2) == 1
    assert combine(False, None) is None


@pytest.mark.parametrize("order", [(1.0, math.nan), (math.nan, 1.0)])
def test_nan_is_greatest_when_min_and_max(order: tuple[float, float]) -> None:
    assert COMBINERS["min"].combine(*order) == 1.0
    assert math.isnan(COMBINERS["max"].combine(*order))


def test_stored_values_stay_unchanged_when_aggregated_into() -> None:
    for name, stored, args in (
        ("list", [1], (2,)),
        ("set", {1}, (2,)),
        ("map", {1: 1}, (1, 2)),
        ("multi_set", {1: 1}, (1,)),
    ):
        before = stored.copy()  # type: ignore[attr-defined]
        assert COMBINERS[name].onto(stored, COMBINERS[name].lift(*args)) != before
        assert stored == before


def test_elements_leave_when_set_remove() -> None:
    remove = COMBINERS["set_remove"]
    assert remove.onto({1, 2, 3}, remove.combine(remove.lift(1), remove.lift(9))) == {2, 3}
    assert remove.onto(None, remove.lift(1)) == set()


def test_own_combiner_works_when_wrapped() -> None:
    combiner = combiner_of(Aggregator("longest", "combiner", (Var("*v"),), Longest()))
    assert combiner.onto(None, combiner.combine(combiner.lift("ab"), combiner.lift("c"))) == "ab"
    assert (combiner.stored_name, combiner.is_stored, combiner.is_flush_required) == (None, False, True)


def test_own_accumulator_works_when_wrapped() -> None:
    accumulator = accumulator_of(Aggregator("joined", "accumulator", (Var("*v"), Const("-")), Joined()))
    assert accumulator.accumulate(accumulator.accumulate(accumulator.init(), "a", "-"), "b", "+") == ">-a+b"


def test_no_stored_name_when_the_ranking_uses_code_of_the_module() -> None:
    by_size = Function("size", "function", len)
    aggregator = Aggregator(
        "top_monotonic", "combiner", (Const(3), Var("*v")), options=(("sort_val_function", by_size),)
    )
    combiner = combiner_of(aggregator)
    assert (combiner.stored_name, combiner.is_stored) == (None, False)
    assert combiner.finish(["a", "ccc", "bb"]) == ["ccc", "bb", "a"]


def test_ranking_drops_repeats_when_values_are_lists() -> None:
    combiner = combiner_of(Aggregator("top_monotonic", "combiner", (Const(3), Var("*v"))))
    assert combiner.finish([[1, [2]], [1, [2]], [0, []]]) == [[1, [2]], [0, []]]


@pytest.mark.parametrize("group", [[], ["a"]])
@pytest.mark.parametrize("values", [[1, 5, 3], [1, 5, 5], [2, 1]])
def test_the_best_are_cut_and_ranked_when_a_ranking_goes_into_a_variable(group: list[Any], values: list[int]) -> None:
    ranking = Aggregator("top_monotonic", "combiner", (Const(2), Var("*v")))
    found = compile_aggregation([ranking], {Const(2): 0, Var("*v"): 1}.__getitem__)
    columns = [from_values([2] * len(values)), from_values(values)]
    _, (results,) = found.run([from_values(group * len(values))] if group else [], columns, len(values))
    assert to_values(results) == [sorted(set(values), reverse=True)[:2]]


@pytest.mark.parametrize("amount", [Var("*n"), Const(0), Const("3"), Const(True)])
def test_refused_when_the_amount_of_a_ranking_is_no_positive_constant(amount: Any) -> None:
    with pytest.raises(DefinitionError, match="positive constant"):
        combiner_of(Aggregator("top_monotonic", "combiner", (amount, Var("*v"))))


@pytest.mark.parametrize("name", ACCUMULATORS)
@pytest.mark.parametrize("value", ["x", None])
def test_refused_with_its_own_name_when_an_accumulator_gets_no_number(name: str, value: Any) -> None:
    accumulator = ACCUMULATORS[name]
    with pytest.raises(BadInput, match=f"{name} takes numbers, not {value!r}"):
        accumulator.accumulate(accumulator.init(), value)


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([], None),
        ([3], 3),
        ([3, 1, 2], 2),
        ([4, 1, 2, 3], 2.5),
        ([2, 2], 2.0),
        ([True, 5, 0], 1),
        ([1, math.inf], math.inf),
    ],
)
def test_the_middle_value_or_the_mean_of_two_when_a_median(values: list[Any], median: Any) -> None:
    accumulator = ACCUMULATORS["median"]
    found = accumulator.finish(reduce(accumulator.accumulate, values, accumulator.init()))
    assert (type(found), found) == (type(median), median)


def test_nan_is_greatest_when_a_median() -> None:
    accumulator = ACCUMULATORS["median"]
    results = [
        accumulator.finish(reduce(accumulator.accumulate, values, accumulator.init()))
        for values in ([math.nan, 1, 2], [1, math.nan], [math.nan, math.nan, 1])
    ]
    assert results[0] == 2 and math.isnan(results[1]) and math.isnan(results[2])


def test_refused_when_sum_gets_no_number() -> None:
    with pytest.raises(BadInput, match="sum takes numbers, not 'x'"):
        COMBINERS["sum"].lift("x")


@pytest.mark.parametrize(("name", "args"), [("set", ({},)), ("map", ({}, 1)), ("merge", (3,))])
def test_refused_when_a_collection_cannot_hold_the_value(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(BadInput):
        COMBINERS[name].lift(*args)


@pytest.mark.parametrize("text", ["nope", "set_remove", "top_monotonic(x)", "top_monotonic(3,desc,id=NOPE,sort=)"])
def test_refused_when_a_container_names_no_combiner(text: str) -> None:
    with pytest.raises(BadInput):
        combiner_named(text)


def test_refused_when_an_accumulator_is_asked_for_its_combiner() -> None:
    with pytest.raises(DefinitionError, match="cannot be combined"):
        combiner_of(Aggregator("avg", "accumulator", (Var("*v"),)))
