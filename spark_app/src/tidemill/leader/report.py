"""What is known of a runner machine at one moment: the clocks, the attempt under way, and its report for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemill.engine.work import CurrentStep
from tidemill.journal.entries import Attempt, Failure

Role = Literal["standby", "claiming", "leader", "stopped", "fenced", "superseded"]
Phase = Literal["idle", "prime", "process", "commit", "back-off", "paused"]


@dataclass(frozen=True)
class Now:
    """Both clocks at the moment of an event: wall milliseconds for what is stored, monotonic ones for waiting.

    `whereabouts` is filled in once the attempt under way is late.
    """

    wall_ms: int
    at: float
    whereabouts: CurrentStep = CurrentStep()


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
    failures in the log.
    """

    phase: Phase = "idle"
    failure: Failure | None = None
    failures_in_row: int = 0
    store_trouble: str = ""
    upkeep_trouble: str = ""
