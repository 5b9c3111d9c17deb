"""Rows of a batch block that are combined before its final partitioner, so that fewer are sent."""

from __future__ import annotations

import numpy as np
import polars as pl

from tidemill.engine.columns.functions import column_of, row_values
from tidemill.engine.compiled import Combining, CompiledBlock
from tidemill.engine.destinations import destinations
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame
from tidemill.engine.step import Step
from tidemill.language.options import find_option
from tidemill.plan import program as pg
from tidemill.values import columns as cols
from tidemill.values.columns import Column
from tidemill.values.errors import invariant

COMBINE_ROWS_MIN = 64
SAMPLE_ROWS = 2048


def send_combined(run: Step, move: pg.Move, frame: Frame) -> bool:
    """Sends combined rows instead of the rows themselves where that is allowed and makes them noticeably fewer.

    Combiners whose results grow without bound ask for a flush: then the results of so many rows are sent at a time.
    """
    region = run.program.regions[move.region]
    if region.final != move.id or not region.combines or frame.rows < COMBINE_ROWS_MIN:
        return False
    if run.work.threads == 1 and not run.is_sliced:  # nothing is saved but memory, and all rows are there already
        return False
    combining = run.compiled.blocks[region.id].combining
    if run.program.next[move.id] != (region.collect,):
        return False
    if combining is None or move.kind not in ("hash", "global") or not _shrinks(combining, frame):
        return False
    limit = frame.rows
    if combining.aggregation.is_flush_required:
        limit = int(run.work.options.get("topology.combiner.limit", find_option("topology.combiner.limit").default))
    for start in range(0, frame.rows, limit):
        part = frame if limit >= frame.rows else frame.slice(start, min(limit, frame.rows - start))
        _send_partial(run, move, combining, part)
    return True


def _send_partial(run: Step, move: pg.Move, combining: Combining, frame: Frame) -> None:
    """Combines the rows of a frame and sends one row for each group."""
    chosen = destinations(run, move, frame)
    targets = np.full(frame.rows, chosen, dtype=np.int64) if isinstance(chosen, int) else chosen.astype(np.int64)
    group: list[Column] = [pl.Series("", targets), *(frame.columns[key] for key in combining.keys)]
    args = [column_of(frame, arg) for arg in combining.args]
    try:
        groups, operands = combining.aggregation.partial(group, args, frame.rows)
    except Exception as error:  # combiners may be the module's, and refuse values
        raise user_error(error, "agg", move.at, row_values(frame, 0)) from error
    columns = dict(zip(combining.keys, groups[1:], strict=True))
    columns |= {f"*operand{i}": column for i, column in enumerate(operands)}
    tasks = as_tasks(groups[0]).to_numpy()
    run.post(move.id, Frame(len(tasks), min(run.tasks), columns), tasks, is_partial=True)


def _shrinks(combining: Combining, frame: Frame) -> bool:
    """Whether a sample of the rows has at most half as many groups as rows."""
    if not combining.keys:
        return True
    count = min(SAMPLE_ROWS, frame.rows)
    lists = [cols.to_values(cols.slice_rows(frame.columns[key], 0, count)) for key in combining.keys]
    try:
        return len(set(zip(*lists, strict=True))) * 2 <= count
    except TypeError:
        return False


def received(block: CompiledBlock, frame: Frame) -> tuple[list[Column], list[Column]]:
    """Groups and operands out of the message that `send_combined` sent."""
    keys = [frame.columns[key] for key in block.keys]
    operands = [column for name, column in frame.columns.items() if name.startswith("*operand")]
    invariant(bool(operands), "a combined message has operands", columns=list(frame.columns))
    return [frame.tasks().cast(pl.Int64), *keys], operands


def as_tasks(column: Column) -> pl.Series:
    """A column of tasks as a frame holds it."""
    values = column if isinstance(column, pl.Series) else pl.Series("", cols.to_values(column))
    return values.cast(pl.Int32)
