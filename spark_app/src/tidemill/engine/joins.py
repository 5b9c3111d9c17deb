"""Joins of a batch block: what waited on both sides is matched by the rule of `values.keys`, and goes on in slices.

The side with fewer rows is grouped by key; each row of the other one finds its group, and with it all its partners. So
the rows that come out are known by their numbers before any of them is made, and a join that multiplies rows holds
`SLICE_ROWS` of them at a time, beside both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tidemill.engine.frame import Frame, concat
from tidemill.engine.step import Step
from tidemill.plan import program as pg
from tidemill.values import columns as cols
from tidemill.values.columns import Column
from tidemill.values.keys import key_token

SLICE_ROWS = 131_072
"""Rows of a join's result that exist at once, before the steps behind it take them."""

Rows = np.ndarray[Any, Any]
"""Numbers of rows, Int64."""


def finish(run: Step, region: pg.Region) -> None:
    """Joins what this thread has of both sides, and lets the rows go on behind the join."""
    left, right = (run.program.operators[number] for number in region.sides)
    assert isinstance(left, pg.Gather) and isinstance(right, pg.Gather) and region.post is not None
    waiting = [run.collected.pop(side.id, []) for side in (left, right)]
    sides = [concat(frames) if frames else None for frames in waiting]
    names = run.program.live[region.post]
    run.doing = right
    for frame in joined(sides[0], sides[1], left, right, names, in_order=run.program.keeps_order[region.post]):
        run.check_cancel()
        if run.context.budget is not None:
            run.context.budget.rows(frame.rows)
        run.is_sliced = run.is_sliced or frame.rows == SLICE_ROWS
        run.walk(region.post, frame)
        run.doing = right
    run.is_sliced = False


def joined(
    left: Frame | None, right: Frame | None, one: pg.Gather, other: pg.Gather, names: Sequence[str], *, in_order: bool
) -> Iterator[Frame]:
    """The rows of a join with these variables, at most `SLICE_ROWS` at a time; None is a side without rows.

    `in_order`: in the order of the left rows, and for each of them of the right ones; rows of the right side without a
    partner come last.
    """
    if left is None or right is None:
        if left is not None and one.keeps:
            yield from _alone(left, names)
        if right is not None and other.keeps:
            yield from _alone(right, names)
        return
    keys = [key.name for key in one.on if hasattr(key, "name")]
    swaps = not in_order and left.rows < right.rows and all(_is_same(left.columns[k], right.columns[k]) for k in keys)
    rows, built, keeps = (right, left, (other.keeps, one.keeps)) if swaps else (left, right, (one.keeps, other.keeps))
    groups = _Groups.of([built.columns[key] for key in keys], [rows.columns[key] for key in keys])
    for probed, partners in groups.pairs(keeps[0]):
        yield _row_pairs(rows, built, probed, partners, names)
    if keeps[1]:
        yield from _alone(built.gather(groups.without_partner()), names)


def _is_same(one: Column, other: Column) -> bool:
    """Whether equal keys of both columns are the same value: 1 and 1.0 are not, and the left side's goes on."""
    return isinstance(one, pl.Series) and isinstance(other, pl.Series) and one.dtype == other.dtype != pl.Float64


def _alone(frame: Frame, names: Sequence[str]) -> Iterator[Frame]:
    """Rows without a partner: the other side's variables are None."""
    for start in range(0, frame.rows, SLICE_ROWS):
        part = frame.slice(start, min(SLICE_ROWS, frame.rows - start))
        columns = {name: part.columns[name] if name in part.columns else cols.repeat(None, part.rows) for name in names}
        yield Frame(part.rows, part.task, columns)


def _row_pairs(rows: Frame, built: Frame, probed: Rows, partners: Rows, names: Sequence[str]) -> Frame:
    """Rows with their partners; a partner of -1 is none."""
    is_all = len(probed) == rows.rows and bool(np.all(probed[1:] - probed[:-1] == 1))
    found = rows if is_all else rows.gather(probed)
    lacking = bool(len(partners)) and int(partners.min()) < 0
    columns: dict[str, Column] = {}
    for name in names:
        if name in found.columns:
            columns[name] = found.columns[name]
        elif name not in built.columns:
            columns[name] = cols.repeat(None, found.rows)
        else:
            gather = _optional if lacking else cols.gather_rows
            columns[name] = gather(built.columns[name], partners)
    return Frame(found.rows, found.task, columns)


def _optional(column: Column, rows: Rows) -> Column:
    """The values at these rows, None where a row is -1."""
    if isinstance(column, pl.Series):
        return column.gather(pl.Series(rows).set(pl.Series(rows < 0), None))
    values = cols.to_values(cols.gather_rows(column, np.maximum(rows, 0)))
    return [None if row < 0 else value for row, value in zip(rows.tolist(), values, strict=True)]


@dataclass(frozen=True)
class _Groups:
    """The rows of one side by key: group g has `counts[g]` rows from `starts[g]` in `order`; `group` is that of each
    row of the other side, -1 for none.
    """

    order: Rows
    starts: Rows
    counts: Rows
    group: Rows

    @staticmethod
    def of(built: Sequence[Column], probed: Sequence[Column]) -> _Groups:
        left, right = _keys(built, probed)
        grouped = left.with_row_index("\0row").group_by(left.columns, maintain_order=True).agg("\0row")
        heads = grouped.select(left.columns).with_row_index("\0group")
        found = right.join(heads, on=left.columns, how="left", nulls_equal=True, maintain_order="left")["\0group"]
        counts = grouped["\0row"].list.len().to_numpy().astype(np.int64)
        order = grouped["\0row"].explode().to_numpy().astype(np.int64)
        group = found.cast(pl.Int64).fill_null(-1).to_numpy()
        return _Groups(order, np.cumsum(counts) - counts, counts, group)

    def pairs(self, keeps: bool) -> Iterator[tuple[Rows, Rows]]:
        """Numbers of rows of the other side with those of their partners, in slices; -1 for none, where `keeps`."""
        has_group = self.group >= 0
        counts = np.where(has_group, self.counts[self.group], int(keeps))
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, SLICE_ROWS):
            stop = min(start + SLICE_ROWS, total)
            first, last = np.searchsorted(ends, [start, stop - 1], side="right")
            begins = ends[first : last + 1] - counts[first : last + 1]
            taken = np.minimum(ends[first : last + 1], stop) - np.maximum(begins, start)
            probed = np.repeat(np.arange(first, last + 1), taken)
            place = np.arange(start, stop) - np.repeat(begins, taken)
            group = self.group[probed]
            partners = np.where(group < 0, -1, self.order[np.where(group < 0, 0, self.starts[group] + place)])
            yield probed, partners

    def without_partner(self) -> Rows:
        """The numbers of the grouped rows whose key the other side does not have."""
        is_met = np.zeros(len(self.counts), dtype=bool)
        is_met[self.group[self.group >= 0]] = True
        return np.sort(self.order[~np.repeat(is_met, self.counts)])


def _keys(left: Sequence[Column], right: Sequence[Column]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Columns that are equal where keys are; those of two kinds, or of arbitrary values, become codes."""
    pairs = [_comparable(one, other) for one, other in zip(left, right, strict=True)]
    if len(pairs) == 1 and pairs[0][0].dtype == pl.Float64:
        # Polars 2.1 finds no pair for NaN where each side has one row and one column of keys.
        one, other = (pl.repeat(0, len(keys), dtype=pl.Int8, eager=True) for keys in pairs[0])
        pairs.append((one, other))
    return (
        pl.DataFrame({f"k{i}": one for i, (one, _) in enumerate(pairs)}),
        pl.DataFrame({f"k{i}": other for i, (_, other) in enumerate(pairs)}),
    )


def _comparable(left: Column, right: Column) -> tuple[pl.Series, pl.Series]:
    if isinstance(left, pl.Series) and isinstance(right, pl.Series) and left.dtype == right.dtype:
        return left, right
    codes: dict[Any, int] = {}
    return _codes(left, codes), _codes(right, codes)


def _codes(column: Column, codes: dict[Any, int]) -> pl.Series:
    tokens = map(key_token, cols.to_values(column))
    return pl.Series("", [codes.setdefault(token, len(codes)) for token in tokens], dtype=pl.Int64)
