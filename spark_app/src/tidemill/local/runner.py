"""Runs attempts and compactions in the calling process."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from tidemill.engine.attempt import run_attempt
from tidemill.engine.compact import compact_thread
from tidemill.engine.work import AttemptOutcome, AttemptWork, CompactionWork, EngineFacts
from tidemill.journal.snapshot import Part

LOCAL: Final = EngineFacts("local, in the leader's process")


class LocalRunner:
    """An `AttemptRunner` without Spark: the same steps, with all tasks as one thread, which writes one object."""

    def run(self, work: AttemptWork, cancel: threading.Event) -> AttemptOutcome:
        """Raises: UserCodeError, AttemptTimeout as `AttemptRunner` says."""
        return replace(run_attempt(replace(work, threads=1), cancel), engine=LOCAL)

    def compact(self, work: CompactionWork) -> tuple[Part, ...]:
        """All tasks as one part, or piece after piece."""
        work = replace(work, threads=1)
        parts = [compact_thread(work, number) for number in range(len(work.pieces) or 1)]
        return tuple(part for part in parts if part is not None)

    def close(self) -> None:
        """Nothing is held."""
