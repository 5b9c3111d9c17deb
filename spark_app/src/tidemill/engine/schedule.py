"""Which superstep comes next, and a superstep of all threads in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemill.engine.messages import Message
from tidemill.engine.report import StepReport
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptWork
from tidemill.plan.compile.schedule import ancestors_of
from tidemill.plan.program import Event, Program, Region, Superstep
from tidemill.values.errors import BadInput

SUPERSTEPS_MAX = 10_000


class DynamicSchedule:
    """Decides superstep by superstep where the number of supersteps depends on data; right for fixed schedules too.

    step = schedule.opening(); run all threads; step = schedule.next(reports); … until it is None.
    """

    def __init__(self, program: Program, options: Mapping[str, Any]) -> None:
        self._program = program
        self._limit = int(options.get("topology.microbatch.superstep.limit", SUPERSTEPS_MAX))
        self._open: list[int] = []
        self._inside: dict[int, list[int]] = {}
        for region in program.regions:
            for block in (region.id, *ancestors_of(region, program.regions)):
                self._inside.setdefault(block, []).append(region.id)
        self._taken = 1

    def opening(self) -> Superstep:
        """The first superstep: every source starts."""
        return Superstep(tuple(Event("start", region.id) for region in self._program.sources))

    def next(self, reports: Sequence[StepReport]) -> Superstep | None:
        """The next superstep; None when no message is under way and no batch block is open.

        Raises:
            BadInput: there were more supersteps than `topology.microbatch.superstep.limit`: a loop does not end.
        """
        busy = {point for report in reports for point, count in report.sent.items() if count}
        for report in reports:
            for block in report.entered:
                self._open += [region for region in self._inside[block] if region not in self._open]
        finished = [number for number in self._open if self._is_finished(self._program.regions[number], busy)]
        if not busy and not finished:
            return None
        self._taken += 1
        if self._taken > self._limit:
            raise BadInput(f"The topology sent messages for {self._limit} supersteps: does a loop never end?")
        self._open = [region for region in self._open if region not in finished]
        return Superstep(tuple(Event("finish", region) for region in finished))

    def _is_finished(self, region: Region, busy: set[int]) -> bool:
        return region.waits.isdisjoint(busy) and region.needs.isdisjoint(self._open)


def run_supersteps(work: AttemptWork, runs: Sequence[ThreadRun]) -> Iterator[list[StepReport]]:
    """All supersteps of these threads, in this process; of each its reports."""
    reports: list[StepReport] = []
    for number, step in enumerate(_steps(work, reports)):
        reports[:] = _superstep(runs, number, step)
        yield reports


def _steps(work: AttemptWork, reports: Sequence[StepReport]) -> Iterator[Superstep]:
    """The supersteps of the program's schedule, or those that follow from the reports."""
    if work.program.schedule is not None:
        yield from work.program.schedule
        return
    schedule = DynamicSchedule(work.program, work.options)
    step: Superstep | None = schedule.opening()
    while step is not None:
        yield step
        step = schedule.next(reports)


def _superstep(runs: Sequence[ThreadRun], superstep: int, step: Superstep) -> list[StepReport]:
    """One superstep of all threads; what they sent waits in their outboxes for the next one."""
    inboxes: list[list[Message]] = [[] for _ in runs]
    for run in runs:
        for thread, message in run.outbox:
            inboxes[thread].append(message)
    return [run.step(superstep, inbox, step.events) for run, inbox in zip(runs, inboxes, strict=True)]
