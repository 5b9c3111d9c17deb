"""The oracle's aggregators: one row after the other, into a value that is None before the first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from oracle_structures import (
    UNCHANGED,
    VOID,
    IndexedList,
    IndexedMap,
    OracleError,
    add,
    delete,
    discard,
    entries,
    get,
    is_true,
    put,
)

from tidemill.language.dataflow import AggList, AggMap, Aggregator, AggTree, Const
from tidemill.values.keys import key_token, plain_key


@dataclass(frozen=True)
class Fold:
    """`step` takes one row more into a state that begins with `zero`; `finish` makes the value of it."""

    zero: Callable[[], Any]
    step: Callable[..., Any]
    finish: Callable[[Any], Any] = lambda state: state


def fold_of(aggregator: Aggregator) -> Fold:
    """What an aggregator does."""
    own = aggregator.implementation
    if own is not None and aggregator.kind == "combiner":
        return Fold(own.zero_val, own.combine)
    if own is not None:
        return Fold(own.init_val, own.accumulate)
    if aggregator.name == "top_monotonic":
        return _top(aggregator)
    return _FOLDS[aggregator.name]


def aggregated(tree: AggTree, value: Any, evaluate: Callable[[Any], Any]) -> Any:
    """The value after one row was aggregated into it; VOID where it is removed."""
    if isinstance(tree, AggMap):
        for key_arg, inner in tree.entries:
            key = evaluate(key_arg)
            new = aggregated(inner, get(value, key), evaluate)
            if new is not UNCHANGED:
                value = _without(value, key) if new is VOID else put(value, key, new)
        return value
    if isinstance(tree, AggList):
        return _into_list(tree, value, evaluate)
    if tree.kind == "void":
        return VOID
    fold = fold_of(tree)
    current = fold.zero() if value is None else value
    return fold.finish(fold.step(current, *(evaluate(arg) for arg in _rows_args(tree))))


def _rows_args(aggregator: Aggregator) -> Sequence[Any]:
    return aggregator.args[1:] if aggregator.name == "top_monotonic" else aggregator.args


def folded(tree: AggTree, rows: Sequence[Callable[[Any], Any]]) -> Any:
    """The value of some rows, each given by what evaluates its arguments."""
    if not isinstance(tree, Aggregator):
        value = None
        for evaluate in rows:
            value = aggregated(tree, value, evaluate)
        return value
    fold = fold_of(tree)
    state = fold.zero()
    for evaluate in rows:
        state = fold.step(state, *(evaluate(arg) for arg in _rows_args(tree)))
    return fold.finish(state)


def _without(value: Any, key: Any) -> Any:
    return value if value is None else delete(value, key)


def _into_list(tree: AggList, value: Any, evaluate: Callable[[Any], Any]) -> Any:
    items = list(value or [])
    items += [None] * (len(tree.items) - len(items))
    for index, inner in enumerate(tree.items):
        items[index] = aggregated(inner, items[index], evaluate)
    return IndexedList(items) if isinstance(value, IndexedList) else items


# --- one value -------------------------------------------------------------------------------------------------------


def number(value: Any) -> Any:
    """A number, or an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if isinstance(value, bool):
            return int(value)
        raise OracleError(f"{value!r} is no number")
    return value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _order(a: Any, b: Any) -> int:
    """NaN is greater than every number, in lists too; sets are compared as the lists of their sorted elements."""
    if _is_nan(a) or _is_nan(b):
        return int(_is_nan(a)) - int(_is_nan(b))
    if isinstance(a, (set, frozenset)) and isinstance(b, (set, frozenset)):
        a, b = (sorted(each, key=cmp_to_key(_order)) for each in (a, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        differing = (found for one, other in zip(a, b, strict=False) if (found := _order(one, other)))
        return next(differing, len(a) - len(b))
    return int(a > b) - int(a < b)


def _told_apart(a: Any, b: Any) -> int:
    """Of equal values that differ, as 1 and True, the one whose text comes first is the smaller one."""
    return _order(a, b) or (0 if _is_nan(a) else _order(repr(a), repr(b)))


def _least(sign: int) -> Fold:
    def step(state: Any, value: Any) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return value if sign * _told_apart(value, state) < 0 else state

    return Fold(lambda: None, step)


def _first(state: Any, value: Any) -> Any:
    return value if state is None else state


def _last(state: Any, value: Any) -> Any:
    return state if value is None else value


# --- structures ------------------------------------------------------------------------------------------------------


def _append(state: Any, value: Any) -> Any:
    if not isinstance(state, list):
        raise OracleError(f"{state!r} is no list")
    return type(state)([*state, value])


def _remove(state: Any, value: Any) -> Any:
    return set() if state is None else discard(state, value)


def _count_one(state: Any, value: Any) -> Any:
    return put(state, _held(state, value), get(state, value, 0) + 1)


def _held(state: Any, value: Any) -> Any:
    return value if isinstance(state, IndexedMap) else plain_key(value)


def _merge(state: Any, value: Any) -> Any:
    if value is None:
        return state
    if not isinstance(value, dict):
        raise OracleError(f"{value!r} is no map")
    for key, item in entries(value):
        state = put(state, key, item)
    return {} if state is None else state


def _add(state: Any, value: Any) -> Any:
    return add(set() if state is None else state, value)


# --- results only ----------------------------------------------------------------------------------------------------


def _mean(values: list[Any]) -> Any:
    return sum(values) / len(values) if values else None


def _median(values: list[Any]) -> Any:
    ordered = sorted(values, key=cmp_to_key(_order))
    if not ordered:
        return None
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1], ordered[middle]
    return math.nan if _is_nan(low) or _is_nan(high) else (low + high) / 2


def _gathered(finish: Callable[[list[Any]], Any]) -> Fold:
    return Fold(list, lambda state, value: [*state, number(value)], finish)


# --- ranking ---------------------------------------------------------------------------------------------------------


def _top(aggregator: Aggregator) -> Fold:
    amount_arg = aggregator.args[0]
    assert isinstance(amount_arg, Const)
    options = dict(aggregator.options)
    id_of = options["id_function"].call if options.get("id_function") else (lambda value: value)
    by = options.get("sort_val_function")
    sign = 1 if options.get("ascending") else -1

    def better(a: Any, b: Any) -> int:
        """Of equally good values the earliest is the best, or without a function the one whose text comes first."""
        return sign * _order(by.call(a), by.call(b)) if by else sign * _order(a, b) or _told_apart(a, b)

    def step(state: Any, value: Any) -> Any:
        ranked = sorted([*state, value], key=cmp_to_key(better))
        kept: dict[Any, Any] = {}
        for each in ranked:
            kept.setdefault(key_token(id_of(each)), each)
        return list(kept.values())[: amount_arg.value]

    return Fold(list, step)


_FOLDS: dict[str, Fold] = {
    "count": Fold(int, lambda state: state + 1),
    "sum": Fold(int, lambda state, value: state + number(value)),
    "min": _least(1),
    "max": _least(-1),
    "and": Fold(lambda: True, lambda state, value: (False if value is None else value) if is_true(state) else state),
    "or": Fold(lambda: False, lambda state, value: state if is_true(state) else value),
    "first": Fold(lambda: None, _first),
    "last": Fold(lambda: None, _last),
    "list": Fold(list, _append),
    "set": Fold(lambda: None, _add),
    "set_remove": Fold(lambda: None, _remove),
    "multi_set": Fold(lambda: None, _count_one),
    "map": Fold(lambda: None, lambda state, key, value: put(state, _held(state, key), value)),
    "merge": Fold(lambda: None, _merge),
    "avg": _gathered(_mean),
    "median": _gathered(_median),
}
