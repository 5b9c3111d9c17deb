"""Runs attempts on Spark: a stage a superstep (spread), one task (fused), or in the driver (inline).

Spark knows as little as possible: stages carry opaque bytes, and a user's error is a result. What it reports by
itself is that workers are gone, and then the attempt starts again.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from tidemill.engine.current_step import superstep_text
from tidemill.engine.report import add, summed
from tidemill.engine.work import AttemptOutcome, AttemptWork, Cancel, CompactionWork, CurrentStep
from tidemill.journal.snapshot import Part
from tidemill.plan.program import Superstep
from tidemill.spark import wire
from tidemill.spark.placement import Placement, compaction_threads, place, ran
from tidemill.spark.session import Session, shared_session
from tidemill.spark.settings import SparkSettings
from tidemill.spark.worker import (
    SUPERSTEP_PROPERTY,
    CompactionStage,
    FinishStage,
    FusedStage,
    LastStepStage,
    ShippedWork,
    StepStage,
    ThreadResult,
)  # fmt: skip
from tidemill.values import errors

CANCEL_CHECK_SECONDS = 0.1
PLACEMENT_ADVICE = "set topology.microbatch.placement to spread or inline to learn more"


class SparkRunner:
    """An `AttemptRunner` on the process's shared SparkContext; one runner may serve several topologies at once."""

    def __init__(self, settings: SparkSettings | str | None = None) -> None:
        """Starts Spark now, so that the first microbatch need not; `settings` may be just a master.

        Raises:
            BadInput: Spark cannot start; the text says what to install or to change.
        """
        self._settings = SparkSettings(master=settings) if isinstance(settings, str) else settings
        self.facts = shared_session(self._settings).facts

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Runs one attempt where `topology.microbatch.placement` says.

        Raises:
            UserCodeError: a function of the module raised.
            AttemptTimeout: `cancel` was set; Python code that hangs is killed (not when it runs inline, in this
            process). AttemptLost: a worker, an executor or the JVM is gone, or shuffled data is.
        """
        placement = place(work)
        if placement == "inline":
            from tidemill.engine.attempt import run_attempt

            return ran(run_attempt(replace(work, threads=1), cancel), placement, self.facts)
        name = f"{work.prefix} {work.microbatch_id}-{work.version}"
        begin = time.perf_counter()
        with self._jobs(name, work.prefix, cancel) as session:
            attempt = _Attempt(session, work if placement == "spread" else replace(work, threads=1))
            if isinstance(cancel, Cancel):
                cancel.find = lambda: attempt.find(placement, name)
            outcome = attempt.run(placement)
        metrics = {**outcome.metrics, "job_ms": (time.perf_counter() - begin) * 1000}
        if session.settings.has_executors:
            metrics["executors"] = float(session.executors)
        return ran(replace(outcome, metrics=metrics), placement, session.facts)

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        """Merges levels, in a Spark task for each thread or piece or, if they are small, in one for all; runs beside
        attempts and shares the cores with them.

        Raises:
            AttemptLost: a worker is gone; the same work may be tried again.
        """
        work = replace(work, threads=len(work.pieces) or compaction_threads(work))
        name = f"{work.prefix} compaction {work.microbatch_id}"
        with self._jobs(name, f"{work.prefix} compaction", threading.Event()) as session:
            shipped = ShippedWork.of(session.ship(work.program), work)
            stage = session.stages.python_stage(
                session.stages.base(work.threads), CompactionStage(shipped), session.broadcasts(work.program)
            )
            return tuple(part for part in _results(session.stages.collect(stage)) if part is not None)

    def has_workers(self) -> bool:
        """Whether anything could run a task now; on Kubernetes all executors may be gone for a while."""
        try:
            session = shared_session(self._settings)
            return session.settings.kubernetes is None or session.executors > 0
        except (Py4JError, OSError):
            return True  # the attempt finds out that the JVM is gone, and starts it again

    def close(self) -> None:
        """Spark stays for other runners of the process; it ends with the process or by `stop_shared_session`."""

    @contextlib.contextmanager
    def _jobs(self, name: str, pool: str, cancel: threading.Event) -> Iterator[Session]:
        """Jobs in the body are one group that `cancel` ends; what Spark reports becomes an error of ours."""
        session = shared_session(self._settings)
        self.facts = session.facts
        done = threading.Event()
        watcher = threading.Thread(
            target=_cancel_when, args=(cancel, done, session, name), name=f"cancel {name}", daemon=True
        )
        watcher.start()
        try:
            session.enter_group(name, pool)
            yield session
        except (Py4JError, OSError, EOFError) as error:
            raise _reported(error, cancel) from error
        finally:
            done.set()


class _Attempt:
    """One attempt as stages of one session."""

    def __init__(self, session: Session, work: AttemptWork) -> None:
        self._session = session
        self._stages = session.stages
        self._work = work
        self._number = 0
        self._shipped = ShippedWork.of(session.ship(work.program), work)
        self._broadcasts = session.broadcasts(work.program)

    def find(self, placement: Placement, group: str) -> CurrentStep:
        """Where the attempt is, as far as the driver sees: the superstep whose stage runs."""
        if placement == "fused":
            return CurrentStep(f"one Spark task with all steps; {PLACEMENT_ADVICE}")
        try:
            number = self._number if self._work.program.schedule is None else self._session.running_stage(group)
        except (Py4JError, OSError):
            return CurrentStep("Spark's JVM, which does not answer")
        if number is None:
            return CurrentStep("Spark, which runs no stage of it: do other jobs hold all its cores?")
        return CurrentStep(superstep_text(self._work.program, number))

    def run(self, placement: Placement) -> AttemptOutcome:
        if placement == "fused":
            return self._run_fused()
        return self._run_spread() if self._work.program.schedule is not None else self._run_dynamic()

    def _run_fused(self) -> AttemptOutcome:
        stage = self._python(self._stages.base(1), FusedStage(self._shipped))
        (outcome,) = _results(self._stages.collect(stage))
        return outcome  # type: ignore[no-any-return]

    def _run_spread(self) -> AttemptOutcome:
        """All supersteps as one job: a stage each."""
        schedule = self._work.program.schedule or ()
        stage = self._stages.base(self._work.threads)
        for number, superstep in enumerate(schedule[:-1]):
            stage = self._python(stage, StepStage(self._shipped, self._work.threads, number, superstep.events))
            stage = self._stages.shuffled(stage, self._work.threads)
        last = len(schedule) - 1
        stage = self._python(stage, LastStepStage(self._shipped, last, schedule[last].events))
        try:
            return _outcome(_results(self._stages.collect(stage)))
        finally:
            self._forget(stage)

    def _run_dynamic(self) -> AttemptOutcome:
        """A job a superstep, until the schedule sees no message under way.

        A superstep's messages stay in the shuffle's files for the next job; its reports are a partition of their own,
        which is all that its job reads.
        """
        from tidemill.engine.superstep import DynamicSchedule

        schedule = DynamicSchedule(self._work.program, self._work.options)
        superstep: Superstep | None = schedule.opening()
        stage = self._stages.base(self._work.threads)
        number, exploded, metrics = 0, set[str](), dict[str, float]()
        try:
            while superstep is not None:
                stage, reports = self._run_superstep(stage, number, superstep)
                exploded.update(source for report in reports for source in report.exploded)
                add(metrics, (report.metrics for report in reports))
                superstep = schedule.next(reports)
                number += 1
            outcome = self._finish(stage, number)
        finally:
            self._forget(stage)
        return replace(outcome, exploded=frozenset(exploded), metrics=metrics)

    def _run_superstep(self, stage: Any, number: int, superstep: Superstep) -> tuple[Any, list[Any]]:
        threads = self._work.threads
        self._number = number
        self._session.context.setLocalProperty(SUPERSTEP_PROPERTY, str(number))
        stage = self._python(stage, StepStage(self._shipped, threads, number, superstep.events, threads))
        both = self._stages.shuffled(stage, threads + 1)
        reports = self._stages.selected(both, range(threads, threads + 1))
        return self._stages.selected(both, range(threads)), _results(self._stages.collect(reports))

    def _finish(self, stage: Any, number: int) -> AttemptOutcome:
        self._session.context.setLocalProperty(SUPERSTEP_PROPERTY, str(number))
        return _outcome(_results(self._stages.collect(self._python(stage, FinishStage(self._shipped, number)))))

    def _python(self, parent: Any, task: Any) -> Any:
        return self._stages.python_stage(parent, task, self._broadcasts)

    def _forget(self, stage: Any) -> None:
        """Shuffle files go at once, also those of a failed attempt; if the JVM is gone they are gone with it."""
        with contextlib.suppress(Py4JError, OSError):
            self._session.context.setLocalProperty(SUPERSTEP_PROPERTY, None)
            self._stages.forget(stage)


def _results(records: list[bytes]) -> list[Any]:
    """What tasks returned; the first failure is raised."""
    controls = [wire.unpack_control(record) for record in records]
    for control in controls:
        if isinstance(control, wire.TaskFailure):
            wire.raise_failure(control)
    return controls


def _outcome(results: list[ThreadResult]) -> AttemptOutcome:
    return AttemptOutcome(
        tuple(result.changes.delta for result in results if result.changes.delta is not None),
        frozenset(source for result in results for source in result.exploded),
        summed([result.metrics for result in results]),
        tuple(part for result in results for part in result.changes.appends),
        tuple(answer for result in results for answer in result.changes.answers),
    )


def _cancel_when(cancel: threading.Event, done: threading.Event, session: Session, group: str) -> None:
    """Ends the group once `cancel` is set, again and again: a job that is submitted right now would slip through."""
    while not done.is_set():
        if cancel.wait(CANCEL_CHECK_SECONDS):
            session.cancel(group)
            done.wait(CANCEL_CHECK_SECONDS)


def _reported(error: Exception, cancel: threading.Event) -> errors.TidemillError:
    if cancel.is_set():
        return errors.AttemptTimeout("The attempt was cancelled, and its Spark jobs with it.")
    if isinstance(error, Py4JJavaError):
        return errors.AttemptLost(f"Spark lost a part of the attempt: {_cause(error)}")
    return errors.AttemptLost(f"Spark's JVM does not answer ({type(error).__name__}); it is started again.")


def _cause(error: Py4JJavaError) -> str:
    """What Spark says, in a sentence; asking the JVM may fail if it is about to end."""
    try:
        first = str(error.java_exception.getMessage()).splitlines()[0]
    except (Py4JError, OSError, IndexError):
        return "no reason given"
    if "Python worker exited unexpectedly" in first:
        return "a Python worker died (killed, out of memory, or a crash in native code)"
    found = re.search(r"(ExecutorLostFailure|FetchFailed|MetadataFetchFailed)\b.*", first)
    return found[0] if found else first
