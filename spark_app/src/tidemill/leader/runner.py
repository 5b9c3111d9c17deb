"""A thread per topology that drives its runner machine with the real store, clock, lease and attempts.

Attempts, compactions and collections run in threads of their own and report through one queue, so that the machine
hears one event at a time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tidemill.clients.hub import AppendHub
from tidemill.clients.status import Role, TopologyStatus
from tidemill.definition.definition import StoredDefinition
from tidemill.engine.work import AttemptRunner, Cancel, CurrentStep, EngineFacts
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.spans import tracer
from tidemill.leader import events
from tidemill.leader.attempt_failures import attempt_failed, compaction_failed
from tidemill.leader.attempt_run import run_attempt
from tidemill.leader.attempt_spans import AttemptSpans
from tidemill.leader.collection import collect
from tidemill.leader.kept_plans import keep_plan
from tidemill.leader.machine import Machine
from tidemill.leader.maintenance import Maintenance
from tidemill.leader.publisher import publish
from tidemill.leader.report import Now, RunnerState
from tidemill.leader.topology_store import TopologyStore
from tidemill.plan.program import Program
from tidemill.store.lease import FileLease, LeaderLease
from tidemill.store.objects import ObjectStore
from tidemill.store.standbys import describe_process
from tidemill.tables.compaction_plan import plan
from tidemill.values.errors import Deleted, Fenced, RetryableError, TidemillError, message_of
from tidemill.values.ids import Ids

PROBE_MS_MIN: Final = 5.0
PROBE_MS_MAX: Final = 20.0
PROBE_MS_REMOTE_MAX: Final = 100.0
CHANGES_PROBE_MS: Final = 200.0
STOP_SECONDS: Final = 10.0
FIND_SECONDS: Final = 1.0


class TopologyRunner:
    """Runs one topology of a module until it is stopped, killed, fenced or superseded."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        definition: StoredDefinition,
        topology: str,
        program: Program,
        runner: AttemptRunner,
        lease: LeaderLease,
        clock: Clock | None = None,
        hub: AppendHub | None = None,
        store_url: str = "",
        on_end: Callable[[TopologyRunner], None] | None = None,
    ) -> None:
        """`on_end` is the last that the runner's thread calls."""
        self.topology = topology
        self._on_end = on_end
        self._clock = clock or SystemClock()
        self._runner = runner
        self._lease = lease
        self._hub = hub or AppendHub()
        self._topology_store = TopologyStore(store, definition, topology, program, lease, self._clock)
        spec, pace, ids = self._topology_store.spec, lease.pace, Ids()
        self._process = describe_process()
        owner = f"{self._process} {ids.new_id()}"
        self._machine = Machine(spec, ids, owner, Maintenance(plan), pace.claim_wait_ms, pace.poll_ms)
        self._renew_ms = pace.renew_ms
        self._probe_ms_max = PROBE_MS_MAX if store.local_path("x") is not None else PROBE_MS_REMOTE_MAX
        self._events: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        self._cancels: dict[int, Cancel] = {}
        self._work: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._state = RunnerState()
        self._is_killed = False
        self._has_kept_plan = False
        self._stop_text = ""
        self._thread = threading.Thread(target=self._run, name=f"tidemill {topology}", daemon=True)
        wanted = tracer()
        self._spans = None if wanted is None else AttemptSpans(wanted, definition, topology)
        self._probe_ms = PROBE_MS_MIN
        self._changes_at = 0.0
        self._renew_at = 0.0
        self._engine = EngineFacts()
        self._turned_at = self._clock.monotonic_ms()

    # --- for the caller ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunnerState:
        """How the runner stands, as its thread said last; the object is replaced, never changed."""
        return self._state

    def status(self) -> TopologyStatus:
        """How the topology stands, as this runner knows it: without a look at the store, so without what waits."""
        return self._state.status(self._topology_store.definition, self.topology)

    @property
    def turned_ms(self) -> float:
        """When the loop turned last, in milliseconds of the clock that never goes back."""
        return self._turned_at

    def start(self) -> None:
        """Start to stand by for the topology, and to lead it as soon as nobody else does."""
        for prefix in self._prefixes():
            self._hub.subscribe(prefix, self.wake)
        self._thread.start()

    def wake(self) -> None:
        """There may be news: look at once."""
        self._events.put(events.TimePassed(has_news=True))

    def wait_until_claimed(self, timeout_s: float) -> None:
        """Wait until the topology is claimed with this definition, here or by the leader this runner stands by for.

        Raises:
            Fenced: another definition or leader took over; what stopped the runner else.
            TimeoutError: nobody claimed it in time.
        """
        state = self.wait_for(lambda now: now.is_over or self._is_claimed(now), timeout_s)
        if state.is_over:
            raise state.error or Fenced(f"topology {self.topology} {state.role}: {state.stop_text}")

    def _is_claimed(self, state: RunnerState) -> bool:
        if state.role == "leader":
            return True
        try:
            head = self._topology_store.commit_log.head() if state.role == "standby" and state.is_refused else None
        except (RetryableError, Deleted):
            return False
        return head is not None and head[1].definition >= self._topology_store.definition.number

    def wait_for(self, predicate: Callable[[RunnerState], bool], timeout_s: float) -> RunnerState:
        """Wait until the state is as wanted.

        Raises:
            TimeoutError: it was not in time; the text names the progress and the last failure.
        """
        deadline = self._clock.monotonic_ms() + 1000 * timeout_s
        with self._changed:
            while not predicate(self._state):
                left = deadline - self._clock.monotonic_ms()
                if left <= 0:
                    raise TimeoutError(f"after {timeout_s:g} s: {describe(self.topology, self._state)}")
                self._changed.wait(min(left / 1000, 0.2))
            return self._state

    def stop(self) -> None:
        """Stop, and give the lease up; an attempt under way is cancelled and starts again with the next leader.

        What runs beside is over as well when this returns, but for a function of the module that does not return.
        """
        self._events.put(events.StopRequested())
        self._join_all()

    def leave(self, timeout_s: float) -> bool:
        """Stop as soon as the microbatch under way is committed; one that is not in time is left to the next leader.

        Whether it was in time.
        """
        self._events.put(events.StopRequested(is_gentle=True))
        if self.join(timeout_s):
            return True
        self.stop()
        return False

    def kill(self) -> None:
        """Stop as if the process had died: nothing more is written, nobody is told. For tests."""
        self._is_killed = True
        for cancel in list(self._cancels.values()):
            cancel.set()
        self._events.put(events.TimePassed())
        self._join_all()

    def _join_all(self) -> None:
        """Wait for the runner's end, and for its attempt, compaction and collection."""
        deadline = self._clock.monotonic_ms() + 1000 * STOP_SECONDS
        if self.join(STOP_SECONDS):
            for thread in self._work - {threading.current_thread()}:
                thread.join(max(0.0, deadline - self._clock.monotonic_ms()) / 1000)

    def join(self, timeout_s: float) -> bool:
        """Wait for the runner's end; whether it has ended."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._drive()
        except BaseException as caught:  # noqa: BLE001 - the thread's last word, shown to whoever waits
            error = caught
        finally:
            self._finish(error)

    def _drive(self) -> None:
        event: events.Event = events.TimePassed()
        while not self._is_killed:
            made = self._machine.handle(event, self._now())
            if self._spans is not None:
                self._spans.observe(self._machine, self._clock.monotonic_ms(), self._clock.now_ms())
            last = made[-1]
            if isinstance(last, events.Stop):
                self._stop_text = last.text  # shown together with the role
            self._show()
            if not self._has_kept_plan and self._machine.role == "leader":
                self._has_kept_plan = True
                self._spawn(self._keep_plan)
            for instruction in made[:-1]:
                self._begin(instruction)
            if isinstance(last, events.Stop):
                return
            event = self._wait(last) if isinstance(last, events.Wait) else self._ask(last)

    def _ask(self, instruction: events.Instruction) -> events.Event:
        if isinstance(instruction, (events.AskLease, events.ReadHead, events.ResolveStarts, events.Look)):
            answer = self._topology_store.answer(instruction)
            if answer == events.LeaseAnswered(False):
                self._lease.stand_by()
            return answer
        if isinstance(instruction, events.WriteEntry):
            return self._topology_store.answer(instruction)
        self._begin(instruction)
        return events.TimePassed()

    def _begin(self, instruction: events.Instruction) -> None:
        """Start what runs beside the machine."""
        if isinstance(instruction, events.StartAttempt):
            cancel = self._cancels[instruction.token] = Cancel()
            self._spawn(lambda: self._attempt(instruction, cancel))
        elif isinstance(instruction, events.CancelAttempt):
            self._cancels.get(instruction.token, Cancel()).set()
        elif isinstance(instruction, events.StartCompaction):
            self._spawn(lambda: self._compact(instruction))
        elif isinstance(instruction, events.CollectGarbage):
            self._spawn(lambda: self._collect(instruction))
        elif isinstance(instruction, events.PublishAppends):
            self._spawn(lambda: self._publish(instruction))

    def _spawn(self, target: Callable[[], None]) -> None:
        def run() -> None:
            try:
                target()
            finally:
                self._work.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=f"tidemill {self.topology} work", daemon=True)
        self._work.add(thread)
        thread.start()

    def _attempt(self, start: events.StartAttempt, cancel: Cancel) -> None:
        try:
            ended = run_attempt(self._topology_store, self._runner, start, cancel, self._events.put)
            if isinstance(ended, events.AttemptDone):
                self._note_engine(ended.outcome.engine)
            self._events.put(ended)
        except BaseException as error:  # noqa: BLE001 - a user's function raises anything, sys.exit included
            self._events.put(attempt_failed(start.token, error))
        finally:
            self._cancels.pop(start.token, None)

    def _note_engine(self, engine: EngineFacts) -> None:
        """What has changed is told with a renewal that comes at once."""
        if engine != self._engine:
            self._engine, self._renew_at = engine, 0.0

    def _compact(self, start: events.StartCompaction) -> None:
        try:
            parts = self._runner.compact(self._topology_store.compaction_work(start))
            self._events.put(events.CompactionDone(start.token, parts))
        except BaseException as error:  # noqa: BLE001 - a custom combiner is the user's code too
            self._events.put(compaction_failed(start.token, error))

    def _collect(self, instruction: events.CollectGarbage) -> None:
        text = ""
        try:
            collect(self._topology_store, instruction.retention_ms)
        except BaseException as error:  # noqa: BLE001 - the next collection tries again; without an answer there is none
            text = f"{type(error).__name__}: {message_of(error)}"
        self._events.put(events.CollectionDone(text))
        self.wake()  # the collection followed the depots: what it saw is no news to the probes after it

    def _publish(self, instruction: events.PublishAppends) -> None:
        try:
            event = publish(self._topology_store, instruction, lambda: self._is_killed, self._hub.notify)
        except BaseException as error:  # noqa: BLE001 - tried again; the text says why nothing new is begun meanwhile
            event = events.AppendsPublished(
                instruction.token, frozenset(), f"{type(error).__name__}: {message_of(error)}"
            )
        self._events.put(event)

    def _keep_plan(self) -> None:
        """Nothing hangs on it: a plan that cannot be kept is kept by the next leader."""
        entry, kept = self._machine.entry, self._topology_store
        with suppress(TidemillError):
            if entry is not None and not self._is_killed:
                keep_plan(kept.store, kept.prefix, entry.epoch, kept.program)

    def _wait(self, wait: events.Wait) -> events.Event:
        """The next event: from the queue, news in the store, a lost lease, or the end of the wait."""
        while not self._is_killed:
            now = self._turned_at = self._clock.monotonic_ms()
            if now >= wait.until_ms:
                break
            if self._machine.role != "standby" and not self._renew(now):
                return events.LeaseLost()
            pause = self._probe_ms if wait.for_news else self._renew_ms
            try:
                event = self._events.get(timeout=max(0.0, min(pause, wait.until_ms - now, self._renew_ms)) / 1000)
            except queue.Empty:
                if wait.for_news and self._is_news():
                    return events.TimePassed(has_news=True)
                continue
            self._probe_ms = PROBE_MS_MIN
            return event
        return events.TimePassed(has_news=True)

    def _is_news(self) -> bool:
        """Probe less and less often while nothing happens."""
        try:
            is_news = self._topology_store.has_records() or self._is_changed()
        except (RetryableError, Deleted):
            is_news = True
        self._probe_ms = PROBE_MS_MIN if is_news else min(self._probe_ms * 1.1, self._probe_ms_max)
        return is_news

    def _is_changed(self) -> bool:
        now = self._clock.monotonic_ms()
        if now < self._changes_at:
            return False
        self._changes_at = now + CHANGES_PROBE_MS
        return self._topology_store.has_changes()

    def _renew(self, now: float) -> bool:
        if now < self._renew_at:
            return True
        self._renew_at = now + self._renew_ms
        try:
            is_held = self._lease.try_acquire()
        except RetryableError:
            return True
        if is_held:
            self._lease.tell(self._engine.name, self._engine.spark_ui)
        return is_held

    def _now(self) -> Now:
        at, running = self._clock.monotonic_ms(), self._machine.running
        is_late = running is not None and at >= running.deadline
        where = self._find(self._cancels.get(running.token)) if running is not None and is_late else CurrentStep()
        return Now(self._clock.now_ms(), at, where)

    def _find(self, cancel: Cancel | None) -> CurrentStep:
        """Where the attempt under way is; who does not answer soon, such as a JVM that hangs, is not waited for."""
        found: list[CurrentStep] = []
        if cancel is not None:
            asking = threading.Thread(target=lambda: found.append(cancel.find()), daemon=True)
            asking.start()
            asking.join(FIND_SECONDS)
        return found[0] if found else CurrentStep()

    def _prefixes(self) -> list[str]:
        definition = self._topology_store.definition
        depots = [definition.depot_prefix(name) for name in self._topology_store.depots]
        return [*depots, definition.options_prefix, f"{definition.module}/definition"]

    def _show(self) -> None:
        machine = self._machine
        state = RunnerState(
            machine.role, machine.number, machine.entry, machine.report, machine.is_refused,
            claimed_id=machine.claimed_id, pause=machine.pause, process=self._process, stop_text=self._stop_text,
        )  # fmt: skip
        self._turned_at = self._clock.monotonic_ms()
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _finish(self, error: BaseException | None) -> None:
        try:
            self._let_go()
        finally:
            self._show_end(error)
        if self._on_end is not None:
            self._on_end(self)

    def _let_go(self) -> None:
        for prefix in self._prefixes():
            self._hub.unsubscribe(prefix, self.wake)
        for cancel in list(self._cancels.values()):
            cancel.set()
        if not self._is_killed or isinstance(self._lease, FileLease):
            self._lease.release()

    def _show_end(self, error: BaseException | None) -> None:
        before = self._state
        role: Role = "failed" if error is not None else ("stopped" if self._is_killed else self._machine.role)
        with self._changed:
            self._state = replace(before, role=role, error=error, stop_text=self._stop_text)
            self._changed.notify_all()


def describe(topology: str, state: RunnerState) -> str:
    """In one sentence what a runner is doing and what went wrong last."""
    entry, report = state.entry, state.report
    last = f"last committed ID {entry.last_id}, {entry.processed} records processed" if entry else "nothing committed"
    text = f"topology {topology} is {state.role}, phase {report.phase}; {last}"
    if report.store_trouble:
        text += f"; the store: {report.store_trouble}"
    if report.publishing_trouble:
        text += f"; {report.unpublished} appends are not published yet: {report.publishing_trouble}"
    if report.maintenance_trouble:
        text += f"; compaction or collection failed and is tried again: {report.maintenance_trouble}"
    if report.failure is not None:
        failure = report.failure
        text += f"; attempt {failure.microbatch_id}/{failure.version} failed: {failure.message}\n{failure.trace}"
    return text
