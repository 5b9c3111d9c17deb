"""`PState`: the schemas of PStates as a user writes them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tidemill.api.arguments import to_migration_id, to_plain_function
from tidemill.api.locations import caller_location
from tidemill.api.starters import starter
from tidemill.language import schema as model
from tidemill.language.dataflow import Location, Migration
from tidemill.values.data import has_utf8
from tidemill.values.errors import Fault
from tidemill.values.suggestions import Suggesting

_TYPE_NAMES: dict[Any, str] = {kind: name for name, kind in model.LEAF_TYPES.items()}
_ALLOWED = "str, int, float, bool, bytes, datetime, list, dict, set or object"


class SubindexOptions:
    """Options of `.subindexed(…)`."""

    def __init__(self, tracks_size: bool = True) -> None:
        self.tracks_size = tracks_size

    def __repr__(self) -> str:
        return f"SubindexOptions(tracks_size={self.tracks_size})"

    @starter
    def without_size_tracking(self) -> SubindexOptions:
        """Do not keep the size: writes look up no keys, but asking for the size reads the keys of all elements."""
        return SubindexOptions(tracks_size=False)


class Schema:
    """A schema that was built with `PState.map_schema(…)` and so on."""

    def __init__(
        self,
        schema: model.Schema,
        at: Location,
        faults: Iterable[Fault] = (),
        migrations: Iterable[Migration] = (),
    ) -> None:
        self.schema = schema
        self.at = at
        self.faults = tuple(faults)
        self.migrations = tuple(migrations)

    def __repr__(self) -> str:
        return model.to_text(self.schema)

    def subindexed(self, options: SubindexOptions | None = None) -> Schema:
        """Index the elements of this nested structure one by one, so that it may grow without limit."""
        at = caller_location()
        if isinstance(self.schema, (model.MapSchema, model.SetSchema, model.ListSchema)):
            tracks_size = options is None or options.tracks_size
            subindexed = replace(self.schema, subindexed=True, tracks_size=tracks_size)
            return Schema(subindexed, at, self.faults, self.migrations)
        text = f"{self!r} cannot be subindexed."
        fault = Fault(
            str(at), text, "Only maps, sets and lists can; subindex the values of a fixed-keys schema instead."
        )
        return Schema(self.schema, at, (*self.faults, fault), self.migrations)

    def migrated(self, schema: type[Any] | Schema, migration_id: str, function: Callable[[Any], Any]) -> Schema:
        """One more migration of the same values: what was stored with this schema becomes `function(value)`, of
        `schema`.
        """
        return _migrated(schema, migration_id, function, caller_location(), self)

    def add_fixed_keys(self, *keys: str) -> Schema:
        """Behind `migrated(…)`: its function adds these keys to records, so the new schema has them."""
        return self._says_keys("add_fixed_keys", keys, is_added=True)

    def remove_fixed_keys(self, *keys: str) -> Schema:
        """Behind `migrated(…)`: its function takes these keys out of records, so the new schema has none of them."""
        return self._says_keys("remove_fixed_keys", keys, is_added=False)

    def migrate_to_subindexed(self) -> Schema:
        """Behind `migrated(…)`: what its function returns is subindexed, where a whole value was stored before."""
        is_structure = isinstance(self.schema, (model.MapSchema, model.SetSchema, model.ListSchema))
        made = [migration for migration in self.migrations if migration.location == ()]
        if not is_structure or not model.has_indexed(self.schema) or not made:
            text = "migrate_to_subindexed stands behind something else than a migration to a subindexed structure."
            advice = 'Write PState.migrated(PState.map_schema(…).subindexed(), "id", function).migrate_to_subindexed().'
            return self._with_faults([Fault(str(caller_location()), text, advice)])
        subindexing = replace(made[-1], schema=self.schema, is_subindexing=True)
        migrations = (subindexing if each is made[-1] else each for each in self.migrations)
        return Schema(self.schema, self.at, self.faults, migrations)

    def _says_keys(self, method: str, keys: Sequence[Any], *, is_added: bool) -> Schema:
        at, found = caller_location(), []
        if not isinstance(self.schema, model.FixedKeysSchema) or not any(m.location == () for m in self.migrations):
            text = f"{method} stands behind something else than a migration of records."
            advice = f'Write PState.migrated(PState.fixed_keys_schema(…), "id", function).{method}("key").'
            return self._with_faults([Fault(str(at), text, advice)])
        known = dict(self.schema.fields)
        for key in keys:
            if (key in known) is not is_added:
                text = f"{method} names {key!r}, which the new schema {'lacks' if is_added else 'has'}."
                found.append(Fault(str(at), text, f"The new schema has {', '.join(map(repr, known))}."))
        return self._with_faults(found)

    def _with_faults(self, faults: Sequence[Fault]) -> Schema:
        return Schema(self.schema, self.at, (*self.faults, *faults), self.migrations)


class NullableKey:
    """A key type that was made with `PState.nullable(…)`."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"nullable({_shown(self.kind)})"


class PState(metaclass=Suggesting):
    """Schemas of PStates; a plain type (`int`, `str`, `datetime`, `object`, …) is a schema too."""

    @staticmethod
    def map_schema(key: type[Any] | NullableKey, value: type[Any] | Schema) -> Schema:
        """A map; keys are of a plain type, and never None unless it is `PState.nullable(type)`."""
        at = caller_location()
        found: list[Fault] = []
        kind, is_nullable = _key_type(key, "key", at, found)
        values, migrations = to_pstate_schema(value, at, found)
        recorded = model.MapSchema(kind, values, nullable=is_nullable)
        return Schema(recorded, at, found, _below("values", migrations))

    @staticmethod
    def set_schema(element: type[Any] | NullableKey) -> Schema:
        """A set; elements are of a plain type, and never None unless it is `PState.nullable(type)`."""
        at = caller_location()
        found: list[Fault] = []
        kind, is_nullable = _key_type(element, "element", at, found)
        return Schema(model.SetSchema(kind, nullable=is_nullable), at, found)

    @staticmethod
    def nullable(kind: type[Any]) -> NullableKey:
        """The type of keys of a map, or of elements of a set, that may also be None; other values always may."""
        return NullableKey(kind)

    @staticmethod
    def list_schema(element: type[Any] | Schema) -> Schema:
        """A list; `element` is the schema of each element."""
        at = caller_location()
        found: list[Fault] = []
        elements, migrations = to_pstate_schema(element, at, found)
        return Schema(model.ListSchema(elements), at, found, _below("elements", migrations))

    @staticmethod
    def fixed_keys_schema(*fields: str | int | type[Any] | Schema) -> Schema:
        """`fixed_keys_schema("k1", S1, "k2", S2, …)`: a record; each key may be absent."""
        at = caller_location()
        found: list[Fault] = []
        if len(fields) == 1 and isinstance(fields[0], dict):
            text = "fixed_keys_schema takes pairs of a key and a schema, not a dict of them."
            found.append(Fault(str(at), text, 'Write PState.fixed_keys_schema("a", int, "b", str).'))
            fields = tuple(part for pair in fields[0].items() for part in pair)
        names: Sequence[Any] = fields[::2]
        if len(fields) % 2 or (not fields and not found):
            found.append(Fault(str(at), "fixed_keys_schema takes pairs of a key and a schema.", "Add what is missing."))
        found.extend(_key_faults(names, at))
        pairs = zip(names, fields[1::2], strict=False)
        recorded = [(name, *to_pstate_schema(field, at, found)) for name, field in pairs]
        schema = model.FixedKeysSchema(tuple((name, field) for name, field, _ in recorded))
        below = (moved for name, _, migrations in recorded for moved in _below(str(name), migrations))
        return Schema(schema, at, found, below)

    @staticmethod
    def migrated(schema: type[Any] | Schema, migration_id: str, function: Callable[[Any], Any]) -> Schema:
        """The schema of values that were stored with another one: each of them becomes `function(value)`, from the
        update on. Stands for the values of a map, or the elements of something subindexed, in the schema of a PState.
        """
        return _migrated(schema, migration_id, function, caller_location())


def _migrated(schema: Any, migration_id: Any, function: Any, at: Location, before: Schema | None = None) -> Schema:
    found = list(before.faults) if before is not None else []
    recorded, inside = to_pstate_schema(schema, at, found)
    known = to_migration_id(migration_id, 'PState.migrated(str, "as-text", str)', at, found)
    called = to_plain_function(function, 1, at, found)
    made = Migration((), known, recorded, called, at)
    return Schema(recorded, at, found, (*(before.migrations if before is not None else ()), *inside, made))


def _below(name: str, migrations: Iterable[Migration]) -> Iterator[Migration]:
    """Migrations as they stand one level farther out."""
    return (replace(made, location=(name, *made.location)) for made in migrations)


def _key_faults(names: Sequence[Any], at: Location) -> list[Fault]:
    """Fixed keys are texts or whole numbers, and differ also when they are written out (they name tables)."""
    foreign = [name for name in names if isinstance(name, bool) or not isinstance(name, (str, int))]
    text = "The key {!r} of a fixed-keys schema is no text."
    found = [Fault(str(at), text.format(name), "Use a string.") for name in foreign]
    unwritable = [name for name in names if isinstance(name, str) and not has_utf8(name)]
    text = "The key {!r} of a fixed-keys schema has a lone surrogate, which cannot be stored."
    found += [Fault(str(at), text.format(name), "Name it otherwise.") for name in unwritable]
    written = [str(name) for name in names]
    text = "The key '{}' stands twice in a fixed-keys schema."
    twice = sorted({name for name in written if written.count(name) > 1})
    return found + [Fault(str(at), text.format(name), "Remove one.") for name in twice]


def to_schema(value: Any, at: Location, faults: list[Fault]) -> model.Schema:
    """The recorded form of a schema or plain type that is not stored as a PState; what is wrong with it is added to
    `faults`.
    """
    schema, migrations = to_pstate_schema(value, at, faults)
    for made in migrations:
        text = f"The migration '{made.id}' stands in a schema that is none of a stored PState."
        faults.append(Fault(str(made.at), text, "Remove it; a depot has .migration(id, function)."))
    return schema


def to_pstate_schema(value: Any, at: Location, faults: list[Fault]) -> tuple[model.Schema, tuple[Migration, ...]]:
    """The recorded form of a schema or plain type, and the migrations in it; what is wrong is added to `faults`."""
    if isinstance(value, Schema):
        faults.extend(value.faults)
        return value.schema, value.migrations
    if isinstance(value, NullableKey):
        text = f"{value!r} is no schema of a value: values may be None anyway, only keys may not."
        faults.append(Fault(str(at), text, f"Write {_shown(value.kind)}."))
        return model.Leaf("object"), ()
    return model.Leaf(_type_name(value, at, faults)), ()


def _type_name(value: Any, at: Location, faults: list[Fault]) -> str:
    if value is datetime.date or value is tuple or not isinstance(value, type) or value not in _TYPE_NAMES:
        text = f"{_shown(value)} is not a type that a PState can hold."
        faults.append(Fault(str(at), text, f"Use {_ALLOWED}, or a schema of PState."))
        return "object"
    return _TYPE_NAMES[value]


def _key_type(value: Any, what: str, at: Location, faults: list[Fault]) -> tuple[str, bool]:
    """The type of a key, and whether it may be None."""
    if isinstance(value, NullableKey):
        return _plain_key_type(value.kind, what, at, faults), True
    return _plain_key_type(value, what, at, faults), False


def _plain_key_type(value: Any, what: str, at: Location, faults: list[Fault]) -> str:
    if isinstance(value, Schema):
        faults.extend(value.faults)
        text = f"The {what} type of a {'map' if what == 'key' else 'set'} is a plain type, not the schema {value!r}."
        faults.append(Fault(str(at), text, "Use str, int, float, bool, bytes, datetime or object."))
        return "object"
    name = _type_name(value, at, faults)
    if name not in model.KEY_TYPES:
        text = f"{_shown(value)} cannot be the {what} type of a {'map' if what == 'key' else 'set'}."
        faults.append(Fault(str(at), text, "Use str, int, float, bool, bytes, datetime or object."))
        return "object"
    return name


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)
