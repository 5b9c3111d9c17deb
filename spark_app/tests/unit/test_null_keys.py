"""None is no key of a PState unless its schema says so: who writes it is refused, and told where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from hypothesis import given
from hypothesis import strategies as st

from tidemill import (
    Agg,
    BadPath,
    Block,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    MicrobatchFails,
    Module,
    Ops,
    Path,
    PState,
    RecordRefused,
    SchemaMismatch,
    TestPState,
    UserCodeError,
)
from tidemill.api.declaration import record_module
from tidemill.journal.snapshot import Part, TaskSet
from tidemill.language.schema import Leaf, MapSchema, SetSchema, from_json, to_json, to_text
from tidemill.plan.check.module import check
from tidemill.plan.traced import traced
from tidemill.tables.container import DELETE, PUT, TableRows, encode
from tidemill.tables.level_merge import rows_frame
from tidemill.tables.tables import Table, layout_of, table_from_json
from tidemill.tables.verify import faults_of

MAP, SET, NULLABLE = PState.map_schema, PState.set_schema, PState.nullable
NESTED = MAP(str, MAP(int, int).subindexed())
AGG = CompoundAgg.map


class Written(Module):
    """Pairs of a key and another one, which `write` puts into `$$p`."""

    def __init__(self, schema: Any, write: Callable[[Any], Any]) -> None:
        self._schema, self._write = schema, write

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", self._schema)
        rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r")
        self._write(rows.each(Ops.GET, "*r", "k").out("*k").each(Ops.GET, "*r", "j").out("*j"))


def aggregated(tree: Any) -> Callable[[Any], Any]:
    return lambda rows: rows.compound_agg("$$p", tree)


def transformed(path: Any) -> Callable[[Any], Any]:
    return lambda rows: rows.local_transform("$$p", path)


PLAIN = MAP(str, MAP(int, int))
RECORDS = MAP(str, PState.fixed_keys_schema("n", int, "ids", SET(int).subindexed()))
WRITES: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "count": (MAP(str, int), aggregated(AGG("*k", Agg.count())), "[None]"),
    "last": (MAP(str, object), aggregated(AGG("*k", Agg.last("*j"))), "[None]"),
    "removal": (MAP(str, int), aggregated(AGG("*k", Agg.voided())), "[None]"),
    "count below": (NESTED, aggregated(AGG("*k", AGG("*j", Agg.count()))), "[None]"),
    "count in a plain map": (PLAIN, aggregated(AGG("*k", AGG("*j", Agg.count()))), "[None]"),
    "key of a map": (NESTED, aggregated(AGG("*k", Agg.map("*j", 1))), "[None]"),
    "entries of nothing": (NESTED, aggregated(AGG("*k", Agg.merge(Expr(dict)))), "[None]"),
    "element": (MAP(str, SET(int).subindexed()), aggregated(AGG("*k", Agg.set("*j"))), "[None]"),
    "list": (MAP(str, PState.list_schema(int).subindexed()), aggregated(AGG("*k", Agg.list("*j"))), "[None]"),
    "field": (RECORDS, aggregated(AGG("*k", AGG("n", Agg.count()))), "[None]"),
    "field that is a set": (RECORDS, aggregated(AGG("*k", AGG("ids", Agg.set("*j")))), "[None]"),
    "removed field": (RECORDS, aggregated(AGG("*k", AGG("n", Agg.voided()))), "[None]"),
    "value": (MAP(str, int), transformed(Path.key("*k").term_val(1)), "[None]"),
    "void": (MAP(str, int), transformed(Path.key("*k").term_void()), "[None]"),
    "change": (MAP(str, int), transformed(Path.key("*k").null_to_val(0).term(Ops.INC)), "[None]"),
    "value below": (NESTED, transformed(Path.key("*k", 7).term_val(1)), "[None]"),
    "whole structure": (NESTED, transformed(Path.key("*k").term_val({})), "[None]"),
    "void of a structure": (NESTED, transformed(Path.key("*k").term_void()), "[None]"),
    "added element": (
        MAP(str, SET(int).subindexed()), transformed(Path.key("*k").void_set_elem().term_val("*j")), "[None]"),
    "value of a field": (RECORDS, transformed(Path.key("*k", "n").term_val(1)), "[None]"),
}  # fmt: skip
BELOW: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "count": (NESTED, aggregated(AGG("*k", AGG("*j", Agg.count()))), "['a'][None]"),
    "count in a plain map": (PLAIN, aggregated(AGG("*k", AGG("*j", Agg.count()))), "['a'][None]"),
    "key of a map": (NESTED, aggregated(AGG("*k", Agg.map("*j", 1))), "['a'][None]"),
    "key of a plain map": (PLAIN, aggregated(AGG("*k", Agg.map("*j", 1))), "['a'][None]"),
    "counted": (PLAIN, aggregated(AGG("*k", Agg.multi_set("*j"))), "['a'][None]"),
    "entries": (NESTED, aggregated(AGG("*k", Agg.merge(Expr(lambda j: {j: 1}, "*j")))), "['a'][None]"),
    "entries of a plain map": (PLAIN, aggregated(AGG("*k", Agg.merge(Expr(lambda j: {j: 1}, "*j")))), "['a'][None]"),
    "value that is a set": (
        MAP(str, SET(int)), aggregated(AGG("*k", Agg.last(Expr(lambda j: {j}, "*j")))), "['a'][None]"),
    "element": (MAP(str, SET(int).subindexed()), aggregated(AGG("*k", Agg.set("*j"))), "['a'][None]"),
    "element of a plain set": (MAP(str, SET(int)), aggregated(AGG("*k", Agg.set("*j"))), "['a'][None]"),
    "removed element": (MAP(str, SET(int).subindexed()), aggregated(AGG("*k", Agg.set_remove("*j"))), "['a'][None]"),
    "element in a field": (RECORDS, aggregated(AGG("*k", AGG("ids", Agg.set("*j")))), "['a'][None]"),
    "key of a map in an element": (
        MAP(str, MAP(str, PLAIN).subindexed()),
        aggregated(AGG("*k", Agg.map("x", Expr(lambda j: {'y': {j: 1}}, "*j")))), "['a']['x']['y'][None]"),
    "value": (NESTED, transformed(Path.key("*k", "*j").term_val(1)), "['a'][None]"),
    "value in a plain map": (PLAIN, transformed(Path.key("*k", "*j").term_val(1)), "['a'][None]"),
    "void": (NESTED, transformed(Path.key("*k", "*j").term_void()), "['a'][None]"),
}  # fmt: skip
"""The second key is None."""


def sentence(place: str, kind: str) -> str:
    return (
        f"$$p{place}: None is no key here. A field that a record does not have gives None: leave such rows out with "
        f"keep_true(Expr(Ops.IS_NOT_NULL, …)), or declare the key as PState.nullable({kind}) if None is one"
    )


def attempts_of(folder: Folder, module: Module, by_row: bool) -> Attempts:
    """Attempts by columns where these can, or each segment row by row."""
    attempts = Attempts(folder, module, 1)
    if by_row:
        segments = {number: replace(segment, mode="rows") for number, segment in attempts.program.segments.items()}
        attempts.program = replace(attempts.program, segments=segments, key=attempts.program.key + "r")
    return attempts


def refused(folder: Folder, module: Module, records: list[Any], by_row: bool) -> UserCodeError:
    attempts = attempts_of(folder, module, by_row)
    attempts.program = traced(attempts.program)
    attempts.feed("*d", records)
    with pytest.raises(UserCodeError) as caught:
        attempts.attempt()
    return caught.value


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_refused_in_the_same_words_when_the_first_key_is_none(tmp_path: Folder, write: str, by_row: bool) -> None:
    schema, step, place = WRITES[write]
    error = refused(tmp_path, Written(schema, step), [{"k": "a", "j": 1}, {"j": 7}, {"k": "b", "j": 2}], by_row)
    assert f"raised SchemaMismatch: {sentence(place, 'str')} (record: " in str(error)
    assert "The record is at offset 1 of partition 0 of *d." in str(error)
    assert "*r={'j': 7}" in error.sample


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("write", BELOW)
def test_refused_in_the_same_words_when_the_second_key_is_none(tmp_path: Folder, write: str, by_row: bool) -> None:
    schema, step, place = BELOW[write]
    error = refused(tmp_path, Written(schema, step), [{"k": "b", "j": 1}, {"k": "a"}], by_row)
    assert f"raised SchemaMismatch: {sentence(place, 'int')} (record: " in str(error)
    assert "The record is at offset 1 of partition 0 of *d." in str(error)


@pytest.mark.parametrize("by_row", [False, True])
def test_none_is_a_key_when_the_schema_says_so(tmp_path: Folder, by_row: bool) -> None:
    for number, (schema, write, found) in enumerate([
        (MAP(NULLABLE(str), int), aggregated(AGG("*k", Agg.count())), [[None, 2], ["a", 1]]),
        (MAP(NULLABLE(str), int), transformed(Path.key("*k").null_to_val(0).term(Ops.INC)), [[None, 2], ["a", 1]]),
        (MAP(NULLABLE(str), MAP(NULLABLE(int), int)), aggregated(AGG("*k", AGG("*j", Agg.count()))),
         [[None, {None: 1, 1: 1}], ["a", {None: 1}]]),
        (MAP(NULLABLE(str), SET(NULLABLE(int))), aggregated(AGG("*k", Agg.set("*j"))),
         [[None, {None, 1}], ["a", {None}]]),
    ]):  # fmt: skip
        attempts = attempts_of(tmp_path / str(number), Written(schema, write), by_row)
        attempts.feed("*d", [{"j": 1}, {"k": "a"}, {}])
        attempts.attempt()
        attempts.compact()
        assert attempts.select("$$p", Path.all(), 0) == found


@pytest.mark.parametrize("by_row", [False, True])
def test_nothing_is_found_when_none_is_looked_for_and_is_no_key(tmp_path: Folder, by_row: bool) -> None:
    """As any key that is not there: a look-up of a missing field harms nothing."""

    def read(rows: Any) -> Any:
        rows = (
            rows.local_select("$$p", Path.key("*k", "*j")).out("*found").local_select("$$p", Path.key("*k").must("*j"))
        )
        return rows.out("*there").each(Ops.IDENTITY, "*there").out("*same")

    def both(rows: Any) -> Any:
        found = rows.local_select("$$p", Path.key("*k", "*j")).out("*found").keep_true(Expr(Ops.IS_NULL, "*found"))
        return found.local_transform("$$p", Path.key("seen", 1).term_val(1))

    for write in (read, both):
        attempts = attempts_of(tmp_path / write.__name__, Written(NESTED, write), by_row)
        attempts.feed("*d", [{"j": 1}, {"k": "a"}, {}])
        attempts.attempt()
        assert attempts.select("$$p", Path.key(None).all(), 0) == []
        assert attempts.select("$$p", Path.key(None, None), 0) == [None]


class Visits(Module):
    """Counts by a field that a record may lack, beside a topology and a PState that do not care."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*visits", Depot.hash_by(lambda record: record.get("user")))
        mb, total = topologies.microbatch("byUser"), topologies.microbatch("total")
        mb.pstate("$$counts", self._schema)
        total.pstate("$$total", int).global_().initial_value(0)
        rows = mb.source("*visits").out("*m").explode_microbatch("*m").out("*r")
        rows.each(Ops.GET, "*r", "user").out("*user").hash_partition("*user").compound_agg(
            "$$counts", AGG("*user", Agg.count())
        )
        rows = total.source("*visits").out("*m").explode_microbatch("*m").out("*r")
        rows.global_partition().agg("$$total", Agg.count())


def test_nothing_is_lost_and_nobody_is_stopped_when_a_record_lacks_its_key() -> None:
    records = [{"user": "ann"}, {"usr": "bob"}, {"user": "ann"}]
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Visits(MAP(str, int)), LaunchConfig(4, 2))
        cluster.cluster_depot("Visits", "*visits").append_many(records)
        cluster.wait_for_microbatch_processed_count("Visits", "total", 3)
        with pytest.raises(MicrobatchFails, match=r"\$\$counts\[None\]: None is no key here") as caught:
            cluster.wait_for_microbatch_processed_count("Visits", "byUser", 3)
        assert "of partition" in str(caught.value) and "{'usr': 'bob'}" in str(caught.value)
        assert cluster.cluster_pstate("Visits", "$$total").select_one(Path.stay()) == 3
        counts = cluster.cluster_pstate("Visits", "$$counts")
        assert counts.select_one(Path.key("ann")) is None
        with pytest.raises(BadPath, match="None is none"):
            counts.select_one(Path.key(None))
        cluster.update_module(Visits(MAP(NULLABLE(str), int)))
        cluster.wait_for_microbatch_processed_count("Visits", "byUser", 3)
        assert [counts.select_one(Path.key(key)) for key in (None, "ann")] == [1, 2]
        with pytest.raises(DefinitionError, match="None may be among the keys"):
            cluster.update_module(Visits(MAP(str, int)))


def test_groups_of_none_are_groups_but_no_keys(tmp_path: Folder) -> None:
    """`group_by` and `hash_partition` take None as any value; only what is written under it is refused."""

    class Grouped(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", MAP(str, int))
            block = Block.explode_microbatch("*m").out("*r").each(Ops.GET, "*r", "k").out("*k").hash_partition("*k")
            grouped = block.group_by("*k", Block.agg(Agg.count()).out("*n"))
            named = grouped.each(lambda key: "none" if key is None else key, "*k").out("*name")
            mb.source("*d").out("*m").batch_block(named.local_transform("$$p", Path.key("*name").term_val("*n")))

    attempts = Attempts(tmp_path, Grouped(), 4)
    attempts.feed("*d", [{"k": "a"}, {}, {"k": None}])
    attempts.attempt()
    found = [pair for task in range(4) for pair in attempts.select("$$p", Path.all(), task)]
    assert sorted(found) == [["a", 1], ["none", 2]]


def test_a_record_is_refused_when_its_depots_schema_has_a_map_without_none() -> None:
    class Kept(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*strict", Depot.random()).schema(MAP(str, int))
            setup.declare_depot("*open", Depot.random()).schema(MAP(NULLABLE(str), int))
            mb = topologies.microbatch("mb")
            mb.pstate("$$n", int).global_()
            for name in ("*strict", "*open"):
                rows = mb.source(name).out("*m").explode_microbatch("*m").out("*r")
                rows.global_partition().agg("$$n", Agg.count())

    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Kept(), LaunchConfig(1, 1))
        cluster.cluster_depot("Kept", "*open").append_many([{None: 1}, {"a": 2}])
        with pytest.raises(RecordRefused, match=r"Record 1: the record\[None\] is None .* expected str, not None"):
            cluster.cluster_depot("Kept", "*strict").append_many([{"a": 1}, {None: 1}])


def test_a_test_pstate_refuses_none_as_a_real_one_does() -> None:
    nested = MAP(str, MAP(str, PState.fixed_keys_schema("n", int, "ids", SET(int).subindexed())).subindexed())
    tried = TestPState.create(nested)
    for path in (
        Path.key(None, "b", "n").term_val(1),
        Path.key("a", None, "n").term_val(1),
        Path.key("a", "b", "ids").void_set_elem().term_val(None),
        Path.key(None, "b", "ids").void_set_elem().term_val(1),
        Path.key(None, "b").term_void(),
        Path.key(None).term_val({}),
    ):
        with pytest.raises(SchemaMismatch, match=r"\[None\]: None is no key here"):
            tried.transform(path)
    assert tried.select(Path.key(None, "b", "n")) == [None]
    assert tried.select(Path.map_keys()) == []
    allowed = TestPState.create(MAP(NULLABLE(str), SET(NULLABLE(int)).subindexed()))
    allowed.transform(Path.key(None).void_set_elem().term_val(None))
    assert allowed.select(Path.key(None).all()) == [None]


def test_nullable_is_for_keys_only() -> None:
    with pytest.raises(DefinitionError, match=r"nullable\(int\) is no schema of a value: .* Write int\."):
        TestPState.create(MAP(str, NULLABLE(int)))
    with pytest.raises(DefinitionError, match="list cannot be the key type of a map"):
        TestPState.create(MAP(NULLABLE(list), int))


SCHEMAS = st.recursive(
    st.sampled_from([int, object]),
    lambda inner: st.one_of(
        st.builds(lambda key, value, is_null: MAP(NULLABLE(key) if is_null else key, value),
                  st.sampled_from([str, float]), inner, st.booleans()),
        st.builds(lambda key, is_null: SET(NULLABLE(key) if is_null else key).subindexed(),
                  st.sampled_from([str, float]), st.booleans()),
    ),
)  # fmt: skip


@given(SCHEMAS)
def test_a_schema_and_its_tables_are_the_same_when_they_come_back_from_a_store(made: Any) -> None:
    if not hasattr(made, "schema"):
        return
    assert from_json(to_json(made.schema)) == made.schema
    assert to_text(made.schema).count("nullable(") == repr(to_json(made.schema)).count("'nullable': True")
    for table in layout_of(made.schema).stored.values():
        assert table_from_json(table.id, table.to_json()) == table


def test_size_tables_take_none_where_their_structures_keys_do() -> None:
    schema = MapSchema("str", SetSchema("int", True, nullable=True), nullable=True)
    layout = layout_of(schema)
    assert layout.tables["0"].nullable == (0, 1)
    assert layout.sizes["0"].nullable == (0,)
    assert Table("0", ("str", "int"), nullable=(1,)).null_key(("a", None)) is None
    assert Table("0", ("str", "int"), nullable=(1,)).null_key((None,)) == 0


@pytest.mark.parametrize("kind", [PUT, DELETE])
def test_check_notices_a_stored_key_that_is_none_and_must_not_be(kind: int) -> None:
    for nullable, faults in (((0,), []), ((), ["table 7/0 holds None as its key k0, which its schema does not allow"])):
        table = Table("0", ("str",), Leaf("int"), nullable=nullable)
        rows = TableRows(table, rows_frame(table, [0, 0], [[None, "a"]], [kind, PUT], [1, 1]), (None,))
        data = encode({("7", "0"): rows}, {"7/0": 1})
        part = Part("x", TaskSet(1, 0), {"7/0": 2}, bounds={"7/0": 1}).sealed(data)
        schema = MapSchema("str", Leaf("int"), nullable=bool(nullable))
        assert list(faults_of(part, data, {"7": layout_of(schema)}, is_base=False)) == faults


@pytest.mark.parametrize("step", [
    lambda rows: rows.compound_agg("$$p", AGG(None, AGG("*j", Agg.count()))),
    lambda rows: rows.compound_agg("$$p", AGG("*k", AGG(None, Agg.count()))),
    lambda rows: rows.compound_agg("$$p", AGG("*k", Agg.map(None, 1))),
    lambda rows: rows.local_transform("$$p", Path.key(None, 1).term_val(1)),
    lambda rows: rows.local_select("$$p", Path.key("*k").must(None)).out("*v"),
    lambda rows: rows.local_select("$$p", Path.sub_map(None).map_keys()).out("*v"),
])  # fmt: skip
def test_a_constant_none_is_a_fault_of_the_line(step: Any) -> None:
    (fault,) = check(record_module(Written(NESTED, step)))
    assert f"{__file__}:" in fault.location
    assert "The keys of '$$p' are" in fault.text and fault.text.endswith("here; None is none.")
    assert "PState.nullable(" in fault.advice
    assert check(record_module(Written(MAP(NULLABLE(str), MAP(NULLABLE(int), int).subindexed()), step))) == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("set", Path.key("a").void_set_elem().term_val(None)),
        ("set", Path.key("a").set_elem(1).term_val(None)),
        ("set", Path.key("a").set_elem(None).term_void()),
        ("map", Path.map_key("a").term_val(None)),
    ],
)
def test_a_constant_none_is_a_fault_where_a_terminal_writes_a_key(kind: str, path: Path) -> None:
    def schema(key: Any, element: Any) -> Any:
        return MAP(key, SET(element) if kind == "set" else int)

    (fault,) = check(record_module(Written(schema(str, int), transformed(path))))
    what = "elements of '$$p' are int" if kind == "set" else "keys of '$$p' are str"
    assert fault.text == f"The {what} here; None is none."
    assert check(record_module(Written(schema(NULLABLE(str), NULLABLE(int)), transformed(path)))) == []
    values = transformed(Path.key("a").term_val(None))
    assert check(record_module(Written(schema(str, int), values))) == []
