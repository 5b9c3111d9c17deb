"""Rows that reach a partitioner become messages to the threads of their destinations."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tidemill.engine.columns.functions import column_of, row_values
from tidemill.engine.destinations import Destinations, destinations
from tidemill.engine.failures import failing_row, user_error
from tidemill.engine.frame import Frame
from tidemill.engine.limits import needed_rows
from tidemill.engine.messages import Message
from tidemill.engine.step import Step
from tidemill.plan.program import Move
from tidemill.values.columns import to_values
from tidemill.values.errors import BadInput


def send(run: Step, move: Move, frame: Frame) -> None:
    """Rows that reach a partitioner become messages with the variables that are live behind it."""
    live = run.program.live[move.id]
    if move.kind == "all" and not move.is_single:
        frame, _ = _needed(run, move, frame, 0)
        tasks = run.work.tasks
        if run.context.budget is not None:
            run.context.budget.rows(frame.rows * tasks)
        indices = np.repeat(np.arange(frame.rows), tasks)
        targets = np.tile(np.arange(tasks, dtype=np.int32), frame.rows)
        rows = _without_order(frame.keep_columns(live)).gather(indices)
        run.post(move.id, rows, targets)
        return
    frame, chosen = _needed(run, move, frame, _chosen(run, move, frame))
    run.post(move.id, _without_order(frame.keep_columns(live)), chosen)


def _needed(run: Step, move: Move, frame: Frame, targets: Destinations | int) -> tuple[Frame, Destinations | int]:
    """The rows without those that the aggregation behind would not keep."""
    rows = needed_rows(run.program, move, frame, targets)
    if rows is None:
        return frame, targets
    return frame.gather(rows), targets if isinstance(targets, int) else targets[rows]


def _chosen(run: Step, move: Move, frame: Frame) -> Destinations | int:
    """Destinations; where a row's values have none, an error with that row."""
    if move.ways:
        return _of_ways(run, move, frame)
    try:
        return destinations(run, move, frame)
    except BadInput as error:

        def route_rows(first: int, last: int) -> None:
            destinations(run, move, frame.gather(np.arange(first, last)))

        index = failing_row(frame.rows, route_rows)
        raise user_error(error, f"{move.kind}_partition", move.at, row_values(frame, index)) from error


def _of_ways(run: Step, move: Move, frame: Frame) -> Destinations:
    """Destinations of rows that came different ways, each by its own partitioner."""
    which = column_of(frame, move.args[0])
    numbers = np.array(to_values(which), dtype=np.int64)
    targets = np.zeros(frame.rows, dtype=np.int32)
    for number, way in enumerate(move.ways):
        rows = np.flatnonzero(numbers == number)
        if len(rows):
            targets[rows] = _chosen(run, way, frame.gather(rows))
    return targets


def _without_order(frame: Frame) -> Frame:
    columns = {name: column for name, column in frame.columns.items() if name[0] != "~"}
    return Frame(frame.rows, frame.task, columns)


def split_by_thread(message: Message, threads: int) -> list[tuple[int, Message]]:
    """One message a destination thread; `message.frame.task` says where each row goes."""
    frame = message.frame
    if isinstance(frame.task, int):
        return [(frame.task % threads, message)]
    targets = frame.task.to_numpy() % threads
    parts = []
    for thread in range(threads):
        rows = np.flatnonzero(targets == thread)
        if len(rows):
            parts.append((thread, _taken(message, rows)))
    return parts


def _taken(message: Message, rows: np.ndarray[Any, Any]) -> Message:
    frame = message.frame
    part = frame if len(rows) == frame.rows else frame.gather(rows)
    origin = message.origin
    if isinstance(origin, pl.Series) and len(rows) != frame.rows:
        origin = origin[rows]
    return Message(message.point, message.sender, message.sequence, part, origin, message.is_partial)
