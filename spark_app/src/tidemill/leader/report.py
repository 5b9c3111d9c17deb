"""What is known of a runner and its machine at one moment: the clocks, the attempt under way, reports for people."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemill.clients.status import Phase, Role, TopologyStatus, entry_status
from tidemill.definition.definition import StoredDefinition
from tidemill.engine.work import CurrentStep
from tidemill.journal.entries import Attempt, Entry, Failure


@dataclass(frozen=True)
class Now:
    """Both clocks at the moment of an event: wall milliseconds for what is stored, monotonic ones for waiting.

    `current_step` is filled in once the attempt under way is late.
    """

    wall_ms: int
    at: float
    current_step: CurrentStep = CurrentStep()


@dataclass
class Running:
    """The attempt under way. `is_begun` tells whether the log knows it: attempts without records are not begun."""

    token: int
    attempt: Attempt
    is_begun: bool
    deadline: float
    started: float


@dataclass(frozen=True)
class RunnerReport:
    """What a person may want to know about a machine; the machine itself reads only `phase` and `failure`, to note
    failures in the log. `unpublished` counts appends of committed microbatches that are not in their depots yet.
    """

    phase: Phase = "idle"
    failure: Failure | None = None
    failures_in_row: int = 0
    store_trouble: str = ""
    maintenance_trouble: str = ""
    publishing_trouble: str = ""
    unpublished: int = 0


@dataclass(frozen=True)
class RunnerState:
    """What a runner is doing; `entry` is the newest entry that it knows, `is_refused` that another one holds the
    lease, `pause` the entry of the options that pauses the topology, `process` this process, for people.
    """

    role: Role = "standby"
    number: int = 0
    entry: Entry | None = None
    report: RunnerReport = field(default_factory=RunnerReport)
    is_refused: bool = False
    error: BaseException | None = None
    stop_text: str = ""
    claimed_id: int = 0
    pause: int | None = None
    process: str = ""

    @property
    def processed(self) -> int:
        """Records processed so far; ticks do not count."""
        return self.entry.processed if self.entry else 0

    @property
    def is_over(self) -> bool:
        """Whether the runner has ended and does nothing more."""
        return self.role in ("stopped", "fenced", "superseded", "failed")

    @property
    def is_displaced(self) -> bool:
        """Whether another leader ended this runner: one that stands by anew may lead again."""
        return self.role == "fenced" or (self.role == "stopped" and self.stop_text != "")

    def status(
        self,
        definition: StoredDefinition,
        topology: str,
        head: tuple[int, Entry] | None = None,
        pause: int | None = None,
    ) -> TopologyStatus:
        """How the topology stands but for what waits. `head` and `pause` are what the store says, for a runner that
        does not lead; a leader knows them.
        """
        is_leader, report = self.role == "leader", self.report
        known = (self.number, self.entry) if self.entry is not None else None
        is_running, pause = is_leader or self.is_refused, self.pause if is_leader else pause
        found = entry_status(definition, topology, head or known, is_running=is_running, pause=pause)
        found = replace(found, role=self.role, failure=report.failure or found.failure, trouble=report.store_trouble)
        if not is_leader:
            return found
        claimed = max(0, found.microbatch_id - self.claimed_id)
        is_at_head = head is None or head[0] == self.number
        return replace(
            found, leader=self.process or None, phase=report.phase, failures_in_row=report.failures_in_row,
            commits_since_claim=claimed, background_trouble=report.maintenance_trouble,
            unpublished=report.unpublished if is_at_head else found.unpublished,
        )  # fmt: skip
