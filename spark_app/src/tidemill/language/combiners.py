"""What each aggregator does to values: the row form that every other form must equal.

A *combiner* turns arguments into an operand (`lift`), merges operands (`combine`, associative, `zero()` on the
left), and turns the merged operand into the value that people see (`finish`). Operands and values share one space:
a stored value can stand on the left of `combine`. An *accumulator* only knows how to take one more row, so its rows are
never combined before they arrive. Values are never changed in place.

None means "no value" here: `first`, `last`, `min` and `max` pass over it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import polars as pl

from tidemill.language.column_forms import (
    FormOf,
    and_form,
    first_form,
    last_form,
    max_form,
    min_form,
    no_form,
    number_operands,
    or_form,
    sum_form,
)
from tidemill.language.dataflow import Aggregator
from tidemill.language.operations import is_true
from tidemill.language.ranking import ONE_FORM, Ranking, is_nan, rank_of, top_monotonic_named, top_monotonic_of
from tidemill.values.errors import BadInput, DefinitionError, invariant
from tidemill.values.keys import admit_all, has_key, key_token, plain_key, with_plain_keys

Result = Literal["any", "number", "list", "set", "map", "counts"]
"""What an aggregator's results are: a number, a structure, a map from values to how often they occur, or any value."""

ElementWrite = Literal["put", "delete", "append", "entries", "add_one"]
"""How one row is written into a structure whose elements are stored one by one."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Combiner:
    """A two-phase aggregator, and what the rest of the code asks of it.

    `stored_name` names built-in combiners whose operands may be stored unmerged and folded later by other processes
    (`combiner_named`); None where operands are merged at once. Whatever is folded later can no longer be refused, so
    only a combiner that `is_closed` or `is_sum` may have such a name; others are like `set_remove`.

    `is_order_dependent` tells whether swapping operands may change the result. `key` is equal for combiners that are
    the same one.

    `result` is the kind of its results. `elements` tells how a row is written into an indexed "map", "set", "list" or
    "record", where it can be; `is_keyed` whether its first argument is a key or an element there, and
    `holds_any_keys` whether operands hold keys, which a plain structure may refuse when they meet.

    `is_closed`: combining two values of a schema always gives a value of that schema. `is_sum`: operands are numbers
    that are added, so they commute with those of other sums, and adding absolute values tells whether 64 bits can be
    left; `rounds`: they may be floats.

    `merged_by` names the aggregator (usually its own) whose arguments operands can be; only with it are rows combined
    before a batch block writes a PState.

    `form` gives the form over a column of operands where one is exact; `lift_column`, asked only where there is a
    `form`, makes such a column of arguments, or None where only Python can. One whose `lift` refuses or changes a value
    must do so, too. `counts_rows` says that the operand of some rows is their number.

    Raises InvariantViolation for a stored name whose operands could leave their schema.
    """

    name: str
    stored_name: str | None
    zero: Callable[[], Any]
    lift: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] = _same
    is_flush_required: bool = False
    is_order_dependent: bool = False
    key: Any = None
    result: Result = "any"
    elements: Mapping[str, ElementWrite] = field(default_factory=dict)
    is_keyed: bool = False
    holds_any_keys: bool = False
    is_closed: bool = False
    is_sum: bool = False
    rounds: bool = False
    merged_by: str | None = None
    form: FormOf = no_form
    lift_column: Callable[[pl.Series], pl.Series | None] = _same
    counts_rows: bool = False

    def __post_init__(self) -> None:
        is_storable = self.stored_name is None or self.is_closed or self.is_sum
        invariant(is_storable, "stored operands stay in their schema", combiner=self.name)

    @property
    def is_stored(self) -> bool:
        """Whether operands may be stored unmerged."""
        return self.stored_name is not None

    @property
    def has_finish(self) -> bool:
        """Whether a merged operand is not the value already."""
        return self.finish is not _same

    def onto(self, current: Any, operand: Any) -> Any:
        """The value after `operand` is aggregated into the stored value `current`; None counts as nothing yet."""
        return self.finish(self.combine(self.zero() if current is None else current, operand))

    def commutes_with(self, other: Combiner) -> bool:
        """Whether operands of the two, aggregated into one place, give the same in both orders."""
        if self.is_order_dependent or other.is_order_dependent:
            return False
        return self.key == other.key or (self.is_sum and other.is_sum)


@dataclass(frozen=True)
class Accumulator:
    """A sequential aggregator: `finish(accumulate(… accumulate(init(), *row1) …, *rowN))`.

    `only_result` names a result from which no aggregation can go on, so that it fits variables only, and `instead`
    says what to keep in a PState.
    """

    name: str
    init: Callable[[], Any]
    accumulate: Callable[..., Any]
    finish: Callable[[Any], Any]
    is_order_dependent: bool = True
    only_result: str = ""
    instead: str = ""


def _none() -> Any:
    return None


def _number(value: Any, name: str = "sum") -> Any:
    kind = type(value)
    if kind is int or kind is float:
        return value
    if kind is bool:
        return int(value)
    raise BadInput(f"{name} takes numbers, not {value!r}", value=value)


def _smaller(a: Any, b: Any) -> Any:
    """The smaller of two; NaN is greater than every number, and of equal values that differ (0.0 and -0.0, 1 and 1.0)
    always the same one is taken, so that the order of rows does not matter.
    """
    if a is None or b is None:
        return b if a is None else a
    return b if _is_smaller(b, a) else a


def _greater(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if _is_smaller(a, b) else a


def _is_smaller(a: Any, b: Any) -> bool:
    """Of equal values that differ the smaller one is that whose text sorts first (-0.0 before 0.0, 1 before 1.0)."""
    kind = type(a)
    if kind is type(b) and (kind in ONE_FORM or (kind is float and a == a and b == b and a != b)):
        return bool(a < b)
    one, other = rank_of(a), rank_of(b)
    return bool(repr(a) < repr(b) if one == other else one < other)


def _lift_condition(value: Any) -> Any:
    """None becomes False: a stored None could not be told from a place that nothing was aggregated into yet."""
    return False if value is None else value


def _and(a: Any, b: Any) -> Any:
    return b if is_true(a) else a


def _or(a: Any, b: Any) -> Any:
    return a if is_true(a) else b


def _first(a: Any, b: Any) -> Any:
    return b if a is None else a


def _last(a: Any, b: Any) -> Any:
    return a if b is None else b


def _union(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    admit_all(a, b)
    return a | b


def _lift_element(value: Any) -> Any:
    return {plain_key(value)}


def _lift_removal(value: Any) -> Any:
    key = plain_key(value)
    return {key_token(key): key}


def _remove(a: Any, b: Any) -> Any:
    """Operands of set_remove are dicts (elements to remove, by their tokens), stored values are sets: that tells the
    two apart.
    """
    if a is None or b is None:
        return b if a is None else a
    return {**a, **b} if isinstance(a, dict) else a - {key for key in b.values() if has_key(a, key)}


def _finish_removal(operand: Any) -> Any:
    return set() if isinstance(operand, dict) else operand


def _lift_occurrence(value: Any) -> Any:
    return dict.fromkeys(_lift_element(value), 1)


def _add_counts(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    admit_all(a, b)
    counts = dict(a)
    for value, count in b.items():
        counts[value] = counts.get(value, 0) + count
    return counts


def _lift_entry(key: Any, value: Any) -> Any:
    return {plain_key(key): value}


def _lift_map(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return with_plain_keys(value)
    raise BadInput(f"merge takes maps, not {value!r}", value=value)


def _merge(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    admit_all(a, b)
    return {**a, **b}


def _with_number(values: list[Any], value: Any) -> list[Any]:
    values.append(_number(value, "median"))  # in place, as nobody else has the list: copies would take quadratic time
    return values


def _median(values: list[Any]) -> Any:
    """The middle value as it is, or the mean of the two in the middle; NaN is greater than every number."""
    if not values:
        return None
    numbers = sorted(value for value in values if not is_nan(value))
    low, high = (_number_at(numbers, place) for place in ((len(values) - 1) // 2, len(values) // 2))
    if len(values) % 2:
        return high
    is_beyond_floats = math.isinf(low + high) and math.isfinite(low) and math.isfinite(high)
    return low / 2 + high / 2 if is_beyond_floats else (low + high) / 2


def _number_at(numbers: list[Any], place: int) -> Any:
    """The number at a place of the ranking; of equal ones (1 and 1.0) always the same, in whatever order they came."""
    if place >= len(numbers):
        return math.nan
    return min((number for number in numbers if number == numbers[place]), key=repr)


def _built_in(
    name: str,
    zero: Callable[[], Any],
    lift: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    **traits: Any,
) -> Combiner:
    """A combiner whose operands are stored under its name and are values as they are."""
    return Combiner(name, name, zero, lift, combine, key=name, **traits)


COMBINERS: dict[str, Combiner] = {
    combiner.name: combiner
    for combiner in (
        _built_in(
            "count", int, lambda: 1, operator.add,
            result="number", is_sum=True, merged_by="sum", form=sum_form, counts_rows=True,
        ),
        _built_in(
            "sum", int, _number, operator.add,
            result="number", is_sum=True, rounds=True, merged_by="sum", form=sum_form, lift_column=number_operands,
        ),
        _built_in("min", _none, _same, _smaller, is_closed=True, merged_by="min", form=min_form),
        _built_in("max", _none, _same, _greater, is_closed=True, merged_by="max", form=max_form),
        _built_in("and", lambda: True, _lift_condition, _and, is_closed=True, is_order_dependent=True, form=and_form),
        _built_in("or", lambda: False, _same, _or, is_closed=True, is_order_dependent=True, form=or_form),
        _built_in("first", _none, _same, _first, is_closed=True, is_order_dependent=True, form=first_form),
        _built_in("last", _none, _same, _last, is_closed=True, is_order_dependent=True, form=last_form),
        _built_in(
            "list", list, lambda value: [value], operator.add,
            is_closed=True, is_order_dependent=True, result="list", elements={"list": "append"},
        ),
        _built_in(
            "set", _none, _lift_element, _union,
            is_closed=True, result="set", elements={"set": "put"}, is_keyed=True, holds_any_keys=True,
        ),
        Combiner(
            "set_remove", None, _none, _lift_removal, _remove, _finish_removal,
            key="set_remove", result="set", elements={"set": "delete"}, is_keyed=True,
        ),
        _built_in(
            "map", _none, _lift_entry, _merge,
            is_closed=True, is_order_dependent=True, result="map", elements={"map": "put", "record": "entries"},
            is_keyed=True, holds_any_keys=True,
        ),
        _built_in(
            "merge", _none, _lift_map, _merge,
            is_closed=True, is_order_dependent=True, result="map", elements={"map": "entries", "record": "entries"},
            holds_any_keys=True,
        ),
        _built_in(
            "multi_set", _none, _lift_occurrence, _add_counts,
            is_closed=True, result="counts", elements={"map": "add_one"}, is_keyed=True, holds_any_keys=True,
        ),
    )
}  # fmt: skip
"""The built-in combiners without parameters, by name."""

ACCUMULATORS: dict[str, Accumulator] = {
    accumulator.name: accumulator
    for accumulator in (
        Accumulator(
            "avg",
            lambda: (0, 0),
            lambda state, value: (state[0] + _number(value, "avg"), state[1] + 1),
            lambda state: state[0] / state[1] if state[1] else None,
            is_order_dependent=False,
            only_result="a mean",
            instead="Keep a sum and a count with CompoundAgg",
        ),
        Accumulator(
            "median",
            list,
            _with_number,
            _median,
            is_order_dependent=False,
            only_result="a median",
            instead="Keep the values with Agg.list",
        ),
    )
}
"""The built-in accumulators, by name."""

RESULTS: dict[str, Result] = {name: combiner.result for name, combiner in COMBINERS.items()} | {"top_monotonic": "list"}
"""The kind of the results of each built-in combiner, those with parameters too."""


def combiner_of(aggregator: Aggregator) -> Combiner:
    """The combiner that a recorded aggregator means; `lift` takes the values of `aggregator.args` in order.

    Raises:
        DefinitionError: it is an accumulator, or there is no aggregator of this name.
    """
    if aggregator.kind != "combiner":
        raise DefinitionError(f"{aggregator.name} is no combiner: its rows cannot be combined")
    if aggregator.implementation is not None:
        return _custom_combiner(aggregator.name, aggregator.implementation)
    if aggregator.name == "top_monotonic":
        return _ranking_combiner(top_monotonic_of(aggregator))
    combiner = COMBINERS.get(aggregator.name)
    if combiner is None:
        raise DefinitionError(f"there is no combiner {aggregator.name!r}; there are {', '.join(sorted(COMBINERS))}")
    return combiner


def accumulator_of(aggregator: Aggregator) -> Accumulator:
    """The accumulator that a recorded aggregator means: `avg`, the module's own, or a combiner seen as one."""
    if aggregator.kind == "combiner":
        return as_accumulator(combiner_of(aggregator))
    if aggregator.implementation is not None:
        own = aggregator.implementation
        return Accumulator(aggregator.name, own.init_val, own.accumulate, _same)
    accumulator = ACCUMULATORS.get(aggregator.name)
    if accumulator is None:
        raise DefinitionError(f"there is no accumulator {aggregator.name!r}")
    return accumulator


@lru_cache(maxsize=256)
def combiner_named(text: str) -> Combiner:
    """The combiner that a container names; the inverse of `Combiner.stored_name`.

    Raises:
        BadInput: this version has no such combiner.
    """
    combiner = COMBINERS.get(text)
    if combiner is not None and combiner.stored_name == text:
        return combiner
    if text.startswith("top_monotonic("):
        return _ranking_combiner(top_monotonic_named(text))
    raise BadInput(f"there is no combiner {text!r}", combiner=text)


def onto_of(aggregator: Aggregator) -> Callable[..., Any]:
    """`onto(current, *args)`: the stored value after one row was aggregated into it; None counts as nothing yet."""
    if aggregator.kind == "combiner":
        combiner = combiner_of(aggregator)
        return lambda current, *args: combiner.onto(current, combiner.lift(*args))
    accumulator = accumulator_of(aggregator)

    def onto(current: Any, *args: Any) -> Any:
        return accumulator.finish(accumulator.accumulate(accumulator.init() if current is None else current, *args))

    return onto


def as_accumulator(combiner: Combiner) -> Accumulator:
    """A combiner that takes rows one by one."""

    def accumulate(state: Any, *args: Any) -> Any:
        return combiner.combine(state, combiner.lift(*args))

    return Accumulator(combiner.name, combiner.zero, accumulate, combiner.finish)


def _custom_combiner(name: str, own: Any) -> Combiner:
    """The module's own combiner: an object with `combine(a, b)`, `zero_val()` and perhaps `is_flush_required()`.

    Its contract says that it is commutative (`api.aggregators.CombinerAgg`), so the order of rows does not show.
    """
    flush = getattr(own, "is_flush_required", False)
    return Combiner(
        name,
        None,
        own.zero_val,
        _same,
        own.combine,
        is_flush_required=bool(flush() if callable(flush) else flush),
        key=id(own),
    )


def _ranking_combiner(ranking: Ranking) -> Combiner:
    return Combiner(
        "top_monotonic",
        ranking.stored_name,
        list,
        ranking.lift,
        ranking.combine,
        ranking.cut,
        is_closed=True,
        is_order_dependent=ranking.is_order_dependent,
        key=ranking,
        result=RESULTS["top_monotonic"],
    )
