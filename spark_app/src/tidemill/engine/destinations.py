"""Which task each row goes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tidemill.engine.columns.functions import argument_values, column_of, row_values
from tidemill.engine.failures import out_of_range, user_error
from tidemill.engine.frame import Frame
from tidemill.engine.step import Step
from tidemill.plan.program import Move
from tidemill.values.columns import RecordColumn, to_values
from tidemill.values.routing import route_column

_WIDE = 1 << 30

Destinations = np.ndarray[Any, Any]


def destinations(run: Step, move: Move, frame: Frame) -> Destinations | int:
    """The task of each row, or one for all."""
    tasks = run.work.tasks
    if move.is_single or tasks == 1:
        return _checked_single(run, move, frame)
    if move.kind == "hash":
        return hash_columns([column_of(frame, arg) for arg in move.args], tasks)
    if move.kind == "shuffle":
        return _shuffled(run, move, frame)
    if move.kind == "path":
        return _path(run, move, frame)
    if move.kind == "mirror":
        return np.array(to_values(column_of(frame, move.args[0])), dtype=np.int32) % np.int32(tasks)
    if move.kind == "direct":
        return _in_range(move, frame, to_values(column_of(frame, move.args[0])), tasks)
    return _in_range(move, frame, _custom(move, frame, tasks), tasks)


def _checked_single(run: Step, move: Move, frame: Frame) -> int:
    if move.kind == "direct":
        _in_range(move, frame, to_values(column_of(frame, move.args[0])), run.work.tasks)
    elif move.kind == "custom":
        _in_range(move, frame, _custom(move, frame, 1), 1)
    elif not move.is_single:
        _check_routable([column_of(frame, arg) for arg in move.args])
    return 0


def _check_routable(columns: list[Any]) -> None:
    """Refuse on one task what cannot be routed among several, such as an int beyond 64 bits; plain columns can."""
    for column in columns:
        if not isinstance(column, pl.Series):
            _routes(column, 1)


def hash_columns(columns: list[Any], tasks: int) -> Destinations:
    """The route of a value; of several, the mix of theirs (group_by)."""
    if len(columns) == 1:
        return _routes(columns[0], tasks)
    total = np.zeros(0, dtype=np.int64)
    for i, column in enumerate(columns):
        wide = _routes(column, _WIDE).astype(np.int64)
        total = wide if i == 0 else (total * 31 + wide) % _WIDE
    return (total % tasks).astype(np.int32)


def _routes(column: Any, tasks: int) -> Destinations:
    return route_column(to_values(column) if isinstance(column, RecordColumn) else column, tasks)


def _path(run: Step, move: Move, frame: Frame) -> Destinations | int:
    """By the PState's key partitioner, or by the hash of the leading key; without a key task 0."""
    if not move.args:
        return 0
    plan = run.program.pstates.get(move.target or "") or run.program.others.get(move.target or "")
    partitioner = plan.declaration.key_partitioner if plan is not None else None
    if partitioner is None:
        return hash_columns([column_of(frame, move.args[0])], run.work.tasks)
    return _in_range(move, frame, _called(move, partitioner.call, frame, run.work.tasks), run.work.tasks)


def _custom(move: Move, frame: Frame, tasks: int) -> list[Any]:
    assert move.function is not None
    return _called(move, move.function.call, frame, tasks)


def _called(move: Move, call: Any, frame: Frame, tasks: int) -> list[Any]:
    chosen: list[Any] = []
    try:
        for row in argument_values(frame, move.args):
            chosen.append(call(tasks, *row))  # noqa: PERF401 - its length says which row failed
    except Exception as error:
        raise user_error(error, f"{move.kind}_partition", move.at, row_values(frame, len(chosen))) from error
    return chosen


def _in_range(move: Move, frame: Frame, chosen: list[Any], tasks: int) -> Destinations:
    for value in chosen:
        if type(value) is not int or not 0 <= value < tasks:
            raise out_of_range(f"{move.kind}_partition", move.at, value, tasks)
    return np.array(chosen, dtype=np.int32)


def _shuffled(run: Step, move: Move, frame: Frame) -> Destinations:
    """Each task deals its rows round by a permutation of the tasks, which is drawn anew when it is used up."""
    sources = frame.tasks().to_numpy()
    chosen = np.empty(frame.rows, dtype=np.int32)
    for task in np.unique(sources).tolist():
        rows = np.flatnonzero(sources == task)
        chosen[rows] = run.dealt(move.id, task, len(rows))
    return chosen
