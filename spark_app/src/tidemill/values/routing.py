"""The routing of whole columns: as `values.data.route` does it, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import polars_hash
from numpy.typing import NDArray

from tidemill.values.columns import Column, to_values
from tidemill.values.data import GOLDEN, INT_MIN, MIX_1, MIX_2, check_int, key_hash, utf8


def route_column(column: Column, tasks: int) -> NDArray[np.int32]:
    """`route` of every value of a column, as int32; typed columns are hashed without Python objects."""
    hashes = _column_hashes(column)
    if tasks & (tasks - 1) == 0:
        return (hashes & np.uint64(tasks - 1)).astype(np.int32)
    return (hashes % np.uint64(tasks)).astype(np.int32)


def _column_hashes(column: Column) -> NDArray[np.uint64]:
    if isinstance(column, pl.Series):
        return _series_hashes(column)
    values = to_values(column)
    kinds = set(map(type, values))
    if kinds == {int}:
        return _int_hashes(_int64s(values))
    if kinds == {str}:
        return _bytes_hashes(pl.Series([utf8(value) for value in values], dtype=pl.Binary))
    return _value_hashes(values)


def _series_hashes(series: pl.Series) -> NDArray[np.uint64]:
    if series.dtype in (pl.String, pl.Binary):
        hashes = _bytes_hashes(series)
    elif series.dtype.is_signed_integer():
        numbers = series.cast(pl.Int64)
        hashes = _int_hashes((numbers.fill_null(0) if numbers.null_count() else numbers).to_numpy())
    elif series.dtype == pl.Float64:
        hashes = _float_hashes(series)
    else:
        return _value_hashes(series.to_list())
    if series.null_count():
        hashes[series.is_null().to_numpy()] = key_hash(None)
    return hashes


def _int_hashes(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    z = numbers.view(np.uint64) + np.uint64(GOLDEN)
    z ^= z >> np.uint64(30)
    z *= np.uint64(MIX_1)
    z ^= z >> np.uint64(27)
    z *= np.uint64(MIX_2)
    z ^= z >> np.uint64(31)
    return z


def _float_hashes(series: pl.Series) -> NDArray[np.uint64]:
    floats = series.fill_null(0.0).to_numpy()
    is_int = (np.trunc(floats) == floats) & (floats >= float(INT_MIN)) & (floats < -float(INT_MIN))
    hashes = _int_hashes(np.where(is_int, floats, 0.0).astype(np.int64))
    hashes[~is_int] = _value_hashes(floats[~is_int].tolist())
    return hashes


def _bytes_hashes(series: pl.Series) -> NDArray[np.uint64]:
    hashed = pl.DataFrame({"key": series}).select(polars_hash.col("key").nchash.xxhash64()).to_series()
    return hashed.fill_null(0).to_numpy(writable=True).astype(np.uint64, copy=False)


def _value_hashes(values: Sequence[Any]) -> NDArray[np.uint64]:
    return np.fromiter(map(key_hash, values), dtype=np.uint64, count=len(values))


def _int64s(values: Sequence[int]) -> NDArray[np.int64]:
    for value in values:
        check_int(value)
    return np.array(values, dtype=np.int64)
