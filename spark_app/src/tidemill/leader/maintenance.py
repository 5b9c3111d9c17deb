"""What a leader has done beside its microbatches: compactions, whose results enter the log, and collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidemill.journal.entries import ENTRY_BYTES_MAX, Entry, PendingCompaction
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.options import ModuleOptions, resolve
from tidemill.leader import events, transitions
from tidemill.leader.events import Instruction
from tidemill.tables.compaction_plan import level_rows
from tidemill.values.errors import CombinersDiffer, NeedsCode
from tidemill.values.numbers import MicrobatchId, after

Planner = Callable[[Snapshot, MicrobatchId], "tuple[int, int] | None"]
"""`tables.compaction_plan.plan`, or a stand-in: the levels to merge, by the snapshot and the newest microbatch."""

BACK_OFF_MS: Final = 5_000.0
MIGRATION_BACK_OFF_MS: Final = 60_000.0
"""A migration that failed will fail again until somebody mends its function."""

PIECE_ROWS: Final = 1_000_000
"""A migration is cut into pieces of about so many rows: that much is done again if a leader dies."""

PIECES_MAX: Final = 32
"""Each entry names what came of the pieces that are done, until all are."""

PART_BYTES: Final = (300, 40)
"""About so much an entry says of what came of a piece, and of each table in it, beside the table's name."""

LEVELS_MAX: Final = 128
"""A topology with more levels waits for its compaction before it starts another attempt: entries must stay small."""


@dataclass
class Compacting:
    """The compaction under way, or its next `pieces`; `parts` are there when it is done and waits for an entry."""

    token: int
    pending: PendingCompaction
    is_base: bool
    is_migration: bool = False
    pieces: tuple[TaskSet, ...] = ()
    parts: tuple[Part, ...] | None = None

    @property
    def result(self) -> PendingCompaction:
        """What an entry says of it once it is done."""
        pending = self.pending
        return replace(
            pending, done=pending.done + (len(self.pieces) or 1), parts=(*pending.parts, *(self.parts or ()))
        )


@dataclass
class Maintenance:
    """At most one compaction and one collection at a time; `at` is monotonic milliseconds.

    While rows wait for a migration (`generations`), a compaction of all levels brings them along: where there are many,
    so many pieces at a time as there are `threads`, in turns with the compaction of the levels above. If it fails, it
    is tried again later, and the levels above are compacted as always.
    """

    plan: Planner
    trouble: str = ""
    collected_at: float = 0.0
    compact_at: float = 0.0
    migrate_at: float = 0.0
    generations: Mapping[str, int] = field(default_factory=dict)
    tasks: int = 1
    threads: int = 1
    _is_collecting: bool = False
    _compacting: Compacting | None = None
    _is_whole: bool = False
    _is_others_turn: bool = False

    def work(self, entry: Entry, options: ModuleOptions, token: int, at: float) -> list[Instruction]:
        """What is to be started now."""
        return [*self._collection(options, at), *self._compaction(entry, token, at)]

    def start(self, at: float) -> None:
        """A new leader collects a period after its claim."""
        self.collected_at = at

    def collect_at(self, options: ModuleOptions) -> float:
        """When the next collection is due."""
        period: float = resolve("store.collection.period.seconds", options.values)
        return self.collected_at + 1000 * period

    def _collection(self, options: ModuleOptions, at: float) -> list[Instruction]:
        if self._is_collecting or at < self.collect_at(options):
            return []
        self._is_collecting = True
        self.start(at)
        return [events.CollectGarbage(int(1000 * resolve("store.snapshot.retention.seconds", options.values)))]

    def _compaction(self, entry: Entry, token: int, at: float) -> list[Instruction]:
        """Compactions are named after an ID that is not committed yet: collection leaves their objects alone."""
        if self._compacting is not None or at < self.compact_at:
            return []
        chosen = self._chosen(entry, at)
        if chosen is None:
            return []
        pending, is_migration = chosen
        levels = _levels(entry, pending)
        is_base = levels[0] == entry.snapshot.levels[0]
        stop = min(pending.done + self.threads, pending.pieces) if pending.is_cut else 0
        pieces = tuple(TaskSet(pending.pieces, number) for number in range(pending.done, stop))
        self._compacting = Compacting(token, pending, is_base, is_migration, pieces)
        return [events.StartCompaction(token, pending.microbatch_id, levels, is_base, pieces)]

    def _chosen(self, entry: Entry, at: float) -> tuple[PendingCompaction, bool] | None:
        """What is merged next, and whether it is a migration: of all levels, or the next pieces of one that began."""
        begun = next((pending for pending in entry.pending if pending.is_cut), None)
        waiting = len(_levels(entry, begun)) if begun else entry.snapshot.migrated_from(self.generations)
        is_due = waiting > 0 and at >= self.migrate_at
        planned = None if is_due and not self._is_others_turn else self._planned(entry, waiting)
        if planned is not None:
            return planned, False
        return (begun or self._migration(entry), True) if is_due else None

    def _planned(self, entry: Entry, waiting: int) -> PendingCompaction | None:
        """The levels that the plan merges next, none of the first ones, which wait for a migration."""
        levels = entry.snapshot.levels
        chosen = self.plan(Snapshot(levels[waiting:]), entry.last_id)
        if chosen is None or (waiting and self._is_whole):
            return None
        merged = levels[0 if self._is_whole else chosen[0] + waiting : chosen[1] + waiting]
        return PendingCompaction(after(entry.last_id), merged[0].first, merged[-1].last, entry.epoch)

    def _migration(self, entry: Entry) -> PendingCompaction:
        """All levels, in pieces of `PIECE_ROWS` rows, but no more pieces than tasks, nor than an entry has room for."""
        levels, pieces = entry.snapshot.levels, 1
        rows = sum(map(level_rows, levels))
        tables = {table for part in entry.snapshot.parts() for table in part.rows}
        room = ENTRY_BYTES_MAX // (PART_BYTES[0] + sum(PART_BYTES[1] + 3 * len(table) for table in tables))
        while pieces < min(self.tasks, PIECES_MAX, room // 2 + 1) and pieces * PIECE_ROWS < rows:
            pieces *= 2
        return PendingCompaction(after(entry.last_id), levels[0].first, levels[-1].last, entry.epoch, pieces)

    def take(self, event: events.CompactionDone | events.CompactionFailed | events.CollectionDone, at: float) -> None:
        """Note what a compaction or a collection came to."""
        if isinstance(event, events.CollectionDone):
            self._is_collecting = False
            self.trouble = event.text or self.trouble
            return
        compacting = self._compacting
        if compacting is None or event.token != compacting.token:
            return
        if isinstance(event, events.CompactionDone):
            compacting.parts = event.parts
            self._is_whole = False
            self._is_others_turn = compacting.pending.is_cut
            self.trouble = self.trouble if at < self.migrate_at else ""
            return
        self._compacting = None
        if event.code == CombinersDiffer.code and not compacting.is_base:
            self._is_whole = True
            return
        self.trouble = event.text
        if compacting.is_migration:
            # A leader has all code but that of PStates which a rollback may still bring back: for a short while.
            self.migrate_at = at + (BACK_OFF_MS if event.code == NeedsCode.code else MIGRATION_BACK_OFF_MS)
        else:
            self.compact_at = at + BACK_OFF_MS

    @property
    def has_result(self) -> bool:
        """Whether a finished compaction waits for an entry that takes it in."""
        return self._compacting is not None and self._compacting.parts is not None

    def with_compaction(self, entry: Entry, number: int) -> Entry:
        """The entry, to be written as `number`, with what the compaction came to: its run, or that it is under way."""
        compacting = self._compacting
        if compacting is None:
            return entry
        pending = compacting.pending if compacting.parts is None else compacting.result
        if pending.done < pending.pieces:
            others = tuple(other for other in entry.pending if other.is_cut and other.first != pending.first)
            return replace(entry, pending=(*others, pending))
        run = Level("run", pending.first, pending.last, pending.parts, compacting.is_base)
        return transitions.with_run(entry, number, pending, run)

    def note_asked(self, entry: Entry, number: int) -> None:
        """An entry that takes the result in is being written; it is written or this leader is fenced."""
        compacting = self._compacting
        if entry.compacted == number or (compacting is not None and compacting.result in entry.pending):
            self._compacting = None

    def is_crowded(self, entry: Entry) -> bool:
        """Whether there are so many levels that the compaction under way comes first."""
        return len(entry.snapshot.levels) >= LEVELS_MAX and self._compacting is not None


def _levels(entry: Entry, pending: PendingCompaction) -> tuple[Level, ...]:
    """The levels that a compaction merges."""
    return tuple(each for each in entry.snapshot.levels if pending.first <= each.first and each.last <= pending.last)
