"""Random schemas and random updates of them: what was stored before an update reads, aggregates and compacts after it
as a plain Python model does.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_operands_model import CASES, NAMES, ROWS, N, agg, by_key, expected_after, plain
from test_operands_model import Store as Columns
from test_operands_model import same as is_close
from test_pstate_model import CHUNK_ROWS, THREADS, USED_TASKS, Store, change, draw_value, is_plain_root, read, same
from test_pstate_model import schemas as SCHEMAS

from tidemill.language.dataflow import Var
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema, has_indexed
from tidemill.language.widening import is_widening
from tidemill.pstate.operands import compile_writer
from tidemill.scans.export import export
from tidemill.tables import verify
from tidemill.tables.parts import PartLoader
from tidemill.tables.tables import RECORD_FIELDS_MAX, Table, layout_of
from tidemill.tables.widened_rows import check_readable
from tidemill.values.columns import from_values
from tidemill.values.errors import CorruptState, SchemaMismatch, SchemaOutdated

OBJECT = Leaf("object")
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- random updates --------------------------------------------------------------------------------------------------


def wider_value(draw: Any, old: Schema) -> Schema:
    """What a value that is stored whole may become."""
    choice = draw(st.integers(0, 3))
    if choice == 0:
        return old
    if choice == 1 or isinstance(old, Leaf):
        return OBJECT
    if choice == 2:
        kinds = {MapSchema: "dict", FixedKeysSchema: "dict", ListSchema: "list", SetSchema: "set"}
        return Leaf(kinds[type(old)])
    if isinstance(old, SetSchema):
        return dataclasses.replace(old, nullable=True)
    if isinstance(old, MapSchema):
        return with_keys(draw, old, wider_value(draw, old.value))
    if isinstance(old, ListSchema):
        return dataclasses.replace(old, element=wider_value(draw, old.element))
    return with_fields(draw, old, wider_value, [Leaf("int"), OBJECT])


def wider_element(draw: Any, old: Schema) -> Schema:
    """What an indexed element may become."""
    if isinstance(old, FixedKeysSchema) and (has_indexed(old) or draw(st.booleans())):
        indexed = [SetSchema("int", True), MapSchema("str", Leaf("int"), True)]
        return with_fields(
            draw,
            old,
            lambda d, field: (wider_element if has_indexed(field) else wider_value)(d, field),
            [Leaf("str"), ListSchema(Leaf("int")), *indexed],
        )
    if not has_indexed(old):
        return wider_value(draw, old)
    if isinstance(old, MapSchema):
        return with_keys(draw, old, wider_element(draw, old.value))
    if isinstance(old, SetSchema):
        return dataclasses.replace(old, nullable=old.nullable or draw(st.booleans()))
    if isinstance(old, ListSchema):
        # An indexed list is as long as its last element that holds something, so records in it get no indexed fields:
        # one that was empty would go.
        element = old.element if has_indexed(old.element) else wider_value(draw, old.element)
        return dataclasses.replace(old, element=element)
    return old


def with_keys(draw: Any, old: MapSchema, value: Schema) -> MapSchema:
    """A map of wider values, and perhaps with None among its keys."""
    return dataclasses.replace(old, value=value, nullable=old.nullable or draw(st.booleans()))


def with_fields(draw: Any, old: FixedKeysSchema, wider: Any, kinds: list[Schema]) -> FixedKeysSchema:
    """Fields before, between and after the old ones, now and then more than a row has columns for."""
    fields = [(name, wider(draw, field)) for name, field in old.fields]
    many = RECORD_FIELDS_MAX if draw(st.integers(0, 29)) == 0 else 0
    for _ in range(draw(st.integers(0, 2)) + many):
        name = f"n{len(fields)}" if draw(st.booleans()) else len(fields)
        new = name, draw(st.sampled_from(kinds)) if not many else Leaf("str")
        fields.insert(draw(st.integers(0, len(fields))) if not many else 0, new)
    return FixedKeysSchema(tuple(fields))


def wider(draw: Any, old: Schema) -> Schema:
    """What the schema of a PState may become."""
    if isinstance(old, MapSchema):
        return with_keys(draw, old, wider_element(draw, old.value))
    if isinstance(old, FixedKeysSchema):
        return with_fields(draw, old, wider_element, [Leaf("str"), MapSchema("int", Leaf("int"), True)])
    return wider_value(draw, old)


@SETTINGS
@given(SCHEMAS, SCHEMAS, st.data())
def test_rows_stay_in_their_tables_when_a_change_is_accepted(old: Schema, other: Schema, data: Any) -> None:
    for new in (wider(data.draw, old), other):
        before, after = layout_of(old).tables, layout_of(new).tables
        if not is_widening(old, new):
            assert new is other
            continue
        for table_id, table in before.items():
            check_readable(table, after[table_id])
            if table != after[table_id] and not goes_back(after[table_id], table):
                with pytest.raises(SchemaOutdated):
                    check_readable(after[table_id], table)


def goes_back(new: Table, old: Table) -> bool:
    """Whether what a table becomes may become again what it was: a list of anything and a plain list are one."""
    if new.fields is not None and old.fields is not None:
        is_wide = is_widening(FixedKeysSchema(new.fields), FixedKeysSchema(old.fields))
    else:
        is_wide = is_widening(MapSchema("str", new.value), MapSchema("str", old.value))
    return is_wide and new.keys == old.keys and new.nullable == old.nullable


def test_rows_of_another_table_are_refused_when_no_update_leads_to_them() -> None:
    def table(schema: Schema) -> Any:
        return layout_of(MapSchema("str", schema)).tables["0"]

    for stored, wanted in [
        (Leaf("int"), Leaf("str")),
        (Leaf("int"), SetSchema("int", True)),
        (Leaf("int"), MapSchema("str", Leaf("int"), True)),
        (FixedKeysSchema((("a", Leaf("int")),)), FixedKeysSchema((("b", Leaf("int")),))),
    ]:
        with pytest.raises(CorruptState):
            check_readable(table(stored), table(wanted))


# --- written by rows -------------------------------------------------------------------------------------------------


@SETTINGS
@given(SCHEMAS, st.data())
def test_old_rows_are_as_they_were_when_the_schema_was_widened(schema: Schema, data: Any) -> None:
    draw = data.draw
    store = Store(schema)
    models: dict[int, Any] = {task: None if is_plain_root(schema) else {} for task in USED_TASKS}
    for _ in range(draw(st.integers(2, 4))):
        write(draw, store, models)
        store.commit()
        widen(draw, store, models)
        compare(store, models)
        if draw(st.booleans()):
            compact(draw, store)
            compare(store, models)
    compare_export(store, models)


def write(draw: Any, store: Store, models: dict[int, Any]) -> None:
    store.begin(draw(THREADS))
    schema = store.info.schema
    for _ in range(draw(st.integers(0, 8))):
        task = draw(st.sampled_from(USED_TASKS))
        if is_plain_root(schema):
            models[task] = draw_value(draw, schema)
            store.root(task).put_value(models[task])
        else:
            change(draw, schema, store.root(task), models[task])
        if draw(st.integers(0, 7)) == 0:
            store.travel(task % store.threads)


@pytest.mark.parametrize("is_tracked", [True, False])
def test_size_is_kept_when_an_update_gave_elements_a_structure_whose_size_is_tracked(is_tracked: bool) -> None:
    plain_record = FixedKeysSchema((("x", Leaf("int")),))
    nested_record = FixedKeysSchema((("s", SetSchema("int", True, is_tracked)), ("x", Leaf("int"))))
    before, after = (MapSchema("str", MapSchema("int", each, True)) for each in (plain_record, nested_record))
    store = Store(before)
    store.begin(1)
    for key in (1, 2):
        store.root(0).get("k").put(key, {"x": 7})
    store.commit()
    assert is_widening(before, after)
    store.info = dataclasses.replace(store.info, schema=after)
    store.check()
    part = next(store.snapshot.parts())
    assert "7/0#size" in part.rows
    foreign = {"7": layout_of(FixedKeysSchema((("y", SetSchema("int", True)),)))}
    assert list(verify.faults_of(part, store.blobs[part.name], foreign, is_base=False)) != []
    store.begin(1)
    store.root(0).get("k").get(2).get("s").add(5)
    store.root(0).get("k").get(3).get("s").add(5)
    store.root(0).get("k").delete(1)
    assert store.root(0).get("k").size() == 2
    store.commit()
    store.compact(0, 2, 1, 100)
    assert store.committed_root(0).get("k").size() == 2
    assert ("7/0#size" in next(store.snapshot.parts()).rows) is is_tracked


def widen(draw: Any, store: Store, models: dict[int, Any]) -> None:
    new = wider(draw, store.info.schema)
    assert is_widening(store.info.schema, new)
    store.info = dataclasses.replace(store.info, schema=new)
    for task, model in models.items():
        models[task] = without_empty(new, model) if has_indexed(new) else model


def compact(draw: Any, store: Store) -> None:
    first = draw(st.integers(0, len(store.snapshot.levels) - 1))
    last = draw(st.integers(first, len(store.snapshot.levels)))
    store.compact(first, last, draw(THREADS), draw(CHUNK_ROWS))


def compare(store: Store, models: dict[int, Any]) -> None:
    store.begin(1)
    schema = store.info.schema
    for task in USED_TASKS:
        root = store.root(task)
        if is_plain_root(schema):
            assert same(models[task], root.get_value())
            continue
        expected, actual = without_empty(schema, models[task]), without_empty(schema, read(schema, root))
        assert same(expected, actual), (expected, actual)


def without_empty(schema: Schema, held: Any) -> Any:
    """An indexed structure without elements is none. A record that was None or {} before it got an indexed field is
    one as well.
    """
    if isinstance(schema, FixedKeysSchema):
        fields = dict(schema.fields)
        kept = {name: _kept(fields[name], value) for name, value in (held or {}).items()}
        return {name: value for name, value in kept.items() if value or not has_indexed(fields[name])}
    if isinstance(schema, MapSchema):
        inner = {key: _kept(schema.value, value) for key, value in held.items()}
        return {key: value for key, value in inner.items() if value or not has_indexed(schema.value)}
    return held


def _kept(schema: Schema, held: Any) -> Any:
    return without_empty(schema, held) if has_indexed(schema) else held


def compare_export(store: Store, models: dict[int, Any]) -> None:
    """What `tidemill export` gives has as many rows as the top map has plain elements."""
    schema, loader = store.info.schema, PartLoader(store.blobs.__getitem__)
    if isinstance(schema, MapSchema) and not has_indexed(schema.value):
        chunks = export("7", store.info.layout, store.snapshot, loader, chunk_rows=3)
        assert sum(rows.height for _, rows in chunks) == sum(map(len, models.values()))


# --- written by columns ----------------------------------------------------------------------------------------------


def wider_case(draw: Any, schema: Schema) -> Schema:
    """A change that the case's aggregators fit as well."""
    if isinstance(schema, MapSchema):
        inner = schema.value
        if has_indexed(inner):
            return dataclasses.replace(schema, value=wider_case(draw, inner) if isinstance(inner, MapSchema) else inner)
        if isinstance(inner, FixedKeysSchema) and draw(st.integers(0, 2)):
            return dataclasses.replace(schema, value=with_fields(draw, inner, wider_value, [Leaf("str"), OBJECT]))
        return dataclasses.replace(schema, value=wider_value(draw, inner))
    if isinstance(schema, FixedKeysSchema):
        return with_fields(draw, schema, wider_value, [Leaf("str"), OBJECT])
    return wider_value(draw, schema)


CONSTANTS = [2, "a", "n", "m", "sum", "max", "min", "last", "all"]


def position(argument: Any) -> int:
    """Each constant has a column of its own: fields of what became `object` are keys like any other."""
    return NAMES.index(argument.name) if isinstance(argument, Var) else len(NAMES) + CONSTANTS.index(argument.value)


def columns_of(rows: list[Any]) -> list[Any]:
    columns = [from_values(list(column)) for column in zip(*rows, strict=True)]
    return [*columns, *(from_values([constant] * len(rows)) for constant in CONSTANTS)]


def aggregated(draw: Any, store: Columns, tree: Any, schema: Schema, expected: Any) -> Any:
    """What some random rows make of what was expected; they are aggregated into the store, and committed."""
    writer = compile_writer(tree, schema, position, merge_on_read=draw(st.booleans()))
    state = store.state()
    rows = draw(ROWS)
    if rows:
        writer.write(state, "$$p", 0, columns_of(rows))
    for row in rows:
        expected = expected_after(tree, expected, row)
    store.commit(state)
    return expected


@pytest.mark.parametrize("case", sorted(CASES))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_old_operands_fold_as_before_when_the_schema_was_widened(case: str, data: Any) -> None:
    draw = data.draw
    schema, tree = CASES[case]
    store, expected = Columns(schema), None if isinstance(schema, Leaf) else {}
    for _ in range(draw(st.integers(2, 4))):
        expected = aggregated(draw, store, tree, schema, expected)
        schema = wider_case(draw, schema)
        store.info["$$p"] = dataclasses.replace(store.info["$$p"], schema=schema)
        assert is_close(expected, plain(store.state().root("$$p", 0)))
        if draw(st.booleans()):
            store.compact(draw(st.integers(0, len(store.snapshot.levels))))
            assert is_close(expected, plain(store.state().root("$$p", 0)))


def test_sum_beyond_64_bits_is_refused_when_an_int_became_object() -> None:
    tree, old, new = by_key(agg("sum", N)), MapSchema("str", Leaf("int")), MapSchema("str", OBJECT)
    store, columns = Columns(old), columns_of([("a", 0, 2**62, 0.0, "p", True)])
    state = store.state()
    compile_writer(tree, old, position, True).write(state, "$$p", 0, columns)
    store.commit(state)
    store.info["$$p"] = dataclasses.replace(store.info["$$p"], schema=new)
    with pytest.raises(SchemaMismatch, match=r"\$\$p\['a'\]"):
        compile_writer(tree, new, position, True).write(store.state(), "$$p", 0, columns)
