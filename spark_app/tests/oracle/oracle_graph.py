"""The recorded nodes of a chain as a graph of steps: what a row goes on to, with anchors, hooks and unify resolved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.language import dataflow as df

AGGREGATORS = (df.Aggregate, df.GroupBy, df.Limit)
_numbers = itertools.count()


@dataclass(eq=False)
class Step:
    """One node. `nexts` are the steps after it, beside each other.

    A condition has a step for each case in `inner`, a loop its head and what follows it, a batch block its beginning.
    `meets`: rows may meet here before they go on, to wait for calls, or for rows of other cases that do; with
    `must_meet` they do. Rows that come to one `place` from one task keep their order: cases of a condition share it.
    """

    node: Any
    nexts: list[Step] = field(default_factory=list)
    inner: list[Step] = field(default_factory=list)
    block: BlockGraph | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    meets: bool = False
    must_meet: bool = False
    shared: tuple[int, int] | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where rows arrive that come here from other tasks."""
        return self.shared or (self.number, 0)


@dataclass(eq=False)
class BlockGraph:
    """The phases of a batch block: where rows begin, the step that gathers them, the aggregators, what follows them."""

    root: Step
    collect: Step
    aggregators: Sequence[df.Aggregate | df.Limit]
    keys: tuple[str, ...] | None
    is_single: bool
    post: Step
    joins: Sequence[Step] = ()


@dataclass(frozen=True)
class SubRows:
    """The end of a sub-batch: its rows go on in the block around it."""

    vars: tuple[str, ...]


class Builder:
    """Builds the graph of one scope of anchors: a chain, the body of a loop, or a phase of a batch block."""

    def __init__(self, loops: Sequence[Step] = (), meets: bool = True) -> None:
        self.anchors: dict[str, Step] = {}
        self.loops = list(loops)
        self.meets = meets

    def chain(self, nodes: Sequence[df.Node], ends: list[Step]) -> list[Step]:
        """Attaches nodes behind the `ends`; the new ends."""
        for node in nodes:
            ends = self._node(node, ends)
        return ends

    def _node(self, node: Any, ends: list[Step]) -> list[Step]:
        if isinstance(node, df.Hook):
            return [self.anchors[node.name]]
        if isinstance(node, df.Branch):
            outer, self.meets = self.meets, self.meets and node.anchor is not None
            self.chain(node.body, ends if node.anchor is None else [self.anchors[node.anchor]])
            self.meets = outer
            return ends
        if isinstance(node, df.Unify):
            ends = [self.anchors[name] for name in node.anchors]
        step = Step(node, meets=self.meets and isinstance(node, df.Each) and _awaits(node))
        for end in ends:
            end.nexts.append(step)
        if isinstance(node, df.Anchor):
            self.anchors[node.name] = step
        elif isinstance(node, df.Cond):
            return self._cond(node, step)
        elif isinstance(node, df.Loop):
            return self._loop(node, step)
        elif isinstance(node, (df.ContinueLoop, df.EmitLoop)):
            step.inner = [self.loops[-1]]
        elif isinstance(node, df.BatchBlock):
            step.block = block_graph(node.body)
        elif isinstance(node, df.SubBatchRows):
            step.block = block_graph(node.body, node.vars)
        return [step]

    def _cond(self, node: df.Cond, step: Step) -> list[Step]:
        join = Step(None)
        bodies = [body for _, body in node.cases]
        is_deep = any(_awaits(each) for body in bodies for each in body if isinstance(each, df.Cond))
        for body, crossings in zip(bodies, _crossings(bodies, self.meets), strict=True):
            entry = Step(None, meets=self.meets and is_deep)
            step.inner.append(entry)
            ends = [entry]
            for level, (first, last, must_meet) in enumerate(crossings):
                ends = self.chain(body[first:last], ends)
                (point,) = ends if last > first and _crosses(body[last - 1], self.meets) else [_meeting(ends)]
                point.shared, point.must_meet = (step.number, level + 1), must_meet
                ends = [point]
            for end in self.chain(body[crossings[-1][1] if crossings else 0 :], ends):
                end.nexts.append(join)
        return [join]

    def _loop(self, node: df.Loop, step: Step) -> list[Step]:
        head, after = Step(None), Step(None)
        step.inner = [head, after]
        Builder([*self.loops, step], self.meets).chain(node.body, [head])
        return [after]


def block_graph(nodes: Sequence[df.Node], wanted: tuple[str, ...] | None = None) -> BlockGraph:
    """The phases of a batch block, divided by its aggregators; `wanted` are the variables that a sub-batch gives."""
    from oracle_branches import Branches, needed_by_all

    body = list(nodes)
    first = next((i for i, n in enumerate(body) if isinstance(n, AGGREGATORS)), len(body))
    last = next((i for i in range(first, len(body)) if not isinstance(body[i], AGGREGATORS)), len(body))
    root, collect, post = Step(None), Step(None), Step(None)
    found = body[first:last]
    final = first - bool(found and first and isinstance(body[first - 1], df.Partition))
    rows = Branches(root)
    for number, node in enumerate(body[:final], 1):
        rows.add(node, body[number:final])
    tail = [*body[final:first], *found]
    ends = rows.unite(needed_by_all(tail) if tail else set(wanted or ()))
    ends = rows.builder.chain(body[final:first], ends)
    keys = found[0].keys if found and isinstance(found[0], df.GroupBy) else None
    aggregators: Any = found[0].body if found and isinstance(found[0], df.GroupBy) else found
    post_ends = Builder(meets=False).chain(body[last:], [post])
    if wanted is not None:
        for end in post_ends if found else ends:
            end.nexts.append(Step(SubRows(wanted)))
    if found:
        for end in ends:
            end.nexts.append(collect)
    is_single = keys is None and final < first and _is_single(body[first - 1])
    return BlockGraph(root, collect, aggregators, keys, is_single, post, rows.joins)


def _awaits(node: Any) -> bool:
    """Whether rows wait here for calls."""
    if isinstance(node, df.Cond):
        return any(_awaits(each) for _, body in node.cases for each in body)
    return isinstance(node, df.Each) and node.function.kind == "async"


_DECIDED = ("hash", "path", "direct", "custom", "global")
"""Partitioners that send a row to one task, which its values decide."""


def _crosses(node: Any, meets: bool) -> bool:
    """Whether rows of a case leave here for their next task, or wait for a call."""
    return isinstance(node, df.Partition) or (meets and isinstance(node, df.Each) and _awaits(node))


def _meeting(ends: Sequence[Step]) -> Step:
    """Where rows of a case that waits for nothing wait with those of the others."""
    step = Step(None, meets=True)
    for end in ends:
        end.nexts.append(step)
    return step


def _crossings(bodies: Sequence[Sequence[Any]], meets: bool) -> list[list[tuple[int, int, bool]]]:
    """For each case the pieces of it that end where it shares a place with others, and whether rows must meet there.

    The first partitioner of a case shares with the first of the others, the second with the second, and so on; a call
    that is awaited counts as one, and cases without a partitioner wait there, too.
    """
    found: list[list[tuple[int, int, bool]]] = [[] for _ in bodies]
    group = list(range(len(bodies)))
    while True:
        starts = {case: found[case][-1][1] if found[case] else 0 for case in group}
        points = {case: _next_crossing(bodies[case], starts[case], meets) for case in group}
        moving = {case: point for case, point in points.items() if point is not None}
        nodes = [bodies[case][point] for case, point in moving.items()]
        resting = []
        if any(isinstance(node, df.Each) for node in nodes):
            behind = {case: bodies[case][starts[case] :] for case in group if case not in moving}
            resting = [c for c, body in behind.items() if not any(isinstance(each, df.Partition) for each in body)]
        if len(moving) + len(resting) < 2:
            return found
        must_meet = any(isinstance(node, df.Partition) for node in nodes)
        for case, point in moving.items():
            found[case].append((starts[case], point + 1, must_meet))
        for case in resting:
            found[case].append((starts[case], starts[case], must_meet))
        group = [*moving, *resting]


def _next_crossing(body: Sequence[Any], start: int, meets: bool) -> int | None:
    place = next((i for i in range(start, len(body)) if _crosses(body[i], meets)), None)
    if place is None or (isinstance(body[place], df.Partition) and body[place].kind not in _DECIDED):
        return None
    return place


def _is_single(node: Any) -> bool:
    return isinstance(node, df.Partition) and node.kind in ("global", "origin")
