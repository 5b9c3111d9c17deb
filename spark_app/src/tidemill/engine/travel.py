"""Which rows can travel. On Spark they are bytes between threads and between supersteps; so that a module behaves alike
everywhere, a value that has no such form is refused in one process, too.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tidemill.engine.columns.functions import row_values
from tidemill.engine.failures import error_of, failing_row, user_error
from tidemill.engine.frame import Frame
from tidemill.plan.program import Operator
from tidemill.plan.steps import step_of
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.message_pack import pack_message

_ROWS = 64
"""Rows that are packed at once: few, as their bytes are only thrown away."""


def check_travel(operator: Operator, frame: Frame) -> int:
    """Refuse rows that cannot become bytes, before `operator` sends or keeps them; the bytes of their Python values.

    Raises:
        UserCodeError: names the step and the first row of which a variable holds no data.
    """
    try:
        return _pack(frame)
    except (TypeError, ValueError, OverflowError) as error:

        def pack_rows(first: int, last: int) -> None:
            _pack(frame.gather(np.arange(first, last)))

        index = failing_row(frame.rows, pack_rows)
        cause = error_of(partial(pack_rows, index, index + 1)) or error
        raise user_error(cause, step_of(operator), operator.at, row_values(frame, index)) from error


def _pack(frame: Frame) -> int:
    return sum(map(_pack_column, frame.columns.values()))


def _pack_column(column: Column) -> int:
    if isinstance(column, RecordColumn):
        return sum(map(_pack_column, column.fields))
    if isinstance(column, list):
        return sum(len(pack_message(column[start : start + _ROWS])) for start in range(0, len(column), _ROWS))
    return 0
