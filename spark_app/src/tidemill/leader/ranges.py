"""Which records a microbatch reads: fixed from progress, the depots' ends and the options, by pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tidemill.depot.mark import SegmentMark
from tidemill.journal.entries import Attempt, Entry, SourceProgress, lag_of
from tidemill.language.options import resolve
from tidemill.leader.events import DepotEnds, SourceSpec, SourcesProbed, TopologySpec
from tidemill.values.errors import CorruptState, invariant
from tidemill.values.offsets import OffsetRanges

LIMIT_MAX: Final = 1_000_000_000
"""A bound that doubled beyond this is none."""

_HALVES_MAX: Final = 30

Rows = np.ndarray[Any, Any]
"""Offsets, a row a source and a column a partition."""


RESTORE: Final = "restore the depot's objects"
BEGIN_ANEW: Final = (
    "the log outside the store was cut or made anew; bring it back, or give the source a new "
    "MicrobatchSourceOptions.source_id and update the module, so that it begins anew where its start_from says"
)


def fix_range(progress: SourceProgress, ends: DepotEnds, records_max: int, advice: str = RESTORE) -> OffsetRanges:
    """[start, end) of each partition: from the progress on, at most `records_max`.

    Records that retention deleted before they were read are skipped, and counted by the commit (`skipped_records`).

    Raises:
        CorruptState: the depot ends before what was processed of it: acknowledged records are lost (S6).
    """
    if progress.offsets == ends.ends:
        return empty_range(progress)
    offsets, stops, kept = (np.array(held, dtype=np.int64) for held in (progress.offsets, ends.ends, ends.starts))
    if len(stops) != len(offsets) or (stops < offsets).any():
        text = f"The depot {progress.depot} ends at {list(ends.ends)}, but {list(progress.offsets)} is processed."
        raise CorruptState(f"{text} Records are lost: {advice}.", depot=progress.depot)
    starts = np.maximum(offsets, kept)
    stops = np.maximum(starts, np.minimum(stops, starts + records_max))
    return OffsetRanges(tuple(starts.tolist()), tuple(stops.tolist()))


def reached(fixed: Mapping[str, OffsetRanges], look: SourcesProbed) -> dict[str, SegmentMark]:
    """Of each source whose range ends where its depot does, the newest segment there."""
    found = {}
    for source_id, ranges in fixed.items():
        ends = look.ends.get(source_id)
        if ends is not None and ends.newest is not None and ranges.ends == ends.ends:
            found[source_id] = ends.newest
    return found


def all_reached(entry: Entry) -> dict[str, SegmentMark]:
    """Of each source the newest segment that it came to, or that the attempt under way reads to the end."""
    found = {source_id: p.reached for source_id, p in entry.progress.items() if p.reached is not None}
    return {**found, **(entry.attempt.reached if entry.attempt is not None else {})}


def empty_range(progress: SourceProgress) -> OffsetRanges:
    """No record of a source."""
    return OffsetRanges(progress.offsets, progress.offsets)


def fix_ranges(
    spec: TopologySpec, progress: Mapping[str, SourceProgress], look: SourcesProbed, limit: int | None = None
) -> dict[str, OffsetRanges]:
    """The range of each source that is no tick, as things stood at `look`; `limit` as `limit_after` gave it."""
    found = {}
    for source in spec.sources:
        ends = look.ends.get(source.source_id)
        if source.tick_millis is None and ends is not None:
            records_max = resolve("depot.microbatch.max.records", look.options.values, source.depot_name)
            records_max = records_max if limit is None else min(records_max, limit)
            known = progress[source.source_id]
            if source.is_external:
                found[source.source_id] = fix_range(grown(known, len(ends.ends)), ends, records_max, BEGIN_ANEW)
            else:
                found[source.source_id] = fix_range(known, ends, records_max)
    return {**found, **_synced(spec, found)}


def _synced(spec: TopologySpec, found: Mapping[str, OffsetRanges]) -> dict[str, OffsetRanges]:
    """The ranges of sources of one depot: those that are close end together, and are one from then on."""
    by_depot: dict[str, list[str]] = {}
    for source in spec.sources:
        if source.source_id in found:
            by_depot.setdefault(source.depot, []).append(source.source_id)
    changed: dict[str, OffsetRanges] = {}
    for ids in by_depot.values():
        counts = {len(found[each]) for each in ids}
        if len(ids) > 1 and len(counts) == 1:
            starts, ends = (np.array([found[each].bounds[side] for each in ids]) for side in (0, 1))
            stops = _ends_together(starts, ends)
            changed |= {
                each: OffsetRanges(tuple(starts[row].tolist()), tuple(stops[row].tolist()))
                for row, each in enumerate(ids)
            }
    return changed


def _ends_together(starts: Rows, ends: Rows) -> Rows:
    """Ends of ranges, a row a source and a column a partition: who comes beyond where the first one begins ends where
    the last of them does. The others go on alone; so one that does not move holds nobody.
    """
    first = starts.max(axis=0)
    is_close = ends > first
    together = np.where(is_close, ends, np.iinfo(np.int64).max).min(axis=0)
    stops: Rows = np.where(is_close, together, ends)
    return stops


def grown(progress: SourceProgress, partitions: int) -> SourceProgress:
    """The progress in so many partitions, of which the new ones are read from offset 0 on: they came after the source
    began.
    """
    added = (0,) * (partitions - len(progress.offsets))
    if not added:
        return progress
    return SourceProgress(progress.depot, progress.offsets + added, progress.start_from + added)


def lags(spec: TopologySpec, attempt: Attempt, look: SourcesProbed) -> dict[str, float]:
    """How many records wait outside the store behind an attempt, by `lag_of` their source."""
    ends = {source.source_id: look.ends.get(source.source_id) for source in spec.sources if source.is_external}
    return {
        lag_of(name): float(sum(found.ends) - sum(attempt.ranges[name].ends))
        for name, found in ends.items()
        if found is not None and name in attempt.ranges
    }


def limit_after(limit: int | None, attempt: Attempt) -> int | None:
    """The most records of a partition in the next microbatch; None is no bound but the option.

    One that took several attempts is followed by smaller ones, half for each failure, so that something is committed
    where much of what is tried fails; each that succeeds at once is followed by a larger one. A failure that put a
    record into quarantine does not count.
    """
    largest = max((_longest(ranges) for ranges in attempt.ranges.values()), default=0)
    failures = attempt.version - 1 - len(attempt.poisons)
    if failures > 0 and largest:
        return max(1, largest >> min(failures, _HALVES_MAX))
    return None if limit is None or limit > LIMIT_MAX else 2 * limit


def _longest(ranges: OffsetRanges) -> int:
    """The most records of a partition."""
    return int((ranges.bounds[1] - ranges.bounds[0]).max()) if ranges.records else 0


def empty_ranges(spec: TopologySpec, progress: Mapping[str, SourceProgress]) -> dict[str, OffsetRanges]:
    """No record of any source."""
    return {
        source.source_id: empty_range(progress[source.source_id])
        for source in spec.sources
        if source.tick_millis is None
    }


def has_records(ranges: Mapping[str, OffsetRanges], source_ids: Iterable[str]) -> bool:
    """Whether any of these sources has a record in its range."""
    return any(ranges[source_id].records for source_id in source_ids if source_id in ranges)


def is_due(source: SourceSpec, last_ms: int, now_ms: int) -> bool:
    """Whether a tick source ticks now: a period has passed, or the clock was set back by more than one."""
    return source.tick_millis is not None and abs(now_ms - last_ms) >= source.tick_millis


def due_ticks(spec: TopologySpec, ticks: Mapping[str, int], now_ms: int) -> dict[str, int]:
    """The sources that tick now, with the time of their tick; missed periods are one tick."""
    return {
        source.source_id: now_ms for source in spec.sources if is_due(source, ticks.get(source.source_id, 0), now_ms)
    }


def next_tick_in_ms(spec: TopologySpec, ticks: Mapping[str, int], now_ms: int) -> float:
    """Milliseconds until the next source ticks; infinite without tick sources."""
    waits = [
        max(0, source.tick_millis - (now_ms - ticks.get(source.source_id, 0)))
        for source in spec.sources
        if source.tick_millis is not None
    ]
    return min(waits, default=float("inf"))


def skipped_records(progress: Mapping[str, SourceProgress], attempt: Attempt, exploded: frozenset[str]) -> int:
    """Records between the progress and the ranges of a committed attempt: retention deleted them unread."""
    return sum(
        int(np.maximum(0, ranges.bounds[0] - _offsets(grown(progress[source_id], len(ranges)))).sum())
        for source_id, ranges in attempt.ranges.items()
        if source_id in exploded and source_id in progress
    )


def advance(
    progress: Mapping[str, SourceProgress], attempt: Attempt, exploded: frozenset[str]
) -> tuple[dict[str, SourceProgress], int]:
    """Progress behind a committed attempt, and how many records count: a source advances only if it was exploded."""
    moved, records = dict(progress), 0
    for source_id, ranges in attempt.ranges.items():
        if source_id in exploded and source_id in moved:
            old = grown(moved[source_id], len(ranges))
            starts, ends = ranges.bounds
            is_after = bool(((_offsets(old) <= starts) & (starts <= ends)).all())
            invariant(is_after, "S1: a range begins where the last one ended", old=old.offsets, ranges=ranges)
            newest = attempt.reached.get(source_id, old.reached)
            moved[source_id] = SourceProgress(old.depot, ranges.ends, old.start_from, newest)
            records += ranges.records
    return moved, records


def _offsets(progress: SourceProgress) -> NDArray[np.int64]:
    return np.array(progress.offsets, dtype=np.int64)
