"""Supersteps of one thread as pure functions on bytes: what `spark` ships to its workers, and `local` can do too.

    inbox of bytes ──► step_thread ──► [(destination thread, bytes)] + report
    inbox of bytes ──► finish_thread ──► what the thread changed

A thread's own state (overlay, rows that wait for a batch block) travels from superstep to superstep as a message to
itself, so a lost worker loses nothing that the lineage cannot make again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.engine.work import AttemptWork, DeltaPart
from tidemill.plan.program import Event, Superstep


@dataclass(frozen=True)
class StepReport:
    """What the driver learns from one thread's superstep.

    `sent` counts messages per region, `entered` names the batch blocks that this step began, `exploded` the sources
    read.
    """

    sent: dict[int, int] = field(default_factory=dict)
    entered: tuple[int, ...] = ()
    exploded: frozenset[str] = frozenset()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepOutput:
    """`messages` are (destination thread, payload); the thread's own state is among them, addressed to itself."""

    messages: list[tuple[int, bytes]]
    report: StepReport


def step_thread(
    work: AttemptWork,
    thread: int,
    superstep: int,
    inbox: Sequence[bytes],
    events: Sequence[Event],
    cancel: threading.Event | None = None,
) -> StepOutput:
    """Runs all tasks of one thread through one superstep; the order of `inbox` does not matter.

    `inbox` is empty in superstep 0. `events` are `program.schedule[superstep].events`, or what `DynamicSchedule` said.

    Raises:
        UserCodeError: a function of the module raised.
        AttemptTimeout: `cancel` was set.
    """
    raise NotImplementedError


def finish_thread(work: AttemptWork, thread: int, inbox: Sequence[bytes]) -> DeltaPart | None:
    """What the thread changed, from the messages of its last superstep (its own state); None if nothing.

    A large part is written as an object; a small one comes back as bytes.
    """
    raise NotImplementedError


class DynamicSchedule:
    """Decides superstep by superstep where the number of supersteps depends on data.

    events = schedule.opening(); run all threads; events = schedule.next(reports); … until it is None.
    """

    def opening(self) -> Superstep:
        raise NotImplementedError

    def next(self, reports: Sequence[StepReport]) -> Superstep | None:
        """The next superstep; None when no message is under way and no batch block is open.

        Raises:
            UserCodeError: more supersteps than `topology.microbatch.superstep.limit`: a loop does not end.
        """
        raise NotImplementedError
