"""How far a topology has come, from its commit log and, where it runs in this process, from its runner."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import unpublished_in
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry
from tidemill.journal.failures import failure_text
from tidemill.leader.report import RunnerState
from tidemill.leader.runner import TopologyRunner
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import TidemillError

_NO_RUNNER: Final = RunnerState()


class ProgressReader:
    """Follows one topology; cheap to ask again and again."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._log = CommitLog(store, prefix)
        self._last: tuple[RunnerState, int, int, TopologyStatus] | None = None

    def read(self, definition: StoredDefinition, topology: str, runner: TopologyRunner | None = None) -> TopologyStatus:
        """How the topology stands but for what waits; `runner` is its runner in this process, if there is one."""
        state, head = runner.state if runner is not None else _NO_RUNNER, self.head(runner)
        number = head[0] if head is not None else 0
        last = self._last
        if last is not None and last[0] is state and last[1:3] == (number, definition.number):
            return self._with_appends(definition, topology, state, head, last[3])
        found = replace(state.status(definition, topology, head), trouble=trouble_of(state))
        self._last = state, number, definition.number, found
        return self._with_appends(definition, topology, state, head, found)

    def _with_appends(
        self,
        definition: StoredDefinition,
        topology: str,
        state: RunnerState,
        head: tuple[int, Entry] | None,
        found: TopologyStatus,
    ) -> TopologyStatus:
        """A leader here knows what it published of the entry that it is at; of a newer one, which it will be at in a
        moment, nothing counts as published. Of another leader's its depots tell.
        """
        if state.role == "leader" or head is None or not head[1].appends:
            return found
        return replace(found, unpublished=unpublished_in(self._store, definition, topology, head[1]))

    def head(self, runner: TopologyRunner | None = None) -> tuple[int, Entry] | None:
        """The newest entry; what the runner wrote itself is not read again."""
        state = runner.state if runner is not None else _NO_RUNNER
        if state.role != "leader" or state.entry is None or self._log.log.newest(state.number) != state.number:
            return self._log.head()
        return state.number, state.entry


def trouble_of(state: RunnerState) -> str:
    """Why a runner does nothing, in a few words; empty if it works."""
    if state.error is not None:
        return ended_text(state.error)
    if state.is_over:
        return f"its runner is {state.role}: {state.stop_text}".rstrip(": ")
    if state.report.store_trouble:
        return f"its runner waits for the store: {state.report.store_trouble}"
    trouble = state.report.publishing_trouble
    return f"its appends cannot be published: {trouble}" if trouble else ""


def ended_text(error: BaseException) -> str:
    """What ended a runner."""
    code = error.code if isinstance(error, TidemillError) else type(error).__name__
    return f"its runner stopped: {code}: {error}"


def wait_text(wanted: str, timeout_millis: float, found: TopologyStatus) -> str:
    """What a person needs to know when waiting took too long."""
    done = f"{found.processed} of {wanted}" if wanted[:1].isdigit() else f"waiting for {wanted}"
    text = f"{found.module} {found.topology}: {done} after {timeout_millis:.0f} ms"
    if found.entry:
        text += f"; microbatch {found.microbatch_id} version {found.version} is committed"
    if found.under_way is not None:
        text += ", {} version {} is under way".format(*found.under_way)
    if found.unpublished:
        text += f", {found.unpublished} of its appends are not published"
    if found.trouble:
        text += f"; {found.trouble}"
    if found.failure is not None:
        text += f"; the last attempt failed: {failure_text(found.failure)}"
        text += f"\n{found.failure.trace.rstrip()}" if found.failure.trace else ""
    return text
