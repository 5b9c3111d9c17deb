"""A depot: partitioned records in one log of segments, appended in group commits, read by partition and offset.

A record is (partition, offset); offsets begin at 0 and rise by one. An append is acknowledged when its segment is in
the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tidemill.depot import record_reader
from tidemill.depot.append_identity import Numbered, Producer
from tidemill.depot.commit import Commit, SegmentBatch, plan_commit
from tidemill.depot.end import DepotEnd
from tidemill.depot.header import Gate, Header, LastSequence, Offsets, SegmentSummary
from tidemill.depot.mark import SegmentMark
from tidemill.depot.producers import HeaderMissing, Producers
from tidemill.depot.rows import PartitionedRows, of_pairs
from tidemill.depot.segment import encode_segment
from tidemill.language.dataflow import StartFrom
from tidemill.store.log import PATIENCE, Lost, SlotTrimmed
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import BadInput, CorruptState, OutcomeUnknown, StoreUnavailable, invariant
from tidemill.values.ids import nonce
from tidemill.values.offsets import OffsetRanges

_COLLISIONS_MAX = 1000
_STARTS_MAX = 10
_NOTHING = Commit(None, [], [])


def system_millis() -> int:
    """Milliseconds since 1970, where nobody passed a clock; only start-from by time depends on it."""
    return time.time_ns() // 1_000_000


class DepotLog(DepotEnd):
    """One depot of `partitions` partitions below `prefix`. Any number of processes may append and read.

    `now_millis` stamps segments.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        partitions: int,
        now_millis: Callable[[], int] = system_millis,
        patience: tuple[float, ...] = PATIENCE,
    ) -> None:
        super().__init__(store, prefix, partitions, patience)
        self.now_millis = now_millis
        self._producers = Producers(self.files)
        self._append_lock = threading.Lock()

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(
        self, batch: PartitionedRows | Iterable[tuple[int, Column]], producer: Numbered | Producer | None = None
    ) -> Offsets:
        """Append records durably; where they are now. `producer` is (name, sequence): a sequence is appended once.

        Raises:
            KeyReused: the producer's append of this sequence was another one.
            SequenceUnknown: it is below the producer's last one, and nothing is known of it.
            DepotClosed, Deleted: the depot was deleted; nothing was appended.
            StoreUnavailable: nothing was appended.
            OutcomeUnknown: the records are in the log once, or not at all.
        """
        rows = batch if isinstance(batch, PartitionedRows) else of_pairs(batch)
        (at,) = self.append_group([SegmentBatch(rows, producer)])
        if isinstance(at, BadInput):
            raise at
        return at

    def append_group(self, batches: Sequence[SegmentBatch]) -> list[Offsets | BadInput]:
        """Append several batches as one segment; the offsets of each, or why it alone is refused.

        Raises:
            DepotClosed, Deleted, StoreUnavailable, OutcomeUnknown: as `append`, for all of them alike.
        """
        return self._commit(lambda newest: self._plan(newest, batches)).offsets

    def last_of(self, producer: str) -> LastSequence | None:
        """What an idempotent producer appended last, as of now; None if nothing is remembered.

        Raises:
            Deleted: the depot was deleted for good.
            StoreUnavailable: the store does not answer, or others write faster than it can be asked.
        """
        with self._append_lock:
            for _ in range(_COLLISIONS_MAX):
                self.follow()
                newest = self.newest()
                try:
                    return self._producers.last(newest, producer)
                except HeaderMissing:
                    if not self.follow():
                        raise
        raise StoreUnavailable(
            f"Others delete segments of {self.files.prefix} faster than they can be read: try again."
        )

    def record_starts(self, starts: Sequence[int]) -> None:
        """Move the logical starts: a segment without records says so. Raises as `append`."""

        def plan(newest: Header) -> Commit | None:
            moved = tuple(max(old, new) for old, new in zip(newest.starts, starts, strict=True))
            return _NOTHING if moved == newest.starts else self._plan(newest, [], starts=moved)

        self._commit(plan)

    def close(self, definition: int) -> None:
        """Take no more appends, since this definition deleted the depot; all that was appended before can be read.

        Raises:
            Deleted: the depot was deleted for good.
            StoreUnavailable, OutcomeUnknown: ask again.
        """
        self._set_gate(Gate(definition, is_closed=True))

    def reopen(self, definition: int) -> None:
        """Take appends again, since this definition brought the depot back; nothing where a later one closed it.

        Raises: as `close`.
        """
        self._set_gate(Gate(definition, is_closed=False))

    def _set_gate(self, gate: Gate) -> None:
        """A segment without records says so: each append is before it or after it; the newest definition counts."""
        self.follow()
        self._commit(
            lambda newest: _NOTHING if newest.gate.definition >= gate.definition else self._plan(newest, [], gate=gate)
        )

    def _commit(self, plan: Callable[[Header], Commit | None]) -> Commit:
        """Write what is planned after the newest segment, whoever else writes meanwhile."""
        with self._append_lock:
            for _ in range(_COLLISIONS_MAX):
                commit = plan(self.newest())
                if commit is not None and self._is_in_log(commit):
                    return commit
                self.follow()
        text = f"{_COLLISIONS_MAX} appends in a row met other writers in {self.files.prefix}: try again."
        raise StoreUnavailable(text)

    def _is_in_log(self, commit: Commit) -> bool:
        """Whether all that the commit says is in the log; a repeat is done only in a depot that is still there."""
        if commit.header is None:
            return not commit.offsets or not self.follow()
        return self._write(commit.header, commit.column)

    def _plan(
        self,
        newest: Header,
        batches: Sequence[SegmentBatch],
        starts: tuple[int, ...] | None = None,
        gate: Gate | None = None,
    ) -> Commit | None:
        """What to write after `newest`; None where others went on so far that the table of producers is deleted."""
        try:
            return plan_commit(newest, batches, self.now_millis(), nonce(), self._producers, starts, gate)
        except HeaderMissing:
            self.follow()
            if self.newest().number == newest.number:
                raise
            return None

    def _write(self, header: Header, column: Column) -> bool:
        """Whether the segment is in the log; False if another one took its number."""
        header = replace(header, key=self.files.log.key(header.number))
        try:
            self.files.log.append(header.number, encode_segment(header, column), header.last.nonce)
        except SlotTrimmed:
            return self._is_ours(header)
        except Lost:
            return False
        self.files.remember(header)
        with self._state_lock:
            if self._newest is None or self._newest.number < header.number:  # another thread may have followed on
                self._newest = header
        return True

    def _is_ours(self, header: Header) -> bool:
        """This writer slept through a trim: only what was rolled still shows whether its segment was in the log."""
        text = f"Segment {header.number} of {self.files.prefix} was trimmed before its append was confirmed."
        try:
            self.files.list_rolled()
            if self.files.rolled_covers(header.number):
                return self.files.entry(header.number).nonce == header.last.nonce
        except (StoreUnavailable, NotFound) as error:
            raise OutcomeUnknown(text, number=header.number) from error
        raise OutcomeUnknown(text, number=header.number)

    # --- reading -----------------------------------------------------------------------------------------------------

    def locate(self, ranges: OffsetRanges) -> tuple[int, int]:
        """The segment numbers [first, last) that hold these ranges; (0, 0) if they are empty."""
        starts, ends = ranges.bounds
        wanted = np.flatnonzero(ends > starts)
        if not len(wanted):
            return (0, 0)
        newest = self.newest().number
        starts, ends = starts[wanted], ends[wanted]
        first = self.files.first_after(lambda entry: bool((_at(entry, wanted) > starts).any()), newest)
        last = self.files.first_after(lambda entry: bool((_at(entry, wanted) >= ends).all()), newest)
        return (first, last + 1)

    def check_kept(self, partition: int, start: int, end: int) -> None:
        """Whether a reader may have these records: those below the logical start may stand there for a grace time.

        Raises:
            BadInput: retention gave some of them up, as of now.
        """
        self.follow()
        if 0 <= start < min(end, self.starts()[partition]):
            raise self._given_up()

    def read_columns(self, partition: int, start: int, end: int, segments: tuple[int, int] | None = None) -> Column:
        """The records [start, end) of a partition; `segments` as `locate` gave them.

        Raises:
            BadInput: there are no such offsets.
            CorruptState: there were, but their segments are missing.
        """
        return self.read_rows(OffsetRanges.only(self.partitions, partition, start, end), segments)[0]

    def read_rows(
        self,
        ranges: OffsetRanges,
        segments: tuple[int, int] | None = None,
        fetch: int = record_reader.FETCH,
        as_appended: bool = False,
    ) -> tuple[Column, NDArray[np.int32]]:
        """The records of ranges of all partitions, and the partition of each; those of a partition are in order.

        `fetch` is `depot.max.fetch`. Where the ranges are whole segments on a local folder nothing is copied.
        `as_appended`: segments in the order of the log, also those that were rolled; this may copy. Raises as
        `read_columns`.
        """
        if segments is None:
            self._check_ranges(ranges)
            segments = self.locate(ranges)
        try:
            column, partitions = record_reader.read_rows(self.files, ranges, segments, fetch, as_appended)
        except NotFound as error:
            raise self._missing(ranges) from error
        if columns.length(column) != ranges.records:
            raise self._missing(ranges)
        return column, partitions

    def _check_ranges(self, ranges: OffsetRanges) -> None:
        if any(end > known for (_, end), known in zip(ranges, self.ends(), strict=True)):
            self.follow()
        for partition, ((start, end), known) in enumerate(zip(ranges, self.ends(), strict=True)):
            if not 0 <= start <= end <= known:
                text = f"Partition {partition} has offsets up to {known}; there is no range {start} to {end}."
                raise BadInput(text, partition=partition, start=start, end=end)

    def _missing(self, ranges: OffsetRanges) -> BadInput | CorruptState:
        self.follow()  # others may have moved the starts
        is_trimmed = any(start < end and start < at for (start, end), at in zip(ranges, self.starts(), strict=True))
        if is_trimmed:
            return self._given_up()
        text = f"The depot {self.files.prefix} should hold {ranges}, but segments of it are missing."
        return CorruptState(text, prefix=self.files.prefix)

    def _given_up(self) -> BadInput:
        return BadInput(f"Records before the logical starts {list(self.starts())} are no longer kept.")

    def reached(self, offsets: Sequence[int]) -> SegmentMark | None:
        """The first segment with which all records below these offsets are there, as far as was seen; None where there
        are no such records, or not all of them.
        """
        wanted = np.flatnonzero(offsets)
        if not len(wanted):
            return None
        newest, ends = self.newest().number, np.array(offsets, dtype=np.int64)[wanted]
        number = self.files.first_after(lambda entry: bool((_at(entry, wanted) >= ends).all()), newest)
        with suppress(NotFound):  # retention may take it meanwhile
            return self.files.entry(number).mark
        return None

    def check_holds(self, mark: SegmentMark) -> None:
        """Whether a segment that somebody read is still the one that stands here, or was before retention took it.

        Raises:
            CorruptState: the depot ends before it, or another one has its number: acknowledged records are lost (S6).
            StoreUnavailable: ask again.
        """
        if mark.number > self.newest().number:
            self.follow()  # perhaps another process read it, and this one did not look since
        newest = self.newest().number
        with suppress(NotFound):
            if mark.number <= newest and self.files.entry(mark.number).mark == mark:
                return
            found = "another one stands there" if mark.number <= newest else f"the newest one is {newest}"
            text = f"Segment {mark.number} of {self.files.prefix} was read by a source, but now {found}."
            advice = "Records are lost: restore the depot's objects."
            raise CorruptState(f"{text} {advice}", prefix=self.files.prefix)

    # --- start-from --------------------------------------------------------------------------------------------------

    def resolve_start(self, start_from: StartFrom, now_millis: int) -> tuple[int, ...]:
        """The offset in each partition at which a source begins that meets this depot for the first time.

        It is decided once and for all, so a listing that came too late is not trusted: a probe follows it.

        Raises:
            StoreUnavailable: the store does not answer, or others delete segments faster than they can be read.
        """
        for _ in range(_STARTS_MAX):
            self.follow()
            self.follow()
            with suppress(NotFound):  # others deleted it between two looks
                return self._resolved(self.newest(), start_from, now_millis)
        raise StoreUnavailable(f"Others delete the records of {self.files.prefix} at which to start: try again.")

    def _resolved(self, newest: Header, start_from: StartFrom, now_millis: int) -> tuple[int, ...]:
        if start_from.kind == "end":
            return newest.ends
        if start_from.kind == "beginning":
            return newest.starts
        if start_from.kind == "ago_records":
            found = tuple(end - start_from.amount for end in newest.ends)
        else:
            after = start_from.amount if start_from.kind == "after_timestamp" else now_millis - start_from.amount
            found = record_reader.offsets_after(self.files, newest, after)
        clamped = zip(newest.starts, found, newest.ends, strict=True)
        offsets = tuple(min(max(start, at), end) for start, at, end in clamped)
        invariant(all(at >= 0 for at in offsets), "a start is an offset", offsets=offsets)
        return offsets


def _at(entry: SegmentSummary, partitions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The end offsets of these partitions after a segment."""
    return np.array(entry.ends, dtype=np.int64)[partitions]
