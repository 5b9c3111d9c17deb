"""What a leader has done beside its microbatches: compactions, whose results enter the log, and collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidemill.journal.entries import Entry, PendingCompaction
from tidemill.journal.snapshot import Level, Part, Snapshot
from tidemill.language.options import ModuleOptions, resolve
from tidemill.leader import events, transitions
from tidemill.leader.events import Instruction
from tidemill.values.errors import CombinersDiffer

Planner = Callable[[Snapshot, int], "tuple[int, int] | None"]
"""`tables.compaction_plan.plan`, or a stand-in: the levels to merge, by the snapshot and the newest microbatch."""

BACK_OFF_MS: Final = 5_000.0
MIGRATION_BACK_OFF_MS: Final = 60_000.0
"""A migration that failed will fail again until somebody mends its function."""

LEVELS_MAX: Final = 128
"""A topology with more levels waits for its compaction before it starts another attempt: entries must stay small."""


@dataclass
class Compacting:
    """The compaction under way; `parts` are there when it is done and waits for an entry."""

    token: int
    pending: PendingCompaction
    is_base: bool
    is_migration: bool = False
    parts: tuple[Part, ...] | None = None


@dataclass
class Maintenance:
    """At most one compaction and one collection at a time; `at` is monotonic milliseconds.

    While rows wait for a migration (`generations`), a compaction of all levels brings them along. If it fails, it is
    tried again later, and the levels above them are compacted as always.
    """

    plan: Planner
    trouble: str = ""
    collected_at: float = 0.0
    compact_at: float = 0.0
    migrate_at: float = 0.0
    generations: Mapping[str, int] = field(default_factory=dict)
    _is_collecting: bool = False
    _compacting: Compacting | None = None
    _is_whole: bool = False

    def work(self, entry: Entry, options: ModuleOptions, token: int, at: float) -> list[Instruction]:
        """What is to be started now."""
        return [*self._collection(options, at), *self._compaction(entry, options, token, at)]

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

    def _compaction(self, entry: Entry, options: ModuleOptions, token: int, at: float) -> list[Instruction]:
        """Compactions are named after an ID that is not committed yet: collection leaves their objects alone."""
        if self._compacting is not None or at < self.compact_at:
            return []
        waiting = entry.snapshot.migrated_from(self.generations)
        chosen = self._chosen(entry, waiting, at)
        if chosen is None:
            return []
        first, stop = chosen
        levels = entry.snapshot.levels[first:stop]
        new_id = entry.last_id + 1
        pending = PendingCompaction(new_id, levels[0].first, levels[-1].last, entry.epoch)
        self._compacting = Compacting(token, pending, first == 0, first < waiting)
        return [events.StartCompaction(token, new_id, levels, first == 0, options)]

    def _chosen(self, entry: Entry, waiting: int, at: float) -> tuple[int, int] | None:
        """The levels to merge next: all if some wait for a migration, else those of the plan; none of `waiting`."""
        levels = entry.snapshot.levels
        if waiting and at >= self.migrate_at:
            return 0, len(levels)
        chosen = self.plan(Snapshot(levels[waiting:]), entry.last_id)
        if chosen is None or (waiting and self._is_whole):
            return None
        return (0 if self._is_whole else chosen[0] + waiting), chosen[1] + waiting

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
            self.trouble = self.trouble if at < self.migrate_at else ""
            return
        self._compacting = None
        if event.code == CombinersDiffer.code and not compacting.is_base:
            self._is_whole = True
            return
        self.trouble = event.text
        if compacting.is_migration:
            self.migrate_at = at + MIGRATION_BACK_OFF_MS
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
        if compacting.parts is None:
            return replace(entry, pending=(compacting.pending,))
        pending = compacting.pending
        run = Level("run", pending.first, pending.last, compacting.parts, compacting.is_base)
        return transitions.with_run(entry, number, pending, run)

    def note_asked(self, entry: Entry, number: int) -> None:
        """An entry that takes the result in is being written; it is written or this leader is fenced."""
        if entry.compacted == number:
            self._compacting = None

    def is_crowded(self, entry: Entry) -> bool:
        """Whether there are so many levels that the compaction under way comes first."""
        return len(entry.snapshot.levels) >= LEVELS_MAX and self._compacting is not None
