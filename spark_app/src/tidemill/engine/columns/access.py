"""PStates under columns: selects, transforms and aggregations of a whole frame."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl

from tidemill.engine.columns.functions import argument_values, column_of, row_values
from tidemill.engine.compiled import CompiledFold
from tidemill.engine.failures import error_of, failing_row, user_error
from tidemill.engine.frame import Frame
from tidemill.engine.step import Step
from tidemill.language.dataflow import Arg
from tidemill.paths.compiled import CompiledPath
from tidemill.plan import program as pg
from tidemill.values import columns as cols


def select(run: Step, operator: pg.Select, frame: Frame) -> Frame:
    """A row for each value that the path navigates to."""
    path = run.compiled.paths[operator.id]
    state = run.state_of(operator.pstate)
    if path.point_keys is not None and state.prefers_columns(frame.rows):
        keys = [column_of(frame, path.arguments[i]) for i in path.point_keys]
        values = state.get_points(operator.pstate, partitions_of(operator.partition, frame), keys)
        if run.context.budget is not None:
            run.context.budget.column(values)
        return frame.with_columns(dict.fromkeys(operator.outs, values))
    return _select_by_row(run, operator, path, frame)


def partitions_of(partition: Arg | None, frame: Frame) -> pl.Series:
    """The partition of each row that a step reads or appends to: its task's, or one of another module."""
    if partition is None:
        return frame.tasks()
    return pl.Series("", cols.to_values(column_of(frame, partition)), dtype=pl.Int32)


def _select_by_row(run: Step, operator: pg.Select, path: CompiledPath, frame: Frame) -> Frame:
    partitions = partitions_of(operator.partition, frame)
    prefetch(run, operator.pstate, path, frame, partitions)
    state = run.state_of(operator.pstate)
    counts: list[int] = []
    found: list[Any] = []
    try:
        rows = argument_values(frame, path.arguments)
        for task, values in zip(partitions.to_list(), rows, strict=True):
            selected = path.select(state.root(operator.pstate, task), values)
            found.extend(selected)
            counts.append(len(selected))
    except Exception as error:
        raise user_error(
            error, f"local_select({operator.pstate})", operator.at, row_values(frame, len(counts))
        ) from error
    spread = frame
    if any(count != 1 for count in counts):
        spread = frame.gather(np.repeat(np.arange(frame.rows), counts))
    return spread.with_columns({out: cols.from_values(found) for out in operator.outs})


def prefetch(run: Step, pstate: str, path: CompiledPath, frame: Frame, partitions: pl.Series) -> None:
    """Fetches the elements that a path begins with in bulk, from the partition of each row."""
    if path.leading_key is not None and frame.rows > 1:
        run.state_of(pstate).prefetch(pstate, partitions, column_of(frame, path.leading_key))


def transform(run: Step, operator: pg.Transform, frame: Frame) -> None:
    """Changes the partitions row by row, in the order of the frame."""
    path = run.compiled.paths[operator.id]
    tasks = frame.tasks()
    prefetch(run, operator.pstate, path, frame, tasks)
    state = run.state
    done = 0
    try:
        rows = argument_values(frame, path.arguments)
        for task, values in zip(tasks.to_list(), rows, strict=True):
            path.transform(state.root(operator.pstate, task), values)
            done += 1
    except Exception as error:
        raise user_error(error, f"local_transform({operator.pstate})", operator.at, row_values(frame, done)) from error
    state.maybe_spill()


def fold(run: Step, compiled: CompiledFold, frame: Frame, operator: Any) -> None:
    """Aggregates all rows into a PState."""

    def write(part: Frame) -> None:
        args = [column_of(part, arg) for arg in compiled.args]
        compiled.writer.write(run.state, compiled.pstate, part.task, args, part.rows)

    try:
        write(frame)
    except Exception as error:
        index = failing_row(frame.rows, lambda first, last: write(frame.gather(np.arange(first, last))))
        own = error_of(partial(write, frame.gather(np.arange(index, index + 1)))) or error
        raise user_error(own, f"agg({compiled.pstate})", operator.at, row_values(frame, index)) from error
