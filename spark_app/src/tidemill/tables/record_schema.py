"""Whether records fit the schema of their depot: asked of whatever is appended, one record or columns of them."""

from __future__ import annotations

from typing import Any, Protocol

import polars as pl

from tidemill.language import schema as schemas
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema
from tidemill.tables.codecs import Misfit, checker
from tidemill.values import columns
from tidemill.values.columns import DATETIME, PLAIN_TYPES, Column, RecordColumn
from tidemill.values.errors import RecordRefused
from tidemill.values.texts import shortened

_DTYPES: dict[str, tuple[Any, ...]] = {
    **{kind.__name__: (dtype,) for kind, dtype in PLAIN_TYPES.items()},
    "float": (pl.Float64, pl.Int64),
    "datetime": (DATETIME,),
}


class DepotSchema(Protocol):
    """A depot as far as it says what its records must be; None: any data."""

    @property
    def name(self) -> str:
        """Its name, for people."""

    @property
    def schema(self) -> Schema | None:
        """What each record must fit."""


def check_column(depot: DepotSchema, records: Column, first: int = 0) -> None:
    """Refuse records that do not fit; `first` is the number of the first one in what the caller appends.

    Columns that fit by their types are not looked into.

    Raises:
        RecordRefused: says which record, and the place in it; the context holds its `index`.
    """
    if depot.schema is None or _fits(depot.schema, records, is_record=True):
        return
    for index, record in enumerate(columns.to_values(records), first):
        check_record(depot, record, index)


def check_record(depot: DepotSchema, record: Any, index: int | None = None) -> None:
    """Refuse a record that does not fit. Raises: as `check_column`."""
    if depot.schema is None:
        return
    try:
        if record is None and depot.schema != Leaf("object"):
            raise Misfit(record, schemas.to_text(depot.schema))
        checker(depot.schema)(record)
    except Misfit as misfit:
        raise _refused(depot, misfit, index) from None


def _refused(depot: DepotSchema, misfit: Misfit, index: int | None) -> RecordRefused:
    place = "".join(f"[{key!r}]" for key in misfit.path)
    shown = shortened(repr(misfit.value))
    head = "The record" if index is None else f"Record {index}: the record"
    what = f"{place} is {shown} ({type(misfit.value).__name__}), expected {misfit.expected}"
    text = f"{head}{what}. That is the schema of {depot.name}."
    return RecordRefused(text, depot=depot.name, **({} if index is None else {"index": index}))


def _fits(schema: Schema, column: Column, *, is_record: bool = False) -> bool:
    """Whether the column's type alone says that all its values fit; False where the values have to be asked."""
    if schema == Leaf("object"):
        return True
    if isinstance(column, list):
        return False
    if isinstance(column, pl.Series):
        is_whole = not is_record or column.null_count() == 0
        return is_whole and isinstance(schema, Leaf) and column.dtype in _DTYPES.get(schema.type, ())
    if isinstance(schema, Leaf):
        return schema.type == column.kind
    if column.kind == "list":
        return isinstance(schema, ListSchema) and all(_fits(schema.element, field) for field in column.fields)
    if isinstance(schema, MapSchema):
        return schema.key == "str" and all(_fits(schema.value, field) for field in column.fields)
    return isinstance(schema, FixedKeysSchema) and _fields_fit(schema, column)


def _fields_fit(schema: FixedKeysSchema, column: RecordColumn) -> bool:
    fields = dict(schema.fields)
    pairs = zip(column.names, column.fields, strict=True)
    return all(name in fields and _fits(fields[name], field) for name, field in pairs)
