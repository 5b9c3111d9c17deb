"""Finding and reading records in a depot's segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidemill.depot.files import DepotFiles
from tidemill.depot.header import Header, Produced
from tidemill.depot.segment import Segment
from tidemill.language.options import find_option
from tidemill.store.objects import NotFound
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.offsets import OffsetRanges

Pieces = NDArray[np.int64]
"""A row a piece: (partition, first row, rows, first offset) in one object."""


FETCH: Final[int] = find_option("depot.max.fetch").default


class _Taken:
    """The records that a read has so far. They are slices of segments, which stay in memory as long as slices do."""

    def __init__(self, fetch: int) -> None:
        self.pieces: list[Column] = []
        self._fetch = fetch
        self._owned = 0
        self._surplus = 0

    def add(self, segment: Segment, wanted: Pieces) -> None:
        """Take rows of a segment; where too much is held beside what was taken, what was taken is copied out."""
        self.pieces += [segment.rows(row, count, self._fetch) for row, count in _adjacent(wanted)]
        if len(wanted) and segment.header.layout != "values":
            self._surplus += segment.header.records - int(wanted[:, 2].sum())
        if self._surplus > self._fetch:
            self.pieces[self._owned :] = _owned(self.pieces[self._owned :])
            self._owned, self._surplus = len(self.pieces), 0


def _owned(pieces: list[Column]) -> Iterator[Column]:
    """Copies, those of one form made one; values hold nothing of their segment."""
    for form, alike in groupby(pieces, columns.form):
        if form is None:
            yield from alike
        else:
            yield columns.owned(columns.concat(list(alike)))


def read_rows(
    files: DepotFiles,
    ranges: OffsetRanges,
    segments: tuple[int, int],
    fetch: int = FETCH,
    as_appended: bool = False,
) -> tuple[Column, NDArray[np.int32]]:
    """The records of these ranges in these segments [first, last), and their partitions. Raises NotFound.

    Beside them and the last segment at most `fetch` records of segments are held; packed ones are unpacked as many at a
    time. Objects come in order, in each its partitions; `as_appended`: segments, in each its partitions.
    """
    taken = _Taken(fetch)
    partitions: list[NDArray[np.int32]] = []
    order: list[NDArray[np.int64]] = []
    number, last = segments
    while number < last:
        segment = files.segment(number)
        # An object may begin before `number` with segments that were read from the log, before it was rolled.
        wanted = _pieces(segment, ranges.bounds, segment.header.ends_before(number))
        taken.add(segment, wanted)
        partitions.append(np.repeat(wanted[:, 0], wanted[:, 2]).astype(np.int32))
        order.append(_segments_of(segment.header, wanted, (number, last)) if as_appended else np.empty(0, np.int64))
        number = segment.header.number + 1
    if not taken.pieces:
        return [], np.empty(0, dtype=np.int32)
    column, places = columns.concat(taken.pieces), np.concatenate(partitions)
    appended = np.concatenate(order)
    if (appended[1:] >= appended[:-1]).all():
        return column, places
    rows = np.argsort(appended, kind="stable")
    return columns.gather_rows(column, rows), places[rows]


def _pieces(segment: Segment, bounds: NDArray[np.int64], read: Sequence[int]) -> Pieces:
    """The wanted rows of an object; the offsets before `read` are read already."""
    partition, row, first, end = segment.header.held()
    start = np.maximum(np.maximum(bounds[0, partition], first), np.array(read, dtype=np.int64)[partition])
    count = np.minimum(bounds[1, partition], end) - start
    pieces: Pieces = np.stack([partition, row + start - first, count, start], axis=1)[count > 0]
    return pieces


def _segments_of(header: Header, pieces: Pieces, segments: tuple[int, int]) -> NDArray[np.int64]:
    """The segment of each row of these pieces of an object, which lie in the segments [first, last)."""
    partition, _, count, start = pieces.T
    number, (first, last) = header.entries[0].number, segments
    entries = header.entries[max(0, first - number) : last - number]
    if len(entries) == 1 or len(pieces) == 1:  # in order as they stand
        return np.full(count.sum(), entries[0].number)
    held = partition.tolist()
    ends = np.array([[entry.ends[each] for each in held] for entry in entries], dtype=np.int64)
    within = np.diff(ends.clip(start, start + count), axis=0, prepend=start[np.newaxis])
    numbers = np.array([entry.number for entry in entries], dtype=np.int64)
    return np.repeat(np.tile(numbers, len(held)), within.T.ravel())


def _adjacent(pieces: Pieces) -> list[tuple[int, int]]:
    """(row, rows) of pieces, those that touch made one: a whole segment is one slice."""
    if not len(pieces):
        return []
    starts, ends = pieces[:, 1], pieces[:, 1] + pieces[:, 2]
    is_apart = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    rows = starts[np.concatenate([[0], is_apart])]
    return list(zip(rows.tolist(), (ends[np.concatenate([is_apart - 1, [-1]])] - rows).tolist(), strict=True))


def offsets_after(files: DepotFiles, newest: Header, millis: int) -> tuple[int, ...]:
    """In each partition the offset of the first record that was appended after this time."""
    number = files.first_after(lambda entry: entry.time > millis, newest.number)
    return files.ends_before(number) if number <= newest.number else newest.ends


PAST_MAX = 256
"""How many segments of a producer are looked through for an append that it repeats."""


def produced_back(files: DepotFiles, number: int, producer: str) -> Iterator[tuple[Header, list[Produced]]]:
    """The segments with a producer's appends, from segment `number` back: of each the header and these appends.

    Raises:
        NotFound: a segment is deleted.
    """
    while number:
        header = files.header(number)
        mine = [append for append in header.produced if append.producer == producer]
        yield header, mine
        before = min((append.previous for append in mine), default=0)
        number = before if before < header.entries[0].number else 0


def find_produced(files: DepotFiles, number: int, producer: str, sequence: int) -> Produced | None:
    """Follow a producer's appends back from its last segment to this sequence; None where it cannot be found."""
    with suppress(NotFound):
        for _, appends in islice(produced_back(files, number, producer), PAST_MAX):
            for append in appends:
                if append.sequence == sequence:
                    return append
            if any(append.sequence < sequence for append in appends):
                break
    return None
