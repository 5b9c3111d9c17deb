"""Which adjacent levels are merged next: by size, so that a row is rewritten a logarithmic number of times, and by
age, so that no delta pins the log.

When enough deltas stand above the runs, or the oldest of them is old, they are merged, together with the runs right
below that are not much larger than what is merged above them. So each run stays more than `GROWTH` times as large as
all that is newer: runs are few, and only a merge of comparable size rewrites one.
"""

from __future__ import annotations

from typing import Final

from tidemill.journal.snapshot import Level, Snapshot
from tidemill.values.numbers import MicrobatchId

DELTAS_MAX: Final = 16
"""So many deltas are merged at once."""

GROWTH: Final = 1.2
"""A run is drawn in if it holds at most so many times the rows of what is merged above it. Less rewrites old rows more
rarely, and leaves more runs to read.
"""

AGE_MAX: Final = 256
"""No delta stays a delta for more microbatches: a small one lives in its log entry, and would keep it and all that
follow from being trimmed.
"""


def plan(snapshot: Snapshot, last_id: MicrobatchId) -> tuple[int, int] | None:
    """The levels [first, stop) to merge into one run, None if there is nothing to do; `last_id` is the newest
    microbatch, which may have changed nothing. A plan that starts at 0 makes a base.
    """
    levels = snapshot.levels
    first = next((i for i, level in enumerate(levels) if level.kind == "delta"), len(levels))
    deltas = len(levels) - first
    if deltas == 0 or (deltas < DELTAS_MAX and last_id - levels[first].first < AGE_MAX):
        return None
    size = sum(map(level_rows, levels[first:]))
    while first > 0 and level_rows(levels[first - 1]) <= GROWTH * size:
        first -= 1
        size += level_rows(levels[first])
    return first, len(levels)


def level_rows(level: Level) -> int:
    """Rows cost the same to merge in a delta and in a run; bytes would make deltas, which are not packed, look big."""
    return sum(sum(part.rows.values()) for part in level.parts)
