"""Where in a schema values are migrated: a *location* is the way down to them.

`("values",)` are the values of the top-level map, `("values", "likes", "elements")` the elements of the list in the
field `likes` of each of them; `()` is the value of the whole partition.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidemill.language.schema import FixedKeysSchema, ListSchema, MapSchema, Schema, SetSchema, has_indexed

Location = tuple[str, ...]


def schema_at(schema: Schema, location: Location) -> Schema | None:
    """The schema at a location; None where there is no such."""
    if not location:
        return schema
    inner = _inside(schema, location[0])
    return None if inner is None else schema_at(inner, location[1:])


def is_rows(schema: Schema, location: Location) -> bool:
    """Whether what is at a location is stored as rows of its own, not as one value: nobody can migrate it whole."""
    return has_indexed(schema) or (not location and isinstance(schema, (MapSchema, FixedKeysSchema)))


def is_element(location: Location, around: Location) -> bool:
    """Whether it is that of the elements of what is at another location."""
    return len(location) == len(around) + 1 and location[:-1] == around


def rows_location(location: Location, migrated: Collection[Location]) -> Location:
    """The location whose migrations count for the rows at `location`, of all that were `migrated`: elements that an
    earlier migration subindexed go on counting from it.
    """
    return location[:-1] if location and location[:-1] in migrated else location


def not_subindexed(schema: Schema) -> Schema:
    """The same structure as one value."""
    return replace(schema, subindexed=False) if isinstance(schema, (MapSchema, SetSchema, ListSchema)) else schema


def with_schema_at(schema: Schema, location: Location, new: Schema) -> Schema:
    """The schema with another one at a location; as it is where it has no such location."""
    if not location:
        return new
    if isinstance(schema, MapSchema):
        return replace(schema, value=with_schema_at(schema.value, location[1:], new))
    if isinstance(schema, ListSchema):
        return replace(schema, element=with_schema_at(schema.element, location[1:], new))
    if not isinstance(schema, FixedKeysSchema):
        return schema
    fields = (
        (name, with_schema_at(field, location[1:], new) if str(name) == location[0] else field)
        for name, field in schema.fields
    )
    return FixedKeysSchema(tuple(fields))


def _inside(schema: Schema, name: str) -> Schema | None:
    if isinstance(schema, MapSchema):
        return schema.value if name == "values" else None
    if isinstance(schema, ListSchema):
        return schema.element if name == "elements" else None
    fields = schema.fields if isinstance(schema, FixedKeysSchema) else ()
    return next((field for key, field in fields if str(key) == name), None)


def location_text(location: Location) -> str:
    """A location as a person reads it: `values.likes.elements`."""
    return ".".join(location) or "the value"
