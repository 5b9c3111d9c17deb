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
    `meets`: rows may meet here before they go on, to wait for calls, or for rows of other cases that do.
    """

    node: Any
    nexts: list[Step] = field(default_factory=list)
    inner: list[Step] = field(default_factory=list)
    block: BlockGraph | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    meets: bool = False


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
        for _, body in node.cases:
            entry = Step(None, meets=self.meets and any(_awaits(each) for _, other in node.cases for each in other))
            step.inner.append(entry)
            for end in self.chain(body, [entry]):
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


def _is_single(node: Any) -> bool:
    return isinstance(node, df.Partition) and node.kind in ("global", "origin")
