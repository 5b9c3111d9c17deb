"""The forms of combiners over columns: Polars for groups of rows, NumPy for runs of sorted rows.

A form is an optimisation: it stands in for `Combiner.combine` only for columns where it gives exactly the same. So each
combiner names a function from a column of operands to its form for that column, or None where only Python can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

Array = np.ndarray[Any, Any]
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class ColumnForm:
    """How the operands of a column are combined; nulls are no operands, and a run of nulls gives null.

    `expression(column)` does it for the rows of a group. `reduction` is the NumPy function of two operands, and a value
    that it leaves as they are; only columns of numbers have it. `in_order(values, runs, count)` alone is for operands
    that must be taken one after the other; `runs` has the number of each row's run.
    """

    expression: Callable[[pl.Expr], pl.Expr] | None = None
    reduction: tuple[np.ufunc, Any] | None = None
    in_order: Callable[[Array, Array, int], Array] | None = None


FormOf = Callable[[pl.Series], "ColumnForm | None"]
"""The form of a combiner for a column of operands, None where no form is exact."""

_WHOLE_SUM = ColumnForm(lambda column: column.sum(), (np.add, 0))
_SUM_WITH_GAPS = ColumnForm(lambda column: pl.when(column.count() > 0).then(column.sum()), (np.add, 0))
_FLOAT_SUM = ColumnForm(in_order=lambda values, runs, count: np.bincount(runs, weights=values, minlength=count))


def sum_form(column: pl.Series) -> ColumnForm | None:
    """Sums of 64-bit integers, if they stay within 64 bits; of floats in row order, as another one rounds otherwise."""
    if column.dtype == pl.Int64:
        return _SUM_WITH_GAPS if column.null_count() else _WHOLE_SUM
    return _FLOAT_SUM if column.dtype == pl.Float64 and not column.null_count() else None


def number_operands(column: pl.Series) -> pl.Series | None:
    """The column form of lifting numbers: None among them, or anything else, is refused in Python."""
    if column.null_count() or column.dtype not in (pl.Int64, pl.Float64, pl.Boolean):
        return None
    return column.cast(pl.Int64) if column.dtype == pl.Boolean else column


_LEAST = ColumnForm(lambda column: column.min())
_LEAST_INT = ColumnForm(lambda column: column.min(), (np.minimum, _INT64.max))
_LEAST_FLOAT = ColumnForm(lambda column: column.min(), (np.fmin, np.nan))
_GREATEST = ColumnForm(lambda column: column.max())
_GREATEST_INT = ColumnForm(lambda column: column.max(), (np.maximum, _INT64.min))
_GREATEST_FLOAT = ColumnForm(lambda column: column.nan_max(), (np.maximum, -np.inf))


def min_form(column: pl.Series) -> ColumnForm | None:
    """NaN is greater than every number: the smallest is NaN only if all are."""
    return _by_order(column, _LEAST, _LEAST_INT, _LEAST_FLOAT)


def max_form(column: pl.Series) -> ColumnForm | None:
    """NaN is greater than every number: the largest is NaN if one is."""
    return _by_order(column, _GREATEST, _GREATEST_INT, _GREATEST_FLOAT)


def _by_order(column: pl.Series, others: ColumnForm, ints: ColumnForm, floats: ColumnForm) -> ColumnForm | None:
    if column.dtype == pl.Int64:
        return ints
    if column.dtype == pl.Float64:
        return None if _has_negative_zero(column) else floats
    return others if column.dtype in (pl.String, pl.Binary) or isinstance(column.dtype, pl.Datetime) else None


def _has_negative_zero(column: pl.Series) -> bool:
    """Whether -0.0 is in a float column: vector forms of min and max take it or 0.0 as they come."""
    values = column.fill_null(1.0).to_numpy() if column.null_count() else column.to_numpy()
    return bool(np.signbit(values[values == 0.0]).any())


_ALL = ColumnForm(lambda column: column.all())
_ANY = ColumnForm(lambda column: column.any())
_FIRST = ColumnForm(lambda column: column.drop_nulls().first())
_LAST = ColumnForm(lambda column: column.drop_nulls().last())


def and_form(column: pl.Series) -> ColumnForm | None:
    """Whether all are true; only for Booleans without null, as other values are kept as they are."""
    return _ALL if column.dtype == pl.Boolean and not column.null_count() else None


def or_form(column: pl.Series) -> ColumnForm | None:
    """Whether any is true; only for Booleans without null, as other values are kept as they are."""
    return _ANY if column.dtype == pl.Boolean and not column.null_count() else None


def first_form(column: pl.Series) -> ColumnForm | None:
    """The first operand of each run, for columns of every type."""
    return _FIRST


def last_form(column: pl.Series) -> ColumnForm | None:
    """The last operand of each run, for columns of every type."""
    return _LAST


def no_form(column: pl.Series) -> ColumnForm | None:
    """None: the combiner has no form for any column."""
    return None
