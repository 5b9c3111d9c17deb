"""Runs attempts and compactions in the calling process."""

from __future__ import annotations

import threading
from dataclasses import replace

from tidemill.engine.attempt import run_attempt
from tidemill.engine.compact import compact_thread
from tidemill.engine.work import AttemptOutcome, AttemptWork, CompactionWork
from tidemill.journal.snapshot import Part


class LocalRunner:
    """An `AttemptRunner` without Spark: the same steps, with all tasks as one thread, which writes one object."""

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Raises: UserCodeError, AttemptTimeout as `AttemptRunner` says."""
        return run_attempt(replace(work, threads=1), cancel)

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        part = compact_thread(replace(work, threads=1), 0)
        return () if part is None else (part,)

    def close(self) -> None:
        """Nothing is held."""
