"""The simulation with people and keepers in it, whose store writes fail and crash like any others: options, pauses and
new definitions are written, depots are rolled and trimmed, and producers send again what had no answer. What they read
is spoiled at times, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemill.cluster.launch import existing
from tidemill.definition import definition as definitions
from tidemill.depot.retention import RollingLimits, retain, roll
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Entry
from tidemill.journal.options_log import OptionsLog
from tidemill.store.log import Lost
from tidemill.store.objects import NotFound
from tidemill.testing.auditor import Auditor
from tidemill.testing.faulty_store import Crash
from tidemill.testing.simulation import MODULE, PATIENCE, TASKS, TOPOLOGY, Simulation
from tidemill.values.columns import to_values
from tidemill.values.errors import CorruptState, OutcomeUnknown, StoreUnavailable, UnknownName
from tidemill.values.ids import Ids

SMALL = RollingLimits(segments_min=2, segments_max=4, records_max=20)
KEPT = 3
GRACE_MILLIS = 1_000
SPOILED = (CorruptState, NotFound, UnknownName)
"""What somebody may be told whose read was spoiled."""


class KeepingAuditor(Auditor):
    """Remembers records, for retention deletes them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows: dict[int, list[Any]] = {}

    def records(self, entry: Entry) -> list[int]:
        found: list[int] = []
        self._depot.follow()
        for progress in entry.progress.values():
            for partition, (start, end) in enumerate(zip(progress.start_from, progress.offsets, strict=True)):
                rows = self._rows.setdefault(partition, [])
                if start + len(rows) < end:
                    rows += to_values(self._depot.read_columns(partition, start + len(rows), end))
                found += rows[: end - start]
        return found

    def needed(self) -> tuple[int, ...] | None:
        """What the topology has still to read, when everything before was looked at."""
        self.check_reader()
        head = self._log.head()
        return None if head is None else next((p.offsets for p in head[1].progress.values()), None)


class KeeperSimulation(Simulation):
    """A simulation in which everything that Tidemill writes may fail or be cut off by a crash."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.done: set[str] = set()
        self._sequence = 0
        self._producer = ("", 0)
        self._unanswered: list[tuple[int, Any]] | None = None
        super().__init__(*args, **more)

    def _auditor(self) -> Auditor:
        return KeepingAuditor(self.store, self.definition, TOPOLOGY, self.depot())

    def step(self) -> None:
        if self.random.randrange(6):
            super().step()
        else:
            self._keep(self.random.choice((self._set, self._pause, self._update, self._roll, self._retain, self._send)))

    def _keep(self, action: Callable[[], None]) -> None:
        name = action.__name__
        try:
            action()
            self.done.add(name)
            self.trace.append(f"keeper {name}")
        except (Crash, OutcomeUnknown, StoreUnavailable, Lost, *SPOILED) as error:
            self.crashes += isinstance(error, Crash)
            self.trace.append(f"keeper {name} {type(error).__name__}")
        self._look_again()

    def _look_again(self) -> None:
        newest = self._definition_log().newest()
        assert newest is not None
        self.definition = newest

    def _patient(self, log: Any) -> Any:
        entries = log._entries if isinstance(log, OptionsLog) else log
        entries.log = replace(entries.log, patience=PATIENCE, wait=lambda _: None)
        return log

    def _options(self) -> OptionsLog:
        store = self._faulty()
        options: OptionsLog = self._patient(self.options_log(self.random.randrange(1 << 30), store))
        return options

    def _set(self) -> None:
        name, values = self.random.choice(
            [
                ("depot.microbatch.max.records", (1, 3, 7)),
                ("store.snapshot.retention.seconds", (0, 2, 5)),
                ("topology.microbatch.empty.sleep.time.millis", (10, 10_000)),
                ("topology.microbatch.force.delay.millis", (0, 50)),
            ]
        )
        self._options().set("module", "", name, self.random.choice(values))

    def _pause(self) -> None:
        options = self._options()
        if TOPOLOGY in options.read().paused:
            options.resume(TOPOLOGY)
        else:
            options.pause(TOPOLOGY)

    def _update(self) -> None:
        ids = Ids(self.random.randrange(1 << 30))
        log = self._patient(DefinitionLog(self._faulty(), MODULE, ids))
        log.append(definitions.update(existing(self.store, log, MODULE), self.declaration, (), ids))

    def _roll(self) -> None:
        roll(self.depot(self._faulty()), SMALL)

    def _retain(self) -> None:
        needed = self.auditor.needed() if isinstance(self.auditor, KeepingAuditor) else None
        if needed is not None:
            retain(self.depot(self._faulty()), KEPT, needed, grace_millis=GRACE_MILLIS)

    def _send(self) -> None:
        """An idempotent producer sends until it has an answer, and at times once more."""
        if self._unanswered is None:
            first = self._next_record
            self._next_record += 2
            self._unanswered = [(self.random.randrange(TASKS), first), (self.random.randrange(TASKS), first + 1)]
            self._sequence += 1
            self._producer = (self.random.choice(("producer", "key/a", "key/b")), self._sequence)
        batch = [(partition, [record]) for partition, record in sorted(self._unanswered)]
        self.uncertain |= {record for _, record in self._unanswered}
        self.depot(self._faulty()).append(batch, self._producer)
        self.appended |= {record for _, record in self._unanswered}
        if self.random.randrange(3):
            self._unanswered = None

    def finish(self) -> None:
        self._look_again()
        super().finish()


def kinds_of_writes(simulation: KeeperSimulation) -> set[str]:
    """The folders of a module that hold objects."""
    return {key.split("/")[-2] for key in simulation.store.list(MODULE)}
