"""Runs attempts and compactions in the calling process."""

from __future__ import annotations

import threading

from tidemill.engine.attempt import run_attempt
from tidemill.engine.compact import compact_levels
from tidemill.engine.work import AttemptOutcome, AttemptWork, CompactionWork
from tidemill.model.snapshot import Part


class LocalRunner:
    """An `AttemptRunner` without Spark: the same steps, one thread after the other."""

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Raises: UserCodeError, AttemptTimeout as `AttemptRunner` says."""
        return run_attempt(work, cancel)

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        return compact_levels(work)

    def close(self) -> None:
        """Nothing is held."""
