"""What the steps of a superstep see of the thread that runs them: its program, its state, and where rows go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tidemill.engine.compiled import CompiledProgram
from tidemill.engine.context import StepContext
from tidemill.engine.frame import Frame
from tidemill.engine.materialized_rows import MaterializedRows
from tidemill.engine.rows.code import SegmentCode
from tidemill.engine.work import AttemptWork
from tidemill.journal.snapshot import TaskSet
from tidemill.plan import program as pg
from tidemill.pstate.thread_state import ThreadState


class AppendedRow(NamedTuple):
    """One record that row code appends to a depot: its task, the operator that did it, and the record."""

    task: int
    operator: int
    value: Any


class Step(Protocol):
    """One thread's superstep, as `engine.thread` runs it.

    `doing` is the operator that runs now. `collected` and `partials` hold rows that wait for the end of their batch
    block, `resumes` the row that goes on behind it, `waiting` rows that reached a batch block while it was busy, and
    `entered` the blocks that began in this superstep: all by the number of the block's region. `materialized` are the
    rows of temporary PStates.
    """

    work: AttemptWork
    program: pg.Program
    compiled: CompiledProgram
    task_set: TaskSet
    state: ThreadState
    context: StepContext
    doing: pg.Operator | SegmentCode | None
    collected: dict[int, list[Frame]]
    partials: dict[int, list[Frame]]
    resumes: dict[int, Frame]
    waiting: dict[int, list[Frame]]
    entered: list[int]
    materialized: MaterializedRows

    @property
    def tasks(self) -> range:
        """The tasks of this thread."""

    def check_cancel(self) -> None:
        """Raises AttemptTimeout once the attempt's time is up."""

    def state_of(self, pstate: str) -> ThreadState:
        """The state that holds a PState: the topology's own, or the last commit of another one."""

    def walk(self, start: int, frame: Frame) -> None:
        """Lets rows go on behind the operator `start`."""

    def append(self, operator: pg.Append, frame: Frame) -> None:
        """Stages a record of a depot for each row, on its task."""

    def append_rows(self, depot: str, rows: Sequence[AppendedRow]) -> None:
        """Stages records of a depot that were appended row by row."""

    def explode(self, operator: pg.Explode, frame: Frame) -> None:
        """Sends rows to every task that has records of a source."""

    def post(self, point: int, frame: Frame, targets: np.ndarray[Any, Any] | int, is_partial: bool = False) -> None:
        """Sends rows to tasks."""

    def dealt(self, operator: int, task: int, count: int) -> list[int]:
        """The next `count` tasks that a shuffle on `task` deals."""
