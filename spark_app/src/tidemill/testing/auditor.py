"""Checks the invariants S1-S7 on a simulated store, from the outside and without faults."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Snapshot
from tidemill.leader import events
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.testing.counting_runner import read_counts
from tidemill.values.columns import to_values
from tidemill.values.errors import invariant
from tidemill.values.offsets import OffsetRanges


class Auditor:
    """Reads a topology as clients do, remembers what it saw, and compares."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str, depot: DepotLog) -> None:
        self._store = store
        self._prefix = definition.topology_prefix(topology)
        self._log = CommitLog(store, self._prefix)
        self._depot = depot
        self._fixed: dict[int, Any] = {}
        self._base: dict[int, Counter[int]] = {}
        self._committed: dict[int, int] = {}
        self._newest = (0, 0, 0)
        self._audited = 0

    # --- on the way --------------------------------------------------------------------------------------------------

    def note_attempt(self, start: events.StartAttempt) -> None:
        """S2: attempts of one ID that the log knows read the same records and start from the same state."""
        attempt = start.attempt
        if attempt.records == 0:
            return
        fixed = self._fixed.setdefault(attempt.microbatch_id, attempt.ranges)
        invariant(fixed == attempt.ranges, "S2: a retry reads the same records", attempt=attempt, fixed=fixed)
        try:
            base = self.counts(start.entry.snapshot)
        except NotFound:
            return  # a zombie, whose snapshot was collected since: it can never commit
        known = self._base.setdefault(attempt.microbatch_id, base)
        invariant(known == base, "S2: a retry starts from the same state", attempt=attempt)

    def check_reader(self) -> None:
        """S1, S3, S5, S7: the newest entry shows whole microbatches, and the one before can be restored."""
        head = self._log.head()
        if head is None:
            return
        number, entry = head
        self._check_state(entry)
        self._check_order(number, entry)
        self._check_entries(number)
        if len(entry.committed) == 2:
            self._check_restorable(entry)

    def _check_state(self, entry: Entry) -> None:
        counts, records = self.counts(entry.snapshot), self.records(entry)
        expected = Counter(filter(self.counts_in_state, records))
        missing, doubled = expected - counts, counts - expected
        invariant(not missing and not doubled, "S1: each record counts once", missing=missing, doubled=doubled)
        invariant(entry.processed == len(records), "the processed count is exact", processed=entry.processed)

    def _check_restorable(self, entry: Entry) -> None:
        before = self._log.read(entry.committed[1].entry)
        invariant(before.last_id == entry.last_id - 1, "S5: the previous microbatch is there")
        invariant(
            self.counts(entry.previous) == Counter(filter(self.counts_in_state, self.records(before))),
            "S5: the previous state can be restored",
        )

    def _check_order(self, number: int, entry: Entry) -> None:
        now = (number, entry.epoch, entry.last_id)
        is_forward = all(a <= b for a, b in zip(self._newest, now, strict=True))
        invariant(is_forward, "neither entries, epochs nor IDs go back", before=self._newest, now=now)
        self._newest = now

    def _check_entries(self, newest: int) -> None:
        """S4: each ID is committed by one entry; epochs rise; begins repeat what was fixed."""
        for number in range(max(self._audited + 1, self._log.log.span()[0]), newest + 1):
            try:
                entry = self._log.read(number)
            except NotFound:
                continue
            if entry.kind == "commit":
                invariant(entry.last_id not in self._committed, "S4: one commit an ID", entry=number)
                self._committed[entry.last_id] = number
                newest_id = max(self._committed)
                invariant(newest_id == entry.last_id, "IDs are committed in order", entry=number)
        self._audited = newest

    def check_resumed(self, asked: int) -> None:
        """While a pause was seen, nothing is begun; only an attempt that failed may wait for the end of the pause."""
        head = self._log.head()
        if head is not None and head[1].paused_seen >= asked:
            is_at_rest = head[1].attempt is None or head[1].failure is not None
            invariant(is_at_rest, "a paused topology has no attempt under way", entry=head[0])

    # --- at the end --------------------------------------------------------------------------------------------------

    def is_finished(self) -> bool:
        """Whether everything in the depot is processed and nothing is under way."""
        self._depot.follow()
        head = self._log.head()
        if head is None or head[1].attempt is not None or not head[1].progress:
            return False
        return all(progress.offsets == self._depot.ends() for progress in head[1].progress.values())

    def check_end(self, appended: set[int], uncertain: set[int]) -> None:
        """S6: every acknowledged record counts once; one without an answer once or not at all."""
        self.check_reader()
        head = self._log.head()
        invariant(head is not None, "a finished run has a log")
        counts = self.counts(head[1].snapshot) if head else Counter()
        lost = appended - counts.keys()
        strange = counts.keys() - appended - uncertain
        invariant(not lost, "S6: an acknowledged append is never lost", lost=lost)
        invariant(not strange, "S6: nothing counts that nobody appended", strange=strange)
        invariant(all(count == 1 for count in counts.values()), "S1: each record counts once")

    def counts_in_state(self, number: int) -> bool:
        """Whether the state counts a record that is committed."""
        return True

    def number(self, row: Any) -> int:
        """The number of a record, which no other record has."""
        return int(row)

    # --- reading -----------------------------------------------------------------------------------------------------

    def counts(self, snapshot: Snapshot) -> Counter[int]:
        """How often each record counts in the state of this snapshot, by the record's number."""
        return read_counts(self._store, self._prefix, snapshot.parts())

    def records(self, entry: Entry) -> list[int]:
        """The records from each source's start to its progress."""
        found: list[int] = []
        for progress in entry.progress.values():
            ranges = OffsetRanges(progress.start_from, progress.offsets)
            self._depot.follow()
            rows, _ = self._depot.read_rows(ranges)
            found += [self.number(row) for row in to_values(rows)]
        return found
