"""Columns of records as field columns of a record table."""

from __future__ import annotations

import polars as pl

from tidemill.language.schema import FixedKeysSchema
from tidemill.tables.codecs import Misfit, checker, value_codec
from tidemill.tables.container import PUT
from tidemill.tables.level_merge import cell_columns
from tidemill.tables.tables import Table
from tidemill.values.columns import Column, RecordColumn, length, to_values


def record_series(table: Table, values: Column) -> dict[str, pl.Series]:
    """The value columns of a record table; raises Misfit."""
    assert table.fields is not None
    if isinstance(values, RecordColumn) and values.kind == "dict" and _has_no_none(values):
        return _from_fields(table, values)
    check = checker(FixedKeysSchema(table.fields))
    cells = [check(value) for value in to_values(values)]
    return cell_columns(table, [PUT] * len(cells), cells)


def _has_no_none(values: RecordColumn) -> bool:
    return all(isinstance(field, pl.Series) and field.null_count() == 0 for field in values.fields)


def _from_fields(table: Table, values: RecordColumn) -> dict[str, pl.Series]:
    fields = dict(table.fields or ())
    unknown = next((name for name in values.names if name not in fields), None)
    if unknown is not None:
        raise Misfit(to_values(values)[0], "one of the fields " + ", ".join(fields))
    columns = {}
    for name, schema in fields.items():
        codec, field = value_codec(schema), values.field(name)
        blank = pl.Series([None], dtype=codec.dtype).new_from_index(0, length(values))
        columns[f"value.{name}"] = blank if field is None else codec.column_series(field)
    return columns
