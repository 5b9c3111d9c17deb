"""Which rows can travel. On Spark they are bytes between threads and between supersteps; so that a module behaves alike
everywhere, a value that has no such form is refused in one process, too.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tidemill.engine.columns.functions import row_values
from tidemill.engine.failures import error_of, failing_row, step_of, user_error
from tidemill.engine.frame import Frame
from tidemill.plan.program import Operator
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.packing import pack_message

_ROWS = 64
"""Rows that are packed at once: few, as their bytes are only thrown away."""


def check_travel(operator: Operator, frame: Frame) -> None:
    """Refuse rows that cannot become bytes, before `operator` sends or keeps them.

    Raises:
        UserCodeError: names the step and the first row of which a variable holds no data.
    """
    try:
        _pack(frame)
    except (TypeError, ValueError, OverflowError) as error:

        def pack_rows(first: int, last: int) -> None:
            _pack(frame.gather(np.arange(first, last)))

        index = failing_row(frame.rows, pack_rows)
        cause = error_of(partial(pack_rows, index, index + 1)) or error
        raise user_error(cause, step_of(operator), operator.at, row_values(frame, index)) from error


def _pack(frame: Frame) -> None:
    for column in frame.columns.values():
        _pack_column(column)


def _pack_column(column: Column) -> None:
    if isinstance(column, RecordColumn):
        for field in column.fields:
            _pack_column(field)
    elif isinstance(column, list):
        for start in range(0, len(column), _ROWS):
            pack_message(column[start : start + _ROWS])
