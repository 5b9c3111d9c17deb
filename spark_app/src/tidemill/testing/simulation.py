"""A whole topology in one thread: real machines, logs and depots, with faults, crashes and any order of events.

A run is decided by its seed alone: the same seed gives the same trace. Records are numbers, all different, and the
state counts each of them, so that "exactly once" can be read off. After a run the faults cease, and it must finish.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, Literal

from tidemill.definition import definition as definitions
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.engine.work import AttemptRunner, Cancel
from tidemill.journal.clock import ManualClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.snapshot import Snapshot
from tidemill.language.dataflow import (
    DepotDeclaration,
    Location,
    ModuleDeclaration,
    SourceDeclaration,
    StartFrom,
    TopologyDeclaration,
)
from tidemill.leader import events
from tidemill.leader.attempt_failures import attempt_failed, compaction_failed
from tidemill.leader.attempt_run import run_attempt
from tidemill.leader.check import check_module
from tidemill.leader.collection import collect
from tidemill.leader.machine import Machine
from tidemill.leader.maintenance import Maintenance
from tidemill.leader.publisher import publish
from tidemill.leader.report import Now
from tidemill.leader.topology_store import TopologyStore
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.program import Program
from tidemill.store.lease import LeasePace
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.testing.auditor import Auditor
from tidemill.testing.counting_runner import CountingRunner
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import (
    CorruptState,
    InvariantViolation,
    OutcomeUnknown,
    StoreUnavailable,
    TidemillError,
    invariant,
)
from tidemill.values.ids import Ids

MODULE: Final = "Bank"
TOPOLOGY: Final = "mb"
DEPOT: Final = "*records"
TASKS: Final = 2
PATIENCE: Final = (0.0, 0.0, 0.0)
FINISH_TURNS: Final = 4_000
DECADE_MS: Final = 315_576_000_000


@dataclass(frozen=True)
class Chances:
    """How likely each fault is, per store request or per turn; all zero is a run without faults."""

    crash: float = 0.004
    unavailable: float = 0.01
    lost_answer: float = 0.03
    kill: float = 0.004
    wrong_lease: float = 0.02
    user_error: float = 0.05
    clock_jump: float = 0.01
    spoiled_read: float = 0.01


CALM: Final = Chances(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class CrashAt:
    """Crash of a runner at one place: before or after the store did its n-th write, or before the n-th event."""

    number: int
    moment: Literal["before write", "after write", "before event"]


class LeaseDesk:
    """Who holds the lease. It may be wrong: then two processes believe that they lead."""

    def __init__(self) -> None:
        self.holder_name = ""


@dataclass
class DeskLease:
    """One process's view of the desk."""

    desk: LeaseDesk
    name: str
    is_wrong: Callable[[], bool]
    pace: LeasePace = LeasePace()

    def try_acquire(self) -> bool:
        if self.desk.holder_name in ("", self.name) or self.is_wrong():
            self.desk.holder_name = self.name
            return True
        return False

    def is_held(self) -> bool:
        return self.desk.holder_name == self.name

    def peek(self) -> str:
        return self.desk.holder_name

    def stand_by(self) -> None:
        """Nobody asks who waits."""

    def tell(self, engine: str, spark_ui: str) -> None:
        """Nobody reads it."""

    def release(self) -> None:
        if self.is_held():
            self.desk.holder_name = ""

    @property
    def holder(self) -> str:
        return self.desk.holder_name


@dataclass
class Process:
    """One runner: its machine, what it hears next, and the work that runs beside it."""

    name: str
    machine: Machine
    store: TopologyStore
    runner: AttemptRunner
    inbox: list[events.Event] = field(default_factory=list)
    work: list[Callable[[], events.Event]] = field(default_factory=list)
    question: events.Question | None = None
    wait: events.Wait | None = None
    is_over: bool = False


def _declaration() -> ModuleDeclaration:
    at = Location()
    source = SourceDeclaration(DEPOT, DEPOT, "*microbatch", StartFrom("beginning"), (), at)
    topology = TopologyDeclaration(TOPOLOGY, (), (source,), at)
    return ModuleDeclaration(MODULE, (DepotDeclaration(DEPOT, "random", at),), (topology,))


@cache
def _program() -> Program:
    """The same for every run: thousands of them are made."""
    return compile_topology(_declaration(), TOPOLOGY)


class Simulation:
    """One run. `step` does one thing that the seed chooses; `finish` ends the faults and waits for the result."""

    module: ClassVar[str] = MODULE

    def __init__(
        self, seed: int, chances: Chances = Chances(), crash_at: CrashAt | None = None, runners: int = 2
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.chances = chances
        self.crash_at = crash_at
        self.trace: list[str] = []
        self.writes = 0
        self.turns = 0
        self.crashes = 0
        self.spoiled = 0
        self.store = self._open_store()
        self.clock = self._open_clock()
        self.desk = LeaseDesk()
        self.processes: list[Process] = []
        self.runners = runners
        self.appended: set[int] = set()
        self.uncertain: set[int] = set()
        self._next_record = 0
        self._starts = 0
        self._declare()
        self.auditor = self._auditor()
        for _ in range(runners):
            self._start_process()

    # --- setting up --------------------------------------------------------------------------------------------------

    def _open_store(self) -> ObjectStore:
        return MemoryStore(f"simulation-{self.seed}")

    def _open_clock(self) -> ManualClock:
        return ManualClock()

    def _declaration(self) -> ModuleDeclaration:
        return _declaration()

    def _program(self) -> Program:
        return _program()

    def _engine(self, store: ObjectStore, ids: Ids) -> AttemptRunner:
        return CountingRunner(store, self.random, ids, lambda: self._happens(self.chances.user_error))

    def _auditor(self) -> Auditor:
        return Auditor(self.store, self.definition, TOPOLOGY, self.depot())

    def _record(self, number: int) -> Any:
        """The record that is appended; no other has its number."""
        return number

    def _declare(self) -> None:
        self.declaration = self._declaration()
        self.definition = self._launched()
        options = self.options_log(self.seed)
        options.set("module", "", "depot.microbatch.max.records", 4)
        options.set("module", "", "store.snapshot.retention.seconds", 3)
        options.set("module", "", "store.collection.period.seconds", 1)

    def _launched(self) -> StoredDefinition:
        return self._definition_log().append(definitions.launch(self.declaration, TASKS, 1, Ids(self.seed)))

    def _definition_log(self) -> DefinitionLog:
        return DefinitionLog(self.store, self.module, Ids(self.seed))

    def options_log(self, seed: int, store: ObjectStore | None = None) -> OptionsLog:
        """The options of the simulated module, changed at the time and with the ids of the simulation."""
        return OptionsLog(store or self.store, self.module, Ids(seed), clock=self.clock)

    def depot(self, store: Any = None) -> DepotLog:
        """A new handle of the simulated depot, on `store` in place of the simulation's own if one is given."""
        prefix = self.definition.depot_prefix(DEPOT)
        return DepotLog(store or self.store, prefix, TASKS, self.clock.now_ms, PATIENCE)

    def _start_process(self) -> None:
        self._starts += 1
        name = f"runner-{self._starts}"
        store = self._faulty()
        lease = DeskLease(self.desk, name, lambda: self._happens(self.chances.wrong_lease))
        topology_store = TopologyStore(
            store, self.definition, TOPOLOGY, self._program(), lease, self.clock, PATIENCE, lambda _: None
        )
        ids = Ids(f"{self.seed}-{name}")
        machine = Machine(topology_store.spec, ids, name, Maintenance(plan_small))
        runner = self._engine(store, ids)
        self.processes.append(Process(name, machine, topology_store, runner, [events.TimePassed()]))

    # --- faults ------------------------------------------------------------------------------------------------------

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def _is_crash(self, verb: str, moment: Literal["before write", "after write"]) -> bool:
        return verb in ("create", "delete") and self.crash_at == CrashAt(self.writes, moment)

    def _faulty(self) -> ObjectStore:
        return FaultyObjectStore(self.store, FaultPlan(self._before, self._after, self._spoil))

    def _spoil(self, verb: str, key: str, answer: Any) -> Any:
        """At times a read is lost (the object is not found), stale (without what came last), torn (cut), or misdirected
        (of another object of the folder). Nothing of that may ever lead to a wrong result.
        """
        if not self._happens(self.chances.spoiled_read):
            return answer
        self.spoiled += 1
        if verb == "exists":
            return False
        if verb == "list":
            return answer[:-1]
        folder = key.rpartition("/")[0]
        others = [other for other in self.store.list(folder) if other != key]
        kind = self.random.choice(("lost", "torn", "misdirected"))
        self.trace.append(f"{kind} read of {key}")
        if kind == "misdirected" and others:
            return self.store.get(self.random.choice(others))
        if kind == "torn":
            return answer[: self.random.randrange(len(answer) + 1)]
        raise NotFound(f"No object {key}: this read was lost.", key=key)

    def _before(self, verb: str, key: str) -> None:
        self.writes += verb in ("create", "delete")
        if self._is_crash(verb, "before write") or self._happens(self.chances.crash):
            raise Crash(f"before {verb} {key}")
        if self._happens(self.chances.unavailable):
            raise StoreUnavailable(f"{verb} {key}")

    def _after(self, verb: str, key: str) -> None:
        if self._is_crash(verb, "after write") or self._happens(self.chances.crash):
            raise Crash(f"after {verb} {key}")
        if verb == "create" and self._happens(self.chances.lost_answer):
            raise OutcomeUnknown(f"create {key}")

    # --- turns -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens: a runner's turn, an append, time, a pause, a death, a look of a reader."""
        choice = self.random.randrange(100)
        if choice < 70:
            self._turn(self.random.choice(self.processes))
        elif choice < 82:
            self._append()
        elif choice < 92:
            self.clock.advance(self.random.choice((1, 10, 120, 1_000, 3_000, 12_000)))
        elif choice < 94:
            self._toggle_pause()
        elif choice < 95 and self._happens(self.chances.clock_jump * 10):
            self.clock.jump(self.random.choice((-3_600_000, -50, 50, 3_600_000, DECADE_MS, -DECADE_MS)))
        elif self.chances != CALM and self._happens(self.chances.kill * 10):
            self._end(self.random.choice(self.processes))
        else:
            self.auditor.check_reader()
        while len(self.processes) < self.runners:
            self._start_process()

    def _end(self, process: Process) -> None:
        """A process is killed, or asked to stop when its microbatch is done."""
        if self.random.randrange(3):
            self._die(process, "killed")
        else:
            process.inbox.append(events.StopRequested(is_gentle=True))

    def _turn(self, process: Process) -> None:
        self.turns += 1
        try:
            if self.crash_at == CrashAt(self.turns, "before event"):
                raise Crash("before an event")
            self._move(process)
        except Crash as crash:
            self.crashes += 1
            self._die(process, str(crash))
        except (CorruptState, NotFound) as error:
            if self.chances == CALM:
                raise
            self._die(process, f"stopped by a spoiled read: {error}")
        if process.is_over and process in self.processes:
            self._die(process, process.machine.role)

    def _move(self, process: Process) -> None:
        """A question is answered, a piece of work is done, or an event is heard; one of them."""
        if process.question is not None:
            question, process.question = process.question, None
            self._hear(process, process.store.answer(question))
        elif process.work and self.random.randrange(3) == 0:
            process.inbox.append(process.work.pop(self.random.randrange(len(process.work)))())
        elif process.inbox:
            self._hear(process, process.inbox.pop(0))
        elif process.wait is not None and self.clock.monotonic_ms() >= process.wait.until_ms:
            self._hear(process, events.TimePassed(has_news=True))
        elif process.wait is not None and process.wait.for_news:
            if not process.store.lease.try_acquire():
                self._hear(process, events.LeaseLost())
            else:
                self._hear(process, events.TimePassed(has_news=True))

    def _hear(self, process: Process, event: events.Event) -> None:
        now = Now(self.clock.now_ms(), self.clock.monotonic_ms())
        process.wait = None
        made = process.machine.handle(event, now)
        names = ",".join(type(instruction).__name__ for instruction in made)
        self.trace.append(f"{process.name} {type(event).__name__} -> {names} #{process.machine.number}")
        for instruction in made:
            self._obey(process, instruction)

    def _obey(self, process: Process, instruction: events.Instruction) -> None:
        if isinstance(instruction, events.Stop):
            process.is_over = True
        elif isinstance(instruction, events.Wait):
            process.wait = instruction
        elif isinstance(instruction, events.StartAttempt):
            self.auditor.note_attempt(instruction)
            process.work.append(lambda: self._attempt(process, instruction))
        elif isinstance(instruction, events.StartCompaction):
            process.work.append(lambda: self._compact(process, instruction))
        elif isinstance(instruction, events.CollectGarbage):
            process.work.append(lambda: self._collect(process, instruction))
        elif isinstance(instruction, events.PublishAppends):
            process.work.append(lambda: self._publish(process, instruction))
        elif not isinstance(instruction, events.CancelAttempt):
            process.question = instruction

    def _attempt(self, process: Process, start: events.StartAttempt) -> events.Event:
        try:
            return run_attempt(process.store, process.runner, start, Cancel(), process.inbox.append)
        except TidemillError as error:
            return attempt_failed(start.token, error)

    def _compact(self, process: Process, start: events.StartCompaction) -> events.Event:
        try:
            return events.CompactionDone(start.token, process.runner.compact(process.store.compaction_work(start)))
        except TidemillError as error:
            return compaction_failed(start.token, error)

    def _collect(self, process: Process, instruction: events.CollectGarbage) -> events.Event:
        try:
            collect(process.store, instruction.retention_ms)
        except InvariantViolation:
            raise
        except TidemillError as error:
            return events.CollectionDone(str(error))
        return events.CollectionDone()

    def _publish(self, process: Process, instruction: events.PublishAppends) -> events.Event:
        try:
            return publish(process.store, instruction)
        except InvariantViolation:
            raise
        except TidemillError as error:
            return events.AppendsPublished(instruction.token, frozenset(), str(error))

    def _die(self, process: Process, why: str) -> None:
        self.trace.append(f"{process.name} dies: {why}")
        self.processes.remove(process)
        if self.random.randrange(4):
            DeskLease(self.desk, process.name, lambda: False).release()

    # --- what goes on around -----------------------------------------------------------------------------------------

    def _append(self) -> None:
        """An append of a few records; where it has no answer, they are in the depot once or not at all (S6)."""
        records = [self._next_record + i for i in range(self.random.randrange(1, 6))]
        self._next_record += len(records)
        store = self._faulty()
        batch = [(self.random.randrange(TASKS), [self._record(number)]) for number in records]
        try:
            self.depot(store).append(batch)
            self.appended |= set(records)
        except (OutcomeUnknown, CorruptState, NotFound, Crash) as error:
            self.crashes += isinstance(error, Crash)
            self.uncertain |= set(records)
        except StoreUnavailable:
            self.trace.append("append refused")

    def _toggle_pause(self) -> None:
        options = self.options_log(self.random.randrange(1 << 30))
        if TOPOLOGY in options.read().paused:
            self.auditor.check_resumed(options.read().paused[TOPOLOGY])
            options.resume(TOPOLOGY)
        else:
            options.pause(TOPOLOGY)

    # --- the end -----------------------------------------------------------------------------------------------------

    def run(self, steps: int = 200) -> None:
        """Some faulty steps, then calm until everything is processed; invariants are checked on the way."""
        for _ in range(steps):
            self.step()
        self.finish()

    def finish(self) -> None:
        """No more chance of faults: everything that was acknowledged must become processed, each record once."""
        self.chances = CALM
        self.options_log(self.seed).resume(TOPOLOGY)
        for _ in range(FINISH_TURNS):
            if self.auditor.is_finished():
                break
            if not self.processes:
                self._start_process()
            if self.desk.holder_name not in [process.name for process in self.processes]:
                self.desk.holder_name = ""
            self._turn(self.random.choice(self.processes))
            self.clock.advance(50)
        else:
            invariant(False, "a run without faults finishes", seed=self.seed, trace=self.trace[-12:])
        self.auditor.check_end(self.appended, self.uncertain)
        findings = check_module(self.store, self.module)
        invariant(not findings, "what `tidemill check` says of a finished run", findings=findings)


def plan_small(snapshot: Snapshot, _last_id: int) -> tuple[int, int] | None:
    """Compact early and often, so that short runs see it."""
    count = len(snapshot.levels)
    if count < 3:
        return None
    return (0, count) if count % 2 else (1, count)
