"""Rows that `materialize` keeps until the attempt ends, and `explode_materialized` emits again, each on its task."""

from __future__ import annotations

import polars as pl

from tidemill.engine.columns.functions import column_of, row_values
from tidemill.engine.failures import step_of, user_error
from tidemill.engine.frame import Frame
from tidemill.engine.step import Step
from tidemill.engine.travel import check_travel
from tidemill.language.options import find_option
from tidemill.plan import program as pg
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
    held = run.materialized
    held.bytes += check_travel(operator, kept) + sum(map(_bytes_of_series, columns.values())) + 4 * kept.rows
    limit = int(run.work.options.get(MAX_BYTES, find_option(MAX_BYTES).default))
    if held.bytes > limit:
        text = f"one thread would hold {held.bytes:,} bytes of materialized rows, and {MAX_BYTES} is {limit:,}"
        advice = "materialize fewer variables or rows, take fewer records a microbatch, or raise the option"
        raise user_error(BadInput(f"{text}: {advice}"), step_of(operator), operator.at, row_values(frame, 0))
    held.frames.setdefault(operator.temp, []).append(kept)


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
