"""Checks the phases of a batch block: rows (pre-agg), aggregators, and what follows them (post-agg)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Node
from tidemill.plan.captures import captured_keys, captures_of
from tidemill.plan.check.context import Context
from tidemill.plan.check.scope import Scope, use
from tidemill.plan.phases import Aggregators, phases

Phase = Literal["plain", "pre", "post"]


class PhaseCheck(Protocol):
    """The check of one phase of a batch block: `blocks.ChainCheck`, of which this is the part that is used here."""

    context: Context

    def inside(self, phase: Phase) -> PhaseCheck:
        """The check of a phase inside this one."""

    def run(self, nodes: Sequence[Node], scope: Scope) -> Scope:
        """Checks nodes one after the other; the scope behind them."""

    def fault(self, at: Any, text: str, advice: str = "") -> None:
        """Notes a mistake at its place."""

    def aggregation(self, node: df.Aggregate, scope: Scope) -> None:
        """One aggregator with its arguments."""


def check_batch_block(outer: PhaseCheck, node: df.BatchBlock | df.SubBatchRows, scope: Scope) -> Scope:
    """The three phases of one batch block that starts in `scope`; the scope at its end."""
    pre, aggregators, post = phases(node.body)
    rows = outer.inside("pre")
    before = rows.run(pre, scope)
    if not aggregators:
        return before
    if not isinstance(aggregators[0], df.GroupBy) and not (pre and isinstance(pre[-1], df.Partition)):
        text = "What comes before the aggregators of a batch block does not end in a partitioner."
        advice = "It decides where they run: add global_partition() or hash_partition(…) before them, or use group_by."
        rows.fault(aggregators[0].at, text, advice)
    after = _with_captures(rows, aggregators, _check_aggregators(rows, aggregators, before))
    return outer.inside("post").run(post, after)


def _check_aggregators(rows: PhaseCheck, nodes: Aggregators, scope: Scope) -> Scope:
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


def _with_captures(rows: PhaseCheck, nodes: Aggregators, after: Scope) -> Scope:
    """The scope with the captured values, and the variables of the keys above them."""
    found = [(node, capture) for node in nodes if isinstance(node, df.Aggregate) for capture in captures_of(node.tree)]
    keys = captured_keys([capture for _, capture in found])
    if keys is None:
        text = "The captured values of this batch block are not on one way from the top: their keys differ."
        rows.fault(
            found[-1][0].at, text, "Capture below one chain of keys, and the others in a batch block of their own."
        )
    names = [key.name for key in keys or () if isinstance(key, df.Var)]
    for name in sorted(after.names.intersection(names)):
        text = f"'{name}' is a key of captured values, and an aggregator binds it, too."
        rows.fault(found[-1][0].at, text, "Give the output a name of its own.")
    after = after.binding(names)
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
        if isinstance(inner, df.Limit):
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
