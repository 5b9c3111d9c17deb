"""How far a topology has come, from its commit log and, where it runs in this process, from its runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry, Failure
from tidemill.journal.failures import failure_text
from tidemill.leader.runner import RunnerState
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import TidemillError


@dataclass(frozen=True)
class Progress:
    """`number` and `entry` are the newest of the commit log; `failure` is the last one since the last commit.

    `trouble` is why the runner in this process stopped, or what it asks the store for in vain.
    """

    number: int = 0
    entry: Entry | None = None
    failure: Failure | None = None
    trouble: str = ""

    @property
    def processed(self) -> int:
        return self.entry.processed if self.entry is not None else 0

    @property
    def paused_seen(self) -> int:
        return self.entry.paused_seen if self.entry is not None else 0


class ProgressReader:
    """Follows one topology; cheap to ask again and again."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.prefix = prefix
        self._log = CommitLog(store, prefix)

    def read(self, runner: Any = None) -> Progress:
        """The progress now; `runner` is the topology's runner in this process, if there is one."""
        head = self._head(runner)
        seen = runner.state.told.failure if runner is not None else None
        trouble = trouble_of(runner.state) if runner is not None else ""
        if head is None:
            return Progress(failure=seen, trouble=trouble)
        return Progress(head[0], head[1], seen or head[1].failure, trouble)

    def _head(self, runner: Any) -> tuple[int, Entry] | None:
        """The newest entry; what the runner wrote itself is not read again."""
        state = runner.state if runner is not None else RunnerState()
        number: int = state.number
        entry: Entry | None = state.entry
        if state.role != "leader" or entry is None or self._log.log.newest(number) != number:
            return self._log.head()
        return number, entry


def trouble_of(state: RunnerState) -> str:
    """Why a runner does nothing, in a few words; empty if it works."""
    if state.error is not None:
        code = state.error.code if isinstance(state.error, TidemillError) else type(state.error).__name__
        return f"its runner stopped: {code}: {state.error}"
    if state.is_over:
        return f"its runner is {state.role}: {state.stop_text}".rstrip(": ")
    return f"its runner waits for the store: {state.told.store_trouble}" if state.told.store_trouble else ""


def wait_text(module: str, topology: str, timeout_millis: float, wanted: str, progress: Progress) -> str:
    """What a person needs to know when waiting took too long."""
    entry = progress.entry
    done = f"{progress.processed} of {wanted}" if wanted[:1].isdigit() else f"waiting for {wanted}"
    text = f"{module} {topology}: {done} after {timeout_millis:.0f} ms"
    if entry is not None:
        text += f"; microbatch {entry.last_id} version {entry.last_version} is committed"
        if entry.attempt is not None:
            text += f", {entry.attempt.microbatch_id} version {entry.attempt.version} is under way"
    if progress.trouble:
        text += f"; {progress.trouble}"
    if progress.failure is not None:
        text += f"; the last attempt failed: {failure_text(progress.failure)}"
        text += f"\n{progress.failure.trace.rstrip()}" if progress.failure.trace else ""
    return text
