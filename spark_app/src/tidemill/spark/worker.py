"""What runs inside Spark's Python workers: each class is one kind of Spark task, called with (partition, records).

The classes travel by name, with plain data; the program comes as a broadcast variable and stays in the worker.
Nothing here is specific to a worker process: any worker may run any task of any attempt.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.engine.report import StepReport, summed
from tidemill.engine.work import AttemptOutcome, ThreadChanges
from tidemill.journal.snapshot import Part
from tidemill.language.objects import keep_only
from tidemill.plan.program import Event, Program
from tidemill.spark import wire
from tidemill.values import errors

SUPERSTEP_PROPERTY = "tidemill.superstep"
PROGRAMS_KEPT = 16

_programs: OrderedDict[tuple[str, int], Program] = OrderedDict()


@dataclass(frozen=True)
class ShippedProgram:
    """Where a worker finds a program: the broadcast variable that holds (driver's module path, pickled program)."""

    key: str
    broadcast: int

    def load(self) -> Program:
        """The program, from this worker's cache of `PROGRAMS_KEPT` programs or from the broadcast variable."""
        cached = _programs.get((self.key, self.broadcast))
        if cached is None:
            cached = _programs[self.key, self.broadcast] = _read_broadcast(self.broadcast)
            if len(_programs) > PROGRAMS_KEPT:
                _programs.popitem(last=False)
        return cached


def _read_broadcast(broadcast: int) -> Program:
    from pyspark.core.broadcast import _broadcastRegistry

    paths, pickled = _broadcastRegistry[broadcast].value
    sys.path.extend(path for path in paths if path not in sys.path)
    program: Program = pickle.loads(pickled)
    _keep_out_of_collections()
    return program


def _keep_out_of_collections() -> None:
    """Modules and programs live for ever, and Spark's daemon collects garbage after every task: spare them, it
    saves 20 ms a task.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class ShippedWork:
    """An `AttemptWork` or `CompactionWork` without its program."""

    program: ShippedProgram
    pickled: bytes

    @staticmethod
    def of(program: ShippedProgram, work: Any) -> ShippedWork:
        """The work as bytes; the program travels once, in a broadcast variable."""
        return ShippedWork(program, pickle.dumps(replace(work, program=None), protocol=pickle.HIGHEST_PROTOCOL))

    def load(self) -> Any:
        """The work with its program, as it was shipped; objects of a version before it are closed."""
        work = replace(pickle.loads(self.pickled), program=self.program.load())
        keep_only(f"{work.store_url} {work.module}", work.program.objects.values())
        return work


def answered(result: Callable[[], object]) -> list[bytes]:
    """What a task returns to the driver: its result, or why there is none."""
    try:
        return [wire.pack_control(result())]
    except BaseException as error:  # noqa: BLE001 - what a user function raises is data
        return [wire.pack_control(wire.pack_failure(error))]


@dataclass(frozen=True)
class ThreadResult:
    """What the last task of a thread returns to the driver."""

    changes: ThreadChanges
    exploded: frozenset[str] = frozenset()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepStage:
    """One superstep of one thread, in front of a shuffle.

    Reports go to partition `reports_to`; None sends them along to the thread's own next superstep, to come out at the
    end.
    """

    work: ShippedWork
    threads: int
    superstep: int
    events: tuple[Event, ...]
    reports_to: int | None = None

    def __call__(self, thread: int, records: Iterable[bytes]) -> list[bytes]:
        inbox = wire.read_inbox(records)
        try:
            return self._run(thread, inbox)
        except BaseException as error:  # noqa: BLE001 - what a user function raises is data
            return self._pass_on(wire.pack_failure(error))

    def _run(self, thread: int, inbox: wire.Inbox) -> list[bytes]:
        if inbox.failure:
            return self._pass_on(inbox.failure)
        if self.reports_to is not None:
            refuse_repetition(self.superstep)
        from tidemill.engine.superstep import step_thread

        begin = time.perf_counter()
        output = step_thread(self.work.load(), thread, self.superstep, inbox.payloads, self.events)
        reported = thread if self.reports_to is None else self.reports_to
        out: list[bytes] = []
        for control in [*inbox.controls, timed(output.report, begin)]:
            out += (_address(reported), wire.pack_control(control))
        for destination, payload in output.messages:
            out += (_address(destination), payload)
        return out

    def _pass_on(self, failure: wire.TaskFailure) -> list[bytes]:
        """To all that read this stage: a later job, which runs it again, sees no reports but only what threads get."""
        packed = wire.pack_control(failure)
        readers = [*range(self.threads)] if self.reports_to is None else [*range(self.threads), self.reports_to]
        return [part for reader in readers for part in (_address(reader), packed)]


@dataclass(frozen=True)
class LastStepStage:
    """The last superstep of a program whose schedule is known, and the thread's result."""

    work: ShippedWork
    superstep: int
    events: tuple[Event, ...]

    def __call__(self, thread: int, records: Iterable[bytes]) -> list[bytes]:
        inbox = wire.read_inbox(records)
        return answered(lambda: inbox.failure or self._run(thread, inbox))

    def _run(self, thread: int, inbox: wire.Inbox) -> ThreadResult:
        from tidemill.engine.superstep import last_step

        begin = time.perf_counter()
        changes, report = last_step(self.work.load(), thread, self.superstep, inbox.payloads, self.events)
        reports = [*inbox.controls, timed(report, begin)]
        exploded = frozenset(source for each in reports for source in each.exploded)
        return ThreadResult(changes, exploded, summed([each.metrics for each in reports]))


@dataclass(frozen=True)
class FinishStage:
    """The thread's result, of a program whose end only the driver sees."""

    work: ShippedWork
    superstep: int

    def __call__(self, thread: int, records: Iterable[bytes]) -> list[bytes]:
        inbox = wire.read_inbox(records)
        return answered(lambda: self._run(thread, inbox))

    def _run(self, thread: int, inbox: wire.Inbox) -> ThreadResult:
        from tidemill.engine.superstep import finish_thread

        refuse_repetition(self.superstep)
        return ThreadResult(finish_thread(self.work.load(), thread, inbox.payloads))


@dataclass(frozen=True)
class FusedStage:
    """A whole attempt in one Spark task: no shuffle, one scheduling."""

    work: ShippedWork

    def __call__(self, _partition: int, records: Iterable[bytes]) -> list[bytes]:
        drain(records)
        return answered(self._run)

    def _run(self) -> AttemptOutcome:
        from tidemill.engine.attempt import run_attempt

        return run_attempt(self.work.load(), None)


@dataclass(frozen=True)
class CompactionStage:
    """Merges the levels of one thread's tasks into a run."""

    work: ShippedWork

    def __call__(self, thread: int, records: Iterable[bytes]) -> list[bytes]:
        drain(records)
        return answered(lambda: self._run(thread))

    def _run(self, thread: int) -> Part | None:
        from tidemill.engine.compact import compact_thread

        return compact_thread(self.work.load(), thread)


def timed(report: StepReport, begin: float) -> StepReport:
    """The report with the time that the step took in the worker, a sum over threads in the end."""
    return replace(report, metrics={**report.metrics, "step_ms": (time.perf_counter() - begin) * 1000})


def refuse_repetition(superstep: int) -> None:
    """Fails a task that a later job runs again because its output was lost: a function that is not deterministic
    could send a record to two tasks or to none.

    Raises:
        AttemptLost: this is such a task; the attempt starts again with version + 1.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    current = context.getLocalProperty(SUPERSTEP_PROPERTY) if context else None
    if current is not None and int(current) != superstep:
        raise errors.AttemptLost(f"The output of superstep {superstep} was lost before superstep {current} read it.")


def drain(records: Iterable[bytes]) -> None:
    """Reads records that nobody needs: Spark ends a worker that leaves some, and the next task starts with imports."""
    for _ in records:
        pass


def warm_worker(_partition: int, records: Iterable[bytes]) -> list[bytes]:
    """Imports what steps need, long enough that every slot gets a worker of its own."""
    drain(records)
    import numpy  # noqa: F401 - only loaded, before a step needs it
    import polars  # noqa: F401 - only loaded, before a step needs it
    import pyarrow.parquet  # noqa: F401 - only loaded, before a step needs it

    import tidemill.engine.superstep  # noqa: F401 - only loaded, before a step needs it

    _keep_out_of_collections()
    return []


def _address(thread: int) -> bytes:
    """The key of a record in front of a shuffle, as the JVM reads it."""
    return thread.to_bytes(8, "big")
