"""Columns of Arrow tables as series of Polars."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tidemill.tables.cells import series_of

DAY = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS: list[tuple[list[Any], Any]] = [
    ([1, None, 2**62], pl.Int64),
    (["a", None, "é" * 40], pl.String),
    ([b"", None, b"\x00" * 40], pl.Binary),
    ([True, None, False], pl.Boolean),
    ([1.5, None, float("inf")], pl.Float64),
    ([DAY, None, DAY], pl.Datetime("us", "UTC")),
    ([1, 0, 3], pl.Int8),
]


@pytest.mark.parametrize(("values", "dtype"), COLUMNS, ids=lambda value: str(value))
@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_series_is_the_same_when_its_column_is_arrow(values: list[Any], dtype: Any, pieces: int) -> None:
    one = pl.DataFrame({"x": pl.Series(values, dtype=dtype)})
    table = pa.concat_tables([one.to_arrow(compat_level=pl.CompatLevel.oldest()).slice(1)] * max(1, pieces))
    table = table if pieces else table.slice(0, 0)

    found = series_of(table, "x")

    assert (found.name, found.dtype, found.n_chunks()) == ("x", dtype, 1)
    assert found.to_list() == values[1:] * pieces
