"""From a schema to tables of sorted rows: where each indexed element of a PState is stored.

A *place* says what is at one point of a schema: a value (one row of a table), a map, set or list whose elements are
rows, or a record whose fields are places of their own. A map whose elements hold something indexed is indexed
itself, and all of its levels down to the next record share one table, with one key column a level.

    map(str, int)                                  table "0"            (str) -> int
    map(str, map(str, int).subindexed())           table "0"            (str, str) -> int
    map(str, fixed_keys(name: str, likes: set(str).subindexed()))
                                                   table "0"            (str) -> record of name
                                                   table "0.likes"      (str, str) -> nothing
    fixed_keys(total: int, names: map(str, int))   tables "0.total"     () -> int, "0.names" () -> map
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Union
from urllib.parse import quote

from tidemill.language.dataflow import MigrationStep
from tidemill.language.migrations import Location, is_element, not_subindexed, schema_at, with_schema_at
from tidemill.language.schema import (
    FixedKeysSchema,
    Leaf,
    ListSchema,
    MapSchema,
    Schema,
    SetSchema,
    from_json,
    has_indexed,
    to_json,
)

SIZES = "#size"
"""Stands in the id of a size table, and in no other."""


def is_size_table(table_id: str) -> bool:
    """Whether the rows of a table count those of others."""
    return SIZES in table_id


RECORD_FIELDS_MAX = 62
"""Records of more plain fields are stored as one value; a bit a field must fit into an Int64."""


@dataclass(frozen=True)
class Table:
    """Rows of one kind: key column types, which of these columns may hold None, and what a row holds.

    `value` is the schema of the single value column; `fields` those of a record, one column a field; a set has neither.
    `generation` counts the migrations that its values went through; `step` is the newest, from the table `before` it.
    Where that one subindexed values, each row before is a `structure`: its elements are rows here, or their number is
    one in a size table.
    """

    id: str
    keys: tuple[str, ...]
    value: Schema | None = None
    fields: tuple[tuple[str, Schema], ...] | None = None
    nullable: tuple[int, ...] = ()
    generation: int = 0
    step: MigrationStep | None = field(default=None, compare=False, repr=False)
    before: Table | None = field(default=None, compare=False, repr=False)
    structure: Schema | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> tuple[tuple[str, Schema], ...]:
        """Names and schemas of the value columns."""
        if self.fields is not None:
            return tuple((f"value.{name}", schema) for name, schema in self.fields)
        return () if self.value is None else (("value", self.value),)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns: k0, k1, …"""
        return tuple(f"k{i}" for i in range(len(self.keys)))

    def to_json(self) -> dict[str, Any]:
        """What a container says of its rows."""
        keys: dict[str, Any] = {"keys": list(self.keys)} | ({"nullable": list(self.nullable)} if self.nullable else {})
        keys |= {"generation": self.generation} if self.generation else {}
        if self.fields is not None:
            return {**keys, "fields": [[name, to_json(schema)] for name, schema in self.fields]}
        return {**keys, **({} if self.value is None else {"value": to_json(self.value)})}

    def of_generation(self, generation: int) -> Table:
        """The table as it was after so many migrations; itself if it had no more."""
        found = self
        while found.generation > generation and found.before is not None:
            found = found.before
        return found

    @property
    def is_unpacked(self) -> bool:
        """Whether the newest migration made several rows of each, which have one key more."""
        return self.structure is not None and not is_size_table(self.id)

    def null_key(self, keys: Sequence[Any]) -> int | None:
        """The position of the first key that is None though its column takes no None; `keys` may be a prefix."""
        if None not in keys:
            return None
        return next((i for i, key in enumerate(keys) if key is None and i not in self.nullable), None)


def table_from_json(table_id: str, data: Mapping[str, Any]) -> Table:
    """The inverse of `Table.to_json`."""
    fields, value = data.get("fields"), data.get("value")
    return Table(
        table_id,
        tuple(data["keys"]),
        None if value is None else from_json(value),
        None if fields is None else tuple((name, from_json(schema)) for name, schema in fields),
        tuple(data.get("nullable", ())),
        data.get("generation", 0),
    )


def row_key(key: tuple[str, str]) -> str:
    """How `Part.rows` and its like name a table: by the ids of its PState and itself."""
    return f"{key[0]}/{key[1]}"


@dataclass(frozen=True)
class ValuePlace:
    """One row of `table`, or one row an element of the structure around it."""

    table: Table


@dataclass(frozen=True)
class MapPlace:
    """A map with keys of type `key`. `sizes` is its size table, if its size is tracked."""

    key: str
    element: Place
    sizes: Table | None = None


@dataclass(frozen=True)
class SetPlace:
    """A set: each element is the last key of a row. `sizes` as in `MapPlace`."""

    table: Table
    sizes: Table | None = None


@dataclass(frozen=True)
class ListPlace:
    """A list: each index is a key. `sizes` as in `MapPlace`."""

    element: Place
    sizes: Table | None = None


@dataclass(frozen=True)
class RecordPlace:
    """`own` holds the plain fields in one row; the others are places. A top-level record has no own row."""

    own: Table | None
    fields: tuple[tuple[str, Place], ...]

    def field(self, name: object) -> Place | None:
        """The place of a field; None for one in the record's own row, and for a name that it does not have."""
        return next((place for key, place in self.fields if key == name), None)

    def named(self, name: str) -> Place | None:
        """The place of a field by its name as text."""
        return next((place for key, place in self.fields if str(key) == name), None)


Place = Union[ValuePlace, MapPlace, SetPlace, ListPlace, RecordPlace]


class Counted(NamedTuple):
    """A size table, and the ids of the tables with one key more whose rows say which elements are there: rows of
    elements, and rows of size tables of structures below.
    """

    sizes: Table
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """All tables of one PState, and the place of its root.

    `counted` has each size table behind those that it counts (`tables.sizes`). `sizes` are those that count the rows of
    one table, by its id.
    """

    schema: Schema
    root: Place
    tables: dict[str, Table]
    counted: tuple[Counted, ...]
    sizes: dict[str, Table]

    @property
    def stored(self) -> dict[str, Table]:
        """All tables that parts may hold."""
        return {**self.tables, **{counted.sizes.id: counted.sizes for counted in self.counted}}


def is_size_of(table_id: str, layout: Layout) -> bool:
    """Whether it is the id of a size table of something in a layout, tracked there or not."""
    counted, mark, _ = table_id.partition(SIZES)
    return bool(mark) and any(f"{known}.".startswith(f"{counted}.") for known in layout.tables)


@lru_cache(maxsize=1024)
def layout_of(schema: Schema, steps: tuple[MigrationStep, ...] = ()) -> Layout:
    """The layout of a schema; the same schema always gives the same table ids. `steps` are the migrations of its
    values, oldest first.
    """
    root = _migrated(_root(schema), schema, steps)
    tables = {table.id: table for table in tables_below(root)}
    counted = tuple(_counted_below(root))
    sizes = {marks[0]: table for table, marks in counted if len(marks) == 1 and marks[0] in tables}
    return Layout(schema, root, tables, counted, sizes)


def marks_of(element: Place) -> tuple[str, ...] | None:
    """The tables in which an element that is there has a row, all of them with the keys that lead to it. None if that
    cannot be said: it may hold a structure whose size is not tracked.
    """
    if isinstance(element, ValuePlace):
        return (element.table.id,)
    if isinstance(element, RecordPlace):
        found = [marks_of(field) for _, field in element.fields]
        own = () if element.own is None else (element.own.id,)
        return None if None in found else (*own, *(mark for marks in found for mark in marks or ()))
    return None if element.sizes is None else (element.sizes.id,)


def value_table(schema: Schema, location: Location) -> Table | None:
    """The table whose rows hold the values at a location; None where they are no rows of their own."""
    place: Place | None = _root(schema)
    for name in location:
        if isinstance(place, (MapPlace, ListPlace)):
            place = place.element
        else:
            place = place.named(name) if isinstance(place, RecordPlace) else None
    return place.table if isinstance(place, ValuePlace) else None


def _migrated(root: Place, schema: Schema, steps: Sequence[MigrationStep]) -> Place:
    """What was subindexed was a value before that: migrations of its elements come after those of the whole."""
    for location in sorted(dict.fromkeys(step.location for step in steps), key=len):
        made = [step for step in steps if step.location == location]
        inside = next((step for step in steps if is_element(step.location, location)), None)
        if inside is not None:
            schema = with_schema_at(schema, inside.location, inside.before)
        root = _migrated_at(root, location, made, schema_at(schema, location))
    return root


def _migrated_at(place: Place, location: Location, steps: Sequence[MigrationStep], schema: Schema | None) -> Place:
    """The place with its table at a location after these migrations of it; `schema` is what they made of its values."""
    if not location and isinstance(place, (MapPlace, SetPlace, ListPlace)):
        return place if schema is None else _unpacked_place(place, steps, schema)
    if isinstance(place, (MapPlace, ListPlace)) and location:
        return replace(place, element=_migrated_at(place.element, location[1:], steps, schema))
    if isinstance(place, RecordPlace) and location:
        fields = (
            (name, _migrated_at(field, location[1:], steps, schema) if str(name) == location[0] else field)
            for name, field in place.fields
        )
        return replace(place, fields=tuple(fields))
    if isinstance(place, RecordPlace) and place.own is not None:  # it got indexed fields since
        return replace(place, own=_migrated_table(place.own, steps))
    return ValuePlace(_migrated_table(place.table, steps)) if isinstance(place, ValuePlace) else place


def _migrated_table(newest: Table, steps: Sequence[MigrationStep]) -> Table:
    """The table after these migrations, behind those that it had before."""
    before, step, structure, first = newest.before, newest.step, newest.structure, newest.generation
    for generation, following in enumerate(steps, first):
        table = _value_table(following.before, newest.id, Keys(newest.keys, newest.nullable))
        table = replace(table, generation=generation, step=step, before=before, structure=structure)
        before, step, structure = table, following, None
    return replace(newest, generation=first + len(steps), step=step, before=before, structure=structure)


def _unpacked_place(
    place: MapPlace | SetPlace | ListPlace, steps: Sequence[MigrationStep], structure: Schema
) -> MapPlace | SetPlace | ListPlace:
    """The place of a structure whose elements became rows: the newest of these migrations made them of one value."""
    element = place if isinstance(place, SetPlace) else place.element
    values = element.own if isinstance(element, RecordPlace) else getattr(element, "table", None)
    if values is None:
        return place
    keys = Keys(values.keys[:-1], tuple(at for at in values.nullable if at < len(values.keys) - 1))
    packed = _migrated_table(_value_table(not_subindexed(steps[-1].before), values.id, keys), steps[:-1])

    def unpacked(table: Table) -> Table:
        made = not_subindexed(structure)
        return replace(table, generation=len(steps), step=steps[-1], before=packed, structure=made)

    sizes, rows = None if place.sizes is None else unpacked(place.sizes), unpacked(values)
    if isinstance(place, SetPlace):
        return SetPlace(rows, sizes)
    if isinstance(element, RecordPlace):  # its elements got indexed fields since
        return replace(place, element=replace(element, own=rows), sizes=sizes)
    return replace(place, element=ValuePlace(rows), sizes=sizes)


def _counted_below(place: Place) -> Iterator[Counted]:
    """The structures at or below a place whose size is tracked, inner ones first."""
    if isinstance(place, RecordPlace):
        for _, field in place.fields:
            yield from _counted_below(field)
        return
    if isinstance(place, ValuePlace):
        return
    element = ValuePlace(place.table) if isinstance(place, SetPlace) else place.element
    yield from _counted_below(element)
    marks = marks_of(element)
    if place.sizes is not None and marks is not None:
        yield Counted(place.sizes, marks)


def _root(schema: Schema) -> Place:
    if isinstance(schema, FixedKeysSchema):
        return RecordPlace(None, tuple((key, _place(field, _child("0", key), Keys())) for key, field in schema.fields))
    if isinstance(schema, MapSchema):
        return MapPlace(schema.key, _place(schema.value, "0", _keys_of(schema, Keys())))
    return _place(schema, "0", Keys())


@dataclass(frozen=True)
class Keys:
    """The keys on the way to a place: their types, and the positions of those that may be None."""

    types: tuple[str, ...] = ()
    nullable: tuple[int, ...] = ()

    def with_key(self, kind: str, is_nullable: bool = False) -> Keys:
        """These keys and one more of type `kind` below them."""
        added = (len(self.types),) if is_nullable else ()
        return Keys((*self.types, kind), (*self.nullable, *added))


def _place(schema: Schema, table_id: str, keys: Keys) -> Place:
    if not has_indexed(schema):
        return ValuePlace(_value_table(schema, table_id, keys))
    if isinstance(schema, MapSchema):
        element = _place(schema.value, table_id, _keys_of(schema, keys))
        return MapPlace(schema.key, element, _size_table(schema, table_id, keys, element))
    if isinstance(schema, SetSchema):
        elements = keys.with_key(schema.element, schema.nullable)
        table = Table(table_id, elements.types, nullable=elements.nullable)
        return SetPlace(table, _size_table(schema, table_id, keys, ValuePlace(table)))
    if isinstance(schema, ListSchema):
        element = _place(schema.element, table_id, keys.with_key("int"))
        is_counted = isinstance(element, ValuePlace)  # one of structures ends with the last that is not empty
        sizes = _size_table(schema, table_id, keys, element) if is_counted else None
        return ListPlace(element, sizes)
    assert isinstance(schema, FixedKeysSchema)
    return _record_place(schema, table_id, keys)


def _keys_of(schema: MapSchema, keys: Keys) -> Keys:
    return keys.with_key(schema.key, schema.nullable)


def _size_table(schema: MapSchema | SetSchema | ListSchema, table_id: str, keys: Keys, element: Place) -> Table | None:
    """The size table of a structure; None if its size is not tracked, or that of a structure in it is not.

    Its id does not change when an update gives records in the structure their first indexed field.
    """
    if not schema.tracks_size or marks_of(element) is None:
        return None
    is_innermost = isinstance(element, (ValuePlace, RecordPlace))
    depth = "" if is_innermost else str(len(keys.types))
    return Table(f"{table_id}{SIZES}{depth}", keys.types, Leaf("int"), nullable=keys.nullable)


def _record_place(schema: FixedKeysSchema, table_id: str, keys: Keys) -> RecordPlace:
    plain = FixedKeysSchema(tuple((key, field) for key, field in schema.fields if not has_indexed(field)))
    own = _value_table(plain, table_id, keys) if plain.fields else None
    nested = tuple((k, _place(f, _child(table_id, k), keys)) for k, f in schema.fields if has_indexed(f))
    return RecordPlace(own, nested)


def _value_table(schema: Schema, table_id: str, keys: Keys) -> Table:
    if isinstance(schema, FixedKeysSchema) and len(schema.fields) <= RECORD_FIELDS_MAX:
        return Table(table_id, keys.types, fields=schema.fields, nullable=keys.nullable)
    return Table(table_id, keys.types, value=schema, nullable=keys.nullable)


def value_schema(table: Table) -> Schema:
    """The schema of what a row of a value table holds."""
    if table.fields is not None:
        return FixedKeysSchema(table.fields)
    assert table.value is not None
    return table.value


def _child(table_id: str, field: str) -> str:
    """Table ids are member names in containers: dots part fields, everything unusual is quoted."""
    return f"{table_id}.{quote(str(field), safe='').replace('.', '%2E')}"


def tables_below(place: Place) -> Iterator[Table]:
    """The tables that hold anything at or below this place."""
    if isinstance(place, (ValuePlace, SetPlace)):
        yield place.table
    elif isinstance(place, (MapPlace, ListPlace)):
        yield from tables_below(place.element)
    else:
        if place.own is not None:
            yield place.own
        for _, field in place.fields:
            yield from tables_below(field)
