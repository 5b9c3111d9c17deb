"""Checks the phases of a batch block: rows (pre-agg), aggregators, and what follows them (post-agg)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, Union

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Node
from tidemill.plan.captures import captured_keys, captures_of
from tidemill.plan.check.context import Context
from tidemill.plan.check.scope import Scope, use

Phase = Literal["plain", "pre", "post"]
_AGGREGATORS = (df.Aggregate, df.GroupBy, df.Limit)
_Aggregators = Sequence[Union[df.Aggregate, df.GroupBy, df.Limit]]


class PhaseCheck(Protocol):
    """The check of one phase of a batch block: `blocks.ChainCheck`, of which this is the part that is used here."""

    context: Context

    def inside(self, phase: Phase, root: Scope) -> PhaseCheck:
        """The check of a phase inside this one."""

    def run(self, nodes: Sequence[Node], scope: Scope) -> Scope:
        """Checks nodes one after the other; the scope behind them."""

    def fault(self, at: Any, text: str, advice: str = "") -> None:
        """Notes a mistake at its place."""

    def later(self, node: df.Later, scope: Scope) -> Scope:
        """A node that is not supported."""

    def aggregation(self, node: df.Aggregate, scope: Scope) -> None:
        """One aggregator with its arguments."""


def check_batch_block(outer: PhaseCheck, node: df.BatchBlock, scope: Scope) -> None:
    """The three phases of one batch block that starts in `scope`."""
    pre, aggregators, post = phases(node.body)
    rows = outer.inside("pre", scope)
    before = rows.run(pre, scope)
    _check_single_tail(rows, pre)
    if not aggregators:
        return
    if not isinstance(aggregators[0], df.GroupBy) and not (pre and isinstance(pre[-1], df.Partition)):
        text = "What comes before the aggregators of a batch block does not end in a partitioner."
        advice = "It decides where they run: add global_partition() or hash_partition(…) before them, or use group_by."
        rows.fault(aggregators[0].at, text, advice)
    after = _with_captures(rows, aggregators, _check_aggregators(rows, aggregators, before))
    outer.inside("post", scope).run(post, after)


def phases(body: Sequence[Node]) -> tuple[Sequence[Node], _Aggregators, Sequence[Node]]:
    """The nodes before the aggregators, the aggregators (they stand together), and the nodes after them."""
    first = next((i for i, node in enumerate(body) if isinstance(node, _AGGREGATORS)), len(body))
    last = first
    found: list[df.Aggregate | df.GroupBy | df.Limit] = []
    while last < len(body):
        node = body[last]
        if not isinstance(node, _AGGREGATORS):
            break
        found.append(node)
        last += 1
    return body[:first], found, body[last:]


def _check_aggregators(rows: PhaseCheck, nodes: _Aggregators, scope: Scope) -> Scope:
    """The scope after the aggregators: their outputs and the keys of group_by, nothing else."""
    after = Scope(is_on_zero=False, hidden=scope.names, temps=scope.temps)
    if isinstance(nodes[0], df.GroupBy) and len(nodes) > 1:
        text = "An aggregator stands beside group_by."
        rows.fault(nodes[1].at, text, "Put it into the block of group_by, or into a batch block of its own.")
    _check_only_limit(rows, nodes)
    for node in nodes:
        if isinstance(node, df.GroupBy):
            after = after.binding(_check_group_by(rows, node, scope))
            continue
        if isinstance(node, df.Limit):
            after = after.binding(_check_limit(rows, node, scope, after))
            continue
        rows.aggregation(node, scope)
        _check_outs(rows, node, after)
        after = after.binding(node.outs).making([node.pstate] if node.pstate and node.is_temporary else ())
    return after


def _check_limit(rows: PhaseCheck, node: df.Limit, scope: Scope, after: Scope) -> tuple[str, ...]:
    """The variables that limit_agg binds anew; each is one of the rows, or its index."""
    for name in (*node.vars, *node.sort):
        use(rows.context, scope, df.Var(name), node.at)
    names = node.vars if node.index is None else (*node.vars, node.index)
    for number, name in enumerate(names):
        if name in after.names or name in names[:number]:
            rows.fault(node.at, f"limit_agg binds '{name}', which is bound already.", "Give each a name of its own.")
    return names


def _check_only_limit(rows: PhaseCheck, nodes: Sequence[Node]) -> None:
    limits = [node for node in nodes if isinstance(node, df.Limit)]
    if len(limits) > 1:
        rows.fault(limits[1].at, "A second limit_agg stands in this batch block.", "Put it into one of its own.")
    if limits and any(isinstance(node, df.Aggregate) and any(captures_of(node.tree)) for node in nodes):
        text = "limit_agg and capture_new_val_into stand in one batch block: both say which rows post-agg gets."
        rows.fault(limits[0].at, text, "Use two batch blocks.")


def _with_captures(rows: PhaseCheck, nodes: _Aggregators, after: Scope) -> Scope:
    """The scope with the captured values, and the variables of the keys above them."""
    found = [(node, capture) for node in nodes if isinstance(node, df.Aggregate) for capture in captures_of(node.tree)]
    keys = captured_keys([capture for _, capture in found])
    if keys is None:
        text = "The captured values of this batch block are not on one way from the top: their keys differ."
        rows.fault(
            found[-1][0].at, text, "Capture below one chain of keys, and the others in a batch block of their own."
        )
    after = after.binding(key.name for key in keys or () if isinstance(key, df.Var))
    for node, capture in found:
        if node.pstate is None:
            text = f"'{capture.out}' captures a value that is kept nowhere."
            rows.fault(node.at, text, "Use .out(…) alone, or aggregate into a PState.")
        elif capture.out in after.names:
            rows.fault(node.at, f"Two aggregators bind '{capture.out}'.", "Give each output a name of its own.")
        after = after.binding((capture.out,))
    return after


def _check_outs(rows: PhaseCheck, node: df.Aggregate, after: Scope) -> None:
    for name in node.outs:
        if name in after.names:
            rows.fault(node.at, f"Two aggregators bind '{name}'.", "Give each output a name of its own.")


def _check_group_by(rows: PhaseCheck, node: df.GroupBy, scope: Scope) -> tuple[str, ...]:
    for key in node.keys:
        use(rows.context, scope, df.Var(key), node.at)
    outs: list[str] = []
    for inner in node.body:
        if isinstance(inner, df.Later):
            rows.later(inner, scope)
        elif isinstance(inner, df.Limit):
            outs.extend(_check_limit(rows, inner, scope, Scope(frozenset((*node.keys, *outs)))))
        elif not isinstance(inner, df.Aggregate) or inner.pstate is not None:
            text = "The block of group_by holds something else than aggregators into variables."
            rows.fault(inner.at, text, 'Write Block.agg(Agg.count()).out("*count"); use the rows after group_by.')
        elif any(captures_of(inner.tree)):
            text = "capture_new_val_into stands in group_by, which keeps no value."
            rows.fault(inner.at, text, "Use .out(…), whose variable has the result of each key.")
        else:
            rows.aggregation(inner, scope)
            _check_outs(rows, inner, Scope(frozenset((*node.keys, *outs))))
            outs.extend(inner.outs)
    _check_only_limit(rows, node.body)
    if not node.body:
        rows.fault(node.at, "The block of group_by has no aggregator.", 'Write Block.agg(Agg.count()).out("*count").')
    return (*node.keys, *outs)


def _check_single_tail(rows: PhaseCheck, nodes: Sequence[Node]) -> None:
    """Rows that begin anew (a second source, a hook) leave a tail that something must take up by its anchor."""
    taken = {name for node in nodes for name in _anchors_taken(node)}
    has_exploded = False
    for before, node in zip((None, *nodes), nodes, strict=False):
        is_source = isinstance(node, (df.ExplodeMicrobatch, df.ExplodeMaterialized))
        begins_anew = is_source and has_exploded
        has_exploded = has_exploded or is_source
        if begins_anew and not (isinstance(before, df.Anchor) and before.name in taken):
            text = "A batch block has two sources of rows that are never brought together."
            advice = (
                'Merge them: end each with anchor("…") and go on with unify("…", "…"). Joins come in a later version.'
            )
            rows.fault(node.at, text, advice)


def _anchors_taken(node: Node) -> tuple[str, ...]:
    if isinstance(node, df.Unify):
        return node.anchors
    return (node.name,) if isinstance(node, df.Hook) else ()
