"""How far from zero the integers of a table are, so that sums of operands are known not to overflow before they are
made.
"""

from __future__ import annotations

import polars as pl

from tidemill.tables.tables import Table


def bound_of(table: Table, rows: pl.DataFrame) -> int:
    """The largest absolute integer among the value columns."""
    return max((absolute_max(rows[name]) for name, _ in table.columns if rows[name].dtype == pl.Int64), default=0)


def absolute_max(column: pl.Series) -> int:
    """The largest absolute value of an integer column, 0 if it has none."""
    low, high = column.min(), column.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return 0
    return max(-low, high, 0)
