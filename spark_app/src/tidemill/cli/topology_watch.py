"""Watching the topologies that run in this process; the store may be away, and that ends nothing."""

from __future__ import annotations

from dataclasses import replace

from tidemill.cli.output import counted
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import LagReader, unpublished_in
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.failures import Repetition, fails, failure_text
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.report import RunnerState
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, TidemillError


class TopologyWatch:
    """One topology: what its runner says while it leads, and what the commit log says while it stands by."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str) -> None:
        self._store, self._definition, self._topology = store, definition, topology
        self._lag = LagReader(store, definition, topology)
        self._log = CommitLog(store, definition.topology_prefix(topology))
        self._options = OptionsLog(store, definition.module)
        self._last: TopologyStatus | None = None
        self._repetition = Repetition()

    def look(self, state: RunnerState) -> TopologyStatus:
        """How the topology stands; where the store does not answer, how it stood, and the trouble."""
        try:
            line = self._look(state)
        except TidemillError as error:
            known = self._last or state.status(self._definition, self._topology)
            line = replace(known, role=state.role, trouble=str(error))
        self._last = line
        return line

    def check_failing(self, line: TopologyStatus) -> None:
        """Raises MicrobatchFails where the same microbatch failed in the same way again and again."""
        failure = line.failure
        if failure is not None and self._repetition.sees(failure):
            text = f"{self._topology}: microbatch {failure.microbatch_id} fails in the same way each time"
            raise fails(failure, f"{text}: {failure_text(failure)}")

    def check_processed(self, line: TopologyStatus) -> None:
        """Raises BadInput where records wait although nothing more will happen."""
        if line.waiting:
            text = f"{self._topology} is paused with {counted(line.waiting, 'record')} not processed. Let it go on with"
            raise BadInput(f"{text} tidemill resume {self._definition.module} {self._topology}.", waiting=line.waiting)

    def _look(self, state: RunnerState) -> TopologyStatus:
        if state.role == "leader":
            return self._lag.told(state.status(self._definition, self._topology), state.entry)
        head, pause = self._log.head(), self._options.read().paused.get(self._topology)
        found = state.status(self._definition, self._topology, head, pause)
        if head is not None:  # what another process leads, and published, its entry does not say
            count = unpublished_in(self._store, self._definition, self._topology, head[1])
            found = replace(found, unpublished=count)
        return self._lag.told(found, head[1] if head else None)
