"""What `capture_new_val_into` gives to post-agg: a row for each key that rows were aggregated into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oracle_structures import get

from tidemill.language.dataflow import AggList, AggMap, Aggregate, AggTree, Arg, Const, Var
from tidemill.values.keys import key_token


@dataclass(frozen=True)
class Capture:
    """The variable `out` takes the value at these keys of a PState."""

    pstate: str
    path: tuple[Arg, ...]
    out: str


def captures_of(nodes: Sequence[Any]) -> list[Capture]:
    """The captures of all aggregations of a block."""
    return [
        Capture(str(node.pstate), path, out)
        for node in nodes
        if isinstance(node, Aggregate)
        for path, out in _captures(node.tree, ())
    ]


def _captures(tree: AggTree, path: tuple[Arg, ...]) -> Iterator[tuple[tuple[Arg, ...], str]]:
    if isinstance(tree, AggMap):
        for key, inner in tree.entries:
            yield from _captures(inner, (*path, key))
    elif isinstance(tree, AggList):
        for index, inner in enumerate(tree.items):
            yield from _captures(inner, (*path, Const(index)))
    elif tree.capture is not None:
        yield path, tree.capture


def captured(
    captures: Sequence[Capture], rows: Sequence[Callable[[Any], Any]], held: Callable[[str], Any]
) -> list[Mapping[str, Any]]:
    """The variables of each row of post-agg. `rows` evaluate arguments; `held` gives what a PState holds now."""
    longest = max((capture.path for capture in captures), key=len)
    seen: dict[Any, Mapping[str, Any]] = {}
    for evaluate in rows:
        keys = [evaluate(key) for key in longest]
        token = tuple(map(key_token, keys))
        if token in seen:
            continue
        bound = {key.name: value for key, value in zip(longest, keys, strict=True) if isinstance(key, Var)}
        for capture in captures:
            value = held(capture.pstate)
            for key in capture.path:
                value = get(value, evaluate(key))
            bound[capture.out] = value
        seen[token] = bound
    return list(seen.values())
