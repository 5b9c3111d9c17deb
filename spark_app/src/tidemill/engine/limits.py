"""The rows that `limit_agg` keeps: chosen where they are aggregated, and before that by each sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.engine.destinations import Destinations
from tidemill.engine.frame import Frame
from tidemill.plan import program as pg
from tidemill.tables.row_groups import group_keys
from tidemill.values.columns import Column, to_values
from tidemill.values.data import sort_key

Numbers = np.ndarray[Any, Any]
_SORTED_AS_VALUES = (pl.Int64, pl.Float64, pl.String)
"""Types of columns that sort as `sort_key` does, NaN at the end; None stands before all."""


def best_rows(
    cut: pg.Cut, frame: Frame, group: Sequence[Column], first: Numbers | None = None
) -> tuple[Numbers, Numbers, Numbers]:
    """The rows to keep, groups in the order first seen and in each the best row first; their places; their groups.

    Of equally good rows the one that stands first counts, or the one with the least number in `first`.
    """
    groups = _group_numbers(group, frame.rows)
    ranks = [_ranks(frame.columns[name]) for name in cut.sort]
    ties = [] if first is None else [first]
    order = np.lexsort([*ties, *(-rank if cut.is_reverse else rank for rank in reversed(ranks)), groups])
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
    places = np.arange(frame.rows) - starts[sorted_groups]
    is_kept = places < cut.amount
    return order[is_kept], places[is_kept], sorted_groups[is_kept]


def needed_rows(program: pg.Program, move: pg.Move, frame: Frame, targets: Destinations | int) -> Numbers | None:
    """Which rows a sender must send, in their order; None for all.

    The receiver has rows in the order of the tasks that they come from, so it would keep no other ones of these.
    """
    region = program.regions[move.region]
    cut = region.cut
    is_last = region.final == move.id and program.next[move.id] == (region.collect,)
    if cut is None or not is_last or region.outputs or frame.rows <= cut.amount:
        return None
    group: list[Column] = [] if isinstance(targets, int) else [pl.Series("", targets)]
    group += [frame.columns[key] for key in region.keys or ()]
    kept, _, _ = best_rows(cut, frame, group, frame.tasks().to_numpy())
    return np.sort(kept)


def _group_numbers(group: Sequence[Column], rows: int) -> Numbers:
    """The number of each row's group, in the order in which groups are first seen."""
    numbers = np.zeros(rows, dtype=np.int64)
    if group and rows:
        keys = group_keys(group)
        found = keys.with_row_index("\x00row").group_by(keys.columns, maintain_order=True).agg("\x00row")["\x00row"]
        numbers[found.explode().to_numpy()] = np.repeat(np.arange(len(found)), found.list.len().to_numpy())
    return numbers


def _ranks(column: Column) -> Numbers:
    """Numbers that sort as the values do, equal for equal values."""
    if isinstance(column, pl.Series) and column.dtype in _SORTED_AS_VALUES:
        return column.rank("dense").fill_null(0).to_numpy().astype(np.int64)
    keys = [sort_key(value) for value in to_values(column)]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)
