"""Compound aggregators inside one value: `map(str, map(str, int))` without subindexing is one value, folded row by
row; so is the value of a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.language.combiners import Accumulator, Combiner, combiner_of, onto_of
from tidemill.language.dataflow import AggList, AggMap, Aggregator, AggTree, Arg
from tidemill.values.errors import BadInput
from tidemill.values.keys import admit, plain_key

_NOTHING = object()
"""What `voided` leaves behind: the entry goes away."""


@dataclass(frozen=True)
class ValueTree:
    """`apply(current, row)` gives the value after one row of argument values was aggregated into it."""

    apply: Callable[[Any, Sequence[Any]], Any]


def compile_value_tree(tree: AggTree, arg_index: Callable[[Arg], int]) -> ValueTree:
    """Prepare a tree whose arguments stand at `arg_index(arg)` in each row."""
    step = _step(tree, arg_index, dict, list)

    def apply(current: Any, row: Sequence[Any]) -> Any:
        value = step(current, row)
        return None if value is _NOTHING else value

    return ValueTree(apply)


def accumulator_of_tree(tree: AggTree) -> tuple[Accumulator, tuple[Arg, ...]]:
    """What aggregates a compound tree into a variable, and the arguments that each row gives it.

    Nobody else holds the value before the last row, so its maps and lists grow in place.
    """
    args: list[Arg] = []

    def position(arg: Arg) -> int:
        args.append(arg)
        return len(args) - 1

    step = _step(tree, position, _itself, _itself)

    def accumulate(state: Any, *row: Any) -> Any:
        value = step(state, row)
        return None if value is _NOTHING else value

    return Accumulator("compound", _nothing_yet, accumulate, _itself), tuple(args)


def _nothing_yet() -> None:
    return None


def _itself(value: Any) -> Any:
    return value


_Holds = Callable[[Any], Any]
"""What makes of a map or list one that may change: a copy, or the thing itself."""


def _step(
    tree: AggTree, arg_index: Callable[[Arg], int], own_map: _Holds, own_list: _Holds
) -> Callable[[Any, Sequence[Any]], Any]:
    if isinstance(tree, AggMap):
        entries = [(arg_index(key), _step(inner, arg_index, own_map, own_list)) for key, inner in tree.entries]
        return _map_step(entries, own_map)
    if isinstance(tree, AggList):
        return _list_step([_step(item, arg_index, own_map, own_list) for item in tree.items], own_list)
    if tree.kind == "void":
        return lambda current, row: _NOTHING
    onto, positions = onto_of(tree), tuple(map(arg_index, tree.args))
    return lambda current, row: onto(current, *(row[p] for p in positions))


def _map_step(
    entries: list[tuple[int, Callable[[Any, Sequence[Any]], Any]]], own_map: _Holds
) -> Callable[[Any, Sequence[Any]], Any]:
    def apply(current: Any, row: Sequence[Any]) -> Any:
        if current is not None and not isinstance(current, dict):
            raise BadInput(f"CompoundAgg.map meets {current!r}, which is no map", value=current)
        value = {} if current is None else own_map(current)
        for position, inner in entries:
            key = admit(value, plain_key(row[position]))
            held = inner(value.get(key), row)
            if held is _NOTHING:
                value.pop(key, None)
            else:
                value[key] = held
        return value

    return apply


def _list_step(
    items: list[Callable[[Any, Sequence[Any]], Any]], own_list: _Holds
) -> Callable[[Any, Sequence[Any]], Any]:
    def apply(current: Any, row: Sequence[Any]) -> Any:
        if current is not None and not isinstance(current, list):
            raise BadInput(f"CompoundAgg.list meets {current!r}, which is no list", value=current)
        value = [] if current is None else own_list(current)
        value += [None] * (len(items) - len(value))
        for index, inner in enumerate(items):
            held = inner(value[index], row)
            value[index] = None if held is _NOTHING else held
        return value

    return apply


def combiner_for(tree: AggTree) -> Combiner | None:
    """The combiner of a leaf; None for a compound tree, and for an accumulator, which takes rows one by one."""
    return combiner_of(tree) if isinstance(tree, Aggregator) and tree.kind == "combiner" else None
