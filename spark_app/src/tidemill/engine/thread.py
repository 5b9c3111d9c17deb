"""One thread's part of an attempt: its tasks' state, what waits for batch blocks, and one superstep after the other."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from tidemill.engine import blocks
from tidemill.engine.appends import Staged, append_frame, append_rows
from tidemill.engine.column_walk import walk
from tidemill.engine.columns.functions import column_of
from tidemill.engine.compiled import compiled_program
from tidemill.engine.context import StepContext
from tidemill.engine.event_loops import Awaiting
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame
from tidemill.engine.materialized import check_temporaries, kept_rows
from tidemill.engine.materialized_rows import MaterializedRows
from tidemill.engine.messages import Message, deliver
from tidemill.engine.origins import with_origin
from tidemill.engine.partition import split_by_thread
from tidemill.engine.query_budget import RUNNING, RunningBudget
from tidemill.engine.report import StepReport
from tidemill.engine.resources import read_source
from tidemill.engine.row_walk import walk_rows
from tidemill.engine.rows.code import SegmentCode
from tidemill.engine.step import AppendedRow, PStateReads, QueryCalls
from tidemill.engine.tally import NOBODY, Tally
from tidemill.engine.travel import check_travel
from tidemill.engine.work import AttemptWork
from tidemill.journal.snapshot import TaskSet
from tidemill.language.options import resolve
from tidemill.plan import program as pg
from tidemill.plan.steps import step_of
from tidemill.pstate.thread_state import ThreadState
from tidemill.values import columns as cols
from tidemill.values.columns import Column
from tidemill.values.errors import AttemptTimeout, UserCodeError, ends_programs

_PHASE_TIMEOUT = "topology.microbatch.phase.timeout.seconds"


class ThreadRun:
    """The tasks `t` with `t % threads == thread` on their way through an attempt.

    `state` is its own, `others` are PStates that it only reads, by name; `queries` where it calls queries. `inputs` are
    the variables with which a query begins, each of one value, and `answers` its results.
    `collected` and `partials` hold rows that wait for the end of their batch block, `resumes` the row that goes on
    behind it, `waiting` rows that reached a batch block while it was busy, `materialized` those of temporary PStates,
    `staged` what it appends to depots.
    `doing` is what runs now, for `engine.current_step`.
    """

    def __init__(
        self,
        work: AttemptWork,
        thread: int,
        state: ThreadState,
        others: Mapping[str, PStateReads],
        cancel: threading.Event | None = None,
        queries: QueryCalls | None = None,
    ) -> None:
        self.work = work
        self.program = work.program
        self.compiled = compiled_program(work.program)
        self.thread = thread
        self.task_set = TaskSet(work.threads, thread)
        self.state, self.others = state, others
        self.cancel = cancel
        named = zip(work.program.inputs or (), work.arguments, strict=True)
        self.inputs: dict[str, Column] = {name: cols.from_values([value]) for name, value in named}
        self.answers: list[Any] = []
        self._queries = queries
        self._doing: pg.Operator | SegmentCode | None = None
        self.staged = Staged()
        self.is_sliced = False
        self.collected: dict[int, list[Frame]] = {}
        self.partials: dict[int, list[Frame]] = {}
        self.resumes: dict[int, Frame] = {}
        self.waiting: dict[int, list[Frame]] = {}
        self.materialized = MaterializedRows()
        seconds = work.options.get(_PHASE_TIMEOUT, resolve(_PHASE_TIMEOUT, {}))
        self._budget = RUNNING if self.program.inputs is not None else None
        # Not a method of this run: in a circle, all that it holds would stay until a search for garbage.
        self._awaiting = Awaiting(partial(_check_time, cancel, self._budget), float(seconds))
        self._begin(0)

    def _begin(self, superstep: int) -> None:
        self.context = StepContext(self.work, superstep, self._awaiting, self._budget)
        self.tally = Tally(len(self.program.operators))
        self.outbox: list[tuple[int, Message]] = []
        self.sent: Counter[int] = Counter()
        self.entered: list[int] = []
        self.exploded: set[str] = set()
        self.rows = 0
        self._sequence = 0
        self._dealt: dict[tuple[int, int], tuple[random.Random, list[int]]] = {}

    @property
    def doing(self) -> pg.Operator | SegmentCode | None:
        """What runs now: an operator, or the code of a segment that goes row by row."""
        return self._doing

    @doing.setter
    def doing(self, doing: pg.Operator | SegmentCode | None) -> None:
        self.tally.turn_to(NOBODY if doing is None else doing.first if isinstance(doing, SegmentCode) else doing.id)
        self._doing = doing

    @property
    def tasks(self) -> range:
        return self.task_set.members(self.work.tasks)

    @property
    def queries(self) -> QueryCalls:
        """Where its queries are called."""
        assert self._queries is not None, "a program that calls queries runs with them"
        return self._queries

    def close(self) -> None:
        """Let go of the state, for a process that goes on."""
        for state in (self.state, *self.others.values()):
            state.close()
        if self._queries is not None:
            self._queries.close()

    def check_cancel(self) -> None:
        """Stops the attempt if its time is up; called between operators. Raises AttemptTimeout."""
        _check_time(self.cancel, self._budget)

    def state_of(self, pstate: str) -> PStateReads:
        """The state that holds a PState: the topology's own, or the last commit of another one."""
        return self.others.get(pstate, self.state)

    # --- a superstep -------------------------------------------------------------------------------------------------

    def step(self, superstep: int, messages: Iterable[Message], events: Sequence[pg.Event]) -> StepReport:
        """Takes the messages, then the events; what it sends is in `outbox`."""
        try:
            return self._step(superstep, messages, events)
        except UserCodeError as error:
            raise with_origin(self.work, error) from error.__cause__
        except BaseException as error:
            if not ends_programs(error):
                raise
            raise self._ended(error) from error
        finally:
            self._awaiting.close()

    def _ended(self, error: BaseException) -> BaseException:
        """The failure of a function that raised what is no Exception, at the step that called it."""
        doing = self.doing
        number = doing.first if isinstance(doing, SegmentCode) else 0 if doing is None else doing.id
        operator = self.program.operators[number]
        return user_error(error, step_of(operator), operator.at, None)

    def _step(self, superstep: int, messages: Iterable[Message], events: Sequence[pg.Event]) -> StepReport:
        self._begin(superstep)
        by_point: dict[int, list[Message]] = {}
        for message in messages:
            by_point.setdefault(message.point, []).append(message)
        for point in sorted(by_point):
            self._arrive(point, by_point[point])
        for event in events:
            if event.kind == "start":
                self._start(self.program.regions[event.region])
            else:
                blocks.finish(self, self.program.regions[event.region])
        if self.program.temps:
            check_temporaries(self)
        self.doing = None
        metrics = {"rows": float(self.rows), "messages": float(len(self.outbox)), **self.tally.metrics()}
        return StepReport(dict(self.sent), tuple(self.entered), frozenset(self.exploded), metrics)

    def _arrive(self, point: int, messages: list[Message]) -> None:
        operator = self.doing = self.program.operators[point]
        partial = [message for message in messages if message.is_partial]
        plain = [message for message in messages if not message.is_partial]
        if partial:
            frame = deliver(partial, self.work.tasks, self.program.keeps_order[point])
            self.partials.setdefault(operator.region, []).append(frame)
            self.tally.rows[point] += frame.rows
        if not plain:
            return
        frame = deliver(plain, self.work.tasks, self.program.keeps_order[point])
        if isinstance(operator, pg.Explode):
            frame = self._exploded(operator, frame)
        self.walk(point, frame)

    def walk(self, start: int, frame: Frame) -> None:
        """Lets rows go on behind the operator `start` to the ends of its segment."""
        if not frame.rows:
            return
        self.rows += frame.rows
        before = self.doing
        if self.program.segments[start].mode == "rows":
            walk_rows(self, start, frame)
        else:
            walk(self, start, frame)
        self.doing = before

    # --- sources -----------------------------------------------------------------------------------------------------

    def _start(self, region: pg.Region) -> None:
        """A source starts on task 0; explodes that wait for no row start on every thread."""
        if region.kind == "source" and 0 in self.task_set:
            self.walk(region.start, Frame(1, 0, self.inputs))
        for number in region.explodes:
            operator = self.doing = self.program.operators[number]
            assert isinstance(operator, pg.Explode)
            self.walk(number, self._rows_here(operator).keep_columns(self.program.live[number]))

    def _rows_here(self, operator: pg.Explode) -> Frame:
        """The rows that an explode emits on this thread's tasks."""
        if operator.temp:
            return kept_rows(self, operator)
        column, tasks = self.records(operator.source_id)
        return Frame(len(tasks), pl.Series("", tasks, dtype=pl.Int32), dict.fromkeys(operator.outs, column))

    def records(self, source_id: str) -> tuple[Column, np.ndarray[Any, Any]]:
        """The records of a source on this thread's tasks, and their tasks."""
        self.exploded.add(source_id)
        source = self.work.sources.get(source_id)
        if source is None:
            return [], np.empty(0, dtype=np.int32)
        return read_source(self.work, source, self.task_set)

    def _exploded(self, operator: pg.Explode, frame: Frame) -> Frame:
        """Each row once for each record, or materialized row, on its task."""
        self.doing = operator
        here = self._rows_here(operator)
        tasks = here.tasks().to_numpy()
        by_task = {task: np.flatnonzero(tasks == task) for task in np.unique(tasks).tolist()}
        none = np.empty(0, dtype=np.int64)
        picks = [by_task.get(task, none) for task in frame.tasks().to_list()]
        rows = frame.gather(np.repeat(np.arange(frame.rows), [len(pick) for pick in picks]))
        picked = np.concatenate(picks) if picks else none
        return rows.with_columns({out: cols.gather_rows(here.columns[out], picked) for out in operator.outs})

    def explode(self, operator: pg.Explode, frame: Frame) -> None:
        """Rows that reach an explode go to every task that may have records, or materialized rows, of it."""
        owners = self._owners(operator)
        if operator.is_direct or not owners:
            return
        live = [name for name in self.program.live[operator.id] if name not in operator.outs]
        indices = np.repeat(np.arange(frame.rows), len(owners))
        targets = np.tile(np.array(owners, dtype=np.int32), frame.rows)
        self.post(operator.id, frame.keep_columns(live).gather(indices), targets)

    def _owners(self, operator: pg.Explode) -> Sequence[int]:
        if operator.temp:
            return range(self.work.tasks)
        self.exploded.add(operator.source_id)
        source = self.work.sources.get(operator.source_id)
        if source is None:
            return ()
        if source.is_due and not source.ranges:
            return [0]
        tasks = self.work.tasks
        return sorted({partition % tasks for partition in source.ranges.filled()})

    # --- depots ------------------------------------------------------------------------------------------------------

    def append(self, operator: pg.Append, frame: Frame) -> None:
        """Stages a record of a depot for each row, on its task."""
        append_frame(self.staged, self.work, self.thread, operator, column_of(frame, operator.value), frame)

    def append_rows(self, depot: str, rows: Sequence[AppendedRow]) -> None:
        """Stages records of a depot that were appended row by row."""
        append_rows(self.staged, self.work, self.thread, depot, rows)

    # --- sending -----------------------------------------------------------------------------------------------------

    def post(self, point: int, frame: Frame, targets: np.ndarray[Any, Any] | int, is_partial: bool = False) -> None:
        """Sends rows to tasks; `frame.task` is where they are now. Where nothing follows the point, they end here."""
        if not frame.rows or not self.program.next[point]:
            return
        check_travel(self.program.operators[point], frame)
        task = targets if isinstance(targets, int) else pl.Series("", targets, dtype=pl.Int32)
        origin = frame.task if self.program.keeps_order[point] else None
        moved = Frame(frame.rows, task, frame.columns)
        message = Message(point, self.thread, self._sequence, moved, origin, is_partial)
        self._sequence += 1
        for thread, part in split_by_thread(message, self.work.threads) if self.work.threads > 1 else [(0, message)]:
            self.outbox.append((thread, part))
            self.sent[point] += 1

    def dealt(self, operator: int, task: int, count: int) -> list[int]:
        """The next `count` tasks that a shuffle on `task` deals."""
        known = self._dealt.get((operator, task))
        if known is None:
            known = (random.Random(self.context.seed(task, operator)), [])
            self._dealt[operator, task] = known
        source, left = known
        chosen: list[int] = []
        while len(chosen) < count:
            if not left:
                left.extend(range(self.work.tasks))
                source.shuffle(left)
            chosen.append(left.pop())
        return chosen


def _check_time(cancel: threading.Event | None, budget: RunningBudget | None) -> None:
    if cancel is not None and cancel.is_set():
        raise AttemptTimeout("The attempt was cancelled before it was done.")
    if budget is not None:
        budget.look()
