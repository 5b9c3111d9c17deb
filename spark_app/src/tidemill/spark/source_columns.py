"""Columns of scans as Spark has them: their types, and batches of them in Arrow.

What is a map in a schema is a map in Spark, unless None may be a key of it: then it is an array of key and value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema
from tidemill.scans.columns import Convert
from tidemill.scans.frames import arrow_table
from tidemill.values import columns
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.errors import BadInput

_LEAVES: Mapping[str, type[DataType]] = {
    "int": LongType,
    "float": DoubleType,
    "bool": BooleanType,
    "str": StringType,
    "bytes": BinaryType,
    "datetime": TimestampType,
}


def spark_type(schema: Schema) -> DataType:
    """The Spark type of a column of values; what has no type of its own is JSON text."""
    if isinstance(schema, Leaf):
        return _LEAVES.get(schema.type, StringType)()
    if isinstance(schema, ListSchema):
        return ArrayType(spark_type(schema.element))
    if isinstance(schema, SetSchema):
        return ArrayType(spark_type(Leaf(schema.element)))
    if isinstance(schema, FixedKeysSchema):
        return StructType([StructField(str(name), spark_type(field)) for name, field in schema.fields])
    assert isinstance(schema, MapSchema)
    key, value = spark_type(Leaf(schema.key)), spark_type(schema.value)
    if schema.nullable:
        return ArrayType(StructType([StructField("key", key), StructField("value", value)]))
    return MapType(key, value)


def spark_schema(places: Mapping[str, Any], values: Mapping[str, Schema]) -> StructType:
    """The schema of a scan: the columns that say where a row is, and those of keys and values."""
    fields = [StructField(name, _place_type(kind)) for name, kind in places.items()]
    return StructType([*fields, *(StructField(name, spark_type(schema)) for name, schema in values.items())])


def _place_type(kind: Any) -> DataType:
    if kind == pl.Int32:
        return IntegerType()
    return LongType() if kind == pl.Int64 else TimestampType()


def polars_types(schema: StructType) -> dict[str, Any]:
    """The Polars types of the columns that a caller named. Raises BadInput: one is a map."""
    for field in schema.fields:
        if isinstance(field.dataType, MapType):
            raise BadInput(
                f"Name the field {field.name!r} as a STRUCT, or as a STRING of JSON: its keys are not known."
            )
    empty = to_arrow_schema(schema, timezone="UTC").empty_table()
    found = pl.DataFrame(pl.from_arrow(empty)).schema
    return {name: pl.Datetime("us", "UTC") if isinstance(kind, pl.Datetime) else kind for name, kind in found.items()}


def arrow_batch(frame: pl.DataFrame, schema: StructType) -> pa.RecordBatch:
    """The rows as the batch that Spark wants for this schema, type for type."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    found = arrow_table(frame).combine_chunks()
    arrays = [_array(found.column(field.name), field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _array(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    one = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not _holds_map(kind):
        return one.cast(kind)
    make = _with_maps(kind, _pairs)
    return pa.array([make(value) for value in one.to_pylist()], type=kind)


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_holds_map(kind.field(number).type) for number in range(kind.num_fields))


def _with_maps(kind: pa.DataType, make: Callable[[Any, Convert], Any]) -> Convert:
    """Makes of each map in a value what `make` makes of its entries and of the conversion of what they hold."""
    if pa.types.is_map(kind):
        held = _with_maps(kind.item_type, make)
        return lambda value: None if value is None else make(value, held)
    if pa.types.is_list(kind):
        item = _with_maps(kind.value_type, make)
        return lambda value: None if value is None else [item(each) for each in value]
    if pa.types.is_struct(kind):
        fields = {kind.field(n).name: _with_maps(kind.field(n).type, make) for n in range(kind.num_fields)}
        return lambda value: None if value is None else {name: fields[name](held) for name, held in value.items()}
    return lambda value: value


def _pairs(entries: list[dict[str, Any]], convert: Convert) -> list[tuple[Any, Any]]:
    """The pairs of which Arrow makes a map, from a list of structs of key and value."""
    return [(entry["key"], convert(entry["value"])) for entry in entries]


def _dict(entries: list[tuple[Any, Any]], convert: Convert) -> dict[Any, Any]:
    """A map from the pairs that Arrow gives for it."""
    return {key: convert(value) for key, value in entries}


def records_of(table: pa.Table, column: str = "") -> Column:
    """Rows that Spark writes as records: dicts of their columns, or the values of one `column`.

    Raises:
        BadInput: there is no such column, there is none at all, or two have one name.
    """
    if len(set(table.column_names)) != max(1, table.num_columns):
        raise BadInput(
            f"The columns to append are {table.column_names}: give each a name of its own, and at least one."
        )
    if column and column not in table.column_names:
        raise BadInput(
            f"There is no column {column!r} to take records from; there are {', '.join(table.column_names)}."
        )
    fields = tuple(_field(table.column(name), name) for name in table.column_names)
    if column:
        found: Column = fields[table.column_names.index(column)]
        return found
    return RecordColumn("dict", tuple(table.column_names), fields)


def _field(column: pa.ChunkedArray, name: str) -> Column:
    if _holds_map(column.type):
        make = _with_maps(column.type, _dict)
        return columns.from_values([make(value) for value in column.to_pylist()])
    rows = columns.from_frame(pl.DataFrame({name: pl.Series(name, pl.from_arrow(column))}))
    return rows.fields[0]
