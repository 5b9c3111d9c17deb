"""Rows as they were written, in the columns of a schema that was widened since.

A stored table says with which columns it was written. The types of keys never change (a key column may only begin to
take None), and a value stays in its row, so only value columns differ:

    int, str, …  ->  object            each value becomes MessagePack
    a structure  ->  object, wider     the same bytes
    a record     ->  more fields       columns of nulls, and bits of None at new places
    a record     ->  one value         object, or more fields than have columns: each record becomes one dict

Operands stay operands: those of a record's fields that became one value are told by `folding.record_combiner_name`.
"""

from __future__ import annotations

import polars as pl

from tidemill.language.schema import FixedKeysSchema, Schema
from tidemill.language.widening import is_value_widening
from tidemill.tables.cells import cells_of
from tidemill.tables.codecs import value_codec
from tidemill.tables.level_merge import CombinerNames, cell_columns, key_columns, record_combiner_name
from tidemill.tables.tables import Table
from tidemill.values.errors import CorruptState, SchemaOutdated


def check_readable(stored: Table, table: Table) -> None:
    """Refuse rows that no accepted update turns into rows of `table`.

    Raises:
        SchemaOutdated: a newer revision of the module wrote them, with a wider schema.
        CorruptState: they are of another PState.
    """
    if stored == table or _is_wider(stored, table):
        return
    text = f"rows of {_text(stored)} are no rows of {_text(table)}"
    if stored.generation > table.generation:
        raise SchemaOutdated(f"A newer revision of the module migrated these values: {text}.")
    if _is_wider(table, stored):
        raise SchemaOutdated(f"A newer revision of the module widened this schema: {text}.")
    raise CorruptState(f"Table {table.id}: {text}", table=table.id)


def _is_wider(stored: Table, table: Table) -> bool:
    if stored.generation != table.generation:
        return False
    if stored.keys != table.keys or (stored.columns == ()) != (table.columns == ()):
        return False
    if not set(stored.nullable) <= set(table.nullable):
        return False
    old, new = _schema(stored), _schema(table)
    return old == new or (old is not None and new is not None and is_value_widening(old, new))


def _schema(table: Table) -> Schema | None:
    return FixedKeysSchema(table.fields) if table.fields is not None else table.value


def _text(table: Table) -> str:
    return str(table.to_json())


def widened_combiner_names(stored: Table, table: Table, combiner_names: CombinerNames) -> CombinerNames:
    """The combiners of the operands, a value column of `table` each."""
    if stored.fields is None or stored == table:
        return combiner_names
    by_field = dict(zip((name for name, _ in stored.fields), combiner_names, strict=True))
    if table.fields is not None:
        return tuple(by_field.get(name) for name, _ in table.fields)
    return (record_combiner_name([(name, combiner_name) for name, combiner_name in by_field.items() if combiner_name]),)


def widened(stored: Table, table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the columns of `stored` as rows with those of `table`."""
    if stored.columns == table.columns:
        return rows
    keys = rows.select(*key_columns(table), "kind")
    if table.fields is None:
        return keys.with_columns(**cell_columns(table, rows["kind"].to_list(), cells_of(stored, rows)))
    wide = keys.with_columns(**_fields(stored, table, rows))
    return wide.with_columns(_moved_bits(rows["none"], stored, table)) if "none" in rows.columns else wide


def _fields(stored: Table, table: Table, rows: pl.DataFrame) -> dict[str, pl.Series]:
    before = dict(stored.fields or ())
    columns = {}
    for name, schema in table.fields or ():
        column, codec = f"value.{name}", value_codec(schema)
        if name not in before:
            columns[column] = pl.Series([None], dtype=codec.dtype).new_from_index(0, rows.height)
            continue
        old = value_codec(before[name])
        is_same = old.leaf == codec.leaf
        columns[column] = rows[column] if is_same else codec.series(old.values(rows[column]))
    return columns


def _moved_bits(bits: pl.Series, stored: Table, table: Table) -> pl.Series:
    """The column `none`, whose bit i is about the i-th field."""
    places = {name: i for i, (name, _) in enumerate(table.fields or ())}
    moves = [(i, places[name]) for i, (name, _) in enumerate(stored.fields or ())]

    def moved(old: int) -> int:
        return old if old == -1 else sum(1 << to for at, to in moves if old >> at & 1)

    values = [None if old is None else moved(old) for old in bits.to_list()]
    return pl.Series("none", values, dtype=pl.Int64)
