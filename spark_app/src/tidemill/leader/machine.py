"""The runner as a pure machine: events in, instructions out; no store, no thread and no clock inside.

A topology is led by one machine. It gets the lease, claims the topology in its commit log, and then goes round:
look -> fix ranges -> begin entry -> attempt -> look -> commit entry. Whatever crashes where, the log tells the next
leader where to go on. Invariants S1, S2 and S4 are kept here and in `transitions` (docs/invariants.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from tidemill.clients.status import Phase, Role
from tidemill.journal.entries import Attempt, Entry, Failure
from tidemill.journal.failures import RECORD_QUARANTINED
from tidemill.language.options import ModuleOptions, resolve
from tidemill.leader import events, quarantine_limits, ranges, transitions
from tidemill.leader.events import Event, Instruction, Question, SourcesProbed, StartsResolved, TopologySpec
from tidemill.leader.maintenance import Maintenance
from tidemill.leader.phases import FOLLOWING, MachinePhase
from tidemill.leader.publication import Publication, refusal_of
from tidemill.leader.report import Now, RunnerReport, Running
from tidemill.leader.transitions import Author, Finished
from tidemill.values.data import with_utf8
from tidemill.values.errors import UserCodeError, invariant
from tidemill.values.ids import Ids
from tidemill.values.numbers import MicrobatchId, Version, after
from tidemill.values.offsets import OffsetRanges

STORE_BACK_OFF_MS: Final = (50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


@dataclass
class Machine:
    """One runner of one topology; `handle` is the only way in."""

    spec: TopologySpec
    ids: Ids
    owner: str
    maintenance: Maintenance
    claim_wait_ms: int = 0
    lease_poll_ms: float = 200.0
    role: Role = "standby"
    number: int = 0
    entry: Entry | None = None
    failure: Failure | None = None
    store_trouble: str = ""
    look: SourcesProbed | None = None
    options: ModuleOptions = field(default_factory=ModuleOptions)
    running: Running | None = None
    is_refused: bool = False
    is_leaving: bool = False
    claimed_id: int = 0
    _claimed: tuple[int, str] = (0, "")
    _phase_before: MachinePhase = "standby"
    _question: Question | None = None
    _finished: tuple[Finished, bool] | None = None
    _is_look_fresh: bool = False
    _tokens: int = 0
    _ask_at: float = 0.0
    _store_failures: int = 0
    _failures: int = 0
    _limit: int | None = None
    _retry_at: float = 0.0
    _rested_at: float = 0.0
    _next_at: float = 0.0
    _commit_started: float = 0.0
    _unbegun_version: tuple[MicrobatchId, Version] = (MicrobatchId(0), Version(0))
    _begun_here: tuple[int, int] = (0, 0)
    _pin_again: bool = False
    _prime_started: float = 0.0
    _priming_since: float = 0.0
    _ticks: dict[str, int] = field(default_factory=dict)
    _has_looked: bool = False
    _ignored: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _found: events.FoundPoison | None = None

    def __post_init__(self) -> None:
        self.publication = Publication(frozenset(self.spec.depots.values()), self.spec.sinks)
        self.maintenance.generations = self.spec.generations
        self.maintenance.tasks, self.maintenance.threads = self.spec.tasks, self.spec.threads

    # --- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: Now) -> list[Instruction]:
        """Take one event; answer what is to be done now."""
        if self._is_over:
            return []
        made = self._take(event, now)
        while not self._is_over:
            step = self._step(now)
            invariant(bool(step), "a machine always knows what to do or to wait for", phase=self.phase)
            made += step
            if isinstance(step[-1], (events.Wait, *_QUESTIONS)):
                break
        self._note_phase()
        self.validate()
        return made

    def _take(self, event: Event, now: Now) -> list[Instruction]:
        if isinstance(event, events.StopRequested):
            self.is_leaving = event.is_gentle
            return [] if event.is_gentle else self._stop("stopped", "")
        if isinstance(event, events.LeaseLost):
            return self._stop("stopped", "another process holds the lease")
        if isinstance(event, (events.AttemptDone, events.AttemptFailed)):
            self._take_attempt(event, now)
        elif isinstance(event, events.ProbeStarted):
            self._note_probe(event, now)
        elif isinstance(event, (events.CompactionDone, events.CompactionFailed, events.CollectionDone)):
            self.maintenance.take(event, now.at)
        elif isinstance(event, events.AppendsPublished):
            self.publication.take(event, now.at)
        elif isinstance(event, events.TimePassed):
            self._is_look_fresh = self._is_look_fresh and not event.has_news
        elif isinstance(event, events.StoreFailed):
            self._take_store_failure(event, now)
        else:
            return self._take_answer(event, now)
        return []

    def _take_store_failure(self, event: events.StoreFailed, now: Now) -> None:
        """The same question is asked again: an unanswered create must be cleared up before anything else."""
        self._ask_at = now.at + STORE_BACK_OFF_MS[min(self._store_failures, len(STORE_BACK_OFF_MS) - 1)]
        self._store_failures += 1
        self.store_trouble = event.text

    def _take_answer(self, event: Event, now: Now) -> list[Instruction]:
        if isinstance(event, SourcesProbed) and self._is_stale(event):
            self._take_store_failure(events.StoreFailed(self._stale_text(event)), now)
            return []
        question, self._question = self._question, None
        self._ask_at, self._store_failures = 0.0, 0
        self.store_trouble = ""
        if isinstance(event, events.LeaseAnswered):
            self.role = "claiming" if event.is_mine else "standby"
            self.is_refused = not event.is_mine
            self._ask_at = 0.0 if event.is_mine else now.at + self.lease_poll_ms
            self._question = events.ReadHead() if event.is_mine else None
        elif isinstance(event, events.HeadRead):
            return self._take_head(event, now)
        elif isinstance(event, StartsResolved):
            self._ask_claim(event, now)
        elif isinstance(event, SourcesProbed):
            self.look, self._is_look_fresh, self.options = event, True, event.options
            self._has_looked = True
        elif isinstance(event, events.EntryWritten) and isinstance(question, events.WriteEntry):
            self._take_written(question, now)
        elif isinstance(event, events.EntryLost):
            return self._take_lost(event, now)
        return []

    def _is_stale(self, look: SourcesProbed) -> bool:
        """Whether a look saw older options than a leader did before: with them a pause would be overlooked."""
        return look.options.number < self._head.paused_seen

    def _stale_text(self, look: SourcesProbed) -> str:
        seen, found = self._head.paused_seen, look.options.number
        return (
            f"entry {seen} of the options, a pause, was seen before, but now the newest one is {found}: they are read "
            "again. If this lasts, options were deleted or an older copy of them was put back: run `tidemill check`."
        )

    def _take_head(self, event: events.HeadRead, now: Now) -> list[Instruction]:
        """Only the newest definition may claim, and a fresh claim of another process is left in peace for a while."""
        self.number, self.entry = event.number, event.entry
        newest = max(event.definition, event.entry.definition if event.entry else 0)
        if newest > self.spec.definition:
            return self._stop("superseded", f"definition {newest} replaced {self.spec.definition}")
        head = event.entry
        if head is not None and head.kind == "claim" and head.owner != self.owner:
            age = now.wall_ms - head.written_ms
            if 0 <= age < self.claim_wait_ms:
                self._question, self._ask_at = events.ReadHead(), now.at + self.claim_wait_ms - age
                return []
        added = transitions.new_sources(self.spec, head)
        if added:
            self._question = events.ResolveStarts(added)
        else:
            self._ask_claim(StartsResolved({}), now)
        return []

    def _ask_claim(self, starts: StartsResolved, now: Now) -> None:
        self._write(transitions.claim(self.entry, self.spec, starts, self._author(now)))

    def _take_lost(self, event: events.EntryLost, now: Now) -> list[Instruction]:
        """A claim that collides reads the log again; a leader whose write collides is no leader any more (S4)."""
        if self.role == "claiming":
            self._question = events.ReadHead()
            return []
        return self._stop("fenced", f"entry {event.number} is another leader's")

    def _take_written(self, question: events.WriteEntry, now: Now) -> None:
        self.number, self.entry = question.number, question.entry
        self.publication.note_written(question.entry)
        if question.entry.kind == "claim":
            self._become_leader(now)
        elif question.entry.kind == "commit":
            self._after_commit(now)
        if question.entry.attempt is not None and question.entry.kind in ("begin", "commit"):
            attempt = question.entry.attempt
            self._begun_here = (attempt.microbatch_id, attempt.version)
            if self._is_over_time(self._priming_since, now):
                self._fail_store("prime", attempt, now)

    def _become_leader(self, now: Now) -> None:
        self.role = "leader"
        self.claimed_id = self._head.last_id
        self._claimed = (self._head.epoch, self.owner)
        self._is_look_fresh, self._has_looked = False, False
        self._rested_at = now.at
        self.maintenance.start(now.at)
        self._ticks = dict(self._head.ticks)

    def _after_commit(self, now: Now) -> None:
        entry = self._head
        self._failures, self.failure, self._finished = 0, None, None
        took = now.at - self._commit_started
        newest = replace(entry.committed[0], metrics={**entry.committed[0].metrics, "commit_ms": round(took, 3)})
        self.entry = replace(entry, committed=(newest, *entry.committed[1:]))
        self._ticks.update(entry.ticks)
        self._rest(now)

    def _rest(self, now: Now) -> None:
        self._rested_at = now.at
        self._next_at = now.at + self._option("topology.microbatch.force.delay.millis")

    def _take_attempt(self, event: events.AttemptDone | events.AttemptFailed, now: Now) -> None:
        running = self.running
        if running is None or event.token != running.token:
            return
        if isinstance(event, events.AttemptFailed):
            self._pin_again = event.code in ("SnapshotExpired", "NotFound")
            self._fail(now, running.attempt, "process", self._judged(event, running.attempt))
            if event.found is not None:
                self._found, self._retry_at = event.found, now.at
            return
        refusal = refusal_of(event.outcome)
        if refusal:
            self._fail(now, running.attempt, "process", events.AttemptFailed(event.token, "TooManyAppends", refusal))
            return
        self.running = None
        measured = {"prime_ms": running.started - self._prime_started, "process_ms": now.at - running.started}
        metrics = {name: round(value, 3) for name, value in {**measured, **event.outcome.metrics}.items()}
        self._finished = (Finished(running.attempt, event.outcome, metrics), running.is_begun)
        self._is_look_fresh = False
        self._commit_started = now.at

    def _judged(self, failed: events.AttemptFailed, attempt: Attempt) -> events.AttemptFailed:
        """The failure as people are told it: what becomes of the record, where records go to the quarantine."""
        if failed.code != UserCodeError.code or not quarantine_limits.is_on(self.options, self.spec.name):
            return failed
        if failed.found is not None:
            text = f"{failed.message} The next version runs without this record, which goes to the quarantine."
            return replace(failed, code=RECORD_QUARANTINED, message=text)
        why = failed.not_found or self._refusal(attempt) or "it fails without any record too, or not each time"
        return replace(failed, message=f"{failed.message} No record goes to the quarantine: {why}.")

    def _refusal(self, attempt: Attempt) -> str:
        """Why no further record of a microbatch may go to the quarantine; empty if one may."""
        settled = 0 if self.look is None else self.look.settled
        return quarantine_limits.refusal(attempt, self._head.quarantined - settled, self.options, self.spec.name)

    def _note_probe(self, event: events.ProbeStarted, now: Now) -> None:
        """Each run of a part of the records may take as long as the attempt."""
        if self.running is not None and self.running.token == event.token:
            self.running.deadline = now.at + 1000 * self._option(_TIMEOUT)

    def _fail(self, now: Now, attempt: Attempt, phase: Phase, event: events.AttemptFailed) -> None:
        self.running, self._finished = None, None
        base = self._option("topology.microbatch.retry.delay.base.millis")
        wait = min(base * 2 ** min(self._failures, 30), self._option("topology.microbatch.retry.delay.max.millis"))
        self._failures += 1
        self._retry_at = now.at + wait
        message, step, trace, sample = map(with_utf8, (event.message, event.step, event.trace, event.sample))
        self.failure = Failure(
            attempt.microbatch_id, attempt.version, phase, event.code, message, now.wall_ms, step, trace, sample
        )

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, now: Now) -> list[Instruction]:
        """The next thing to do, or to wait for."""
        self._note_phase()
        if self.is_leaving and not self._is_busy:
            return self._leave(now)
        if self._question is not None:
            return [events.Wait(self._ask_at)] if now.at < self._ask_at else [self._question]
        if self.role == "standby":
            return self._when(now, self._ask_at, events.AskLease())
        if self.running is not None:
            return self._watch(self.running, now)
        if self._finished is not None:
            return self._commit_step(*self._finished, now=now)
        if self._head.attempt is not None:
            return self._begun_step(self._head.attempt, now)
        return self._idle_step(now)

    def _leave(self, now: Now) -> list[Instruction]:
        """What is committed is published before a leader goes; if that takes long, the next one does it."""
        if self.role != "leader":
            return self._stop("stopped", "")
        if self.publication.waiting(self._head):
            return [*self._publish(now), self._wait(now.at + 1000)]
        return self._note_delivered(now) or self._stop("stopped", "")

    def _wait(self, until: float, *, for_news: bool = False) -> events.Wait:
        """Wait, at most until a publication is to be tried again."""
        return events.Wait(self.publication.look_at(self._head, until), for_news)

    def _when(self, now: Now, at: float, question: Question) -> list[Instruction]:
        if now.at < at:
            return [events.Wait(at)]
        self._question = question
        return [question]

    def _watch(self, running: Running, now: Now) -> list[Instruction]:
        if now.at < running.deadline:
            return [*self._background(now), self._wait(running.deadline)]
        step, trace = now.current_step.step, now.current_step.trace
        advice = f"if it needs longer, set {_TIMEOUT}; if a function hangs, fix it"
        text = f"{self._timeout_text('process', step)}; {advice}"
        failed = events.AttemptFailed(running.token, "PhaseTimeout", text, step, trace)
        self._fail(now, running.attempt, "process", failed)
        return [events.CancelAttempt(running.token)]

    def _timeout_text(self, phase: str, step: str) -> str:
        return f"the {phase} phase took longer than {self._option(_TIMEOUT):g} s; it was at: {step or 'unknown'}"

    def _fail_store(self, phase: Literal["prime", "commit"], attempt: Attempt, now: Now) -> None:
        """A phase that only waits for the store took too long."""
        step = f"the store, which answers too slowly for {_TIMEOUT}"
        self._fail(now, attempt, phase, events.AttemptFailed(0, "PhaseTimeout", self._timeout_text(phase, step), step))

    def _is_over_time(self, started: float, now: Now) -> bool:
        return now.at - started > 1000 * self._option(_TIMEOUT)

    def _commit_step(self, finished: Finished, is_begun: bool, now: Now) -> list[Instruction]:
        """The leader reads the options before it composes a commit: a pause must stop the next begin."""
        attempt = finished.attempt
        if self._is_over_time(self._commit_started, now):
            self._fail_store("commit", attempt, now)
            return self._step(now)
        is_changed = is_begun or bool(finished.outcome.deltas or finished.outcome.appends)
        if not is_changed:
            return self._drop(attempt, now)
        if not self._is_look_fresh:
            return self._ask_look()
        head, author = self._head_to_follow(), self._author(now)
        assert self.look is not None
        finished = replace(finished, metrics={**finished.metrics, **ranges.lags(self.spec, attempt, self.look)})
        entry, parts = transitions.commit(head, self.number + 1, finished, author, self.spec.depots)
        self._note_ignored(finished)
        self._limit = ranges.limit_after(self._limit, attempt)
        following = self._following(entry, now)
        return [self._write(replace(entry, attempt=following), parts)]

    def _drop(self, attempt: Attempt, now: Now) -> list[Instruction]:
        """Nothing was read and nothing changed: nothing is written, the ID stays."""
        self._ticks.update(attempt.ticks)
        self._failures, self.failure, self._finished = 0, None, None
        self._unbegun_version = (attempt.microbatch_id, Version(attempt.version - 1))
        self._rest(now)
        return self._step(now)

    def _following(self, entry: Entry, now: Now) -> Attempt | None:
        """The attempt that begins with this commit: only where records wait and nobody asked for a rest."""
        look = self.look
        assert look is not None
        is_free = not (self._is_paused or self.is_leaving) and look.definition <= self.spec.definition
        is_free = is_free and self._option("topology.microbatch.force.delay.millis") == 0
        fixed = ranges.fix_ranges(self.spec, entry.progress, look, self._limit)
        if not is_free or not ranges.has_records(fixed, self._wanted()) or self._is_crowded(entry):
            return None
        self._prime_started = self._priming_since = now.at
        return self._attempt(entry, fixed, after(entry.last_id), Version(1), now, entry.ticks)

    def _begun_step(self, attempt: Attempt, now: Now) -> list[Instruction]:
        """A begun ID is finished before anything else; what another leader or version began gets the next version.

        Only a pause comes before it where it failed: it may fail for ever. Then it is tried again when the pause ends.
        """
        is_begun = self._begun_here == (attempt.microbatch_id, attempt.version) and not self._has_failed(attempt)
        if not self._is_look_fresh and (self._is_failing or self.look is None):
            return self._ask_look()
        if self._is_failing and self._is_paused:
            return self._paused_step(now)
        if is_begun:
            if now.at < self._retry_at:
                return [*self._background(now), self._wait(self._retry_at, for_news=True)]
            return self._start(attempt, True, now)
        assert self.look is not None
        if self.look.definition > self.spec.definition:
            return self._superseded()
        if self._failures == 0:
            self._prime_started = now.at
        self._priming_since = now.at
        again = replace(attempt, version=after(attempt.version))
        if self._pin_again or any(name not in again.reads for name in self.spec.reads):
            again = replace(again, reads=dict(self.look.reads))
        self._pin_again = False
        found, self._found = self._found, None
        if found is None or not self._has_failed(attempt):
            return [self._write_begin(again, {}, now)]
        return [self._write_begin(*transitions.with_poison(again, self.number + 1, found), now)]

    def _write_begin(self, attempt: Attempt, parts: Mapping[str, bytes], now: Now) -> Instruction:
        head = self._head_to_follow()
        return self._write(transitions.begin(head, attempt, self.failure, self._author(now)), parts)

    def _has_failed(self, attempt: Attempt) -> bool:
        """Whether the log's newest begin is that of the version that failed last."""
        failure, where = self.failure, (attempt.microbatch_id, attempt.version)
        return failure is not None and (failure.microbatch_id, failure.version) == where

    def _start(self, attempt: Attempt, is_begun: bool, now: Now) -> list[Instruction]:
        self._tokens += 1
        deadline = now.at + 1000 * self._option(_TIMEOUT)
        self.running = Running(self._tokens, attempt, is_begun, deadline, now.at)
        last = self.failure
        is_traced = last is not None and last.microbatch_id == attempt.microbatch_id and last.code in _MODULES_CODE
        is_diagnosed = quarantine_limits.is_on(self.options, self.spec.name) and not self._refusal(attempt)
        return [events.StartAttempt(self._tokens, attempt, self._head, self.options, is_traced, is_diagnosed)]

    def _idle_step(self, now: Now) -> list[Instruction]:
        if not self._is_look_fresh:
            return self._ask_look()
        look = self.look
        assert look is not None
        if look.definition > self.spec.definition:
            return self._superseded()
        if self._is_paused:
            return self._paused_step(now)
        if not self._is_failure_in_log():
            note = transitions.follow(self._head_to_follow(), "note", self._author(now))
            return [self._write(replace(note, failure=self.failure))]
        made = self._background(now)
        if self._failures > 0 and now.at < self._retry_at:
            return [*made, self._wait(self._retry_at)]
        if now.at < self._next_at:
            return [*made, *(self._note_beside(now) or [self._wait(self._next_at)])]
        step = [] if self._is_crowded(self._head) else self._new_attempt(look, now)
        return [*made, *(step or self._note_beside(now) or self._rest_until(now))]

    def _is_failure_in_log(self) -> bool:
        """Whether the log tells people how attempts without records fare; those with records tell it in their begin."""
        mine, known = self.failure, self._head.failure
        if mine is None or known is None:
            return mine is known
        return (mine.code, mine.message) == (known.code, known.message)

    def _paused_step(self, now: Now) -> list[Instruction]:
        """The caller of a pause waits until the log says that its entry was seen."""
        asked = self.options.paused[self.spec.name]
        if self._head.paused_seen < asked:
            note = transitions.follow(self._head_to_follow(), "note", self._author(now))
            return [self._write(replace(note, paused_seen=asked, failure=self.failure or note.failure))]
        made = self._background(now)
        return [*made, *(self._note_beside(now) or [self._wait(now.at + 60_000, for_news=True)])]

    def _new_attempt(self, look: SourcesProbed, now: Now) -> list[Instruction]:
        """Records are begun in the log before they are read; attempts without records are not."""
        head = self._head
        microbatch_id = after(head.last_id)
        known = self._unbegun_version[1] if self._unbegun_version[0] == microbatch_id else Version(0)
        fixed = ranges.fix_ranges(self.spec, head.progress, look, self._limit)
        ticks = ranges.due_ticks(self.spec, self._ticks, now.wall_ms)
        is_time = now.at >= self._empty_at or self._failures > 0
        if ranges.has_records(fixed, self._wanted() if not is_time else fixed):
            self._prime_started = self._priming_since = now.at
            attempt = self._attempt(head, fixed, microbatch_id, after(known), now, self._ticks)
            return [self._write_begin(attempt, {}, now)]
        if not ticks and not is_time:
            return []
        self._prime_started = now.at
        nothing = ranges.empty_ranges(self.spec, head.progress)
        attempt = self._attempt(head, nothing, microbatch_id, after(known), now, self._ticks)
        self._unbegun_version = (microbatch_id, attempt.version)
        return self._start(attempt, False, now)

    def _attempt(
        self, entry: Entry, fixed: Mapping[str, OffsetRanges], microbatch_id: MicrobatchId, version: Version, now: Now,
        ticks: Mapping[str, int],
    ) -> Attempt:  # fmt: skip
        look = self.look
        assert look is not None
        invariant(not self._is_paused, "nothing new is begun in a pause", pause=self.pause)
        due = ranges.due_ticks(self.spec, ticks, now.wall_ms)
        reached = ranges.reached(fixed, look)
        return Attempt(microbatch_id, version, fixed, due, dict(look.reads), reached=reached)

    def _rest_until(self, now: Now) -> list[Instruction]:
        tick = now.at + ranges.next_tick_in_ms(self.spec, self._ticks, now.wall_ms)
        until = min(self._empty_at, tick, max(now.at + 1000, self.maintenance.collect_at(self.options)))
        if self._is_crowded(self._head):
            until = now.at + 1000
        return [self._wait(until, for_news=True)]

    # --- maintenance -------------------------------------------------------------------------------------------------

    def _background(self, now: Now) -> list[Instruction]:
        self._tokens += 1
        work = self.maintenance.work(self._head, self.options, self._tokens, now.at)
        return [*self._publish(now), *work]

    def _publish(self, now: Now) -> list[Instruction]:
        self._tokens += 1
        return self.publication.work(self._head, self._tokens, now.at)

    def _is_crowded(self, entry: Entry) -> bool:
        """Whether something that goes on beside comes first, before anything new is begun."""
        return self.maintenance.is_crowded(entry) or self.publication.is_crowded(entry)

    def _note_beside(self, now: Now) -> list[Instruction]:
        """What went on beside enters the log, where no entry is near that would take it along."""
        return self._compact_entry(now) or self._note_delivered(now)

    def _note_delivered(self, now: Now) -> list[Instruction]:
        if not self.publication.has_news(self._head):
            return []
        return [self._write(transitions.follow(self._head_to_follow(), "note", self._author(now)))]

    def _compact_entry(self, now: Now) -> list[Instruction]:
        """Where no commit is near, a finished compaction enters by an entry of its own."""
        if not self.maintenance.has_result:
            return []
        return [self._write(transitions.follow(self._head_to_follow(), "compact", self._author(now)))]

    def _head_to_follow(self) -> Entry:
        """The head with what went on beside: the compaction, and what is published of its appends."""
        return self.maintenance.with_compaction(self.publication.without_delivered(self._head), self.number + 1)

    # --- what holds --------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> MachinePhase:
        """What the machine does now."""
        if self.role == "standby" or self.role == "claiming":
            return self.role
        return self._leading_phase() if self.role == "leader" else "over"

    @property
    def _is_over(self) -> bool:
        return self.phase == "over"

    def _leading_phase(self) -> Phase:
        begun = self._head.attempt
        if self.running is not None:
            return "process"
        if self._finished is not None:
            return "commit"
        if isinstance(self._question, events.WriteEntry) and self._question.entry.kind == "begin":
            return "prime"
        if self._is_paused and (begun is None or self._is_failing):
            return "paused"
        if self._failures:
            return "back-off"
        return "idle" if begun is None else "prime"

    @property
    def report(self) -> RunnerReport:
        """What people are told."""
        phase = self._leading_phase() if self.role == "leader" else "idle"
        unpublished = len(self.publication.waiting(self.entry)) if self.entry is not None else 0
        return RunnerReport(
            phase, self.failure, self._failures, self.store_trouble, self.maintenance.trouble,
            self.publication.trouble, unpublished,
        )  # fmt: skip

    def _note_phase(self) -> None:
        before, self._phase_before = self._phase_before, self.phase
        is_next = self._phase_before == before or self._phase_before in FOLLOWING[before]
        invariant(is_next, "a phase follows as the table says", before=before, after=self._phase_before)

    def validate(self) -> None:
        """Check what holds between events, whatever happened.

        Raises:
            InvariantViolation: a bug of this machine; its runner ends before it does anything more.
        """
        running, finished, question = self.running, self._finished, self._question
        attempt = running.attempt if running is not None else finished[0].attempt if finished is not None else None
        if self.role != "leader":
            invariant(attempt is None, "S4: only a leader has an attempt", role=self.role)
        else:
            head = self._head
            invariant(running is None or finished is None, "one attempt at a time", running=running)
            invariant((head.epoch, head.owner) == self._claimed, "S4: a leader's head is its own", epoch=head.epoch)
            invariant((self._failures > 0) == (self.failure is not None), "a failure counts", count=self._failures)
            if attempt is not None:
                self._validate_attempt(head, attempt)
        if isinstance(question, events.WriteEntry):
            invariant(question.number == self.number + 1, "S4: an entry follows the head", number=question.number)

    def _validate_attempt(self, head: Entry, attempt: Attempt) -> None:
        invariant(attempt.microbatch_id == head.last_id + 1, "S2: an attempt starts from the state before its ID")
        is_known = attempt.records == 0 if head.attempt is None else attempt == head.attempt
        invariant(is_known, "S2: what runs is what the log began, or reads nothing", attempt=attempt)

    # --- small things ------------------------------------------------------------------------------------------------

    @property
    def _head(self) -> Entry:
        assert self.entry is not None
        return self.entry

    @property
    def _is_busy(self) -> bool:
        """Whether a microbatch is under way that a runner which leaves still finishes."""
        is_writing = isinstance(self._question, events.WriteEntry)
        return is_writing or self.running is not None or self._finished is not None

    @property
    def _empty_at(self) -> float:
        """When an attempt without records is due: asked anew each time, for the option may change during a sleep."""
        return self._rested_at + self._option("topology.microbatch.empty.sleep.time.millis")

    @property
    def pause(self) -> int | None:
        """The entry of the options that pauses the topology, as far as the machine has looked; None is no pause."""
        return self.options.paused.get(self.spec.name)

    @property
    def _is_failing(self) -> bool:
        """Whether the last attempt failed, here or with the leader before."""
        return self._failures > 0 or self._head.failure is not None

    @property
    def _is_paused(self) -> bool:
        return self.pause is not None

    def _option(self, name: str) -> float:
        return float(resolve(name, self.options.values, self.spec.name))

    def _wanted(self) -> list[str]:
        """Sources whose waiting records start a microbatch: not those that an attempt left alone, until more come."""
        look = self.look
        assert look is not None
        return [name for name, ends in look.ends.items() if self._ignored.get(name) != ends.ends]

    def _note_ignored(self, finished: Finished) -> None:
        look = self.look
        assert look is not None
        for name in finished.attempt.ranges:
            if name in finished.outcome.exploded:
                self._ignored.pop(name, None)
            elif name in look.ends and ranges.has_records(finished.attempt.ranges, [name]):
                self._ignored[name] = look.ends[name].ends

    def _author(self, now: Now) -> Author:
        return Author(self.ids.nonce(), now.wall_ms, self.owner)

    def _ask_look(self) -> list[Instruction]:
        reached = {} if self._has_looked else ranges.all_reached(self._head)
        self._question = events.Look(self._head.quarantined > 0, reached)
        return [self._question]

    def _write(self, entry: Entry, parts: Mapping[str, bytes] | None = None) -> Instruction:
        question = events.WriteEntry(self.number + 1, entry, parts or {})
        self.maintenance.note_asked(entry, question.number)
        self._question = question
        return question

    def _superseded(self) -> list[Instruction]:
        assert self.look is not None
        return self._stop("superseded", f"definition {self.look.definition} replaced {self.spec.definition}")

    def _stop(self, reason: Literal["stopped", "fenced", "superseded"], text: str) -> list[Instruction]:
        self.role = reason
        cancel: list[Instruction] = [] if self.running is None else [events.CancelAttempt(self.running.token)]
        self.running, self._finished = None, None
        return [*cancel, events.Stop(reason, text)]


_MODULES_CODE: Final = (UserCodeError.code, RECORD_QUARANTINED)
_TIMEOUT: Final = "topology.microbatch.phase.timeout.seconds"
_QUESTIONS: Final = (events.AskLease, events.ReadHead, events.ResolveStarts, events.Look, events.WriteEntry)
