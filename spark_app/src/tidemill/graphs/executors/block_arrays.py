"""A block of a matrix as arrays, for products that need neither a join nor groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

NUMBERS_MIN, NUMBERS_OF_ELEMENT = 1 << 16, 8
"""Rows and columns of a block lie among so many numbers, and so many more for each element: arrays have a place for
each of them, so their memory stays a small multiple of the block's.
"""


@dataclass(frozen=True)
class BlockNames:
    """The columns of the frames: a block's `row`, `column` and (if there are any) `weight`; `vector` has the values."""

    row: str
    column: str
    vector: str
    weight: str | None


@dataclass(frozen=True)
class BlockArrays:
    """The elements of a block; `rows` count from `first_row` on, `columns` from 0 to below `width`."""

    names: BlockNames
    rows: NDArray[np.int64]
    first_row: int
    row_type: pl.DataType
    columns: NDArray[np.int64]
    column_type: pl.DataType
    width: int
    weights: NDArray[np.float64] | None

    @staticmethod
    def of(block: pl.DataFrame, names: BlockNames) -> BlockArrays | None:
        """None where numbers of rows or columns are not whole, known and close together, or weights are no numbers."""
        used = [names.row, names.column, *([] if names.weight is None else [names.weight])]
        if len({*used, names.vector}) <= len(used) or names.vector in block.columns or block.is_empty():
            return None
        if any(block.get_column(name).null_count() for name in used):
            return None
        row, column = block.get_column(names.row), block.get_column(names.column)
        if not (_is_index(row.dtype) and _is_index(column.dtype)):
            return None
        bounds: list[Any] = [row.min(), row.max(), column.min(), column.max()]
        first_row, last_row, first_column, last_column = bounds
        numbers = NUMBERS_MIN + NUMBERS_OF_ELEMENT * block.height
        if first_column < 0 or max(last_row - first_row, last_column) >= numbers:
            return None
        weights = None
        if names.weight is not None:
            weight = block.get_column(names.weight)
            if not (_is_index(weight.dtype) or weight.dtype in (pl.Float32, pl.Float64)):
                return None
            weights = weight.cast(pl.Float64).to_numpy()
        rows, columns = (each.cast(pl.Int64).to_numpy() for each in (row, column))
        if first_row:
            rows = rows - first_row
        return BlockArrays(names, rows, first_row, row.dtype, columns, column.dtype, last_column + 1, weights)

    def times(self, vector: pl.DataFrame) -> pl.DataFrame | None:
        """The sums of the rows that have an element for a row of the vector; None where only a join tells: values are
        unknown or no floats of 64 bits, a number comes twice, or is of another type than the block's.
        """
        numbers, values = vector.get_column(self.names.column), vector.get_column(self.names.vector)
        if numbers.dtype != self.column_type or values.dtype != pl.Float64 or numbers.null_count():
            return None
        if values.null_count():
            return None
        index, value = numbers.cast(pl.Int64).to_numpy(), values.to_numpy()
        is_inside = (index >= 0) & (index < self.width)
        if not is_inside.all():
            index, value = index[is_inside], value[is_inside]
        counts = np.bincount(index, minlength=self.width)
        if counts.max() > 1:
            return None
        dense = np.zeros(self.width)
        dense[index] = value
        rows, columns, weights = self.rows, self.columns, self.weights
        if not counts.all():
            is_met = counts[columns] > 0
            rows, columns = rows[is_met], columns[is_met]
            weights = None if weights is None else weights[is_met]
        with np.errstate(invalid="ignore", over="ignore"):  # infinity times zero is no mistake of the machine's
            products = dense[columns] if weights is None else dense[columns] * weights
        sums = np.bincount(rows, weights=products)
        found = np.flatnonzero(np.bincount(rows))
        row = pl.Series(self.names.row, found + self.first_row, dtype=pl.Int64).cast(self.row_type)
        return pl.DataFrame([row, pl.Series(self.names.vector, sums[found], dtype=pl.Float64)])


def _is_index(kind: pl.DataType) -> bool:
    """Whether all values are whole numbers that 64 bits with a sign hold."""
    return kind.is_integer() and kind not in (pl.UInt64, pl.Int128, pl.UInt128)
