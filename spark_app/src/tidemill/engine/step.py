"""What the steps of a superstep see of the thread that runs them: its program, its state, and where rows go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from tidemill.engine.compiled import CompiledProgram
from tidemill.engine.context import StepContext
from tidemill.engine.frame import Frame
from tidemill.engine.materialized_rows import MaterializedRows
from tidemill.engine.rows.code import SegmentCode
from tidemill.engine.tally import Tally
from tidemill.engine.work import AttemptWork
from tidemill.journal.snapshot import TaskSet
from tidemill.plan import program as pg
from tidemill.pstate.thread_state import ThreadState
from tidemill.values.columns import Column


class PStateReads(Protocol):
    """PStates to read: of this attempt (`ThreadState`), or as they were committed (`CommittedState`)."""

    def root(self, pstate: str, task: int) -> Any:
        """The root node of one task's partition."""

    def prefers_columns(self, rows: int) -> bool:
        """Whether the keys of so many rows are better looked up together."""

    def get_points(self, pstate: str, tasks: pl.Series | int, keys: Sequence[Column]) -> Column:
        """The value to which each row's keys lead through maps, None where there is none."""

    def prefetch(self, pstate: str, tasks: pl.Series | int, keys: Column) -> None:
        """Read the elements of these top-level keys ahead."""

    def close(self) -> None:
        """Let go of what was opened."""


class QueryCalls(Protocol):
    """Where the steps of a program call queries."""

    def call(self, query: str, args: Sequence[Any], seed: int, now_millis: int) -> Any:
        """The result of a query.

        Raises:
            UserCodeError: a function of it raised, or it gave no result, or several.
            BudgetExceeded: it takes more than it may.
        """

    def close(self) -> None:
        """Let go of what was opened."""


class AppendedRow(NamedTuple):
    """One record that row code appends to a depot: its task, the operator that did it, and the record."""

    task: int
    operator: int
    value: Any


class RetainedRow(NamedTuple):
    """One row that row code materializes: its task, the operator that did it, and its values."""

    task: int
    operator: int
    values: tuple[Any, ...]


class Step(Protocol):
    """One thread's superstep, as `engine.thread` runs it.

    `doing` is the operator that runs now; `tally` measures time from one to the next. `collected` holds the rows that
    wait for the end of their batch block or join, by the operator that they reached. By the number of a block's
    region: `partials` rows that are combined already, `resumes` the row that goes on behind the block, `waiting`
    rows that reached it while it was busy, and `entered` the blocks that began in this superstep. `materialized`
    are the rows of temporary PStates, `answers` those of a query. `is_sliced`: the rows that are walking are a part
    of those of a join, of which all together might not fit.
    """

    work: AttemptWork
    is_sliced: bool
    program: pg.Program
    compiled: CompiledProgram
    task_set: TaskSet
    state: ThreadState
    context: StepContext
    doing: pg.Operator | SegmentCode | None
    tally: Tally
    collected: dict[int, list[Frame]]
    partials: dict[int, list[Frame]]
    resumes: dict[int, Frame]
    waiting: dict[int, list[Frame]]
    entered: list[int]
    materialized: MaterializedRows
    answers: list[Any]

    @property
    def queries(self) -> QueryCalls:
        """Where its queries are called."""

    @property
    def tasks(self) -> range:
        """The tasks of this thread."""

    def check_cancel(self) -> None:
        """Raises AttemptTimeout once the attempt's time is up."""

    def state_of(self, pstate: str) -> PStateReads:
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
