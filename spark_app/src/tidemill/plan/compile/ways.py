"""Conditions whose cases each send rows on: which of them share a partitioner, so that their rows keep their order.

Messages from one task to another keep the order in which they were sent, also where some went one way and some
another. Rows that arrive at different partitioners are taken partitioner by partitioner, which is right where nobody
can see the difference, and fast. Where somebody can, the cases meet before they send, and part again behind it.
A call that is awaited in a case is a way, too: rows that wait together meet on their own task. Then rows of cases that
send nothing wait with them, where their order shows.
A partitioner that stands in a further condition of a case is its own: it shares with those of that condition only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidemill.language import dataflow as df
from tidemill.language.aggregation_order import shows_order
from tidemill.language.operations import Ops
from tidemill.plan.nodes import every_node

_DECIDED: Final = ("hash", "path", "direct", "custom", "global")
"""Partitioners that send each row to one task, which its values decide."""


class OfWay:
    """A function whose result is awaited, which is called for the rows of one way only; others get None for each of
    `outs` variables.
    """

    def __init__(self, call: Callable[..., Any], way: int, outs: int) -> None:
        self.call, self.way, self.outs = call, way, outs

    def __call__(self, way: int, *args: Any) -> Any:
        """What to await: for rows of other ways nothing happens."""
        return self.call(*args) if way == self.way else _nothing(self.outs)


async def _nothing(outs: int) -> Any:
    return [None] * outs if outs > 1 else None


_VARIABLES: Final = "variables of an aggregation"

Touches = Mapping[str, Sequence[df.Node]]
"""The nodes that read or write a PState or depot, by its name."""


class Way(NamedTuple):
    """A case of a condition, cut at its first partitioner, or at the first call that is `awaited`."""

    before: tuple[df.Node, ...]
    partition: df.Partition
    behind: tuple[df.Node, ...]
    awaited: df.Each | None = None


def way_of(body: Sequence[df.Node], meets: bool) -> Way | None:
    """The case as a way; None if it sends no row on by its values, and no rows meet in it to wait together."""
    for place, node in enumerate(body):
        before, behind = tuple(body[:place]), tuple(body[place + 1 :])
        if isinstance(node, df.Partition):
            return Way(before, node, behind) if node.kind in _DECIDED else None
        if meets and isinstance(node, df.Each) and node.function.kind == "async":
            return Way(before, staying(node.at), behind, node)
    return None


def staying(at: df.Location) -> df.Partition:
    """A partitioner that leaves rows on their task, where they meet."""
    here = df.RecordedExpr(df.Function("CURRENT_TASK_ID", "builtin", Ops.CURRENT_TASK_ID), ())
    return df.Partition("direct", (here,), None, at)


def shared_ways(node: df.Cond, following: Sequence[df.Node], schemas: Mapping[str, Any], meets: bool) -> dict[int, Way]:
    """Those of the cases, by their number, between whose rows somebody behind the partitioners can see an order.

    `meets` says whether rows that wait for a call meet before it.
    """
    cases = [body for _, body in node.cases]
    ways = {number: way for number, body in enumerate(cases) if (way := way_of(body, meets)) is not None}
    if any(way.awaited for way in ways.values()):
        for number, body in enumerate(cases):
            if not any(isinstance(each, df.Partition) for each in body):
                ways.setdefault(number, Way((), staying(node.at), tuple(body)))
        ways = dict(sorted(ways.items()))
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
