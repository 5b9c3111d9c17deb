"""Which schemas a navigator fits, and the schema after it. None is one that is not known: the inside of a plain value,
or what a function of the user returns.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from tidemill.language.dataflow import Const, Nav
from tidemill.language.schema import (
    FixedKeysSchema,
    Leaf,
    ListSchema,
    MapSchema,
    Schema,
    SetSchema,
    has_indexed,
    key_text,
    to_text,
)

_Structure = TypeVar("_Structure", MapSchema, SetSchema, ListSchema)

_WANTED: Final[Mapping[str, tuple[tuple[type, ...], tuple[str, ...]]]] = {
    "map": ((MapSchema, FixedKeysSchema), ("object", "dict")),
    "set": ((SetSchema,), ("object", "set")),
    "list": ((ListSchema,), ("object", "list")),
}
"""A structure that a navigator needs: as a schema, or as the type of a plain value that may hold it."""

_LEAVES: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "bytes": (bytes, bytearray),
    "list": (list, tuple), "dict": (dict,), "set": (set, frozenset),
}  # fmt: skip


@dataclass(frozen=True)
class SchemaFaults:
    """Reports where a path does not fit the schema of a PState; `fault` takes the text and the advice."""

    pstate: str
    schema: Schema
    fault: Callable[[str, str], None]

    def expect(self, nav: Nav, schema: Schema, wanted: str, also: tuple[str, ...] = ()) -> None:
        """The navigator needs a map, a set or a list, or a plain value that may hold one."""
        kinds, leaves = _WANTED[wanted]
        if isinstance(schema, kinds) or (isinstance(schema, Leaf) and schema.type in (*leaves, *also)):
            return
        text = f"{nav.name} meets {kind_of(schema)} in '{self.pstate}', but needs a {wanted}."
        self.fault(text, f"The schema is {to_text(self.schema)}.")

    def check_key(self, key: Any, schema: MapSchema | SetSchema) -> None:
        """A constant that stands for a key of a map, or for an element of a set, can be one."""
        what, kind = ("keys", schema.key) if isinstance(schema, MapSchema) else ("elements", schema.element)
        if not isinstance(key, Const) or (schema.nullable if key.value is None else fits(key.value, Leaf(kind))):
            return
        text = f"The {what} of '{self.pstate}' are {key_text(schema)} here; {key.value!r} is none."
        advice = f"Name one, or declare their type as PState.nullable({kind})."
        self.fault(text, advice if key.value is None else "Use a constant of that type.")

    def field(self, key: Any, schema: FixedKeysSchema) -> Schema | None:
        """The schema at a constant key of a record, which must have it; None where it is known no more."""
        if not isinstance(key, Const):
            return None
        found = schema.field(key.value)
        if found is None:
            names = ", ".join(repr(name) for name, _ in schema.fields)
            self.fault(f"'{self.pstate}' has no key {key.value!r} here.", f"It has {names}.")
        return found

    def check_count(self, nav: Nav, number: Any) -> None:
        """A constant that stands for an index of a list, or for a number of elements, can be one."""
        if isinstance(number, Const) and (type(number.value) is not int or number.value < 0):
            self.fault(f"{nav.name} in '{self.pstate}' needs a whole number from 0 on.", f"{number.value!r} is none.")


SchemaRule = Callable[[SchemaFaults, Nav, Schema], "Schema | None"]
"""Checks a navigator against the schema that it meets, and gives the schema after it."""


def stays(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    """The rule of navigators that go on with what they meet."""
    return schema


def unknown(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    """The rule of navigators to a value that no schema describes."""
    return None


def a_list(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema:
    """The rule of navigators to a list that they make."""
    return Leaf("list")


def part_of_list(faults: SchemaFaults, nav: Nav, schema: Schema) -> ListSchema | None:
    """The rule of navigators to a part of a list, all of whose constants are indexes or counts."""
    faults.expect(nav, schema, "list")
    for number in nav.args:
        faults.check_count(nav, number)
    return plain_part(schema) if isinstance(schema, ListSchema) else None


def plain_part(schema: _Structure) -> _Structure:
    """The schema of a part of a structure, which is taken out of it as a plain value."""
    return replace(schema, subindexed=False)


def taken_whole(faults: SchemaFaults, nav: Nav, schema: Schema) -> Schema | None:
    """The rule of navigators that are given what they meet as a plain value."""
    is_top = schema is faults.schema and isinstance(schema, (MapSchema, FixedKeysSchema))
    if is_top or has_indexed(schema):
        text = f"{nav.name} takes a structure whole, but elements of '{faults.pstate}' are stored one by one here."
        faults.fault(text, "Navigate to an element before it (key, all, map_vals), or to a part (sublist, a range).")
    return None


def fits(value: Any, schema: Schema | None) -> bool:
    """Whether a constant may stand where this schema is; None fits everywhere."""
    if value is None or schema is None:
        return True
    if isinstance(schema, Leaf):
        return _fits_leaf(value, schema.type)
    if isinstance(schema, (MapSchema, FixedKeysSchema)):
        return isinstance(value, dict)
    return isinstance(value, (set, frozenset) if isinstance(schema, SetSchema) else (list, tuple))


def _fits_leaf(value: Any, kind: str) -> bool:
    if kind == "object":
        return True
    if kind == "datetime":
        return isinstance(value, datetime.datetime) and value.utcoffset() is not None
    return isinstance(value, _LEAVES[kind]) and (kind == "bool" or not isinstance(value, bool))


def kind_of(schema: Schema) -> str:
    """`a map`, `an int`: what a schema is, for a sentence."""
    if isinstance(schema, Leaf):
        return f"{'an' if schema.type[0] in 'aeiou' else 'a'} {schema.type}"
    names = {MapSchema: "a map", SetSchema: "a set", ListSchema: "a list", FixedKeysSchema: "a fixed-keys record"}
    return names[type(schema)]
