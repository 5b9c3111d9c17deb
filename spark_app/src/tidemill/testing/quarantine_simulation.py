"""The simulation with records that the module's code fails on: each is in quarantine once, and nowhere else (S8)."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

import numpy as np

from tidemill.clients.quarantine import Quarantine
from tidemill.depot.log import DepotLog
from tidemill.engine.work import AttemptOutcome, AttemptRunner, AttemptWork
from tidemill.journal.entries import Entry
from tidemill.journal.settlements import SettlementLog, quarantine_prefix
from tidemill.leader import events
from tidemill.leader.quarantine_limits import MICROBATCH_MAX, ON_ERROR
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.testing.auditor import Auditor
from tidemill.testing.counting_runner import CountingRunner
from tidemill.testing.faulty_store import Crash
from tidemill.testing.simulation import PATIENCE, TOPOLOGY, Simulation
from tidemill.values.columns import to_values
from tidemill.values.errors import CorruptState, OutcomeUnknown, StoreUnavailable, UnknownName, UserCodeError, invariant
from tidemill.values.ids import Ids
from tidemill.values.offsets import OffsetRanges

POISONED: Final = 4
"""One record in so many is poison."""


def is_poison(number: int) -> bool:
    """Whether the code fails on a record."""
    return number % POISONED == 1


class PoisonedRunner(CountingRunner):
    """Fails on poison; whether the error names the record is by chance."""

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Raises: UserCodeError: there is poison among the records."""
        for source in work.sources.values():
            if source.records:
                depot = DepotLog(self._store, source.depot_prefix, len(source.ranges), patience=())
                rows, partitions = depot.read_rows(source.ranges, source.segments, source.fetch)
                for index, number in enumerate(to_values(rows)):
                    partition = int(partitions[index])
                    offset = source.ranges.starts[partition] + int(np.count_nonzero(partitions[:index] == partition))
                    if is_poison(number) and (partition, offset) not in source.left_out:
                        error = UserCodeError("poison")
                        if self._random.randrange(2):
                            error.context.update(source=source.source_id, partition=partition, offset=offset)
                        raise error
        return super().run(work, cancel)


class QuarantineAuditor(Auditor):
    """Compares the quarantine with the poison among the records that are committed."""

    def _check_state(self, entry: Entry) -> None:
        super()._check_state(entry)
        poison = Counter(filter(is_poison, self.records(entry)))
        invariant(entry.quarantined == poison.total(), "S8: all poison, and nothing else, is in quarantine")
        depot = self.quarantine()
        waiting = sum(append.records for append in entry.appends)
        held = depot.ends()[0]
        invariant(entry.quarantined - waiting <= held <= entry.quarantined, "S8: what is committed is published once")
        rows = depot.read_rows(OffsetRanges(depot.starts(), depot.ends()))[0]
        found = Counter(row["record"] for row in to_values(rows))
        invariant(found <= poison, "S8: a record is in quarantine once", found=found, poison=poison)
        is_whole = depot.starts() == (0,) and held == entry.quarantined
        invariant(not is_whole or found == poison, "S8: each record in quarantine is there", found=found)

    def note_attempt(self, start: events.StartAttempt) -> None:
        """S2, besides what every simulation checks: what one attempt left out, each later one does."""
        super().note_attempt(start)
        attempt = start.attempt
        version, known = self.left_out.get(attempt.microbatch_id, (0, frozenset()))
        if attempt.version > version:
            places = frozenset((each.source_id, each.partition, each.offset) for each in attempt.poisons)
            invariant(known <= places, "S2: what is in quarantine stays there", known=known, attempt=attempt)
            self.left_out[attempt.microbatch_id] = (attempt.version, places)

    def counts_in_state(self, number: int) -> bool:
        """Whether the state counts a record that is committed: not poison."""
        return not is_poison(number)

    def quarantine(self) -> DepotLog:
        """A new handle of the quarantine."""
        return DepotLog(self._store, quarantine_prefix(self._prefix), 1, patience=PATIENCE)

    def is_finished(self) -> bool:
        """Whether everything is processed, and the quarantine is published."""
        head = self._log.head()
        return super().is_finished() and head is not None and self.quarantine().ends()[0] == head[1].quarantined

    def check_end(self, appended: set[int], uncertain: set[int]) -> None:
        """S6 of the records that are no poison; each retry of the others appended them to their depot once."""
        super().check_end({number for number in appended if not is_poison(number)}, uncertain)
        log = SettlementLog(self._store, self._prefix)
        retried: Counter[int] = Counter()
        decided: Counter[int] = Counter()
        for number in range(1, log.newest_number() + 1):
            settlement = log.read(number)
            decided.update(at for first, end in settlement.chosen for at in range(first, end))
            if settlement.action == "retry":
                retried.update(self.numbers[at] for first, end in settlement.chosen for at in range(first, end))
        invariant(all(count == 1 for count in decided.values()), "S8: a record is decided on once", decided=decided)
        head = self._log.head()
        assert head is not None
        there = Counter(self.records(head[1]))
        expected = Counter(dict.fromkeys(there, 1)) + retried
        invariant(there == expected, "S8: a retry appends each record once", there=there, expected=expected)

    left_out: dict[int, tuple[int, frozenset[tuple[str, int, int]]]]
    """By microbatch the newest version, and the records that it left out."""

    numbers: dict[int, int]
    """What stood at each offset of the quarantine when somebody decided on it."""


class QuarantineSimulation(Simulation):
    """A simulation in which a person decides on records in quarantine now and then, and dies at it as runners do."""

    auditor: QuarantineAuditor

    def _declare(self) -> None:
        super()._declare()
        options = self.options_log(self.seed)
        options.set("module", "", ON_ERROR, "quarantine")
        options.set("module", "", MICROBATCH_MAX, 100)

    def _engine(self, store: ObjectStore, ids: Ids) -> AttemptRunner:
        return PoisonedRunner(store, self.random, ids, lambda: False)

    def _auditor(self) -> Auditor:
        auditor = QuarantineAuditor(self.store, self.definition, TOPOLOGY, self.depot())
        auditor.numbers, auditor.left_out = {}, {}
        return auditor

    def step(self) -> None:
        """As every simulation, or a decision."""
        if self.random.randrange(15):
            super().step()
        else:
            self._decide()

    def _decide(self) -> None:
        known = Quarantine(self.store, lambda: self.definition, TOPOLOGY, self.clock)
        held = known.records()
        self.auditor.numbers.update((each.number, each.record) for each in held)
        chosen = [each.number for each in held if self.random.randrange(2)]
        desk = Quarantine(self._faulty(), lambda: self.definition, TOPOLOGY, self.clock, patience=PATIENCE)
        decide = desk.retry if self.random.randrange(2) else desk.drop
        try:
            self.trace.append(f"{decide.__name__} {chosen}")
            decide(chosen)
        except Crash as crash:
            self.crashes += 1
            self.trace.append(f"the person who decides dies: {crash}")
        except (OutcomeUnknown, StoreUnavailable, CorruptState, NotFound, UnknownName) as error:
            self.trace.append(f"no decision: {error}")

    def finish(self) -> None:
        """As every simulation; the newest decision is finished by whoever looks."""
        Quarantine(self.store, lambda: self.definition, TOPOLOGY, self.clock).finish()
        super().finish()
