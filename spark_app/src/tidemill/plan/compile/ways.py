"""Conditions whose cases each send rows on: which of them share a partitioner, so that their rows keep their order.

Messages from one task to another keep the order in which they were sent, also where some went one way and some
another. Rows that arrive at different partitioners are taken partitioner by partitioner, which is right where nobody
can see the difference, and fast. Where somebody can, the cases meet before they send, and part again behind it.
A partitioner that stands in a further condition of a case is its own: it shares with those of that condition only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidemill.language import dataflow as df
from tidemill.language.aggregation_order import shows_order
from tidemill.plan.nodes import every_node

_DECIDED: Final = ("hash", "path", "direct", "custom", "global")
"""Partitioners that send each row to one task, which its values decide."""

_VARIABLES: Final = "variables of an aggregation"

Touches = Mapping[str, Sequence[df.Node]]
"""The nodes that read or write a PState or depot, by its name."""


class Way(NamedTuple):
    """A case of a condition, cut at its first partitioner."""

    before: tuple[df.Node, ...]
    partition: df.Partition
    behind: tuple[df.Node, ...]


def way_of(body: Sequence[df.Node]) -> Way | None:
    """The case as a way; None if it sends no row on by its values."""
    at = next((i for i, node in enumerate(body) if isinstance(node, df.Partition)), None)
    if at is None:
        return None
    partition = body[at]
    assert isinstance(partition, df.Partition)
    if partition.kind not in _DECIDED:
        return None
    return Way(tuple(body[:at]), partition, tuple(body[at + 1 :]))


def shared_ways(
    cases: Sequence[Sequence[df.Node]], following: Sequence[df.Node], schemas: Mapping[str, Any]
) -> dict[int, Way]:
    """Those of the cases, by their number, between whose rows somebody behind the partitioners can see an order."""
    ways = {number: way for number, body in enumerate(cases) if (way := way_of(body)) is not None}
    touches = {number: _touches([*way.behind, *following]) for number, way in ways.items()} if len(ways) > 1 else {}
    return {
        number: ways[number]
        for number, own in touches.items()
        if any(_shows(own, other, schemas) for each, other in touches.items() if each != number)
    }


def _shows(one: Touches, other: Touches, schemas: Mapping[str, Any]) -> bool:
    return any(_is_order_seen([*one[name], *other[name]], schemas.get(name)) for name in one.keys() & other.keys())


def _is_order_seen(nodes: Sequence[df.Node], schema: Any) -> bool:
    if all(isinstance(node, df.LocalSelect) for node in nodes):
        return False
    folds = [node for node in nodes if isinstance(node, df.Aggregate)]
    return len(folds) < len(nodes) or shows_order([fold.tree for fold in folds], schema)


def _touches(nodes: Iterable[df.Node]) -> Touches:
    found: dict[str, list[df.Node]] = {}
    for node in every_node(nodes):
        name = getattr(node, "pstate", None) or getattr(node, "depot", None)
        if name is not None or isinstance(node, df.Aggregate):
            found.setdefault(name or _VARIABLES, []).append(node)
    return found
