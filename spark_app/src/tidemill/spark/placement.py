"""Where the supersteps of an attempt run; steps are pure, so the results are the same everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from tidemill.engine.work import AttemptOutcome, AttemptWork, CompactionWork, EngineFacts
from tidemill.journal.step_metrics import placement_metric
from tidemill.tables.compaction_plan import level_rows

Placement = Literal["spread", "fused", "inline"]
OPTION = "topology.microbatch.placement"
FUSED_ROWS_MAX = 100_000
"""Below, one Spark task is done before stages over all threads would have met in a shuffle (docs/performance.md)."""

ROW_COST = 5
"""Where a program runs row by row, a record costs about this many times more."""


def ran(outcome: AttemptOutcome, placement: Placement, engine: EngineFacts) -> AttemptOutcome:
    """An outcome that says where it ran."""
    return replace(outcome, metrics={**outcome.metrics, **placement_metric(placement)}, engine=engine)


def place(work: AttemptWork) -> Placement:
    """What the option says; `auto` goes by the number of records, and never takes the driver's own time."""
    chosen = work.options.get(OPTION, "auto")
    if chosen != "auto":
        return cast(Placement, chosen)
    return "fused" if work.threads == 1 or _costs_at_most(work, FUSED_ROWS_MAX) else "spread"


def compaction_threads(work: CompactionWork) -> int:
    """As many Spark tasks as merge these levels: one, and one object, where few rows do not pay for more."""
    return 1 if sum(map(level_rows, work.levels)) <= FUSED_ROWS_MAX else work.threads


def is_at_most(work: AttemptWork, rows: int) -> bool:
    """Whether an attempt may run in this process and costs no more than so many records by columns."""
    chosen = work.options.get(OPTION, "auto")
    return chosen == "inline" or (chosen == "auto" and _costs_at_most(work, rows))


def _costs_at_most(work: AttemptWork, rows: int) -> bool:
    records = sum(source.records for source in work.sources.values())
    is_by_row = any(segment.mode == "rows" for segment in work.program.segments.values())
    return records * (ROW_COST if is_by_row else 1) <= rows
