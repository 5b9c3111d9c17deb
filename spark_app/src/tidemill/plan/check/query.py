"""Checks a query as a whole: it reads only, and its rows come back to where it began, once."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Node
from tidemill.plan.branches import explicit_block
from tidemill.plan.check.batch import check_batch_block
from tidemill.plan.check.blocks import ChainCheck
from tidemill.plan.check.context import Context, Temp
from tidemill.plan.check.scope import Scope
from tidemill.plan.check.temps import TempCheck
from tidemill.plan.phases import phases
from tidemill.plan.temporaries import own_of

_ORIGIN = "Write origin_partition() there: a query answers where it began."


def check_query(context: Context, query: df.QueryDeclaration) -> None:
    """One query: a batch block that begins with its inputs."""
    _check_origin(context, query)
    for name in sorted(context.objects.intersection(query.inputs)):
        text = f"The query '{query.name}' has an input '{name}', which is an object of the module."
        context.fault(query.at, text, "Give the input another name.")
    block, faults = explicit_block(query.block)
    context.faults.extend(faults)
    temps, own = TempCheck(context, query.name, query.name), own_of(query)
    temps.make(own.name, Temp(query.at, query.name, f"is that of the query '{query.name}'", declaration=own))
    scope = Scope(frozenset(query.inputs), temps=frozenset([own.name]))
    check_batch_block(ChainCheck(context, temps, depot=None), block, scope)


def _check_origin(context: Context, query: df.QueryDeclaration) -> None:
    pre, aggregators, _ = phases(query.body)
    if any(isinstance(node, df.GroupBy) for node in aggregators):
        text = f"The query '{query.name}' ends with group_by, whose rows stay on the tasks of their keys."
        advice = "Write origin_partition() and agg(Agg.map(…)) for one map of all keys."
        context.fault(aggregators[0].at, text, advice)
    elif aggregators and not (pre and _is_origin(pre[-1])):
        text = f"The aggregation of the query '{query.name}' does not follow origin_partition()."
        context.fault(aggregators[0].at, text, _ORIGIN)
    elif not aggregators and not _is_origin(_last_partition(pre)):
        context.fault(query.at, f"The query '{query.name}' does not end with origin_partition().", _ORIGIN)


def _last_partition(nodes: Sequence[Node]) -> Node | None:
    return next((node for node in reversed(nodes) if isinstance(node, df.Partition)), None)


def _is_origin(node: Node | None) -> bool:
    return isinstance(node, df.Partition) and node.kind == "origin"
