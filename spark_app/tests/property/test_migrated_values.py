"""Random schemas, random data and random migrations: what is read, compacted and written between them is what a plain
Python model comes to, in which each value goes through each migration once.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_operands_model import CASES, N, agg, by_key, plain
from test_operands_model import Store as Columns
from test_pstate_model import CHUNK_ROWS, KEYS, THREADS, USED_TASKS, Store, is_plain_root, read, same
from test_pstate_model import schemas as SCHEMAS
from test_widened_schemas import aggregated, compare, without_empty, write

from tidemill.language.dataflow import Function, MigrationStep
from tidemill.language.migrations import Location, schema_at, with_schema_at
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema, has_indexed
from tidemill.scans.export import export
from tidemill.tables.parts import PartLoader
from tidemill.tables.tables import value_table
from tidemill.values.keys import NAN

SETTINGS = settings(max_examples=80, deadline=None)
INT = Leaf("int")
UNWRITTEN = "nothing was written"


# --- random migrations -----------------------------------------------------------------------------------------------


def boxed(value: Any) -> Any:
    return [value, 1]


def recorded(value: Any) -> Any:
    return {"old": value} if value is not None else {}


def told(value: Any) -> Any:
    return f"<{type(value).__name__}>"


def dropped(value: Any) -> Any:
    return None


MIGRATIONS: list[tuple[Schema, Any]] = [
    (ListSchema(Leaf("object")), boxed),
    (FixedKeysSchema((("new", INT), ("old", Leaf("object")))), recorded),
    (Leaf("str"), told),
    (Leaf("object"), boxed),
    (Leaf("float"), dropped),
]


def counted(value: Any) -> Any:
    """A map of what any value was, by keys that depend on it."""
    return dict.fromkeys(KEYS["int"][: weight(value)], value)


def keyed(value: Any) -> Any:
    """The same by keys of several types."""
    return dict.fromkeys([NAN, (1, "a")][: weight(value)], value)


def named(value: Any) -> Any:
    return {f"k{place}": {"old": value} if place else None for place in range(weight(value))}


def members(value: Any) -> Any:
    return None if value is None else set(KEYS["str"][: weight(value)])


def repeated(value: Any) -> Any:
    return [value] * weight(value)


def weight(value: Any) -> int:
    """0 to 2, the same for the same value."""
    return len(repr(value)) % 3


SUBINDEXED: list[tuple[Schema, Any]] = [
    (MapSchema("int", Leaf("object"), subindexed=True), counted),
    (MapSchema("object", Leaf("object"), subindexed=True, tracks_size=False, nullable=True), keyed),
    (MapSchema("str", FixedKeysSchema((("new", INT), ("old", Leaf("object")))), subindexed=True), named),
    (SetSchema("str", subindexed=True), members),
    (ListSchema(Leaf("object"), subindexed=True), repeated),
]


def locations(schema: Schema, at: Location = ()) -> list[Location]:
    """Where values are rows of their own."""
    found = [at] if not has_indexed(schema) else []
    if isinstance(schema, MapSchema):
        found += locations(schema.value, (*at, "values"))
    elif isinstance(schema, ListSchema):
        found += locations(schema.element, (*at, "elements"))
    elif isinstance(schema, FixedKeysSchema):
        for name, field in schema.fields:
            found += locations(field, (*at, str(name)))
    return found


def legal(schema: Schema) -> list[Location]:
    return [at for at in locations(schema) if value_table(schema, at) is not None]


def migrate(draw: Any, store: Store, models: dict[int, Any]) -> None:
    schema = store.info.schema
    places = legal(schema)
    if not places:
        return
    location = draw(st.sampled_from(places))
    before = schema_at(schema, location)
    fitting = [made for made in MIGRATIONS if value_table(with_schema_at(schema, location, made[0]), location)]
    can_be_subindexed = len(location) == 1
    new, function = draw(st.sampled_from([*fitting, *SUBINDEXED] if can_be_subindexed else fitting))
    called = Function(function.__name__, "function", function)
    step = MigrationStep("$$p", location, f"m{len(store.info.steps)}", before, called)
    store.info = dataclasses.replace(
        store.info, schema=with_schema_at(schema, location, new), steps=(*store.info.steps, step)
    )
    for task, model in models.items():
        models[task] = applied(schema, location, function, model, is_root=True)
        if has_indexed(new):
            models[task] = without_empty(store.info.schema, models[task])


def applied(schema: Schema, location: Location, function: Any, held: Any, *, is_root: bool = False) -> Any:
    """The model after a migration: at the location each value that is there becomes another one."""
    if not location:
        return held if is_root and held == UNWRITTEN else function(held)
    if isinstance(schema, MapSchema):
        return {key: applied(schema.value, location[1:], function, value) for key, value in held.items()}
    if isinstance(schema, ListSchema):
        return [applied(schema.element, location[1:], function, value) for value in held]
    assert isinstance(schema, FixedKeysSchema)
    fields = {str(name): field for name, field in schema.fields}
    return {
        name: applied(fields[str(name)], location[1:], function, value) if str(name) == location[0] else value
        for name, value in (held or {}).items()
    }


def compact(draw: Any, store: Store) -> None:
    """Down to the base, or levels among which none waits for a migration."""
    levels = store.snapshot.levels
    generations = {f"7/{table.id}": table.generation for table in store.info.layout.tables.values() if table.generation}
    waiting = store.snapshot.migrated_from(generations)
    first = 0 if waiting and draw(st.booleans()) else draw(st.integers(waiting, len(levels)))
    last = len(levels) if first == 0 else draw(st.integers(first, len(levels)))
    store.compact(first, last, draw(THREADS), draw(CHUNK_ROWS))
    if first == 0 and levels:
        assert store.snapshot.migrated_from(generations) == 0


@SETTINGS
@given(SCHEMAS, st.data())
def test_values_go_through_each_migration_once_when_schemas_change_at_random(schema: Schema, data: Any) -> None:
    draw = data.draw
    store = Store(schema)
    if is_plain_root(schema):
        store.info = dataclasses.replace(store.info, initial_value=UNWRITTEN)
    models: dict[int, Any] = {task: UNWRITTEN if is_plain_root(schema) else {} for task in USED_TASKS}
    for _ in range(draw(st.integers(2, 5))):
        write(draw, store, models)
        store.commit()
        migrate(draw, store, models)
        compare(store, models)
        if draw(st.booleans()):
            compact(draw, store)
            compare(store, models)
        compare_committed(store, models)
    compare_export(store, models)


def compare_committed(store: Store, models: dict[int, Any]) -> None:
    """What clients read."""
    schema = store.info.schema
    for task, model in models.items():
        if not is_plain_root(schema):
            found = without_empty(schema, read(schema, store.committed_root(task)))
            assert same(without_empty(schema, model), found), (model, found)


def compare_export(store: Store, models: dict[int, Any]) -> None:
    schema, loader = store.info.schema, PartLoader(store.blobs.__getitem__)
    if isinstance(schema, MapSchema) and not has_indexed(schema.value):
        chunks = export("7", store.info.layout, store.snapshot, loader, chunk_rows=3)
        assert sum(rows.height for _, rows in chunks) == sum(map(len, models.values()))


# --- written by columns ----------------------------------------------------------------------------------------------

TREES = [by_key(agg("count")), *(by_key(agg(name, N)) for name in ("sum", "max", "min", "last"))]


def scaled(value: Any) -> Any:
    return None if value is None else value * 3 + 1


@pytest.mark.parametrize("tree", TREES, ids=str)
@SETTINGS
@given(data=st.data())
def test_operands_fold_around_a_migration_as_python_does(tree: Any, data: Any) -> None:
    draw = data.draw
    schema = MapSchema("str", INT)
    store, expected = Columns(schema), {}
    for _ in range(draw(st.integers(2, 4))):
        expected = aggregated(draw, store, tree, schema, expected)
        info = store.info["$$p"]
        if draw(st.booleans()):
            step = MigrationStep("$$p", ("values",), f"m{len(info.steps)}", INT, Function("s", "function", scaled))
            store.info["$$p"] = dataclasses.replace(info, steps=(*info.steps, step))
            expected = {key: scaled(value) for key, value in (expected or {}).items()}
        assert plain(store.state().root("$$p", 0)) == expected
        if draw(st.booleans()) and store.snapshot.levels:
            store.compact(0)
            assert plain(store.state().root("$$p", 0)) == expected


def unchanged(value: Any) -> Any:
    return value


@pytest.mark.parametrize("case", ["list", "set", "multi_set", "map", "nested value"])
@SETTINGS
@given(data=st.data())
def test_aggregates_go_on_when_what_they_are_in_becomes_subindexed(case: str, data: Any) -> None:
    draw = data.draw
    schema, tree = CASES[case]
    assert isinstance(schema, MapSchema)
    values = schema.value
    rows_schema = dataclasses.replace(schema, value=dataclasses.replace(values, subindexed=True))
    store, expected = Columns(schema), {}
    for _ in range(draw(st.integers(2, 5))):
        current = store.info["$$p"].schema
        expected = aggregated(draw, store, tree, current, expected)
        if current is schema and draw(st.booleans()):
            step = MigrationStep("$$p", ("values",), "m", values, Function("u", "function", unchanged))
            store.info["$$p"] = dataclasses.replace(store.info["$$p"], schema=rows_schema, steps=(step,))
        root = store.state().root("$$p", 0)
        assert {key: plain(node) for key, node in root.items()} == expected
        if store.info["$$p"].steps:
            assert {key: node.size() for key, node in root.items()} == {k: len(held) for k, held in expected.items()}
        if draw(st.booleans()) and store.snapshot.levels:
            store.compact(0)
