"""Watching the topologies that run in this process; the store may be away, and that ends nothing."""

from __future__ import annotations

from dataclasses import replace

from tidemill.cli.screens import Line
from tidemill.clients.lag import LagReader
from tidemill.clients.status import rows_per_second
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry
from tidemill.journal.failures import Repetition, fails, failure_text
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.runner import RunnerState
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, TidemillError


class TopologyWatch:
    """One topology: what its runner says while it leads, and what the commit log says while it stands by."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str) -> None:
        self._module, self._topology = definition.module, topology
        self._lag = LagReader(store, definition, topology)
        self._log = CommitLog(store, definition.topology_prefix(topology))
        self._options = OptionsLog(store, definition.module)
        self._last: Line | None = None
        self._repetition = Repetition()

    def look(self, state: RunnerState) -> Line:
        """How the topology stands; where the store does not answer, how it stood, and the trouble."""
        try:
            line = self._line(state)
        except TidemillError as error:
            known = self._last or self._of_entry(state, state.entry, "starting", 0)
            line = replace(known, role=state.role, trouble=str(error))
        self._last = line
        return line

    def check_failing(self, line: Line) -> None:
        """Raises MicrobatchFails where the same microbatch failed in the same way again and again."""
        failure = line.failure
        if failure is not None and self._repetition.sees(failure):
            text = f"{self._topology}: microbatch {failure.microbatch_id} fails in the same way each time"
            raise fails(failure, f"{text}: {failure_text(failure)}")

    def check_processed(self, line: Line) -> None:
        """Raises BadInput where records wait although nothing more will happen."""
        if line.waiting:
            text = f"{self._topology} is paused, and {line.waiting:,} records wait. Let it go on with"
            raise BadInput(f"{text} tidemill resume {self._module} {self._topology}.", waiting=line.waiting)

    def _line(self, state: RunnerState) -> Line:
        if state.role == "leader":
            entry, phase = state.entry, str(state.told.phase)
        else:
            head = self._log.head()
            entry, is_paused = head[1] if head else None, self._topology in self._options.read().paused
            phase = "starting" if entry is None else "paused" if is_paused else "standby"
        waiting = sum(self._lag.read(entry).values())
        return replace(self._of_entry(state, entry, phase, waiting), trouble=state.told.store_trouble)

    def _of_entry(self, state: RunnerState, entry: Entry | None, phase: str, waiting: int) -> Line:
        processed = entry.processed if entry is not None else 0
        committed = entry.committed[0] if entry is not None and entry.committed else None
        attempt = entry.attempt if entry is not None else None
        return Line(
            topology=self._topology,
            role=state.role,
            phase=phase,
            records_in=processed + waiting,
            processed=processed,
            waiting=waiting,
            microbatch_id=entry.last_id if entry is not None else 0,
            version=entry.last_version if entry is not None else 0,
            under_way=(attempt.microbatch_id, attempt.version) if attempt is not None else None,
            rows_per_second=rows_per_second(committed) if committed is not None else 0.0,
            failure=state.told.failure or (entry.failure if entry is not None else None),
        )
