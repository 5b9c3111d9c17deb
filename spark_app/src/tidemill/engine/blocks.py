"""Batch blocks: entering, aggregation, post-agg, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.engine import joins
from tidemill.engine.columns.access import fold
from tidemill.engine.columns.functions import column_of, row_values
from tidemill.engine.combined import as_tasks, received
from tidemill.engine.compiled import CompiledBlock
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame, concat
from tidemill.engine.limits import best_rows
from tidemill.engine.step import Step
from tidemill.engine.travel import check_travel
from tidemill.plan import program as pg
from tidemill.tables.row_groups import group_columns
from tidemill.values import columns as cols
from tidemill.values.columns import Column


def enter(run: Step, operator: pg.Enter, frame: Frame) -> None:
    """Begins the block for the first row; rows that find it busy wait for its end."""
    tasks = set(frame.tasks().unique().to_list())
    if tasks != {0}:
        text = "a batch block can only begin on task 0"
        raise user_error(ValueError(text), "batch_block", operator.at, row_values(frame, 0))
    check_travel(operator, frame)
    block = operator.block
    rows = [frame] if frame.rows == 1 else [frame.slice(i, 1) for i in range(frame.rows)]
    if block in run.resumes:
        run.waiting.setdefault(block, []).extend(rows)
        return
    first, *others = rows
    if others:
        run.waiting.setdefault(block, []).extend(others)
    _begin(run, run.program.regions[block], first)


def _begin(run: Step, region: pg.Region, row: Frame) -> None:
    run.resumes[region.id] = row
    run.entered.append(region.id)
    run.walk(region.start, row.keep_columns(run.program.live[region.start]))


def collect(run: Step, operator: pg.Collect | pg.Gather, frame: Frame) -> None:
    """Rows wait for the end of their block or join."""
    check_travel(operator, frame)
    columns = {name: column for name, column in frame.columns.items() if name[0] != "~"}
    run.collected.setdefault(operator.id, []).append(Frame(frame.rows, frame.task, columns))


def finish(run: Step, region: pg.Region) -> None:
    """No message of the region is under way: joins, or aggregates and runs post-agg; on task 0 what follows a block."""
    if region.kind == "join":
        joins.finish(run, region)
        return
    _aggregate(run, region)
    if 0 not in run.task_set:
        return
    row = run.resumes.pop(region.id, None)
    if row is None:
        return
    if region.after is not None:
        run.walk(region.after, row.keep_columns(run.program.live[region.after]))
    waiting = run.waiting.get(region.id)
    if waiting and region.id not in run.resumes:
        run.waiting[region.id] = waiting[1:]
        _begin(run, region, waiting[0])


def _aggregate(run: Step, region: pg.Region) -> None:
    partials = run.partials.pop(region.id, [])
    if region.collect is None or region.post is None:
        return
    frames = run.collected.pop(region.collect, [])
    block = run.compiled.blocks[region.id]
    operator = run.doing = run.program.operators[region.collect]
    if frames:
        rows = concat(frames)
        for compiled in block.folds:
            fold(run, compiled, rows, operator)
    for compiled in block.combining.folds if partials and block.combining is not None else ():
        fold(run, compiled, concat(partials), operator)
    try:
        result = _results(run, region, block, frames, partials)
    except Exception as error:
        raise user_error(error, "agg", operator.at, None) from error
    if run.program.next[region.post]:
        run.walk(region.post, result.keep_columns(run.program.live[region.post]))


def _results(
    run: Step, region: pg.Region, block: CompiledBlock, frames: Sequence[Frame], partials: Sequence[Frame]
) -> Frame:
    """The rows of post-agg: one a task, or one a key."""
    if region.captured is not None:
        return _captured(run, region, block, frames, partials)
    if region.cut is not None:
        return _limited(run, region, region.cut, block, frames)
    return _outputs(run, region, block, frames, partials)


def _captured(
    run: Step, region: pg.Region, block: CompiledBlock, frames: Sequence[Frame], partials: Sequence[Frame]
) -> Frame:
    """A row for each distinct key of the rows on each task, with what is aggregated into variables there."""
    rows = concat([*frames, *partials]) if frames or partials else Frame(0, 0, dict.fromkeys(region.captured or (), []))
    group: list[Column] = [rows.tasks().cast(pl.Int64), *(rows.columns[name] for name in region.captured or ())]
    tasks, *keys = group_columns(group, rows.rows, [])[0]
    found = Frame(cols.length(tasks), as_tasks(tasks), dict(zip(region.captured or (), keys, strict=True)))
    if block.aggregation is None:
        return found
    results = _outputs(run, region, block, frames, partials)
    places = {task: place for place, task in enumerate(results.tasks().to_list())}
    picks = np.array([places[task] for task in found.tasks().to_list()], dtype=np.int64)
    return found.with_columns(results.gather(picks).columns)


def _limited(run: Step, region: pg.Region, cut: pg.Cut, block: CompiledBlock, frames: Sequence[Frame]) -> Frame:
    """The rows that `limit_agg` keeps, with what is aggregated into variables on their task, or for their key."""
    kept = (*cut.vars, *(region.keys or ()))
    rows = concat(frames) if frames else Frame(0, 0, dict.fromkeys((*kept, *cut.sort), []))
    group: list[Column] = [rows.tasks().cast(pl.Int64), *(rows.columns[key] for key in region.keys or ())]
    indices, places, groups = best_rows(cut, rows, group)
    found = rows.gather(indices).keep_columns(kept)
    if cut.index is not None:
        found = found.with_columns({cut.index: pl.Series("", places, dtype=pl.Int64)})
    if block.aggregation is None or not frames:
        return found.with_columns(dict.fromkeys(block.outs, []) if not frames else {})
    results = _outputs(run, region, block, frames, ())
    if region.keys is None:
        number = {task: place for place, task in enumerate(results.tasks().to_list())}
        groups = np.array([number[task] for task in found.tasks().to_list()], dtype=np.int64)
    return found.with_columns(results.gather(groups).keep_columns(block.outs).columns)


def _outputs(
    run: Step, region: pg.Region, block: CompiledBlock, frames: Sequence[Frame], partials: Sequence[Frame]
) -> Frame:
    """What is aggregated into variables: a row for each task, or for each key of `group_by`."""
    aggregation = block.aggregation
    if aggregation is None and region.keys is None:
        return _one_a_task(run, region, {}, [])
    group, results = _grouped(block, frames, partials)
    if region.keys is not None:
        columns = dict(zip(region.keys, group[1:], strict=True)) | dict(zip(block.outs, results, strict=True))
        return Frame(cols.length(group[0]), as_tasks(group[0]), columns)
    rows = {task: i for i, task in enumerate(cols.to_values(group[0]))}
    return _one_a_task(run, region, rows, results, block)


def _grouped(
    block: CompiledBlock, frames: Sequence[Frame], partials: Sequence[Frame]
) -> tuple[list[Column], list[Column]]:
    """Group columns (the task, then the keys) and one result column an aggregator."""
    width = 1 + len(block.keys)
    aggregation = block.aggregation
    if aggregation is None:
        return _distinct(block, frames), []
    if not aggregation.is_two_phase:
        if not frames:
            return [[] for _ in range(width)], [[] for _ in block.outs]
        group, args, rows = _inputs(block, concat(frames))
        return aggregation.run(group, args, rows)
    pieces = [_partial(block, frame) for frame in frames] + [received(block, frame) for frame in partials]
    if not pieces:
        return [[] for _ in range(width)], [[] for _ in block.outs]
    groups, operands = pieces[0]
    if len(pieces) > 1:
        groups = [cols.concat([piece[0][i] for piece in pieces]) for i in range(len(groups))]
        operands = [cols.concat([piece[1][i] for piece in pieces]) for i in range(len(operands))]
    if len(pieces) > 1 or partials:
        groups, operands = aggregation.merge(groups, operands)
    return groups, aggregation.finish(operands)


def _distinct(block: CompiledBlock, frames: Sequence[Frame]) -> list[Column]:
    """The groups alone, where every aggregator writes to a PState."""
    if not frames:
        return [[] for _ in range(1 + len(block.keys))]
    group, _, rows = _inputs(block, concat(frames))
    return group_columns(group, rows, [])[0]


def _inputs(block: CompiledBlock, frame: Frame) -> tuple[list[Column], list[Column], int]:
    group: list[Column] = [frame.tasks().cast(pl.Int64), *(frame.columns[key] for key in block.keys)]
    return group, [column_of(frame, arg) for arg in block.args], frame.rows


def _partial(block: CompiledBlock, frame: Frame) -> tuple[list[Column], list[Column]]:
    group, args, rows = _inputs(block, frame)
    assert block.aggregation is not None
    return block.aggregation.partial(group, args, rows)


def _one_a_task(
    run: Step,
    region: pg.Region,
    rows: dict[Any, int],
    results: Sequence[Column],
    block: CompiledBlock | None = None,
) -> Frame:
    """Each task has its results, or the zero values where it got no row."""
    tasks = [task for task in run.tasks if task == 0 or not region.is_single]
    series = pl.Series("", tasks, dtype=pl.Int32)
    if block is None or block.aggregation is None:
        return Frame(len(tasks), series, {})
    if len(rows) == len(tasks):
        picks = np.array([rows[task] for task in tasks], dtype=np.int64)
        return Frame(len(tasks), series, {
            out: cols.gather_rows(column, picks) for out, column in zip(block.outs, results, strict=True)
        })  # fmt: skip
    columns: dict[str, Column] = {}
    zeros = block.aggregation.zero()
    for out, column, zero in zip(block.outs, results, zeros, strict=True):
        values = cols.to_values(column)
        columns[out] = cols.from_values([values[rows[task]] if task in rows else zero for task in tasks])
    return Frame(len(tasks), series, columns)
