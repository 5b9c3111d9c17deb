"""Which adjacent levels are merged next: by size, so that a row is rewritten a logarithmic number of times, and by
age.
"""

from __future__ import annotations

from typing import Final

from tidemill.model.snapshot import Level, Snapshot

LEVELS_MIN: Final = 8
"""Fewer levels than this are cheap to read together."""

SIZE_RATIO: Final = 4
SMALL_BYTES: Final = 262_144
DELTA_AGE_MAX: Final = 256
"""An older delta would keep the log entry that it rides in, and all that follow, from being trimmed."""


def plan_compaction(snapshot: Snapshot) -> tuple[int, int] | None:
    """The levels [first, stop) to merge into one run; None if nothing is worth it.

    Newest levels are gathered as long as the next older one is not much larger than all of them together.
    """
    levels = snapshot.levels
    total, first = 0, len(levels)
    while first > 0 and _bytes(levels[first - 1]) <= max(SMALL_BYTES, SIZE_RATIO * total):
        first -= 1
        total += _bytes(levels[first])
    if len(levels) - first >= LEVELS_MIN:
        return first, len(levels)
    return _old_deltas(levels)


def _old_deltas(levels: tuple[Level, ...]) -> tuple[int, int] | None:
    """The oldest run of deltas that are too old, with what lies between them."""
    if not levels:
        return None
    limit = levels[-1].last - DELTA_AGE_MAX
    old = [i for i, level in enumerate(levels) if level.kind == "delta" and level.last < limit]
    return (old[0], old[-1] + 1) if old else None


def _bytes(level: Level) -> int:
    return sum(part.bytes for part in level.parts)
