"""The oracle's temporary PStates: what an aggregation of a batch block makes, for one attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from oracle_aggregators import folded
from oracle_structures import IndexedMap, entries

from tidemill.language.dataflow import AggMap, Aggregate, Aggregator, AggTree


def temporaries(part: Any) -> Iterator[Aggregate]:
    """The aggregations inside a declaration that make a temporary PState."""
    if isinstance(part, Aggregate):
        if part.is_temporary:
            yield part
    elif isinstance(part, tuple):
        for inner in part:
            yield from temporaries(inner)
    elif is_dataclass(part):
        for field in fields(part):
            if field.name in ("body", "sources", "cases", "queries"):
                yield from temporaries(getattr(part, field.name))


def initial_of(tree: AggTree) -> Any:
    """What a task holds before a row is aggregated there."""
    if isinstance(tree, AggMap):
        return IndexedMap(nullable=True)
    return folded(tree, []) if isinstance(tree, Aggregator) else None


def temporary(value: Any, tree: AggTree) -> Any:
    """A value as such a PState holds it: its maps are indexed."""
    if not isinstance(tree, AggMap):
        return value
    inner = tree.entries[0][1]
    kept = [(key, temporary(item, inner)) for key, item in entries(value)]
    return IndexedMap([(key, item) for key, item in kept if not isinstance(item, IndexedMap) or len(item)], True)
