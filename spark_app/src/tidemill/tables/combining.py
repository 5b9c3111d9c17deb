"""Combining many rows of arguments into one operand a group, by columns where that gives exactly what Python gives.

A `CombinerColumns` is one aggregator over argument columns. `combine_groups` turns rows into groups and operands;
`merge_groups` does the same with operands as input. Column forms are used for native columns without surprises (no
overflow, no None where None counts); everything else is folded value by value in row order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import polars as pl

from tidemill.language.combiners import Combiner
from tidemill.tables.sorting import has_negative_zero, is_reducible, reduce_runs, sorted_runs
from tidemill.values.columns import DATETIME, Column, from_values, gather_rows, to_values
from tidemill.values.keys import key_token

_ROWS: Final = "\x00rows"
_ORDERED: Final = (pl.Int64, pl.Float64, pl.String, DATETIME)
_INT_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class CombinerColumns:
    """One combiner and its argument columns; with `is_merge` the single column holds operands already."""

    combiner: Combiner
    args: tuple[Column, ...]
    is_merge: bool = False

    def lifted(self) -> list[Any]:
        """One operand a row."""
        if self.is_merge:
            return to_values(self.args[0])
        return list(map(self.combiner.lift, *map(to_values, self.args)))


def combine_groups(
    keys: pl.DataFrame, rows: int, folds: Sequence[CombinerColumns], *, keeps_order: bool
) -> tuple[pl.DataFrame, list[Column]]:
    """Distinct keys, and for each fold its operands; groups stand in the order in which they were first seen if asked
    for.

    Without key columns all rows are one group, and no rows are none.
    """
    if rows == 0:
        return keys.clear(), [[] for _ in folds]
    if not keys.columns:
        return keys, [_fold_all(fold, rows) for fold in folds]
    if not keeps_order and (reduced := _combine_runs(keys, rows, folds)) is not None:
        return reduced
    columns = {f"\x00a{i}": _expression_column(fold) for i, fold in enumerate(folds)}
    fast = [i for i, fold in enumerate(folds) if _is_exact(fold, rows)]
    frame = keys.with_columns(**{f"\x00a{i}": columns[f"\x00a{i}"] for i in fast if columns[f"\x00a{i}"] is not None})
    wanted = [_expression(folds[i], f"\x00a{i}").alias(f"\x00a{i}") for i in fast]
    if len(fast) < len(folds):
        frame = frame.with_row_index(_ROWS)
        wanted.append(pl.col(_ROWS))
    grouped = frame.group_by(keys.columns, maintain_order=keeps_order).agg(wanted)
    slow = _fold_lists(folds, fast, grouped)
    operands = [grouped[f"\x00a{i}"].alias("") if i in fast else slow[i] for i in range(len(folds))]
    return grouped.select(keys.columns), operands


def _combine_runs(
    keys: pl.DataFrame, rows: int, folds: Sequence[CombinerColumns]
) -> tuple[pl.DataFrame, list[Column]] | None:
    """Number keys and number arguments: sort, then fold runs. The groups come out sorted, which is how they are
    stored.
    """
    for fold in folds:
        column = _expression_column(fold)
        if fold.combiner.identity == "count" and not fold.is_merge:
            continue
        if column is None or not _is_exact(fold, rows) or not is_reducible(fold.combiner.identity, column):
            return None
    arguments = {f"\x00a{i}": c for i, f in enumerate(folds) if (c := _expression_column(f)) is not None}
    sorted_keys = sorted_runs(keys.with_columns(**arguments), keys.columns)
    if sorted_keys is None:
        return None
    frame, starts = sorted_keys
    operands: list[Column] = []
    for i, fold in enumerate(folds):
        if fold.combiner.identity == "count" and not fold.is_merge:
            operands.append(pl.Series("", np.diff(np.append(starts, rows)), dtype=pl.Int64))
        else:
            operands.append(reduce_runs(fold.combiner.identity or "", frame[f"\x00a{i}"], starts).alias(""))
    return frame.select(keys.columns)[starts], operands


def _expression_column(fold: CombinerColumns) -> pl.Series | None:
    column = fold.args[0] if fold.args else None
    return column if isinstance(column, pl.Series) else None


def _is_exact(fold: CombinerColumns, rows: int) -> bool:
    """Whether a column expression gives what Python gives."""
    name = fold.combiner.identity
    if name == "count" and not fold.is_merge:
        return True
    column = _expression_column(fold)
    if column is None:
        return False
    if name in ("count", "sum"):
        return column.null_count() == 0 and (column.dtype == pl.Boolean or _cannot_overflow(column, rows))
    if name in ("min", "max"):
        return column.dtype in _ORDERED and not (column.dtype == pl.Float64 and has_negative_zero(column))
    if name in ("and", "or"):
        return column.dtype == pl.Boolean and column.null_count() == 0
    return name in ("first", "last")


def _cannot_overflow(column: pl.Series, rows: int) -> bool:
    if column.dtype != pl.Int64:
        return False
    low, high = column.min(), column.max()
    return isinstance(low, int) and isinstance(high, int) and max(-low, high) * rows <= _INT_MAX


def _expression(fold: CombinerColumns, name: str) -> pl.Expr:
    column, identity = pl.col(name), fold.combiner.identity
    if identity == "count" and not fold.is_merge:
        return pl.len().cast(pl.Int64)
    if identity in ("count", "sum"):
        return column.cast(pl.Int64).sum()
    if identity == "min":
        return column.min()
    if identity == "max":
        return column.nan_max() if _expression_dtype(fold) == pl.Float64 else column.max()
    if identity == "and":
        return column.all()
    if identity == "or":
        return column.any()
    return column.drop_nulls().first() if identity == "first" else column.drop_nulls().last()


def _expression_dtype(fold: CombinerColumns) -> Any:
    column = _expression_column(fold)
    return None if column is None else column.dtype


def _fold_all(fold: CombinerColumns, rows: int) -> Column:
    """All rows as one group."""
    if _is_exact(fold, rows):
        column = _expression_column(fold)
        frame = pl.DataFrame({"a": column if column is not None else pl.Series([0]).new_from_index(0, rows)})
        return frame.select(_expression(fold, "a").alias("")).to_series()
    if _is_float_sum(fold):
        return _float_sums(fold, np.zeros(rows, dtype=np.int64), 1)
    return from_values([reduce(fold.combiner.combine, fold.lifted())])


def _fold_lists(folds: Sequence[CombinerColumns], fast: Sequence[int], grouped: pl.DataFrame) -> dict[int, Column]:
    """The folds that need Python, or float sums in row order, over the rows of each group."""
    if len(fast) == len(folds):
        return {}
    sizes = grouped[_ROWS].list.len().to_numpy()
    order = grouped[_ROWS].explode().to_numpy()
    ends = np.cumsum(sizes).tolist()
    operands: dict[int, Column] = {}
    for i, fold in enumerate(folds):
        if i in fast:
            continue
        if _is_float_sum(fold):
            sorted_fold = CombinerColumns(fold.combiner, (gather_rows(fold.args[0], order),))
            operands[i] = _float_sums(sorted_fold, np.repeat(np.arange(len(sizes)), sizes), len(sizes))
        else:
            lifted = fold.lifted()
            operands[i] = _reduce_runs(fold.combiner.combine, [lifted[row] for row in order.tolist()], ends)
    return operands


def _reduce_runs(combine: Callable[[Any, Any], Any], values: list[Any], ends: list[int]) -> Column:
    starts = [0, *ends[:-1]]
    return from_values([reduce(combine, values[start:end]) for start, end in zip(starts, ends, strict=True)])


def _is_float_sum(fold: CombinerColumns) -> bool:
    column = _expression_column(fold)
    is_float = column is not None and column.dtype == pl.Float64 and column.null_count() == 0
    return is_float and fold.combiner.identity == "sum"


def _float_sums(fold: CombinerColumns, groups: np.ndarray[Any, Any], count: int) -> pl.Series:
    """Sums in row order, as Python would add them: a vector sum would round differently."""
    column = fold.args[0]
    assert isinstance(column, pl.Series)
    return pl.Series("", np.bincount(groups, weights=column.to_numpy(), minlength=count), dtype=pl.Float64)


# --- keys of any kind ------------------------------------------------------------------------------------------------


def group_keys(columns: Sequence[Column]) -> pl.DataFrame:
    """Columns to group by; those of arbitrary values become codes, equal for equal values."""
    return pl.DataFrame({f"g{i}": _codes(column) for i, column in enumerate(columns)})


def _codes(column: Column) -> pl.Series:
    if isinstance(column, pl.Series):
        return column
    codes: dict[Any, int] = {}
    tokens = map(key_token, to_values(column))
    return pl.Series("", [codes.setdefault(token, len(codes)) for token in tokens], dtype=pl.Int64)


def group_columns(
    columns: Sequence[Column], rows: int, folds: Sequence[CombinerColumns]
) -> tuple[list[Column], list[Column]]:
    """`combine_groups` by columns of any kind: the distinct groups in the order first seen, and the operands."""
    if not columns:
        return [], combine_groups(pl.DataFrame(), rows, folds, keeps_order=True)[1]
    keys = group_keys(columns)
    first = pl.Series(_ROWS, np.arange(rows), dtype=pl.Int64)
    heads = keys.with_columns(first.alias("\x00first")).group_by(keys.columns, maintain_order=True)
    firsts = heads.agg(pl.col("\x00first").first())["\x00first"].to_numpy()
    _, operands = combine_groups(keys, rows, folds, keeps_order=True)
    return [gather_rows(column, firsts) for column in columns], operands
