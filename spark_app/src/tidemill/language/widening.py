"""Which changes of a PState's schema an update may make: all that was stored must fit it, each value in its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema, has_indexed

_OBJECT: Final = Leaf("object")
_WHOLE: Final[Mapping[str, Schema]] = {
    "dict": MapSchema("object", _OBJECT, nullable=True),
    "list": ListSchema(_OBJECT),
    "set": SetSchema("object", nullable=True),
}
"""Structures that hold whatever a value of a plain type may hold."""

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "dict": (MapSchema, FixedKeysSchema), "list": (ListSchema,), "set": (SetSchema,),
}  # fmt: skip
"""Structures whose every value is one of a plain type."""


def is_widening(old: Schema, new: Schema) -> bool:
    """Whether a PState of the schema `old` may go on with `new`: equal, values made `object`, structures made `dict`,
    `list` or `set` or the other way round where that holds as much, fields added, or keys made nullable.

    Keys may not change otherwise, because they place rows; nor what is indexed, because that decides what a row is.
    So a top-level map stays a map, and nothing inside a value that is stored whole becomes subindexed.
    """
    if isinstance(old, MapSchema):
        return isinstance(new, MapSchema) and _has_same_rows(old, new) and _element(old.value, new.value)
    if isinstance(old, FixedKeysSchema):
        fields = dict(new.fields) if isinstance(new, FixedKeysSchema) else {}
        return all(name in fields and _element(field, fields[name]) for name, field in old.fields)
    return not isinstance(new, (MapSchema, FixedKeysSchema)) and _element(old, new)  # those would be rows


def _element(old: Schema, new: Schema) -> bool:
    """What an indexed element holds: a row, or rows of its own."""
    if isinstance(old, FixedKeysSchema) and isinstance(new, FixedKeysSchema):
        return _record(old, new)
    if not has_indexed(old):
        return is_value_widening(old, new)
    if isinstance(old, MapSchema) and isinstance(new, MapSchema):
        return _has_same_rows(old, new) and _element(old.value, new.value)
    if isinstance(old, ListSchema) and isinstance(new, ListSchema):
        return replace(old, element=new.element) == new and _element(old.element, new.element)
    if isinstance(old, SetSchema) and isinstance(new, SetSchema):
        return replace(old, nullable=new.nullable) == new and _keeps_nulls(old, new)
    return old == new


def _has_same_rows(old: MapSchema, new: MapSchema) -> bool:
    """Whether every key of `old` is one of `new`, and places its row alike."""
    return replace(old, value=new.value, nullable=new.nullable) == new and _keeps_nulls(old, new)


def _keeps_nulls(old: MapSchema | SetSchema, new: MapSchema | SetSchema) -> bool:
    return new.nullable or not old.nullable


def _record(old: FixedKeysSchema, new: FixedKeysSchema) -> bool:
    """The plain fields of a record stand in its row; those with something indexed have rows of their own."""
    fields = dict(new.fields)
    return all(
        name in fields and (_element if has_indexed(field) else is_value_widening)(field, fields[name])
        for name, field in old.fields
    )


def is_value_widening(old: Schema, new: Schema) -> bool:
    """Whether every value of `old`, stored whole, is one of `new`, stored whole."""
    if has_indexed(new):
        return False
    if old == new or new == Leaf("object"):
        return True
    if isinstance(new, Leaf):
        return isinstance(old, _KINDS.get(new.type, ()))
    if isinstance(old, Leaf):
        return new == _WHOLE.get(old.type)
    if isinstance(old, MapSchema) and isinstance(new, MapSchema):
        return old.key == new.key and _keeps_nulls(old, new) and is_value_widening(old.value, new.value)
    if isinstance(old, SetSchema) and isinstance(new, SetSchema):
        return old.element == new.element and _keeps_nulls(old, new)
    if isinstance(old, ListSchema) and isinstance(new, ListSchema):
        return is_value_widening(old.element, new.element)
    if isinstance(old, FixedKeysSchema) and isinstance(new, FixedKeysSchema):
        fields = dict(new.fields)
        return all(name in fields and is_value_widening(field, fields[name]) for name, field in old.fields)
    return False


def _with_nullable_keys(schema: Schema) -> Schema:
    """The schema, were None a key of each of its maps, and an element of each of its sets."""
    if isinstance(schema, MapSchema):
        return replace(schema, nullable=True, value=_with_nullable_keys(schema.value))
    if isinstance(schema, SetSchema):
        return replace(schema, nullable=True)
    if isinstance(schema, ListSchema):
        return replace(schema, element=_with_nullable_keys(schema.element))
    if isinstance(schema, FixedKeysSchema):
        return FixedKeysSchema(tuple((name, _with_nullable_keys(field)) for name, field in schema.fields))
    return schema


def advice(old: Schema, new: Schema) -> str:
    """What to do about a change that is no widening."""
    if is_widening(old, _with_nullable_keys(new)):
        return (
            "None may be among the keys or elements that are stored. Write PState.nullable(object), or whatever type "
            "it is, where the new schema says what they are."
        )
    if is_widening(new, old):
        return (
            "A schema can not be narrowed again: newer values may not fit. Keep the wider schema (code that fits the "
            "narrow one runs with it too), or declare a PState of another name and fill it from the depots."
        )
    if new == Leaf("object") or (isinstance(old, (MapSchema, SetSchema, ListSchema)) and has_indexed(new)):
        return (
            "What is stored as rows stays rows, and what is stored as one value stays one: top-level maps and "
            "records can not become object, nor can something inside a value become subindexed. A whole value can, "
            "right below the top: write PState.migrated(…, id, function).migrate_to_subindexed(). "
            "Else declare a PState of another name and fill it from the depots."
        )
    return (
        "A schema may stay or widen: a value becomes object, fields are added, or keys become nullable. Keys stay "
        "as they are otherwise, and so does what is subindexed, with its size tracked or not."
    )
