"""Heavy keys of joins: found in samples of the inputs before a graph is made, so that its definition has them.

A key is heavy whose rows fill a good part of a channel alone. On one side of the join its rows are dealt to all
channels in turn, on the other one they are copied. That is right whatever the keys are: a sample that is wrong costs
time, and no row. What was found is stored with the graph, so a graph that is resumed deals rows as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tidemill.graphs.frames.plans import AggregatePlan, DistinctPlan, FilterPlan, Plan, SortPlan
from tidemill.graphs.frames.samples import sample
from tidemill.graphs.partitions import SplitPartition

HEAVY_SHARE = 1 / 16
"""A key is heavy from this share of an even channel's rows on; lighter ones even out."""
HEAVY_KEYS_MAX = 32
"""Each batch is looked through for each of them."""
SAMPLED_ROWS_MIN = 16
"""A key that fewer rows of a sample have is there by chance."""
_COUNT, _COPIED = "__tidemill_count", "__tidemill_copied"


@dataclass(frozen=True)
class JoinSide:
    """A plan, and the columns by which it is joined."""

    plan: Plan
    on: tuple[str, ...]


def split_partitions(
    split: JoinSide, copied: JoinSide, channels: int, copied_share: float
) -> tuple[SplitPartition, SplitPartition] | None:
    """How rows of both sides are dealt where the side `split` has heavy keys, of which the other side has about
    `copied_share` of its rows at most; None where it has none.
    """
    rows = sample(split.plan, split.on)
    if rows is None or not all(_is_plain(kind) for kind in rows.schema.values()):
        return None
    least = max(SAMPLED_ROWS_MIN, HEAVY_SHARE * rows.height / channels)
    counts = rows.group_by(split.on).agg(pl.len().alias(_COUNT)).filter(pl.col(_COUNT) >= least)
    heavy = counts.sort(_COUNT, *split.on, descending=True).head(HEAVY_KEYS_MAX).select(split.on)
    keys = _few_copies(heavy, split.on, copied, copied_share)
    if not keys:
        return None
    return SplitPartition(split.on, keys), SplitPartition(copied.on, keys, copied=True)


def _few_copies(heavy: pl.DataFrame, names: Sequence[str], copied: JoinSide, share: float) -> list[Any]:
    """Those of the keys, in their order, of which the other side has few rows."""
    if heavy.is_empty() or _is_unique(copied.plan, copied.on):
        chosen = heavy
    else:
        rows = sample(copied.plan, copied.on)
        if rows is None or rows.is_empty():
            return []
        found = rows.rename(dict(zip(copied.on, names, strict=True))).group_by(names).agg(pl.len().alias(_COPIED))
        counted = heavy.join(found, on=names, how="left", nulls_equal=True, maintain_order="left")
        chosen = counted.filter(pl.col(_COPIED).fill_null(0).cum_sum() <= share * rows.height).select(names)
    return [key[0] if len(names) == 1 else key for key in chosen.iter_rows()]


def _is_unique(plan: Plan, columns: Sequence[str]) -> bool:
    """Whether no two rows of a plan have equal values in these columns."""
    match plan:
        case FilterPlan() | SortPlan():
            return _is_unique(plan.source, columns)
        case AggregatePlan():
            return set(plan.keys) <= set(columns)
        case DistinctPlan():
            return set(plan.schema) <= set(columns)
    return False


def _is_plain(kind: pl.DataType) -> bool:
    """Whether a value as Python has it is equal to the same values of the column, and to no others."""
    is_time = isinstance(kind, pl.Datetime) and kind.time_zone is None and kind.time_unit != "ns"
    return kind.is_integer() or is_time or kind in (pl.String, pl.Boolean, pl.Date)
