"""Combining many rows of arguments into one operand a group: finds rows of equal keys for `tables.runs` to reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from tidemill.tables.row_order import key_runs, rows_at
from tidemill.tables.runs import CombinerColumns, Runs, has_group_form, has_number_form, reduce_groups, reduce_runs
from tidemill.values.columns import Column, gather_rows, to_values
from tidemill.values.keys import key_token

_ROWS: Final = "\x00rows"


def combine_groups(
    keys: pl.DataFrame, rows: int, columns: Sequence[CombinerColumns], *, keeps_order: bool
) -> tuple[pl.DataFrame, list[Column]]:
    """Distinct keys, and for each of the columns its operands; groups stand in the order in which they were first seen
    if asked for.

    Without key columns all rows are one group, and no rows are none.
    """
    if rows == 0:
        return keys.clear(), [[] for _ in columns]
    if not keys.columns:
        return keys, reduce_runs(Runs(np.zeros(1, dtype=np.int64), rows), columns)
    if not keeps_order and all(map(has_number_form, columns)):
        found = key_runs(keys, keys.columns)
        if found is not None:  # the groups come out sorted, which is how they are stored
            order, starts = found
            runs = Runs(starts, rows, order)
            return rows_at(keys, runs.heads), reduce_runs(runs, columns)
    if all(map(has_group_form, columns)):
        groups, operands = reduce_groups(keys, columns, keeps_order=keeps_order)
        return groups, list(operands)
    grouped = keys.with_row_index(_ROWS).group_by(keys.columns, maintain_order=keeps_order).agg(_ROWS)
    ends = np.cumsum(grouped[_ROWS].list.len().to_numpy(), dtype=np.int64)
    runs = Runs(np.append(0, ends[:-1]), rows, grouped[_ROWS].explode().to_numpy())
    return grouped.select(keys.columns), reduce_runs(runs, columns)


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
    groups: Sequence[Column], rows: int, columns: Sequence[CombinerColumns]
) -> tuple[list[Column], list[Column]]:
    """`combine_groups` by columns of any kind: the distinct groups in the order first seen, and the operands."""
    if not groups:
        return [], combine_groups(pl.DataFrame(), rows, columns, keeps_order=True)[1]
    keys = group_keys(groups)
    first = pl.Series(_ROWS, np.arange(rows), dtype=pl.Int64)
    heads = keys.with_columns(first.alias("\x00first")).group_by(keys.columns, maintain_order=True)
    firsts = heads.agg(pl.col("\x00first").first())["\x00first"].to_numpy()
    _, operands = combine_groups(keys, rows, columns, keeps_order=True)
    return [gather_rows(column, firsts) for column in groups], operands
