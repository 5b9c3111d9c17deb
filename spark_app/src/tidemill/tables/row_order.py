"""Sorting rows by (task, keys) and finding runs of equal keys, with numpy where keys are numbers.

A row's keys and its number are put into one word: sorting such words is several times faster than sorting row numbers
by keys, and it is stable. Two-column sorts of the frame library cost several times more than either.
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
    return rows_at(frame, _order(numbers)[0])


def rows_at(frame: pl.DataFrame, rows: Array) -> pl.DataFrame:
    """The rows of these numbers, in this order; column by column, as the frame library hands whole frames to threads of
    its own, which costs more than it saves.
    """
    return pl.DataFrame([column[rows] for column in frame.get_columns()])


def _numbers(frame: pl.DataFrame, columns: list[str]) -> list[Array] | None:
    """The columns as arrays of integers, None if one has nulls or is of another kind."""
    arrays = []
    for name in columns:
        column = frame[name]
        if column.null_count() or (column.dtype not in _NUMBERS and not isinstance(column.dtype, pl.Datetime)):
            return None
        array = column.to_numpy()
        arrays.append(array.view(np.int64) if isinstance(column.dtype, pl.Datetime) else array)
    return arrays


def _is_sorted(arrays: list[Array]) -> bool:
    is_less = np.zeros(len(arrays[0]) - 1, dtype=bool)
    is_equal = np.ones(len(arrays[0]) - 1, dtype=bool)
    for array in arrays:
        is_less |= is_equal & (array[:-1] < array[1:])
        is_equal &= array[:-1] == array[1:]
    return bool((is_less | is_equal).all())


def _order(arrays: list[Array]) -> tuple[Array, list[Array]]:
    """The stable order of rows by integer columns, the first one most significant; and columns in that order which
    are equal where those are.
    """
    bits = len(arrays[0]).bit_length()
    passes = _digits(arrays, 64 - bits)
    order: Array | None = None
    for digits in passes:
        words = digits if order is None else digits[order]
        words <<= bits
        words |= np.arange(len(words), dtype=np.uint64)
        words.sort()
        step = (words & np.uint64(2**bits - 1)).view(np.int64)
        order = step if order is None else order[step]
        words >>= bits
    if order is None:
        return np.arange(len(arrays[0])), arrays
    return order, [words] if len(passes) == 1 else [array[order] for array in arrays]


def _digits(arrays: list[Array], bits: int) -> list[Array]:
    """The rows as numbers that sort like the columns, by digits of at most so many bits, the least significant first:
    one is enough where the columns' ranges are not wide.
    """
    found: list[Array] = []
    used = bits
    for array in reversed(arrays):
        low = int(array.min())
        left = (int(array.max()) - low).bit_length()
        if not left:
            continue
        number = np.subtract(array, low, dtype=np.int64).view(np.uint64)  # as unsigned it is right beyond 63 bits, too
        if left <= bits - used:
            number <<= used
            found[-1] |= number
            used += left
            continue
        while left > bits:
            found.append(number & np.uint64(2**bits - 1))
            number >>= bits
            left -= bits
        found.append(number)
        used = left
    return found


def key_runs(frame: pl.DataFrame, columns: list[str]) -> tuple[Array | None, Array] | None:
    """The stable order of the rows (None if they stand in it), and where each run of equal keys starts in it; None if
    the keys are not all numbers.
    """
    numbers = _numbers(frame, columns)
    if numbers is None or frame.height == 0:
        return None
    if _is_sorted(numbers):
        return None, _starts(numbers)
    order, in_order = _order(numbers)
    return order, _starts(in_order)


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
    order, in_order = _order(numbers)
    return order, _starts(in_order)


def slots_of(order: Array, starts: Array) -> Array:
    """The number of each row's run, by row, of what `merge_order` found."""
    is_start = np.zeros(len(order), dtype=np.int64)
    is_start[starts[1:]] = 1
    slots = np.empty(len(order), dtype=np.int64)
    slots[order] = np.cumsum(is_start)
    return slots
