"""Runs a segment by columns: every row passes an operator before any row passes the next one.

Operators run in the order of their ids, which is the order of the graph; a loop's body has smaller ids than what
follows it, so it runs until no row is left in it. Where rows part, a column remembers their order if anybody behind
can observe it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from tidemill.engine import blocks
from tidemill.engine.columns import access
from tidemill.engine.columns.arithmetic import truth
from tidemill.engine.columns.calls import invoke
from tidemill.engine.columns.functions import apply, column_of
from tidemill.engine.combined import send_combined
from tidemill.engine.frame import ORDER, Frame, concat, in_order, numbered
from tidemill.engine.materialized import keep
from tidemill.engine.partition import send
from tidemill.engine.step import Step
from tidemill.plan import program as pg
from tidemill.values import columns as cols


class _Walk:
    """The rows under way in one segment: for each operator the frames that wait for it."""

    def __init__(self, run: Step) -> None:
        self.run = run
        self.program = run.program
        self.pending: dict[int, list[Frame]] = {}
        self.heap: list[int] = []
        self.ends: dict[int, list[Frame]] = {}

    def put(self, number: int, frame: Frame) -> None:
        if not frame.rows:
            return
        if isinstance(self.program.operators[number], (pg.Move, pg.Collect, pg.Gather, pg.Enter)):
            self.ends.setdefault(number, []).append(frame)
            return
        if number not in self.pending:
            heapq.heappush(self.heap, number)
        self.pending.setdefault(number, []).append(frame)

    def go_on(self, number: int, frame: Frame) -> None:
        """The frame goes to all successors of an operator, without what nobody reads."""
        successors = self.program.next[number]
        self.run.tally.rows[number] += frame.rows
        if not successors or not frame.rows:
            return
        frame = frame.keep_columns(self.program.live[number])
        if len(successors) > 1 and self.program.keeps_order[number]:
            frame = numbered(frame, f"{ORDER}{number}")
        for successor in successors:
            self.put(successor, frame)

    def run_all(self) -> None:
        while self.heap:
            self.run.check_cancel()
            number = heapq.heappop(self.heap)
            frames = self.pending.pop(number)
            operator = self.run.doing = self.program.operators[number]
            _HANDLERS[type(operator)](self, operator, self._meet(operator, frames))
        for number in sorted(self.ends):
            self._end(self.program.operators[number], self.ends[number])

    def _meet(self, operator: pg.Operator, frames: list[Frame]) -> Frame:
        """Frames that meet, in the order that their rows had before."""
        if len(frames) == 1:
            return frames[0]
        frame = concat(frames)
        return in_order(frame) if self.program.keeps_order[operator.id] else frame

    def _end(self, operator: pg.Operator, frames: list[Frame]) -> None:
        self.run.doing = operator
        frame = concat(frames)
        if len(frames) > 1 and self.program.keeps_order[operator.id]:
            frame = in_order(frame)
        if isinstance(operator, pg.Move):
            if not send_combined(self.run, operator, frame):
                send(self.run, operator, frame)
        elif isinstance(operator, (pg.Collect, pg.Gather)):
            blocks.collect(self.run, operator, frame)
        elif isinstance(operator, pg.Retain):
            keep(self.run, operator, frame)
        elif isinstance(operator, pg.Enter):
            blocks.enter(self.run, operator, frame)


def walk(run: Step, start: int, frame: Frame) -> None:
    """Lets the frame go on behind the operator `start`, to the ends of the segment."""
    walker = _Walk(run)
    walker.go_on(start, frame)
    walker.run_all()


def _apply(walker: _Walk, operator: pg.Apply, frame: Frame) -> None:
    walker.go_on(operator.id, apply(operator, frame, walker.run.context))


def _keep(walker: _Walk, operator: pg.Keep, frame: Frame) -> None:
    mask = truth(column_of(frame, operator.condition))
    walker.go_on(
        operator.id, frame if mask.all() else frame.keep_columns(walker.program.live[operator.id]).filter(mask)
    )


def _split(walker: _Walk, operator: pg.Split, frame: Frame) -> None:
    then, otherwise = walker.program.next[operator.id]
    mask = truth(column_of(frame, operator.condition))
    count = int(mask.sum())
    walker.run.tally.branch(operator.id, then, count)
    walker.run.tally.branch(operator.id, otherwise, frame.rows - count)
    frame = frame.keep_columns(walker.program.live[operator.id])
    if walker.program.keeps_order[operator.id]:
        frame = numbered(frame, f"{ORDER}{operator.id}")
    if count == frame.rows:
        walker.put(then, frame)
    elif count == 0:
        walker.put(otherwise, frame)
    else:
        walker.put(then, frame.filter(mask))
        walker.put(otherwise, frame.filter(~mask))


def _join(walker: _Walk, operator: pg.Join, frame: Frame) -> None:
    name = f"{ORDER}{operator.split}"
    if operator.split is not None and name in frame.columns:
        columns = {key: column for key, column in frame.columns.items() if key != name}
        frame = Frame(frame.rows, frame.task, columns)
    walker.go_on(operator.id, frame)


def _assign(walker: _Walk, operator: pg.Assign, frame: Frame) -> None:
    values = {out: column_of(frame, arg) for out, arg in zip(operator.outs, operator.args, strict=True)}
    if operator.purpose == "enter" and walker.program.keeps_order[operator.id]:
        frame = numbered(frame, f"{ORDER}{operator.loop}")
    walker.go_on(operator.id, frame.with_columns(values))


def _explode(walker: _Walk, operator: pg.Explode, frame: Frame) -> None:
    walker.run.explode(operator, frame)


def _retain(walker: _Walk, operator: pg.Retain, frame: Frame) -> None:
    walker.ends.setdefault(operator.id, []).append(frame)
    walker.go_on(operator.id, frame)


def _select(walker: _Walk, operator: pg.Select, frame: Frame) -> None:
    walker.go_on(operator.id, access.select(walker.run, operator, frame))


def _transform(walker: _Walk, operator: pg.Transform, frame: Frame) -> None:
    access.transform(walker.run, operator, frame)
    walker.go_on(operator.id, frame)


def _clear(walker: _Walk, operator: pg.Clear, frame: Frame) -> None:
    for task in np.unique(frame.tasks().to_numpy()).tolist():
        walker.run.state.clear(operator.pstate, task)
    walker.go_on(operator.id, frame)


def _append(walker: _Walk, operator: pg.Append, frame: Frame) -> None:
    walker.run.append(operator, frame)
    walker.go_on(operator.id, frame)


def _fold(walker: _Walk, operator: pg.Fold, frame: Frame) -> None:
    access.fold(walker.run, walker.run.compiled.folds[operator.id], frame, operator)
    walker.go_on(operator.id, frame)


def _invoke(walker: _Walk, operator: pg.Invoke, frame: Frame) -> None:
    walker.go_on(operator.id, invoke(walker.run, operator, frame))


def _answer(walker: _Walk, operator: pg.Answer, frame: Frame) -> None:
    walker.run.answers.extend(cols.to_values(column_of(frame, operator.value)))


def _start(walker: _Walk, operator: pg.Start, frame: Frame) -> None:
    walker.go_on(operator.id, frame)


_HANDLERS: dict[type, Callable[[_Walk, Any, Frame], None]] = {
    pg.Apply: _apply, pg.Keep: _keep, pg.Split: _split, pg.Join: _join, pg.Assign: _assign, pg.Explode: _explode,
    pg.Retain: _retain, pg.Select: _select, pg.Transform: _transform, pg.Clear: _clear, pg.Append: _append,
    pg.Fold: _fold, pg.Start: _start, pg.Invoke: _invoke, pg.Answer: _answer,
}  # fmt: skip
