"""Rows of equal keys, reduced in their order: one operand a run, in the fastest form that gives what Python gives.

`reduce_runs` serves raw rows (`tables.row_groups`), levels and compaction (`tables.level_merge`). A combiner says which
form it has for a column (`language.column_forms`); all else is combined value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl

from tidemill.language.column_forms import ColumnForm
from tidemill.language.combiners import Combiner
from tidemill.tables.row_order import Array, slots_of
from tidemill.values.columns import Column, from_values, to_values

_RUN: Final = "\x00run"
_INT_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class Runs:
    """Which rows have equal keys: run i has the rows `order[starts[i]:starts[i + 1]]`, or those of its place itself."""

    starts: Array
    rows: int
    order: Array | None = None

    @cached_property
    def sizes(self) -> Array:
        """How many rows each run has."""
        return np.diff(np.append(self.starts, self.rows))

    @cached_property
    def run_of_row(self) -> Array:
        """The number of each row's run."""
        if self.order is not None:
            return slots_of(self.order, self.starts)
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    @property
    def heads(self) -> Array:
        """The first row of each run."""
        return self.starts if self.order is None else self.order[self.starts]

    @property
    def ends(self) -> Array:
        """The last row of each run."""
        last: Array = self.starts + self.sizes - 1
        return last if self.order is None else self.order[last]


@dataclass(frozen=True)
class CombinerColumns:
    """One combiner and its argument columns; with `is_merge` the single column holds operands already.

    `is_bounded`: the caller knows that sums stay within 64 bits.
    """

    combiner: Combiner
    args: tuple[Column, ...]
    is_merge: bool = False
    is_bounded: bool = False

    @property
    def counts_rows(self) -> bool:
        """Whether the result of some rows is their number, so that no operands need be made."""
        return self.combiner.counts_rows and not self.is_merge

    @cached_property
    def operands(self) -> pl.Series | None:
        """One operand a row, as a column; None where Python has to make them."""
        column = self.args[0] if len(self.args) == 1 else None
        if not isinstance(column, pl.Series):
            return None
        return column if self.is_merge else self.combiner.lift_column(column)

    @cached_property
    def form(self) -> ColumnForm | None:
        """The form that combines this column exactly; None where Python has to."""
        column = self.operands
        if column is None or (self.combiner.is_sum and not self.is_bounded and not _is_small(column)):
            return None
        return self.combiner.form(column)

    def lifted(self) -> list[Any]:
        """One operand a row, as values."""
        if self.is_merge:
            return to_values(self.args[0])
        return list(map(self.combiner.lift, *map(to_values, self.args)))


def _is_small(column: pl.Series) -> bool:
    """Whether no sum of some of these integers can leave 64 bits."""
    if column.dtype != pl.Int64:
        return True
    low, high = column.min(), column.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return True
    return max(-low, high) * len(column) <= _INT_MAX


def reduce_runs(runs: Runs, columns: Sequence[CombinerColumns]) -> list[Column]:
    """The operand of each run, for each of the columns.

    Raises:
        BadInput: a combiner refuses an argument.
    """
    reduced = [_reduced(runs, column) for column in columns]
    grouped = [i for i, found in enumerate(reduced) if found is None]
    if not grouped:
        return [found for found in reduced if found is not None]
    numbers = pl.DataFrame({_RUN: pl.Series(runs.run_of_row, dtype=pl.UInt32)})
    keys, operands = reduce_groups(numbers, [columns[i] for i in grouped], keeps_order=True)
    if runs.order is not None:
        operands = [series[keys[_RUN].arg_sort()] for series in operands]
    by_place = dict(zip(grouped, operands, strict=True))
    return [by_place[i] if found is None else found for i, found in enumerate(reduced)]


def _reduced(runs: Runs, column: CombinerColumns) -> Column | None:
    """The operands of runs in the forms that work on runs; None where groups of rows have the fastest one."""
    if column.counts_rows:
        return pl.Series("", runs.sizes, dtype=pl.Int64)
    form, operands = column.form, column.operands
    if form is None or operands is None:
        return _by_value(runs, column)
    if form.reduction is not None:
        return _by_numbers(runs, operands, *form.reduction)
    if form.in_order is not None:
        sums = form.in_order(operands.to_numpy(), runs.run_of_row, len(runs.starts))
        return pl.Series("", sums, dtype=operands.dtype)
    return None


def _by_numbers(runs: Runs, column: pl.Series, function: np.ufunc, blank: Any) -> pl.Series:
    has_nulls = column.null_count() > 0
    values = (column.fill_null(blank) if has_nulls else column).to_numpy()
    is_there = column.is_not_null().to_numpy() if has_nulls else None
    folded = _reduced_rows(runs, values, function, blank)
    if is_there is None:
        return pl.Series("", folded)
    is_none = ~_reduced_rows(runs, is_there, np.logical_or, False)
    return pl.Series("", folded).set(pl.Series(is_none), None)


def _reduced_rows(runs: Runs, values: Array, function: np.ufunc, blank: Any) -> Array:
    """One value a run; rows that do not stand in order need not be brought into it."""
    if runs.order is None:
        reduced: Array = function.reduceat(values, runs.starts)
        return reduced
    folded = np.full(len(runs.starts), blank, dtype=values.dtype)
    with np.errstate(invalid="ignore"):  # NaN is a value like any other
        function.at(folded, runs.run_of_row, values)
    return folded


def _by_value(runs: Runs, column: CombinerColumns) -> Column:
    """The form that all others must equal."""
    operands = column.lifted()
    if runs.order is not None:
        operands = [operands[row] for row in runs.order.tolist()]
    ends = [*runs.starts.tolist(), runs.rows]
    return from_values([reduce(column.combiner.combine, operands[start:end]) for start, end in pairwise(ends)])


def reduce_groups(
    keys: pl.DataFrame, columns: Sequence[CombinerColumns], *, keeps_order: bool
) -> tuple[pl.DataFrame, list[pl.Series]]:
    """`reduce_runs` where rows of equal keys are not together yet, and all columns have a form for groups: one pass
    finds the groups, in the order first seen if asked for, and reduces them.
    """
    operands = {f"\x00a{i}": column.operands for i, column in enumerate(columns) if not column.counts_rows}
    frame = keys.with_columns(**{name: series for name, series in operands.items() if series is not None})
    wanted = [_expression(column, f"\x00a{i}") for i, column in enumerate(columns)]
    grouped = frame.group_by(keys.columns, maintain_order=keeps_order).agg(wanted)
    return grouped.select(keys.columns), [grouped[f"\x00a{i}"].alias("") for i in range(len(columns))]


def has_group_form(column: CombinerColumns) -> bool:
    """Whether `reduce_groups` can take a column."""
    return column.counts_rows or (column.form is not None and column.form.expression is not None)


def has_number_form(column: CombinerColumns) -> bool:
    """Whether a column is reduced as numbers, which is fastest where rows are sorted by numbers."""
    return column.counts_rows or (column.form is not None and column.form.reduction is not None)


def _expression(column: CombinerColumns, name: str) -> pl.Expr:
    if column.counts_rows:
        return pl.len().cast(pl.Int64).alias(name)
    assert column.form is not None and column.form.expression is not None
    return column.form.expression(pl.col(name)).alias(name)
