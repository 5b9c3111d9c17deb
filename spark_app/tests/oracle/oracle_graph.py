"""The recorded nodes of a chain as a graph of steps: what a row goes on to, with anchors, hooks and unify resolved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.language import dataflow as df

_numbers = itertools.count()


@dataclass(eq=False)
class Step:
    """One node. `nexts` are the steps after it, beside each other.

    A condition has a step for each case in `inner`, a loop its head and what follows it, a batch block its beginning.
    """

    node: Any
    nexts: list[Step] = field(default_factory=list)
    inner: list[Step] = field(default_factory=list)
    block: BlockGraph | None = None
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(eq=False)
class BlockGraph:
    """The phases of a batch block: where rows begin, the step that gathers them, the aggregators, what follows them."""

    root: Step
    collect: Step
    aggregators: Sequence[df.Aggregate]
    keys: tuple[str, ...] | None
    is_single: bool
    post: Step


class Builder:
    """Builds the graph of one scope of anchors: a chain, the body of a loop, or a phase of a batch block."""

    def __init__(self, loops: Sequence[Step] = (), root: Step | None = None) -> None:
        self.anchors: dict[str, Step] = {}
        self.loops = list(loops)
        self.root = root
        self.has_exploded = False

    def chain(self, nodes: Sequence[df.Node], ends: list[Step]) -> list[Step]:
        """Attaches nodes behind the `ends`; the new ends."""
        for node in nodes:
            ends = self._node(node, ends)
        return ends

    def _node(self, node: Any, ends: list[Step]) -> list[Step]:
        if isinstance(node, df.Hook):
            return [self.anchors[node.name]]
        if isinstance(node, df.Branch):
            self.chain(node.body, ends if node.anchor is None else [self.anchors[node.anchor]])
            return ends
        if isinstance(node, (df.ExplodeMicrobatch, df.ExplodeMaterialized)) and self.root is not None:
            ends, self.has_exploded = ([self.root] if self.has_exploded else ends), True
        if isinstance(node, df.Unify):
            ends = [self.anchors[name] for name in node.anchors]
        step = Step(node)
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
            step.block = block_graph(node)
        return [step]

    def _cond(self, node: df.Cond, step: Step) -> list[Step]:
        join = Step(None)
        for _, body in node.cases:
            entry = Step(None)
            step.inner.append(entry)
            for end in self.chain(body, [entry]):
                end.nexts.append(join)
        return [join]

    def _loop(self, node: df.Loop, step: Step) -> list[Step]:
        head, after = Step(None), Step(None)
        step.inner = [head, after]
        Builder([*self.loops, step]).chain(node.body, [head])
        return [after]


def block_graph(node: df.BatchBlock) -> BlockGraph:
    """The phases of a batch block, divided by its aggregators."""
    body = list(node.body)
    first = next((i for i, n in enumerate(body) if isinstance(n, (df.Aggregate, df.GroupBy))), len(body))
    last = next((i for i in range(first, len(body)) if not isinstance(body[i], (df.Aggregate, df.GroupBy))), len(body))
    root, collect, post = Step(None), Step(None), Step(None)
    pre, found = body[:first], body[first:last]
    ends = Builder(root=root).chain(pre, [root])
    keys = found[0].keys if found and isinstance(found[0], df.GroupBy) else None
    if found:
        for end in ends:
            end.nexts.append(collect)
    aggregators: Any = found[0].body if found and isinstance(found[0], df.GroupBy) else found
    Builder().chain(body[last:], [post])
    is_single = (
        keys is None and bool(pre) and isinstance(pre[-1], df.Partition) and pre[-1].kind in ("global", "origin")
    )
    return BlockGraph(root, collect, aggregators, keys, is_single, post)
