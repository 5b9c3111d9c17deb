"""Which columns the values of a schema become, and how values stand in them.

`int`, `float`, `bool`, `str`, `bytes` and `datetime` are columns of their own type. A list is a list, a set a sorted
list, a map a list of structs of `key` and `value`, a record a struct. `object`, `list`, `dict` and `set`, which say
nothing of what is in them, are JSON text.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from struct import pack, unpack
from typing import Any, Final

import polars as pl

from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema
from tidemill.tables.codecs import NATIVE
from tidemill.values.columns import Column, RecordColumn, to_values
from tidemill.values.data import to_text
from tidemill.values.json import jsonable

Convert = Callable[[Any], Any]
"""Makes a value what its column takes; None is None already."""


def key_type(kind: str) -> Any:
    """The type of a column of keys: its own, or that of JSON text."""
    return NATIVE.get(kind, pl.String)


def column_type(schema: Schema) -> Any:
    """The Polars type of a column of values."""
    if isinstance(schema, Leaf):
        return key_type(schema.type)
    if isinstance(schema, ListSchema):
        return pl.List(column_type(schema.element))
    if isinstance(schema, SetSchema):
        return pl.List(key_type(schema.element))
    if isinstance(schema, MapSchema):
        return pl.List(pl.Struct({"key": key_type(schema.key), "value": column_type(schema.value)}))
    return pl.Struct({str(name): column_type(field) for name, field in schema.fields})


def shown_names(names: Iterable[str], taken: Collection[str], before: str) -> dict[str, str]:
    """How fields are called as columns -> the fields: by their own names, or, where another column has that name, with
    `before` and a point before it, as often as it takes. SQL and Spark take `Time` for the name of the column `time`.
    """
    fields = list(names)
    others = {name.casefold() for name in taken}
    known, found = {*fields, *taken}, {}
    for field in fields:
        name = field
        while name.casefold() in others or (name != field and name in known):
            name = f"{before}.{name}"
        found[name] = field
    return found


def json_text(value: Any) -> str | None:
    """Any data value as JSON text, by the rules of `values.json.jsonable`; None stays None."""
    return None if value is None else json.dumps(jsonable(value), ensure_ascii=False)


@lru_cache(maxsize=1024)
def converter(schema: Schema) -> Convert:
    """What makes values of a schema what their column takes."""
    if isinstance(schema, Leaf):
        return _key_converter(schema.type)
    if isinstance(schema, ListSchema):
        element = converter(schema.element)
        return _unless_none(lambda value: [element(item) for item in value])
    if isinstance(schema, SetSchema):
        item = _key_converter(schema.element)
        return _unless_none(lambda value: [item(each) for each in _sorted(value)])
    if isinstance(schema, MapSchema):
        key, held = _key_converter(schema.key), converter(schema.value)
        return _unless_none(lambda value: [{"key": key(k), "value": held(v)} for k, v in value.items()])
    return _record_converter(schema)


def _record_converter(schema: FixedKeysSchema) -> Convert:
    fields = [(name, str(name), converter(field)) for name, field in schema.fields]
    return _unless_none(lambda value: {text: convert(value.get(name)) for name, text, convert in fields})


def _key_converter(kind: str) -> Convert:
    return _itself if kind in NATIVE else json_text


def _itself(value: Any) -> Any:
    return value


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _sorted(values: Iterable[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # of several types, or None among them
        return sorted(values, key=to_text)


def series_of_values(name: str, schema: Schema, values: Column) -> pl.Series:
    """A column of values as it is shown; one that has the type already is taken as it is."""
    dtype = column_type(schema)
    if isinstance(values, pl.Series) and values.dtype == dtype:
        return values.alias(name)
    convert = converter(schema)
    return pl.Series(name, [convert(value) for value in to_values(values)], dtype=dtype, strict=True)


def series_of_keys(name: str, kind: str, keys: Column) -> pl.Series:
    """A column of keys as it is shown."""
    return series_of_values(name, Leaf(kind), keys)


def check_fit(dtype: Any, values: Iterable[Any]) -> None:
    """Raises TypeError at the first value that Polars would make another one of: it takes numbers for times, makes
    texts of what is in structs, and nothing of all that has no type; it rounds whole numbers that no float is, makes
    infinite ones of numbers beyond 32 bits, and cuts microseconds off. Digits of a fraction are no other value.
    """
    for value in values:
        if value is not None and not _fits(dtype, value):
            raise TypeError(f"found {value!r:.100}")
        if isinstance(dtype, (pl.List, pl.Array)) and value is not None:
            check_fit(dtype.inner, value)
        elif isinstance(dtype, pl.Struct) and value is not None:
            for field in dtype.fields:
                check_fit(field.dtype, [value.get(field.name)])


def _fits(dtype: Any, value: Any) -> bool:
    if dtype == pl.Null:
        return False
    if isinstance(value, (list, tuple)):
        return isinstance(dtype, (pl.List, pl.Array))
    if isinstance(value, dict):
        return isinstance(dtype, pl.Struct)
    if isinstance(value, bool):
        return bool(dtype == pl.Boolean)
    if isinstance(value, (int, float)):
        return bool(dtype.is_numeric()) and (not dtype.is_float() or _is_kept(dtype, value))
    if isinstance(value, datetime.datetime):
        is_time = bool(dtype.is_temporal()) and dtype not in (pl.Date, pl.Time)
        return is_time and (getattr(dtype, "time_unit", "") != "ms" or value.microsecond % 1000 == 0)
    return not isinstance(dtype, (pl.List, pl.Array, pl.Struct))


_FORMS: Final = {pl.Float16: "<e", pl.Float32: "<f"}


def _is_kept(dtype: Any, value: float) -> bool:
    """Whether a column of floats has a number as it is, but for the digits of a fraction."""
    try:
        form = _FORMS.get(dtype, "<d")
        [held] = unpack(form, pack(form, value))
    except OverflowError:
        return False
    return isinstance(value, float) or int(held) == value


def field_of(records: Column, name: Any) -> Column:
    """One field of a column of records that are dicts; None where a record is none, or has no such field."""
    if isinstance(records, RecordColumn) and records.kind == "dict":
        found = records.field(name)
        return [None] * len(to_values(records.fields[0])) if found is None else found
    return [record.get(name) if isinstance(record, dict) else None for record in to_values(records)]
