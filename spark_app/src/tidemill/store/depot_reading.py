"""Finding and reading records in a depot's segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidemill.model import columns
from tidemill.model.columns import Column
from tidemill.store.depot_files import DepotFiles
from tidemill.store.depot_segment import Entry, Header, Offsets, Segment
from tidemill.store.objects import NotFound

Piece = tuple[int, int, int]
"""(partition, first row, rows) in one segment."""


def empty_header(partitions: int) -> Header:
    """The header of a depot without segments."""
    zeros = (0,) * partitions
    return Header(entries=(Entry(0, "", 0, zeros),), first_ends=zeros, starts=zeros, rows=())  # full, of nobody


def read_rows(
    files: DepotFiles, ranges: Sequence[tuple[int, int]], segments: tuple[int, int]
) -> tuple[Column, NDArray[np.int32]]:
    """The records of these ranges in these segments [first, last), and their partitions. Raises NotFound."""
    pieces: list[Column] = []
    partitions: list[NDArray[np.int32]] = []
    number, last = segments
    while number < last:
        segment = files.segment(number)
        # An object may begin before `number` with segments that were read from the log, before it was rolled.
        wanted = _pieces(segment, ranges, segment.header.ends_before(number))
        pieces += [segment.rows(row, count) for row, count in _adjacent(wanted)]
        partitions += [np.full(count, partition, dtype=np.int32) for partition, _, count in wanted]
        number = segment.header.number + 1
    if not pieces:
        return [], np.empty(0, dtype=np.int32)
    return columns.concat(pieces), np.concatenate(partitions)


def _pieces(segment: Segment, ranges: Sequence[tuple[int, int]], read: Sequence[int]) -> list[Piece]:
    """The wanted rows of an object; the offsets before `read` are read already."""
    pieces = []
    for held in segment.header.rows:
        start, end = ranges[held.partition]
        start, end = max(start, held.start, read[held.partition]), min(end, held.end)
        if start < end:
            pieces.append((held.partition, held.row + start - held.start, end - start))
    return pieces


def _adjacent(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """(row, rows) of pieces, those that touch made one: a whole segment is one slice."""
    merged: list[tuple[int, int]] = []
    for _, row, count in pieces:
        if merged and merged[-1][0] + merged[-1][1] == row:
            merged[-1] = (merged[-1][0], merged[-1][1] + count)
        else:
            merged.append((row, count))
    return merged


def offsets_after(files: DepotFiles, newest: Header, millis: int) -> tuple[int, ...]:
    """In each partition the offset of the first record that was appended after this time."""
    number = files.first_after(lambda entry: entry.time > millis, newest.number)
    return files.ends_before(number) if number <= newest.number else newest.ends


def find_produced(files: DepotFiles, number: int, producer: str, sequence: int) -> Offsets:
    """Follow a producer's appends back from its last segment to this sequence; empty where the segment was deleted."""
    while number:
        try:
            header = files.header(number)
        except NotFound:
            return ()
        appends = [append for append in header.produced if append.producer == producer]
        for append in appends:
            if append.sequence == sequence:
                return append.offsets
        number = min((append.previous for append in appends), default=0)
        if number >= header.entries[0].number:
            return ()
    return ()
