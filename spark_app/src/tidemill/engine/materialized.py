"""Rows that `materialize` keeps until the attempt ends, and `explode_materialized` emits again, each on its task.

They and what is aggregated into temporary PStates have one bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tidemill.engine.columns.functions import column_of, row_values
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame, concat
from tidemill.engine.step import RetainedRow, Step
from tidemill.engine.travel import check_travel
from tidemill.language.options import find_option
from tidemill.plan import program as pg
from tidemill.plan.steps import step_of
from tidemill.values import columns as cols
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.errors import BadInput

MAX_BYTES = "topology.microbatch.materialized.max.bytes"


def keep(run: Step, operator: pg.Retain, frame: Frame) -> None:
    """Keeps a frame's rows.

    Raises:
        UserCodeError: a value is no data, or the thread holds too many bytes.
    """
    columns = {str(i): column_of(frame, arg) for i, arg in enumerate(operator.args)}
    kept = Frame(frame.rows, frame.task, columns)
    _count(run, operator, kept, frame)
    run.materialized.frames.setdefault(operator.temp, []).append(kept)


def keep_rows(run: Step, temp: str, rows: Sequence[RetainedRow]) -> None:
    """Keeps rows of one temporary PState in this order, whichever step materialized them. Raises as `keep`."""
    numbers = np.array([row.operator for row in rows])
    frames, places = [], []
    for number in np.unique(numbers).tolist():
        operator = run.program.operators[number]
        assert isinstance(operator, pg.Retain)
        places.append(np.flatnonzero(numbers == number))
        own = [rows[place] for place in places[-1].tolist()]
        columns = {str(i): cols.from_values([row.values[i] for row in own]) for i in range(len(operator.args))}
        frames.append(Frame(len(own), pl.Series("", [row.task for row in own], dtype=pl.Int32), columns))
        _count(run, operator, frames[-1], frames[-1])
    in_order = np.argsort(np.concatenate(places), kind="stable")
    run.materialized.frames.setdefault(temp, []).append(concat(frames).gather(in_order))


def _count(run: Step, operator: pg.Retain, kept: Frame, rows: Frame) -> None:
    """Refuses rows that are no data, or too many; `rows` are those of which they were made."""
    held = run.materialized
    held.bytes += check_travel(operator, kept) + sum(map(_bytes_of_series, kept.columns.values())) + 4 * kept.rows
    if (refusal := _refusal(run, held.bytes, "materialized rows")) is not None:
        raise user_error(refusal, step_of(operator), operator.at, row_values(rows, 0), is_general=True)


def check_temporaries(run: Step) -> None:
    """Refuses what was aggregated into temporary PStates where it, and the rows that are kept, are too many bytes.

    Raises:
        UserCodeError: names the temporary PState that takes most.
        BudgetExceeded: it is the one of a query, which may hold less.
    """
    temps = run.program.temps
    sizes = {name: run.state.changed_bytes(name) for name in temps}
    if run.context.budget is not None:
        run.context.budget.held(sum(sizes.values()))
    refusal = _refusal(run, run.materialized.bytes + sum(sizes.values()), "temporary PStates")
    if refusal is not None:
        largest = max(sizes, key=lambda name: sizes[name])
        at = temps[largest].declaration.at
        raise user_error(refusal, f"agg(…).out({largest!r})", at, None, is_general=True)


def _refusal(run: Step, size: int, what: str) -> BadInput | None:
    limit = int(run.work.options.get(MAX_BYTES, find_option(MAX_BYTES).default))
    if size <= limit:
        return None
    text = f"one thread would hold {size:,} bytes of {what}, and {MAX_BYTES} is {limit:,}"
    return BadInput(f"{text}: keep fewer variables, rows or keys, take fewer records a microbatch, or raise the option")


def kept_rows(run: Step, operator: pg.Explode) -> Frame:
    """The rows of a temporary PState on this thread, as `explode_materialized` binds them."""
    frame = run.materialized.merged(operator.temp)
    if frame is None:
        return Frame(0, pl.Series("", [], dtype=pl.Int32), {out: [] for out in operator.outs})
    columns = {out: frame.columns[str(i)] for i, out in enumerate(operator.outs)}
    return Frame(frame.rows, frame.task, columns)


def _bytes_of_series(column: Column) -> int:
    if isinstance(column, RecordColumn):
        return sum(map(_bytes_of_series, column.fields))
    return int(column.estimated_size()) if isinstance(column, pl.Series) else 0
