"""Filters and columns, moved to where rows come from: fewer rows and columns are read, sent and held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tidemill.graphs.frames.expressions import conjuncts, may_fail, roots
from tidemill.graphs.frames.plans import (
    AggregatePlan,
    AsOfPlan,
    ColumnsPlan,
    DistinctPlan,
    FilterPlan,
    JoinPlan,
    LimitPlan,
    Plan,
    ScanPlan,
    SessionPlan,
    SortPlan,
    UnionPlan,
    WindowPlan,
)


def with_filters_below(plan: Plan, predicates: Sequence[pl.Expr] = ()) -> Plan:
    """The plan with each filter (and these predicates) as near to an input as its columns allow."""
    match plan:
        case ScanPlan():
            return replace(plan, predicates=(*plan.predicates, *predicates))
        case FilterPlan():
            return _filter_with_filters(plan, predicates)
        case UnionPlan():
            return UnionPlan(tuple(with_filters_below(source, predicates) for source in plan.sources))
        case JoinPlan():
            return _join_with_filters(plan, predicates)
        case AsOfPlan():
            lefts, above = _parted(predicates, set(plan.left.schema), plan.schema)
            left, right = with_filters_below(plan.left, lefts), with_filters_below(plan.right)
            return _filtered(replace(plan, left=left, right=right), above)
        case WindowPlan():
            passing = set(plan.schema) - {plan.column}
        case SessionPlan():
            passing = set(plan.keys)  # another row may be what holds a session together
        case ColumnsPlan():
            passing = _passing(plan)
        case AggregatePlan():
            passing = set(plan.keys)
        case DistinctPlan() | SortPlan(limit=None):
            passing = set(plan.schema)
        case SortPlan() | LimitPlan():
            passing = set()
    below, above = _parted(predicates, passing, plan.schema)
    return _filtered(replace(plan, source=with_filters_below(plan.source, below)), above)


def _filter_with_filters(plan: FilterPlan, predicates: Sequence[pl.Expr]) -> Plan:
    """What may fail stays where it was written: what is below, as another filter or a join, may keep rows from it.
    Nothing is below it right above an input, which knows best what a filter saves.
    """
    parts = list(conjuncts(plan.predicate))
    failing = [] if isinstance(plan.source, ScanPlan) else [part for part in parts if may_fail(part)]
    moving = [part for part in parts if not any(part is each for each in failing)]
    return _filtered(with_filters_below(plan.source, [*moving, *predicates]), failing)


def _join_with_filters(plan: JoinPlan, predicates: Sequence[pl.Expr]) -> Plan:
    lefts, above = _parted(predicates, set(plan.left.schema), plan.schema)
    of_right = set(plan.right.schema) - set(plan.left.schema) - set(plan.right_on) if plan.how == "inner" else set()
    rights, above = _parted(above, of_right, plan.schema)
    left, right = with_filters_below(plan.left, lefts), with_filters_below(plan.right, rights)
    return _filtered(replace(plan, left=left, right=right), above)


def _passing(plan: ColumnsPlan) -> set[str]:
    """The columns that are the same below."""
    if any(made.meta.has_multiple_outputs() for made in plan.expressions):
        return set()
    if plan.keeps:
        return set(plan.schema) - {_name(made) for made in plan.expressions if not _is_plain(made)}
    return {_name(made) for made in plan.expressions if _is_plain(made)}


def _is_plain(expression: pl.Expr) -> bool:
    return not expression.meta.has_multiple_outputs() and expression.meta.eq(pl.col(expression.meta.output_name()))


def _name(expression: pl.Expr) -> str:
    return expression.meta.output_name()


def _parted(predicates: Sequence[pl.Expr], columns: set[str], schema: pl.Schema) -> tuple[list[pl.Expr], list[pl.Expr]]:
    """Those that read these columns only, and the others.

    One that reads no column decides about a row that an aggregation makes of none, so it stays above.
    """
    read = [roots([predicate], schema) for predicate in predicates]
    below = [bool(names) and names <= columns for names in read]
    chosen = [predicate for predicate, fits in zip(predicates, below, strict=True) if fits]
    return chosen, [predicate for predicate, fits in zip(predicates, below, strict=True) if not fits]


def _filtered(plan: Plan, predicates: Sequence[pl.Expr]) -> Plan:
    for predicate in predicates:
        plan = FilterPlan(plan, predicate)
    return plan


def with_columns_below(plan: Plan, needed: set[str]) -> Plan:
    """The plan with no more columns than these, and those that making them takes."""
    match plan:
        case ScanPlan():
            read = needed | roots(plan.predicates, plan.schema)
            return replace(
                plan, columns=tuple(name for name in plan.schema if name in read) or (next(iter(plan.schema)),)
            )
        case FilterPlan():
            below = needed | roots([plan.predicate], plan.schema)
        case ColumnsPlan():
            return _fewer_columns(plan, needed)
        case JoinPlan():
            return _narrow_join(plan, needed, plan.left_on, plan.right_on)
        case AsOfPlan():
            return _narrow_join(plan, needed, (plan.left_on, *plan.by), (plan.right_on, *plan.by))
        case WindowPlan():
            below = {*needed, plan.column}
        case SessionPlan():
            below = {*needed, plan.column, *plan.keys}
        case AggregatePlan():
            made = tuple(each for each in plan.expressions if _name(each) in needed)
            made = made or (() if plan.keys else plan.expressions[:1])  # a row of no columns is none
            below = {*plan.keys, *roots(made, plan.source.schema)}
            return replace(plan, source=with_columns_below(plan.source, below), expressions=made)
        case SortPlan():
            below = {*needed, *plan.by}
        case DistinctPlan():
            below = set(plan.schema)
        case LimitPlan():
            below = needed
        case UnionPlan():
            return UnionPlan(tuple(with_columns_below(source, needed) for source in plan.sources))
    return replace(plan, source=with_columns_below(plan.source, below))


def _fewer_columns(plan: ColumnsPlan, needed: set[str]) -> Plan:
    several = any(each.meta.has_multiple_outputs() for each in plan.expressions)
    made = plan.expressions if several else tuple(each for each in plan.expressions if _name(each) in needed)
    made = made or (() if plan.keeps else plan.expressions[:1])
    below = roots(made, plan.source.schema)
    if plan.keeps:
        below |= set(plan.source.schema) if several else needed - {_name(each) for each in made}
    return replace(plan, source=with_columns_below(plan.source, below), expressions=made)


def _narrow_join(
    plan: JoinPlan | AsOfPlan, needed: set[str], left_on: tuple[str, ...], right_on: tuple[str, ...]
) -> Plan:
    """A column of both sides stays on both if the right one is needed: its name tells that there is a left one."""
    left, right = set(plan.left.schema), set(plan.right.schema)
    both = {name for name in left & right if f"{name}{plan.suffix}" in needed}
    of_right = ((needed & right) - left) | both | set(right_on)
    lefts = with_columns_below(plan.left, (needed & left) | both | set(left_on))
    return replace(plan, left=lefts, right=with_columns_below(plan.right, of_right))
