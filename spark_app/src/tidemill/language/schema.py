"""PState schemas as data: what the user declared, and the tables of indexed elements that follow from it.

A schema is a tree. Every element of a top-level map, of a top-level fixed-keys record and of each subindexed
structure is *indexed*: it is one row, found by its keys. Everything below an indexed element that is not
indexed itself is one value, read and written whole.
"""

from __future__ import annotations

import datetime as _datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

LEAF_TYPES: Mapping[str, type] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "datetime": _datetime.datetime,
    "list": list,
    "dict": dict,
    "set": set,
    "object": object,
}
KEY_TYPES = frozenset({"int", "float", "bool", "str", "bytes", "datetime", "object"})


@dataclass(frozen=True)
class Leaf:
    """One value of a Python type; `object` takes any data value."""

    type: str


@dataclass(frozen=True)
class MapSchema:
    """`nullable`: whether None is a key."""

    key: str
    value: Schema
    subindexed: bool = False
    tracks_size: bool = True
    nullable: bool = False


@dataclass(frozen=True)
class SetSchema:
    """`nullable`: whether None is an element."""

    element: str
    subindexed: bool = False
    tracks_size: bool = True
    nullable: bool = False


@dataclass(frozen=True)
class ListSchema:
    """A list. `subindexed`: each element is a row of its own; `tracks_size`: its size is kept beside them."""

    element: Schema
    subindexed: bool = False
    tracks_size: bool = True


@dataclass(frozen=True)
class FixedKeysSchema:
    """A record: each key has a schema of its own, and each may be absent."""

    fields: tuple[tuple[str, Schema], ...]

    def field(self, name: Any) -> Schema | None:
        """The schema of one key; None if the record has no such key."""
        return next((schema for key, schema in self.fields if key == name), None)


Schema = Union[Leaf, MapSchema, SetSchema, ListSchema, FixedKeysSchema]


def has_indexed(schema: Schema) -> bool:
    """Whether anything inside this schema, itself included, is indexed."""
    if isinstance(schema, (MapSchema, ListSchema)) and schema.subindexed:
        return True
    if isinstance(schema, SetSchema):
        return schema.subindexed
    return any(has_indexed(child) for child in children(schema))


def children(schema: Schema) -> Iterator[Schema]:
    """The schemas directly inside this one."""
    if isinstance(schema, MapSchema):
        yield schema.value
    elif isinstance(schema, ListSchema):
        yield schema.element
    elif isinstance(schema, FixedKeysSchema):
        for _, field in schema.fields:
            yield field


def to_json(schema: Schema) -> Any:
    """The schema as JSON-like data, as the module's definition stores it."""
    if isinstance(schema, Leaf):
        return schema.type
    if isinstance(schema, MapSchema):
        body: dict[str, Any] = {"map": [schema.key, to_json(schema.value)]}
    elif isinstance(schema, SetSchema):
        body = {"set": schema.element}
    elif isinstance(schema, ListSchema):
        body = {"list": to_json(schema.element)}
    else:
        return {"fixed_keys": [[key, to_json(field)] for key, field in schema.fields]}
    if schema.subindexed:
        body["subindexed"] = True
        body["tracks_size"] = schema.tracks_size
    if isinstance(schema, (MapSchema, SetSchema)) and schema.nullable:
        body["nullable"] = True
    return body


def from_json(data: Any) -> Schema:
    """The inverse of `to_json`."""
    if isinstance(data, str):
        return Leaf(data)
    if "fixed_keys" in data:
        return FixedKeysSchema(tuple((key, from_json(field)) for key, field in data["fixed_keys"]))
    flags = (bool(data.get("subindexed", False)), bool(data.get("tracks_size", True)))
    is_nullable = bool(data.get("nullable", False))
    if "map" in data:
        return MapSchema(data["map"][0], from_json(data["map"][1]), *flags, is_nullable)
    if "set" in data:
        return SetSchema(data["set"], *flags, is_nullable)
    return ListSchema(from_json(data["list"]), *flags)


def to_text(schema: Schema) -> str:
    """The schema as a person writes it: `map(str, map(str, int).subindexed())`."""
    if isinstance(schema, Leaf):
        return schema.type
    if isinstance(schema, MapSchema):
        text = f"map({key_text(schema)}, {to_text(schema.value)})"
    elif isinstance(schema, SetSchema):
        text = f"set({key_text(schema)})"
    elif isinstance(schema, ListSchema):
        text = f"list({to_text(schema.element)})"
    else:
        return "fixed_keys(" + ", ".join(f"{key}: {to_text(field)}" for key, field in schema.fields) + ")"
    without = "" if schema.tracks_size else "without size tracking"
    return text + (f".subindexed({without})" if schema.subindexed else "")


def key_text(schema: MapSchema | SetSchema) -> str:
    """The type of the keys or elements, as a person writes it."""
    kind = schema.key if isinstance(schema, MapSchema) else schema.element
    return f"nullable({kind})" if schema.nullable else kind
