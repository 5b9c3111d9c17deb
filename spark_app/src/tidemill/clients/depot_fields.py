"""The keys of a depot that is hashed by fields of its records: `Depot.hash_by("account")`."""

from __future__ import annotations

from typing import Any

from tidemill.definition.definition import StoredDepot
from tidemill.values import columns
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.errors import RecordRefused

_SHOWN_CHARS = 200


def field_keys(depot: StoredDepot, records: Column, first: int) -> Column:
    """What is hashed of each record; `first` is the number of the first one in what the caller appends.

    Raises:
        RecordRefused: a record lacks a field; the context holds its `index`.
    """
    if isinstance(records, RecordColumn) and records.kind == "dict":
        fields = [records.field(name) for name in depot.fields]
        known = [field for field in fields if field is not None]
        if len(known) == len(fields):
            return (
                known[0] if len(known) == 1 else RecordColumn("list", tuple(map(str, range(len(known)))), tuple(known))
            )
    values = columns.to_values(records)
    return columns.from_values([field_key(depot, value, index) for index, value in enumerate(values, first)])


def field_key(depot: StoredDepot, record: Any, index: int | None = None) -> Any:
    """What is hashed of one record: the value of its field, or the list of the values of several.

    Raises:
        RecordRefused: it lacks a field; the context holds its `index`, if it is one of several.
    """
    if not isinstance(record, dict):
        raise _refused(depot, f"is a {type(record).__name__}, not a dict with {_named(depot.fields)}", index)
    missing = [name for name in depot.fields if name not in record]
    if missing:
        there = ", ".join(map(str, record))[:_SHOWN_CHARS] or "no field at all"
        raise _refused(depot, f"has no {_named(missing)}; it has {there}", index)
    return record[depot.fields[0]] if len(depot.fields) == 1 else [record[name] for name in depot.fields]


def _named(fields: Any) -> str:
    names = ", ".join(f"'{name}'" for name in fields)
    return f"field {names}" if len(fields) == 1 else f"fields {names}"


def _refused(depot: StoredDepot, why: str, index: int | None) -> RecordRefused:
    head = "The record" if index is None else f"Record {index}: the record"
    text = f"{head} {why}. {depot.name} is partitioned by {_named(depot.fields)}."
    return RecordRefused(text, depot=depot.name, **({} if index is None else {"index": index}))
