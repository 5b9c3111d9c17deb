"""Some rows of the inputs, read before a graph is made: for guesses that cost time where they are wrong, and no row."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import polars as pl

from tidemill.graphs.frames.expressions import roots
from tidemill.graphs.frames.plans import AsOfPlan, ColumnsPlan, FilterPlan, JoinPlan, Plan, ScanPlan, SortPlan
from tidemill.graphs.frames.pushdown import with_columns_below
from tidemill.graphs.frames.steps import MakeColumns

KEPT_SHARE_MIN = 1 / 512
"""No sample shows that filters keep less than this: rows that they keep may lie together where it has none."""
_FAILURES = (Exception, pl.exceptions.PanicException)
"""A user's function in an expression, or a damaged file: the run itself will tell of it."""


def sample(plan: Plan, columns: Sequence[str]) -> pl.DataFrame | None:
    """Some rows of a plan as it was before joins left rows out; None where nobody knows."""
    try:
        found = _sampled(with_columns_below(plan, set(columns)))
        return None if found is None else found.select(columns)
    except _FAILURES:
        return None


def _sampled(plan: Plan) -> pl.DataFrame | None:
    match plan:
        case ScanPlan():
            return None if plan.sample is None else plan.sample(plan.columns, plan.predicates)
        case FilterPlan():
            rows = _sampled(plan.source)
            return None if rows is None else rows.filter(plan.predicate)
        case ColumnsPlan():
            rows = _sampled(plan.source)
            return None if rows is None else MakeColumns(plan.expressions, plan.keeps)(rows)
        case SortPlan(limit=None):
            return _sampled(plan.source)
        case AsOfPlan():
            return _sampled(plan.left)
        case JoinPlan():
            return _sampled(plan.left)
    return None


def kept_share(scan: ScanPlan) -> float | None:
    """The share of rows that the filters of an input keep, rather more than less; None where nobody knows."""
    if scan.sample is None:
        return None
    try:
        rows = scan.sample(sorted(roots(scan.predicates, scan.schema)), ())
        kept = rows.filter(*scan.predicates).height
    except _FAILURES:
        return None
    return max(KEPT_SHARE_MIN, (kept + 3 * sqrt(kept + 1)) / rows.height) if rows.height else None
