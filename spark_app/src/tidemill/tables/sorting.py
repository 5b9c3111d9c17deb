"""Sorting rows by (task, keys) and finding runs of equal keys, with numpy where keys are numbers.

Levels are sorted already, so a stable merge sort finds their runs; two-column sorts of the frame library cost
several times more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

Array = np.ndarray[Any, Any]
_NUMBERS: Final = (pl.Int64, pl.Int32, pl.Boolean)


def sort_rows(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The rows in ascending order of the columns, None first; equal rows keep their order."""
    if frame.height < 2:
        return frame
    numbers = _numbers(frame, columns)
    if numbers is None:
        return frame.sort(columns, maintain_order=True)
    if _is_sorted(numbers):
        return frame
    return frame[row_order(numbers)]


def _numbers(frame: pl.DataFrame, columns: list[str]) -> list[Array] | None:
    """The columns as integer arrays, None if one has nulls or is of another kind."""
    arrays = []
    for name in columns:
        column = frame[name]
        if column.null_count() or (column.dtype not in _NUMBERS and not isinstance(column.dtype, pl.Datetime)):
            return None
        arrays.append(column.to_physical().to_numpy())
    combined = _combined(arrays)
    return arrays if combined is None else [combined]


def _combined(arrays: list[Array]) -> Array | None:
    """Several columns as one number a row that sorts like them; None if 63 bits are too few."""
    if len(arrays) == 1 or len(arrays[0]) == 0:
        return None
    total = np.zeros(len(arrays[0]), dtype=np.int64)
    width = 1
    for array in reversed(arrays):
        low, high = int(array.min()), int(array.max())
        if low == high:
            continue
        if width * (high - low + 1) >= 2**63:
            return None
        total += (array.astype(np.int64) - low) * width
        width *= high - low + 1
    return total


def _is_sorted(arrays: list[Array]) -> bool:
    is_less = np.zeros(len(arrays[0]) - 1, dtype=bool)
    is_equal = np.ones(len(arrays[0]) - 1, dtype=bool)
    for array in arrays:
        is_less |= is_equal & (array[:-1] < array[1:])
        is_equal &= array[:-1] == array[1:]
    return bool((is_less | is_equal).all())


def row_order(arrays: list[Array]) -> Array:
    """The stable order of rows by several integer columns, the first one most significant."""
    order: Array | None = None
    for array in reversed(arrays):
        small = _narrow(array)
        step = np.argsort(small if order is None else small[order], kind="stable")
        order = step if order is None else order[step]
    assert order is not None
    return order


def _narrow(array: Array) -> Array:
    """16-bit numbers are sorted by radix, much faster than wider ones; tasks always fit."""
    if array.dtype == np.int32 and len(array) and array.min() >= 0 and array.max() < 2**15:
        return array.astype(np.int16)
    return array


def key_runs(frame: pl.DataFrame, columns: list[str]) -> tuple[Array | None, Array] | None:
    """The stable order of the rows (None if they stand in it), and where each run of equal keys starts in it; None if
    the keys are not all numbers.
    """
    numbers = _numbers(frame, columns)
    if numbers is None or frame.height == 0:
        return None
    if _is_sorted(numbers):
        return None, _starts(numbers)
    order = row_order(numbers)
    return order, _starts([array[order] for array in numbers])


def _starts(arrays: list[Array]) -> Array:
    is_start = np.zeros(len(arrays[0]), dtype=bool)
    is_start[0] = True
    for array in arrays:
        is_start[1:] |= array[1:] != array[:-1]
    return np.flatnonzero(is_start)


def run_starts(frame: pl.DataFrame, columns: list[str]) -> Array:
    """Where each run of equal keys starts in sorted rows."""
    numbers = _numbers(frame, columns)
    if numbers is not None:
        return _starts(numbers)
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in columns)
    is_start = frame.select(differs.alias("start"))["start"].to_numpy().copy()
    is_start[0] = True
    return np.flatnonzero(is_start)


def merge_order(frame: pl.DataFrame, columns: list[str]) -> tuple[Array, Array] | None:
    """The stable order of the rows, and where each run of equal keys starts in it; None if the keys are not all
    numbers. The rows themselves stay where they are.
    """
    numbers = _numbers(frame, columns)
    if numbers is None or frame.height == 0:
        return None
    order = row_order(numbers)
    return order, _starts([array[order] for array in numbers])


def slots_of(order: Array, starts: Array) -> Array:
    """The number of each row's run, by row, of what `merge_order` found."""
    is_start = np.zeros(len(order), dtype=np.int64)
    is_start[starts[1:]] = 1
    slots = np.empty(len(order), dtype=np.int64)
    slots[order] = np.cumsum(is_start)
    return slots
