"""Depots with a schema: records that do not fit are refused wherever they are appended, with their place."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest
from faulty import faults_of
from gateways import WAYS, launched
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tidemill import DefinitionError, Depot, LaunchConfig, Module, PState, RecordRefused
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.definition import definition as definitions
from tidemill.definition.stored import StoredDepot
from tidemill.definition.stored_json import JSON
from tidemill.journal.definition_log import DefinitionLog
from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema
from tidemill.store.urls import open_store
from tidemill.tables.record_schema import check_column, check_record
from tidemill.values.columns import from_values
from tidemill.values.ids import Ids

PAYMENT = PState.fixed_keys_schema("user", str, "amount", float, "tags", PState.list_schema(str))


class Payments(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by("user")).schema(PAYMENT)
        setup.declare_depot("*texts", Depot.random()).schema(str)


GOOD = {"user": "ann", "amount": 1, "tags": ["a", None]}
BAD: list[tuple[Any, str]] = [
    ({**GOOD, "amount": "1"}, "the record['amount'] is '1' (str), expected float."),
    ({**GOOD, "tags": ["a", 5]}, "the record['tags'][1] is 5 (int), expected str."),
    ({**GOOD, "id": 1}, "which has no key 'id'"),
    (["ann", 1], "the record is ['ann', 1] (list), expected fixed_keys(user: str, amount: float, tags: list(str))."),
    (None, "the record is None (NoneType), expected fixed_keys("),
]


@pytest.mark.parametrize("way", WAYS)
def test_record_is_refused_with_its_index_and_place_when_it_does_not_fit(way: str) -> None:
    with launched(way, Payments(), LaunchConfig(4, 2)) as cluster:
        handle = cluster.cluster_depot("Payments", "*d")
        for bad, text in BAD:
            with pytest.raises(RecordRefused) as alone:
                handle.append(bad)
            with pytest.raises(RecordRefused) as many:
                handle.append_many([GOOD, GOOD, bad])
            assert text in str(many.value)
            assert "Record 2: " in str(many.value)
            assert text.removeprefix("the record") in str(alone.value)
            assert "That is the schema of *d." in str(alone.value)
        with pytest.raises(RecordRefused, match=r"Record 0: the record\['amount'\] is 'x'"):
            handle.append_many(pl.DataFrame({"user": ["a", "b"], "amount": ["x", "y"]}))
        with pytest.raises(RecordRefused, match="Record 1: the record is None"):
            cluster.cluster_depot("Payments", "*texts").append_many(["a", None])
        handle.append_many([GOOD])
        handle.append_many(pl.DataFrame({"user": ["ann"], "amount": [2]}))
        handle.append({"user": "ann"})
        assert sum(handle.get_partition_info(p).end_offset for p in range(4)) == 3


def test_command_line_names_the_line_when_a_record_does_not_fit(tmp_path: Folder) -> None:
    definition = definitions.launch(record_module(Payments()), 2, 1, Ids(1))
    DefinitionLog(open_store(tmp_path.as_uri()), "Payments").append(definition, 1)
    (tmp_path / "in.jsonl").write_text('{"user": "ann", "amount": 1}\n\n{"user": "bob", "amount": []}\n')
    words = ["append", "Payments", "*d", f"{tmp_path}/in.jsonl", "--store", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "Line 3: the record['amount'] is [] (list), expected float." in str(done.exception) + done.output


def test_schema_is_in_the_definition_when_it_is_stored() -> None:
    stored = definitions.launch(record_module(Payments()), 4, 2, Ids(1))
    again = JSON.decode(JSON.encode(stored, "key"), "key")
    assert again == stored
    assert again.depot("*texts").schema == Leaf("str")
    assert not again.is_equal_to(replace(again, depots={"*d": again.depot("*d")}))


WIDE = FixedKeysSchema((("a", Leaf("int")), ("b", Leaf("object"))))


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        (WIDE, WIDE, True),
        (WIDE, Leaf("object"), True),
        (WIDE, None, True),
        (FixedKeysSchema((("a", Leaf("int")),)), WIDE, True),
        (WIDE, FixedKeysSchema((("a", Leaf("int")),)), False),
        (Leaf("int"), Leaf("str"), False),
        (None, WIDE, False),
    ],
)
def test_update_widens_the_schema_of_a_depot_and_nothing_else(
    before: Schema | None, after: Schema | None, is_allowed: bool
) -> None:
    declared = record_module(Payments())
    first, last = (
        replace(declared, depots=(replace(declared.depots[1], schema=schema),)) for schema in (before, after)
    )
    old = definitions.launch(first, 4, 2, Ids(1))
    if is_allowed:
        assert definitions.update(old, last, [], Ids(2)).depot("*texts").schema == after
        return
    with pytest.raises(DefinitionError, match=r"\*texts: changes the schema of its records from"):
        definitions.update(old, last, [], Ids(2))


def test_definition_is_refused_when_a_schema_cannot_be_that_of_a_record() -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*a", Depot.hash_by("user")).schema(PState.fixed_keys_schema("usr", str))
        setup.declare_depot("*b", Depot.random()).schema(PState.map_schema(str, PState.set_schema(int).subindexed()))
        setup.declare_depot("*c", Depot.random()).schema(5)

    texts = [fault.text for fault in faults_of(define)]
    assert texts == [
        "'*a' is partitioned by the field 'user', which its schema lacks.",
        "The schema of the depot '*b' has something subindexed.",
        "5 is not a type that a PState can hold.",
    ]


leaves = st.sampled_from(["int", "float", "bool", "str", "bytes", "datetime", "list", "dict", "object"]).map(Leaf)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(ListSchema),
        inner.map(lambda value: MapSchema("str", value)),
        st.just(SetSchema("int")),
        st.lists(inner, min_size=1, max_size=3).map(lambda found: FixedKeysSchema(tuple(zip("abc", found)))),  # noqa: B905 - as many as there are
    ),
    max_leaves=4,
)
plain = st.one_of(
    st.none(), st.integers(-3, 3), st.floats(0, 1), st.booleans(), st.sampled_from(["x", "y"]), st.just(b"z"),
    st.just(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
)  # fmt: skip
values = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner)),
    max_leaves=4,
)


@given(schema=schemas, shape=values, others=st.lists(values, max_size=3), times=st.integers(1, 3))
def test_columns_are_refused_exactly_when_one_of_their_records_is(
    schema: Schema, shape: Any, others: list[Any], times: int
) -> None:
    depot = StoredDepot("*d", "1", "random", schema=schema)
    records = [shape] * times + others
    bad = [index for index, record in enumerate(records) if _is_refused(depot, record)]
    try:
        check_column(depot, from_values(records))
    except RecordRefused as error:
        assert error.context["index"] == bad[0]
    else:
        assert not bad


def _is_refused(depot: StoredDepot, record: Any) -> bool:
    try:
        check_record(depot, record)
    except RecordRefused:
        return True
    return False
