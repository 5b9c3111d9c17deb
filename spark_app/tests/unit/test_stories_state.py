"""Stories of what a user keeps in PStates: every kind of schema, changed by every terminal."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from stories import Story, module_of

from tidemill import (
    AccumulatorAgg,
    Agg,
    Block,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    Ops,
    Path,
    PState,
)

_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"State{next(_NUMBERS)}"


def changing(schema: Any, *paths: Any, initial: Any = None) -> Any:
    """A definition that applies the path whose number a record has to `$$p`, with the rest of the record as `*v`."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        declared = mb.pstate("$$p", schema).global_()
        if initial is not None:
            declared.initial_value(initial)
        chain = mb.source("*in").out("*m").explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*n", "*v")
        for number, path in enumerate(paths):
            chain = chain.if_true(Expr(Ops.EQUAL, "*n", number), Block.local_transform("$$p", path))

    return define


K = Path.key("k")
MAPS = [{"k": {"a": 1, "b": 2, "c": 3}}]
CHANGES: list[tuple[str, Any, Any, Any, Any]] = [
    # what it shows, schema of the value, value before, path, value after
    ("term_val sets", {"map": int}, {"a": 1}, K.key("a").term_val("*v"), {"a": 7}),
    ("term_val adds", {"map": int}, {"a": 1}, K.key("b").term_val("*v"), {"a": 1, "b": 7}),
    ("term calls", {"map": int}, {"a": 1}, K.key("a").term(Ops.PLUS, "*v"), {"a": 8}),
    ("term_void removes", {"map": int}, {"a": 1, "b": 2}, K.key("a").term_void(), {"b": 2}),
    ("must passes by", {"map": int}, {"a": 1}, K.must("z").term_val("*v"), {"a": 1}),
    ("map_vals", {"map": int}, {"a": 1, "b": 2}, K.map_vals().term(Ops.INC), {"a": 2, "b": 3}),
    ("map_vals void", {"map": int}, {"a": 1, "b": 2}, K.map_vals().filter_equal(1).term_void(), {"b": 2}),
    ("map_keys", {"map": int}, {"a": 1, "b": 2}, K.map_keys().term(str.upper), {"A": 1, "B": 2}),
    ("map_key renames", {"map": int}, {"a": 0, "b": 1}, K.map_key("a").term_val("c"), {"b": 1, "c": 0}),
    ("sub_map", {"map": int}, {"a": 1, "b": 2}, K.sub_map("a", "z").map_vals().term_val("*v"), {"a": 7, "b": 2}),
    ("range", {"map": int}, {"a": 1, "b": 2, "c": 3}, K.sorted_map_range("a", "c").map_vals().term_void(), {"c": 3}),
    ("range away", {"map": int}, {"a": 1, "b": 2, "c": 3}, K.sorted_map_range_to("c").term_val(None), {"c": 3}),
    ("null_to_val", {"map": int}, {"a": 1}, K.key("n").null_to_val(5).term(Ops.INC), {"a": 1, "n": 6}),
    ("multi_path", {"map": int}, {"a": 1}, K.multi_path(Path.key("a"), Path.key("b")).term_val("*v"), {"a": 7, "b": 7}),
    ("if_path", {"map": int}, {"a": 1}, K.if_path(Path.must("a"), Path.key("y"), Path.key("n")).term_val(0),
     {"a": 1, "y": 0}),
    ("filter_selected", {"map": int}, {"a": 1}, K.filter_selected(Path.must("z")).key("a").term_val(0), {"a": 1}),
    ("subselect", {"map": int}, {"a": 1, "b": 2, "c": 3},
     K.subselect(Path.map_vals().filter_pred(Ops.IS_ODD)).term(lambda found: found[::-1]), {"a": 3, "b": 2, "c": 1}),
    ("void_set_elem adds", {"set": int}, {1, 2}, K.void_set_elem().term_val("*v"), {1, 2, 7}),
    ("set_elem removes", {"set": int}, {1, 2}, K.set_elem(1).term_void(), {2}),
    ("set_elem replaces", {"set": int}, {1, 2}, K.set_elem(1).term_val("*v"), {2, 7}),
    ("all of a set", {"set": int}, {1, 2}, K.all().term(lambda element: element * 10), {10, 20}),
    ("set range away", {"set": int}, {1, 2, 3}, K.sorted_set_range(1, 3).term_val(None), {3}),
    ("nth", {"list": int}, [1, 2], K.nth(0).term_val("*v"), [7, 2]),
    ("after_elem", {"list": int}, [1, 2], K.after_elem().term_val("*v"), [1, 2, 7]),
    ("before_index", {"list": int}, [1, 2], K.before_index(Expr(Ops.MINUS, "*v", 6)).term_val("*v"), [1, 7, 2]),
    ("index", {"list": int}, [1, 2, 3], K.index(0).term(Ops.MINUS, Expr(Ops.MINUS, 5, "*v")), [2, 3, 1]),
    ("indexed_vals", {"list": int}, [1, 2, 3], K.indexed_vals().first().term_val(0), [3, 2, 1]),
    ("end", {"list": int}, [1], K.end().term_val([2, 3]), [1, 2, 3]),
    ("filtered_list", {"list": int}, [1, 9, 2], K.filtered_list(Path.filter_less_than("*v")).first().term_void(),
     [2, 9]),
    ("continuous_subseqs", {"list": int}, [1, 3, 2], K.continuous_subseqs(Ops.IS_ODD).term(lambda run: [sum(run)]),
     [4, 2]),
    ("cond_path", {"list": int}, [1, 9], K.all().cond_path(Path.filter_less_than("*v"), Path.term_void(), Path.stay(),
                                                           Path.term_val("*v")), [7]),
    ("fresh", {"list": int}, [1], K.put_collected(5).with_fresh_collected(Path.put_collected("*v").first())
     .term(Ops.PLUS, "*v"), [13]),
]  # fmt: skip


def schema_of(kind: dict[str, Any], is_subindexed: bool) -> Any:
    ((name, element),) = kind.items()
    makers: Any = {"set": PState.set_schema, "list": PState.list_schema}
    schema = PState.map_schema(str, element) if name == "map" else makers[name](element)
    return PState.map_schema(str, schema.subindexed() if is_subindexed else schema)


@pytest.mark.parametrize("is_subindexed", [False, True])
def test_every_terminal_changes_what_its_page_says(cluster: InProcessCluster, name: str, is_subindexed: bool) -> None:
    wrong = []
    for number, (what, kind, before, path, after) in enumerate(CHANGES):
        define = changing(schema_of(kind, is_subindexed), K.term_val("*v"), path)
        story = Story(cluster, f"{name}x{number}", define, 1, 1)
        try:
            story.batch(**{"in": [[0, before], [1, 7]]})
            together = story.pstate("$$p").select(K.all())
            story.batch(**{"in": [[0, None]]})
            story.batch(**{"in": [[0, before]]})
            story.batch(**{"in": [[1, 7]]})
            found = [together, story.pstate("$$p").select(K.all())]
        except TimeoutError as error:
            found = [error]
        cluster.destroy_module(f"{name}x{number}")
        expected = (
            [list(pair) for pair in sorted(after.items())]
            if isinstance(after, dict)
            else after
            if isinstance(after, list)
            else sorted(after)
        )
        if found != [expected, expected]:
            wrong.append((what, expected, found))
    assert not wrong, "\n".join(map(str, wrong))


VALUES = [
    (int, 2**60), (float, 1.5), (str, "é"), (bool, True), (bytes, b"\x00"),
    (datetime, datetime(2026, 1, 2, tzinfo=UTC)),
    (object, {"a": [1, {"b": None}]}), (list, [1, "a"]), (dict, {"a": 1}), (set, {1, 2}),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_a_whole_pstate_may_be_one_value(cluster: InProcessCluster, name: str, type_: Any, value: Any) -> None:
    story = Story(cluster, name, changing(type_, Path.term_val("*v"), initial=value), 2, 1)
    assert story.pstate("$$p").select_one(Path.stay()) == value
    story.batch(**{"in": [[0, None]]})
    assert story.pstate("$$p").select_one(Path.stay()) is None
    story.batch(**{"in": [[0, value]]})
    assert story.pstate("$$p").select_one(Path.stay()) == value


def test_fixed_keys_stand_at_the_top_too(cluster: InProcessCluster, name: str) -> None:
    inner = PState.map_schema(str, PState.set_schema(int).subindexed()).subindexed()
    schema = PState.fixed_keys_schema("n", int, "deep", inner, "names", PState.list_schema(str))
    paths = (
        Path.key("n").term_val("*v"),
        Path.key("deep", "x").void_set_elem().term_val("*v"),
        Path.key("names").term_val("*v"),
        Path.key("deep", "x").term_void(),
    )
    story = Story(cluster, name, changing(schema, *paths), 2, 1)
    story.batch(**{"in": [[0, 1], [1, 5], [1, 4], [2, ["a", "b"]]]})
    found = story.pstate("$$p")
    assert found.select_one(Path.key("n")) == 1
    assert found.select(Path.key("deep", "x").all()) == [4, 5]
    assert found.select(Path.key("deep").map_keys()) == ["x"]
    assert found.select(Path.key("names").all()) == ["a", "b"]
    story.batch(**{"in": [[3, None]]})
    assert found.select(Path.key("deep").map_keys()) == []
    assert found.select_one(Path.key("n")) == 1


def test_a_value_of_the_wrong_kind_fails_the_microbatch_and_says_where(cluster: InProcessCluster, name: str) -> None:
    cluster.launch_module(module_of(name, changing(PState.map_schema(str, int), K.term_val("*v"))), LaunchConfig(1, 1))
    cluster.cluster_depot(name, "*in").append([0, "text"])
    with pytest.raises(TimeoutError, match=r"\$\$p.*int.*'text'|\$\$p.*'text'.*int"):
        cluster.wait_for_microbatch_processed_count(name, "mb", 1, 1_500)
    cluster.destroy_module(name)


class Rows(AccumulatorAgg):
    def accumulate(self, current: Any, *args: Any) -> Any:
        return current + 1

    def init_val(self) -> Any:
        return 100


@pytest.mark.parametrize("is_order_kept", [True, False])
def test_an_accumulator_without_arguments_counts_rows(
    cluster: InProcessCluster, name: str, is_order_kept: bool
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        mb.pstate("$$all", int).initial_value(0)
        rows = mb.source("*in").out("*m").explode_microbatch("*m").out("*r").each(Ops.FIRST, "*r").out("*k")
        rows = rows.compound_agg("$$p", CompoundAgg.map("*k", Agg.accumulator(Rows())))
        rows.hash_partition("*k").agg("$$all", Agg.accumulator(Rows))
        total = Block.explode_microbatch("*m").global_partition().agg(Agg.accumulator(Rows())).out("*c")
        mb.pstate("$$last", int).global_()
        if is_order_kept:
            total = total.keep_true(Expr(Ops.GREATER_THAN, "*c", 100))
        mb.source("*again").out("*m").batch_block(total.local_transform("$$last", Path.term_val("*c")))
        setup.declare_depot("*again", Depot.random())

    story = Story(cluster, name, define, 2, 1)
    story.batch(**{"in": [["a", 0], ["a", 0], ["b", 0]], "again": [1, 2]})
    assert [story.pstate("$$p").select_one(Path.key(key)) for key in "ab"] == [102, 101]
    assert sum(story.pstate("$$all").select_one(Path.stay(), pkey=key) for key in ("a",)) >= 1
    if is_order_kept:
        assert story.pstate("$$last").select_one(Path.stay()) == 102
    story.batch(**{"in": [["a", 0]]})
    assert story.pstate("$$p").select_one(Path.key("a")) == 103


def test_records_beyond_the_limit_wait_for_the_next_microbatch(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random()).global_()
        setup.set_launch_depot_dynamic_option("*in", "depot.microbatch.max.records", 3)
        mb = topologies.microbatch("mb")
        mb.pstate("$$ids", PState.map_schema(int, PState.list_schema(int))).global_()
        rows = mb.source("*in").out("*m").explode_microbatch("*m").out("*v").each(Ops.CURRENT_MICROBATCH_ID).out("*id")
        rows.compound_agg("$$ids", CompoundAgg.map("*id", Agg.list("*v")))

    story = Story(cluster, name, define, 2, 1)
    story.batch(**{"in": range(8)})
    found = story.pstate("$$ids").select(Path.map_vals())
    assert found == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_topologies_read_each_other_s_committed_state_only(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random()).global_()
        setup.declare_depot("*ask", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", int).global_().initial_value(0)
        mb.source("*in").out("*m").explode_microbatch("*m").out("*v").agg("$$n", Agg.sum("*v"))
        other = topologies.microbatch("other")
        other.pstate("$$seen", PState.list_schema(int) and PState.map_schema(str, int)).global_()
        rows = other.source("*ask").out("*m").explode_microbatch("*m").out("*k")
        rows.local_select("$$n", Path.stay()).out("*n").local_transform("$$seen", Path.key("*k").term_val("*n"))

    story = Story(cluster, name, define, 2, 1)
    story.batch(**{"in": [5, 6]})
    cluster.cluster_depot(name, "*ask").append("x")
    cluster.wait_for_microbatch_processed_count(name, "other", 1)
    assert story.pstate("$$seen").select_one(Path.key("x")) == 11


def test_a_topology_may_not_write_what_another_declares(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        topologies.microbatch("a").pstate("$$n", int).global_().initial_value(0)
        topologies.microbatch("b").source("*in").out("*m").explode_microbatch("*m").out("*v").agg("$$n", Agg.sum("*v"))

    with pytest.raises(DefinitionError, match=r"\$\$n"):
        cluster.launch_module(module_of(name, define), LaunchConfig(1, 1))


TREES = [
    (PState.map_schema(str, int), CompoundAgg.map("*n", Agg.count()), {"1": 2}),
    (PState.list_schema(int), CompoundAgg.list(Agg.count(), Agg.sum(2)), [2, 4]),
    (PState.fixed_keys_schema("c", int, "d", PState.map_schema(str, int)),
     CompoundAgg.map("c", Agg.count(), "d", CompoundAgg.map("*n", Agg.count())), {"c": 2, "d": {"1": 2}}),
    (int, Agg.accumulator(Rows), 102),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "tree", "expected"), TREES)
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_small_microbatch_goes_on_from_a_large_state(
    cluster: InProcessCluster, name: str, is_batch: bool, schema: Any, tree: Any, expected: Any
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(int, schema))
        rows = Block.explode_microbatch("*m").out("*k").each(lambda key: str(key), "*k").out("*n").hash_partition("*k")
        rows = rows.compound_agg("$$p", CompoundAgg.map("*k", tree))
        chain = mb.source("*in").out("*m")
        chain.batch_block(rows) if is_batch else chain.macro(rows)

    story = Story(cluster, name, define, 2, 1)
    story.batch(**{"in": range(300)})
    story.batch(**{"in": [1]})
    assert story.pstate("$$p").select_one(Path.key(1)) == expected
