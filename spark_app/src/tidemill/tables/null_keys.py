"""Keys that are None: refused wherever a row is written, unless the schema says that None is a key.

Reads ask for such a key as for any other, and find nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tidemill.tables.codecs import NullKey, key_codec
from tidemill.tables.tables import Table


def shown(table: Table, stored: Sequence[Any]) -> tuple[Any, ...]:
    """Stored keys, or a prefix of them, as people see them."""
    return tuple(key_codec(kind).present(key) for kind, key in zip(table.keys, stored, strict=False))


def check_nulls(table: Table, stored: Sequence[Any]) -> None:
    """Refuse stored keys, or a prefix of them, with a None that is no key. Raises: NullKey."""
    position = table.null_key(stored)
    if position is not None:
        raise NullKey(table.keys[position], shown(table, stored[: position + 1]))


def check_null_columns(table: Table, rows: pl.DataFrame) -> None:
    """The same of the key columns of rows that are about to be written: the first row with such a None is told.

    Raises:
        NullKey: a key is None that is no key.
    """
    columns = [name for i, name in enumerate(table.key_names) if i not in table.nullable and rows[name].null_count()]
    if columns:
        first = rows.filter(pl.any_horizontal(pl.col(columns).is_null())).row(0, named=True)
        check_nulls(table, [first[name] for name in table.key_names])
