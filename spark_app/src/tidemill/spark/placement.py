"""Where the supersteps of an attempt run; steps are pure, so the results are the same everywhere."""

from __future__ import annotations

from typing import Literal, cast

from tidemill.engine.work import AttemptWork

Placement = Literal["spread", "fused", "inline"]
OPTION = "topology.microbatch.placement"
FUSED_ROWS_MAX = 20_000
"""Below, one Spark task is done before a second stage would have started (docs/performance.md)."""


def place(work: AttemptWork) -> Placement:
    """What the option says; `auto` goes by the number of records, and never takes the driver's own time."""
    chosen = work.options.get(OPTION, "auto")
    if chosen != "auto":
        return cast(Placement, chosen)
    if work.threads == 1:
        return "fused"
    records = sum(source.records for source in work.sources.values())
    return "fused" if records <= FUSED_ROWS_MAX else "spread"
