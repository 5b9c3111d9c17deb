"""An engine that opens beside the driver's work, so that rows need not wait for a JVM and for executors.

A driver that nobody stands in for (the first one, or the next after a crash without a standby) leads at once: small
microbatches run in its own process until the engine is there; larger ones wait for it. So it is, too, while an engine
has lost all of its executors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tidemill.engine.attempt import run_attempt
from tidemill.engine.work import (
    AttemptOutcome,
    AttemptRunner,
    AttemptWork,
    Cancel,
    CompactionWork,
    CurrentStep,
    EngineFacts,
)
from tidemill.journal.clock import Clock
from tidemill.journal.snapshot import Part
from tidemill.spark.placement import FUSED_ROWS_MAX, is_at_most, ran
from tidemill.values.errors import AttemptLost, AttemptTimeout

EARLY_ROWS_MAX: Final = FUSED_ROWS_MAX // 5
"""A driver's memory is sized for the JVM and for small microbatches; what waits longer is the executors' work."""

WAIT_MS: Final = 100.0
STARTING: Final = EngineFacts("Spark, which is starting")


@dataclass(frozen=True)
class Engine:
    """Where attempts run, once it is warm."""

    runner: AttemptRunner
    application: str = ""
    has_workers: Callable[[], bool] = lambda: True
    close: Callable[[], None] = lambda: None
    facts: Callable[[], EngineFacts] = EngineFacts


class DeferredRunner:
    """Opens an engine in a thread of its own; an `AttemptRunner` from the start."""

    def __init__(self, open_engine: Callable[[], Engine], clock: Clock) -> None:
        self._open_engine, self._clock = open_engine, clock
        self._is_done, self._is_closed = threading.Event(), threading.Event()
        self._engine: Engine | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._open, name="start engine", daemon=True).start()

    def _open(self) -> None:
        try:
            self._engine = self._open_engine()
        except BaseException as error:  # noqa: BLE001 - raised by `check` in the driver's thread
            self._error = error
        self._is_done.set()
        if self._is_closed.is_set():  # the driver was superseded meanwhile: nobody else would end it
            self.close()

    @property
    def is_warm(self) -> bool:
        """Whether every microbatch runs where it is meant to."""
        return self._engine is not None

    @property
    def application(self) -> str:
        """Spark's name for it; empty until it is warm, and without Spark."""
        return self._engine.application if self._engine is not None else ""

    @property
    def facts(self) -> EngineFacts:
        """Where attempts run, or will."""
        return self._engine.facts() if self._engine is not None else STARTING

    def check(self) -> None:
        """Raises: whatever kept the engine from opening."""
        if self._error is not None:
            raise self._error

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """In the engine; a small attempt for which it has nobody now, and one without records: here.

        A job a sleep for nothing would keep executors that `min` and `max` would let go.

        Raises:
            UserCodeError, AttemptTimeout, AttemptLost: as `AttemptRunner` says.
        """
        if is_at_most(work, 0) or (is_at_most(work, EARLY_ROWS_MAX) and not self._has_workers()):
            return ran(run_attempt(replace(work, threads=1), cancel), "inline", self.facts)
        if isinstance(cancel, Cancel):
            cancel.find = lambda: CurrentStep("the engine, which is still starting: look at its executors' pods")
        return self._wait(cancel).runner.run(work, cancel)

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        """In the engine: merging can wait.

        Raises:
            AttemptLost: a worker is gone, or the engine did not open.
        """
        return self._wait(threading.Event()).runner.compact(work)

    def close(self) -> None:
        """Ends the engine if it is open; the process's end ends one that is still opening."""
        self._is_closed.set()
        if self._engine is not None:
            self._engine.close()

    def _has_workers(self) -> bool:
        return self._engine is not None and self._engine.has_workers()

    def _wait(self, cancel: threading.Event) -> Engine:
        while not self._clock.wait(self._is_done, WAIT_MS):
            if cancel.is_set():
                raise AttemptTimeout("The attempt was cancelled while the engine was still starting.")
            if self._is_closed.is_set():
                break
        if self._engine is None:
            raise AttemptLost(f"The engine did not start: {self._error or 'the driver ends'}")
        return self._engine
