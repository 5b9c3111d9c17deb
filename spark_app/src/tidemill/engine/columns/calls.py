"""Queries under columns: one call a row."""

from __future__ import annotations

from typing import Any

from tidemill.engine.columns.functions import argument_values, row_values
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame
from tidemill.engine.step import Step
from tidemill.plan.program import Invoke
from tidemill.plan.steps import step_of
from tidemill.values import columns as cols
from tidemill.values.errors import BudgetExceeded


def invoke(run: Step, operator: Invoke, frame: Frame) -> Frame:
    """Each row with the result of the query for its values."""
    results: list[Any] = []
    try:
        for task, args in zip(frame.tasks().to_list(), argument_values(frame, operator.args), strict=True):
            results.append(invoke_once(run, operator, task, args))
    except Exception as error:
        raise user_error(error, step_of(operator), operator.at, row_values(frame, len(results))) from error
    return frame.with_columns({out: cols.from_values(results) for out in operator.outs})


def invoke_once(run: Step, operator: Invoke, task: int, args: tuple[Any, ...]) -> Any:
    """The result of the query for one row on this task."""
    run.check_cancel()
    seed = run.context.seed(task, operator.id)
    try:
        return run.queries.call(operator.query, args, seed, run.work.now_millis)
    except BudgetExceeded as error:
        if run.context.budget is not None:
            raise
        # In an attempt it is the topology's step that asks for too much.
        raise user_error(RuntimeError(str(error)), step_of(operator), operator.at, None, is_general=True) from error
