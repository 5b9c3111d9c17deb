"""Keeps a depot small: rolls many small segments into one, and deletes what retention no longer keeps.

Both only move the beginning of the log. Each step may be cut off by a crash and done again, by several processes at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tidemill.depot.files import DepotFiles
from tidemill.depot.header import Header
from tidemill.depot.log import DepotLog
from tidemill.depot.producers import HeaderMissing, ProducerTable, brought_up
from tidemill.depot.segment import Segment, encode_segment
from tidemill.store.objects import AlreadyExists, NotFound
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import invariant


@dataclass(frozen=True)
class RollingLimits:
    """Roll when `segments_min` segments can go, up to `records_max` records and `segments_max` segments an object."""

    segments_min: int = 64
    segments_max: int = 4096
    records_max: int = 2_000_000


def roll(depot: DepotLog, limits: RollingLimits = RollingLimits()) -> int:
    """Roll the oldest segments of the log into one object, offsets unchanged; how many went, 0 if it is too early, or
    others roll or delete the same ones.
    """
    files = depot.files
    first = _finish_trim(files)
    _, last = files.log.span()
    numbers = range(first, last - 1)  # the log keeps its last two entries
    if len(numbers) < limits.segments_min:
        return 0
    try:
        segments = _take(files, numbers, limits)
        if not segments:
            return 0
        table = _table(files, segments[-1].header, last)
    except (NotFound, HeaderMissing):
        if files.log.is_entry(first):
            raise
        return 0
    if not files.log.is_entry(first):
        return 0
    key = files.rolled_key(first, first + len(segments) - 1)
    with suppress(AlreadyExists):  # rolled by another process, which perhaps did not live to trim
        files.store.create(key, _encode_rolled(key, segments, table))
    files.log.trim(first + len(segments))
    return len(segments)


def _finish_trim(files: DepotFiles) -> int:
    """Trim what is rolled already; the first segment that is not."""
    rolled = max((last for _, last, _ in files.list_rolled()), default=0)
    first, _ = files.log.span()
    return max(first, files.log.trim(rolled + 1)) if rolled >= first else first


def _take(files: DepotFiles, numbers: range, limits: RollingLimits) -> list[Segment]:
    """Segments of the log, each of which is then also known by its header."""
    segments: list[Segment] = []
    records = 0
    for number in numbers[: limits.segments_max]:
        segment = files.segment(number)
        if segment.header.entries[0].number < number or segment.header.number > number:
            break  # another process rolled it meanwhile
        records += segment.header.records
        if segments and records > limits.records_max:
            break
        segments.append(segment)
        files.remember(segment.header)
    return segments


def _table(files: DepotFiles, header: Header, newest: int) -> ProducerTable:
    """The producers as of a segment, or of the newest where retention deleted what tells the older table.

    Who reads a table that is younger than the segment which carries it finds the same after the segments that follow.
    """
    try:
        return brought_up(files, ProducerTable(), header)
    except HeaderMissing:
        return brought_up(files, ProducerTable(), files.header(newest))


def _encode_rolled(key: str, segments: Sequence[Segment], table: ProducerTable) -> object:
    headers = [segment.header for segment in segments]
    produced = [p for header in headers for p in header.produced if table.get(p.producer) is not None]
    header = Header(
        entries=tuple(entry for header in headers for entry in header.entries),
        first_ends=headers[0].first_ends,
        starts=headers[-1].starts,
        produced=tuple(produced),
        table_at=headers[-1].number,
        sequences=table.sequences(),
        key=key,
        gate=headers[-1].gate,
    )
    return encode_segment(header, _merged_rows(segments))


def _merged_rows(segments: Sequence[Segment]) -> Column:
    """The records of all segments, by partition and offset."""
    held = [segment for segment in segments if segment.header.records]
    if not held:
        return []
    ranges = [segment.header.held() for segment in held]
    partitions = np.concatenate([np.repeat(at.partition, at.end - at.start) for at in ranges])
    column = columns.concat([segment.rows(0, segment.header.records) for segment in held])
    return columns.gather_rows(column, np.argsort(partitions, kind="stable"))


# --- retention -------------------------------------------------------------------------------------------------------

GRACE_MILLIS = 600_000
"""How long records stay after the logical start passed them, for attempts that read them."""


def retain(
    depot: DepotLog,
    entries_max: int,
    needed: Sequence[int],
    excess: float = 0.0,
    grace_millis: int = GRACE_MILLIS,
    old: int = 0,
) -> int:
    """Keep the newest `entries_max` records of each partition, and all that is `needed`; how many objects were deleted.

    First the logical start is recorded in the log, once more than `entries_max` * (1 + `excess`) records are there;
    objects go when the start that passed them was recorded `grace_millis` ago. `needed[p]` is the lowest offset that
    some topology still has to read. What was recorded up to segment `old` was so long ago whatever its time says.
    """
    depot.follow()
    newest = depot.newest()
    if any(end - start > entries_max * (1 + excess) for start, end in zip(newest.starts, newest.ends, strict=True)):
        wanted = zip(newest.starts, newest.ends, needed, strict=True)
        starts = [max(start, min(end - entries_max, need)) for start, end, need in wanted]
        is_kept = all(at <= max(old, need) for at, old, need in zip(starts, newest.starts, needed, strict=True))
        invariant(is_kept, "S6: retention leaves what is still to be read", starts=starts, needed=list(needed))
        depot.record_starts(starts)
    return _delete_before(depot, _starts_at(depot, depot.now_millis() - grace_millis, old))


def _starts_at(depot: DepotLog, millis: int, old: int) -> tuple[int, ...]:
    """The logical starts as they were recorded at this time or before, or up to segment `old`."""
    newest = depot.newest()
    number = max(old, depot.files.first_after(lambda entry: entry.time > millis, newest.number) - 1)
    try:
        header = depot.files.header(number)
    except NotFound:
        return (0,) * depot.partitions
    is_old = header.time <= millis or header.number <= old
    return header.starts if is_old else (0,) * depot.partitions


def _delete_before(depot: DepotLog, starts: Sequence[int]) -> int:
    """Delete the objects, oldest first, whose records all lie before these offsets; never what tells the producers."""
    files = depot.files
    table_at = depot.newest().table_at
    deleted = 0
    for _, last, key in files.list_rolled():
        if last >= table_at or not _is_before(files, last, starts):
            return deleted
        files.store.delete(key)
        deleted += 1
    files.list_rolled()
    first, last = files.log.span()
    below = first
    while below < min(last - 1, table_at) and _is_before(files, below, starts):
        below += 1
    return deleted + max(0, files.log.trim(below) - first)


def _is_before(files: DepotFiles, number: int, starts: Sequence[int]) -> bool:
    """Whether all records up to the end of an object lie before these offsets; no, where others delete it."""
    try:
        header = files.header(number)
    except NotFound:
        return False
    return all(end <= start for end, start in zip(header.ends, starts, strict=True))
