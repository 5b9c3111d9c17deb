"""How people call the operators of a program: in errors, reports and pictures."""

from __future__ import annotations

from tidemill.language.dataflow import Function
from tidemill.plan import program as pg

_STEP_NAMES: dict[type, str] = {
    pg.Select: "local_select", pg.Transform: "local_transform", pg.Fold: "agg", pg.Collect: "agg",
    pg.Clear: "local_clear", pg.Append: "depot_partition_append", pg.Explode: "explode_microbatch",
    pg.Invoke: "invoke_query", pg.Gather: "join",
}  # fmt: skip


def step_name(function: Function) -> str:
    """The step as errors and reports name it: `each(<function>)`."""
    return f"{'each_async' if function.kind == 'async' else 'each'}({function.name})"


def step_of(operator: pg.Operator) -> str:
    """How a person calls an operator."""
    if isinstance(operator, pg.Apply):
        return step_name(operator.function)
    if isinstance(operator, pg.Move):
        return f"{operator.kind}_partition"
    if isinstance(operator, (pg.Explode, pg.Retain)) and operator.temp:
        kind = "materialize" if isinstance(operator, pg.Retain) else "explode_materialized"
        return f"{kind}({operator.temp})"
    kind = _STEP_NAMES.get(type(operator), type(operator).__name__.lower())
    named = (getattr(operator, field, None) for field in ("pstate", "depot", "query"))
    name = next(filter(None, named), None)
    return f"{kind}({name})" if name else kind
