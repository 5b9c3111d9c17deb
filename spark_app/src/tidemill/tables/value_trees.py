"""Compound aggregators inside one value: `map(str, map(str, int))` without subindexing is one value, folded row by
row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.language.combiners import Combiner, combiner_of, onto_of
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
    step = _step(tree, arg_index)

    def apply(current: Any, row: Sequence[Any]) -> Any:
        value = step(current, row)
        return None if value is _NOTHING else value

    return ValueTree(apply)


def _step(tree: AggTree, arg_index: Callable[[Arg], int]) -> Callable[[Any, Sequence[Any]], Any]:
    if isinstance(tree, AggMap):
        return _map_step([(arg_index(key), _step(inner, arg_index)) for key, inner in tree.entries])
    if isinstance(tree, AggList):
        return _list_step([_step(item, arg_index) for item in tree.items])
    if tree.kind == "void":
        return lambda current, row: _NOTHING
    onto, positions = onto_of(tree), tuple(map(arg_index, tree.args))
    return lambda current, row: onto(current, *(row[p] for p in positions))


def _map_step(entries: list[tuple[int, Callable[[Any, Sequence[Any]], Any]]]) -> Callable[[Any, Sequence[Any]], Any]:
    def apply(current: Any, row: Sequence[Any]) -> Any:
        if current is not None and not isinstance(current, dict):
            raise BadInput(f"CompoundAgg.map meets {current!r}, which is no map", value=current)
        value = dict(current or {})
        for position, inner in entries:
            key = admit(value, plain_key(row[position]))
            held = inner(value.get(key), row)
            if held is _NOTHING:
                value.pop(key, None)
            else:
                value[key] = held
        return value

    return apply


def _list_step(items: list[Callable[[Any, Sequence[Any]], Any]]) -> Callable[[Any, Sequence[Any]], Any]:
    def apply(current: Any, row: Sequence[Any]) -> Any:
        if current is not None and not isinstance(current, list):
            raise BadInput(f"CompoundAgg.list meets {current!r}, which is no list", value=current)
        value = list(current or ())
        value += [None] * (len(items) - len(value))
        for index, inner in enumerate(items):
            held = inner(value[index], row)
            value[index] = None if held is _NOTHING else held
        return value

    return apply


def combiner_for(tree: AggTree) -> Combiner | None:
    """The combiner of a leaf; None for a compound tree, and for an accumulator, which takes rows one by one."""
    return combiner_of(tree) if isinstance(tree, Aggregator) and tree.kind == "combiner" else None
