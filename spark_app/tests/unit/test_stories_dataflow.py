"""Stories of the public documentation's pages on dataflow, partitioners and batch blocks, as a user retells them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from stories import Story, rows_schema
from waiting import eventually

from tidemill import (
    Agg,
    Block,
    Case,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    InProcessCluster,
    LoopVars,
    Ops,
    Path,
    PState,
    operation,
    to_text,
    vectorized,
)

_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"Dataflow{next(_NUMBERS)}"


def say(*values: Any) -> Block:
    """Leave values under their label on the current task's list."""
    return (
        Block.each(Ops.TUPLE, *values[1:])
        .out("*said")
        .compound_agg("$$rows", CompoundAgg.map(values[0], Agg.list("*said")))
    )


def said(story: Story, label: str, tasks: int = 4) -> list[list[Any]]:
    """What every task left under a label, task after task."""
    rows = story.pstate("$$rows")
    return [row for task in range(tasks) for row in rows.select_one(Path.key(label), pkey=task) or []]


def by_task(partitions: int, key: Any) -> int:
    return key % partitions if isinstance(key, int) else 0


def with_rows(body: Any, depot: Any = None) -> Any:
    """A definition: the depot `*in`, the PState `$$rows` that `say` fills, and a chain from `*record` on."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", depot or Depot.hash_by(by_first))
        mb = topologies.microbatch("mb")
        mb.pstate("$$rows", rows_schema()).key_partitioner(by_task)
        body(mb, mb.source("*in").out("*microbatch").explode_microbatch("*microbatch").out("*record"))

    return define


def by_first(record: Any) -> Any:
    return record[0] if isinstance(record, list) else record


@operation
def words(text: str) -> Iterator[str]:
    yield from text.split()


@operation
def pairs(value: int) -> Iterator[tuple[int, str]]:
    for number in range(value):
        yield number, str(number)


@vectorized
def doubled(values: pl.Series) -> pl.Series:
    return values * 2


def test_words_are_counted_when_lines_are_exploded(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*lines", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$words", PState.map_schema(str, int))
        (
            mb.source("*lines")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*line")
            .each(words, "*line")
            .out("*word")
            .hash_partition("*word")
            .compound_agg("$$words", CompoundAgg.map("*word", Agg.count()))
        )

    story = Story(cluster, name, define)
    story.batch(lines=["a b a", "", "c"])
    story.batch(lines=["a c"])
    counts = story.pstate("$$words")
    assert [counts.select_one(Path.key(word)) for word in "abcd"] == [3, 1, 2, None]


def test_everything_that_each_takes_binds_what_it_says(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        rows = rows.keep_true(Expr(Ops.NOT_EQUAL, "*record", 99))
        rows.each(doubled, "*record").out("*d").macro(say("vectorized", "*record", "*d"))

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [1, 99, 3]})
    assert said(story, "vectorized", 1) == [[1, 2], [3, 6]]


def test_operations_emit_any_number_of_rows_of_several_variables(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        rows.each(pairs, "*record").out("*number", "*text").macro(say("pairs", "*record", "*number", "*text"))

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [2, 0, 1]})
    assert said(story, "pairs", 1) == [[2, 0, "0"], [2, 1, "1"], [1, 0, "0"]]


OPS: list[tuple[Any, tuple[Any, ...], Any]] = [
    (Ops.IDENTITY, (5,), 5),
    (Ops.TUPLE, (1, "a", None), [1, "a", None]),
    (Ops.GET, ({"a": 1}, "a"), 1),
    (Ops.GET, ({"a": 1}, "b"), None),
    (Ops.FIRST, ([4, 5],), 4),
    (Ops.LAST, ([4, 5],), 5),
    (Ops.SIZE, ([4, 5],), 2),
    (Ops.CONTAINS, ([4, 5], 4), True),
    (Ops.INC, (1,), 2),
    (Ops.DEC, (1,), 0),
    (Ops.INC_LONG, (1,), 2),
    (Ops.DEC_LONG, (1,), 0),
    (Ops.PLUS, (1, 2, 3), 6),
    (Ops.PLUS_LONG, (1, 2), 3),
    (Ops.MINUS, (5, 2), 3),
    (Ops.TIMES, (5, 2), 10),
    (Ops.EQUAL, (1, 1), True),
    (Ops.NOT_EQUAL, (1, 1), False),
    (Ops.LESS_THAN, (1, 2), True),
    (Ops.LESS_THAN_OR_EQUAL, (2, 2), True),
    (Ops.GREATER_THAN, (1, 2), False),
    (Ops.GREATER_THAN_OR_EQUAL, (2, 2), True),
    (Ops.NOT, (None,), True),
    (Ops.NOT, (0,), False),
    (Ops.IS_NULL, (None,), True),
    (Ops.IS_NOT_NULL, (None,), False),
    (Ops.IS_EVEN, (4,), True),
    (Ops.IS_ODD, (4,), False),
    (Ops.IS_INSTANCE_OF, (int, 4), True),
    (Ops.TO_STRING, (4,), "4"),
    (Ops.CURRENT_TOPOLOGY_TYPE, (), "microbatch"),
    (Ops.CURRENT_TASK_ID, (), 0),
    (Ops.CURRENT_MICROBATCH_ID, (), 1),
]


def test_every_op_gives_what_its_page_says(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        for number, (op, args, _) in enumerate(OPS):
            rows = rows.each(op, *(Constant(arg) for arg in args)).out("*v").macro(say(f"{number:02}", "*v"))

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [0]})
    found = [said(story, f"{number:02}", 1) for number in range(len(OPS))]
    wrong = [(op, args, value, row) for (op, args, value), row in zip(OPS, found, strict=True) if row != [[value]]]
    assert not wrong


def test_and_and_or_follow_truth_and_not_emptiness(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        rows = rows.keep_true(Expr(Ops.AND, 0, "", Constant([])))
        rows = rows.keep_true(Expr(Ops.NOT, Expr(Ops.AND, True, None)))
        rows = rows.keep_true(Expr(Ops.OR, None, False, 0))
        rows.keep_true(Expr(Ops.NOT, Expr(Ops.OR, None, False))).macro(say("kept", "*record"))

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [7]})
    assert said(story, "kept", 1) == [[7]]


def test_emitting_ops_emit_what_their_page_says(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        rows.anchor("root").each(Ops.EXPLODE, "*record").out("*v").macro(say("explode", "*v"))
        (
            rows.hook("root")
            .each(Ops.EXPLODE_INDEXED, "*record")
            .out("*i", "*v")
            .macro(say("indexed", "*i", "*v"))
            .hook("root")
            .each(Ops.RANGE, 1, Expr(Ops.SIZE, "*record"))
            .out("*n")
            .macro(say("range", "*n"))
            .hook("root")
            .each(lambda record: dict.fromkeys(record, len(record)), "*record")
            .out("*map")
            .each(Ops.EXPLODE_MAP, "*map")
            .out("*k", "*v")
            .macro(say("map", "*k", "*v"))
        )

    story = Story(cluster, name, with_rows(body, Depot.random()), 1, 1)
    story.batch(**{"in": [["a", "b", "c"], []]})
    assert said(story, "explode", 1) == [["a"], ["b"], ["c"]]
    assert said(story, "indexed", 1) == [[0, "a"], [1, "b"], [2, "c"]]
    assert said(story, "range", 1) == [[1], [2]]
    assert said(story, "map", 1) == [["a", 3], ["b", 3], ["c", 3]]


def test_conditions_choose_and_go_on_with_what_all_branches_bind(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        (
            rows.if_true(
                Expr(Ops.IS_EVEN, "*record"),
                Block.each(Ops.IDENTITY, "even").out("*kind"),
                Block.each(Ops.IDENTITY, "odd").out("*kind"),
            )
            .cond(
                Case.create(Expr(Ops.LESS_THAN, "*record", 2)).each(Ops.IDENTITY, "small").out("*size"),
                Case.create(Expr(Ops.LESS_THAN, "*record", 4)).each(Ops.IDENTITY, "middle").out("*size"),
                Case.create(True).each(Ops.IDENTITY, "large").out("*size"),
            )
            .if_true(Expr(Ops.EQUAL, "*record", 5), say("five", "*record"))
            .macro(say("all", "*record", "*kind", "*size"))
        )

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [1, 2, 3, 4, 5]})
    assert said(story, "five", 1) == [[5]]
    expected = [[1, "odd", "small"], [2, "even", "middle"], [3, "odd", "middle"], [4, "even", "large"]]
    assert sorted(said(story, "all", 1)) == [*expected, [5, "odd", "large"]]


@pytest.mark.parametrize("tasks", [1, 4])
def test_loops_travel_and_emit_when_partitioners_are_inside(cluster: InProcessCluster, name: str, tasks: int) -> None:
    def body(mb: Any, rows: Any) -> None:
        step = (
            Block.direct_partition(Expr(Ops.MOD, "*i", tasks))
            .each(Ops.CURRENT_TASK_ID)
            .out("*task")
            .if_true(
                Expr(Ops.EQUAL, "*i", "*record"),
                Block.emit_loop("*sum", "*task"),
                Block.continue_loop(Expr(Ops.INC, "*i"), Expr(Ops.PLUS, "*sum", "*i")),
            )
        )
        variables = LoopVars.var("*i", 0).var("*sum", 0)
        rows.loop_with_vars(variables, step).out("*total", "*where").macro(say("sum", "*record", "*total", "*where"))

    story = Story(cluster, name, with_rows(body), tasks, 1)
    story.batch(**{"in": [0, 1, 5]})
    expected = [[0, 0, 0], [1, 0, 1 % tasks], [5, 10, 5 % tasks]]
    assert sorted(said(story, "sum", tasks)) == expected


def test_a_loop_emits_several_times_and_may_go_on(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        step = Block.keep_true(Expr(Ops.GREATER_THAN, "*i", 0)).emit_loop("*i").continue_loop(Expr(Ops.DEC, "*i"))
        rows.loop_with_vars(LoopVars.var("*i", "*record"), step).out("*n").macro(say("n", "*record", "*n"))

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [3, 0]})
    assert sorted(said(story, "n", 1)) == [[3, 1], [3, 2], [3, 3]]


def test_rows_arrive_where_each_partitioner_sends_them(cluster: InProcessCluster, name: str) -> None:
    def choose(partitions: int, value: int, add: int) -> int:
        return (value + add) % partitions

    def body(mb: Any, rows: Any) -> None:
        here = Block.each(Ops.CURRENT_TASK_ID).out("*task")
        rows.anchor("r").hash_partition("*record").macro(here).macro(say("hash", "*record", "*task"))
        rows.hook("r").global_partition().macro(here).macro(say("global", "*record", "*task"))
        rows.hook("r").all_partition().macro(here).macro(say("all", "*record", "*task"))
        rows.hook("r").direct_partition(2).macro(here).macro(say("direct", "*record", "*task"))
        rows.hook("r").shuffle_partition().macro(here).macro(say("shuffle", "*record", "*task"))
        rows.hook("r").custom_partition(choose, "*record", 1).macro(here).macro(say("custom", "*record", "*task"))
        rows.hook("r").path_partition("$$rows", Path.key("*record")).macro(here).macro(say("path", "*record", "*task"))

    story = Story(cluster, name, with_rows(body))
    story.batch(**{"in": list(range(8))})
    hashed = said(story, "hash")
    assert len(hashed) == 8
    assert {row[1] for row in hashed} <= {0, 1, 2, 3}
    assert sorted(said(story, "global")) == [[n, 0] for n in range(8)]
    assert sorted(said(story, "all")) == sorted([n, task] for n in range(8) for task in range(4))
    assert sorted(said(story, "direct")) == [[n, 2] for n in range(8)]
    assert sorted(row[0] for row in said(story, "shuffle")) == list(range(8))
    assert sorted(said(story, "custom")) == [[n, (n + 1) % 4] for n in range(8)]
    assert sorted(said(story, "path")) == [[n, n % 4] for n in range(8)]


def test_hash_partition_goes_where_the_depot_and_the_pstate_go(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$found", PState.map_schema(object, PState.set_schema(int)))
        (
            mb.source("*in")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*record")
            .each(Ops.FIRST, "*record")
            .out("*k")
            .each(Ops.CURRENT_TASK_ID)
            .out("*first")
            .hash_partition("*k")
            .each(Ops.CURRENT_TASK_ID)
            .out("*second")
            .compound_agg("$$found", CompoundAgg.map("*k", Agg.set("*first")))
            .compound_agg("$$found", CompoundAgg.map("*k", Agg.set("*second")))
        )

    keys = ["a", "b", 1, 2**40, 1.5, True, b"x", "é"]
    story = Story(cluster, name, define)
    story.batch(**{"in": [[key, 0] for key in keys]})
    found = story.pstate("$$found")
    assert [len(found.select_one(Path.key(key))) for key in keys] == [1] * len(keys)


def test_select_moves_to_the_key_and_stays_there(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        mb.pstate("$$names", PState.map_schema(int, PState.list_schema(str))).key_partitioner(by_task)
        (
            rows.path_partition("$$names", Path.key("*record"))
            .local_transform("$$names", Path.key("*record").term_val(["x", "y"]))
            .global_partition()
            .select("$$names", Path.key("*record").all())
            .out("*n")
            .each(Ops.CURRENT_TASK_ID)
            .out("*task")
            .macro(say("select", "*record", "*n", "*task"))
            .local_select("$$names", Path.must(-1))
            .out("*never")
            .macro(say("never", "*never"))
        )

    story = Story(cluster, name, with_rows(body))
    story.batch(**{"in": [1, 2, 7]})
    assert sorted(said(story, "select")) == sorted([n, v, n % 4] for n in (1, 2, 7) for v in "xy")
    assert said(story, "never") == []


def test_post_agg_runs_once_with_zero_when_no_row_came(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$rows", rows_schema()).key_partitioner(by_task)
        rows = Block.explode_microbatch("*microbatch").out("*v").keep_true(Expr(Ops.EQUAL, "*v", "never"))
        here = Block.each(Ops.CURRENT_TASK_ID).out("*task")
        zeros = (
            rows.global_partition()
            .agg(Agg.count()).out("*count")
            .agg(Agg.sum("*v")).out("*sum")
            .agg(Agg.min("*v")).out("*min")
            .agg(Agg.max("*v")).out("*max")
            .agg(Agg.and_("*v")).out("*and")
            .agg(Agg.or_("*v")).out("*or")
            .agg(Agg.first("*v")).out("*first")
            .agg(Agg.last("*v")).out("*last")
            .agg(Agg.list("*v")).out("*list")
            .agg(Agg.set("*v")).out("*set")
            .agg(Agg.map("*v", "*v")).out("*map")
            .macro(here)
            .macro(say("zeros", "*count", "*sum", "*min", "*max", "*and", "*or", "*first", "*last", "*list",
                       "*set", "*map", "*task"))
        )  # fmt: skip
        everywhere = rows.hash_partition("*v").agg(Agg.count()).out("*c").macro(here).macro(say("all", "*c", "*task"))
        grouped = rows.group_by("*v", Block.agg(Agg.count()).out("*c")).macro(say("grouped", "*c"))
        mb.source("*in").out("*microbatch").batch_block(zeros).batch_block(everywhere).batch_block(grouped)

    story = Story(cluster, name, define)
    story.batch(**{"in": [1, 2, 3]})
    id_ = cluster.microbatch_state(name, "mb")[0]
    assert said(story, "zeros") == [[0, 0, None, None, True, False, None, None, [], None, None, 0]] * id_
    assert sorted(said(story, "all")) == sorted([[0, task] for task in range(4)] * id_)
    assert said(story, "grouped") == []


def test_group_by_gives_one_row_a_key_on_the_key_s_task(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$totals", PState.map_schema(str, PState.map_schema(int, PState.list_schema(object))))
        block = (
            Block.explode_microbatch("*microbatch")
            .out("*record")
            .each(Ops.EXPAND, "*record")
            .out("*a", "*b", "*v")
            .group_by("*a", Block.agg(Agg.sum("*v")).out("*sum").agg(Agg.avg("*v")).out("*avg"))
            .local_transform("$$totals", Path.key("*a", 0).term_val(Expr(Ops.TUPLE, "*sum", "*avg")))
        )
        mb.source("*in").out("*microbatch").batch_block(block)

    story = Story(cluster, name, define)
    story.batch(**{"in": [["x", 1, 2], ["x", 2, 5], ["y", 1, 1]]})
    totals = story.pstate("$$totals")
    assert totals.select_one(Path.key("x", 0)) == [7, 3.5]
    assert totals.select_one(Path.key("y")) == {0: [1, 1.0]}


def test_unify_merges_two_sources_of_a_batch(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int).global_().initial_value(0)
        merged = (
            Block.explode_microbatch("*microbatch")
            .out("*record")
            .anchor("root")
            .each(Ops.FIRST, "*record")
            .out("*v")
            .anchor("first")
            .hook("root")
            .each(Ops.LAST, "*record")
            .out("*v")
            .anchor("last")
            .unify("first", "last")
            .global_partition()
            .agg("$$sum", Agg.sum("*v"))
        )
        mb.source("*in").out("*microbatch").batch_block(merged)

    story = Story(cluster, name, define)
    story.batch(**{"in": [[1, 2], [2, 3]]})
    assert story.pstate("$$sum").select_one(Path.stay()) == 8


def test_batch_blocks_follow_each_other_in_one_chain(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int).global_().initial_value(0)
        mb.pstate("$$rows", rows_schema()).key_partitioner(by_task)
        mb.pstate("$$seen", PState.map_schema(int, int)).global_()
        summed = Block.explode_microbatch("*microbatch").out("*v").global_partition().agg("$$sum", Agg.sum("*v"))
        shared = (
            Block.explode_microbatch("*microbatch")
            .out("*v")
            .global_partition()
            .local_select("$$sum", Path.stay())
            .out("*total")
            .local_transform("$$seen", Path.key("*v").term_val("*total"))
        )
        chain = mb.source("*in").out("*microbatch").batch_block(summed).batch_block(shared)
        chain.each(Ops.CURRENT_TASK_ID).out("*task").local_select("$$sum", Path.stay()).out("*now").macro(
            say("after", "*now", "*task")
        )

    story = Story(cluster, name, define)
    story.batch(**{"in": [1, 2, 4]})
    assert story.pstate("$$seen").select(Path.all()) == [[1, 7], [2, 7], [4, 7]]
    assert said(story, "after")[-1] == [7, 0]


def test_a_batch_block_runs_for_each_record_when_their_depot_has_one_partition(
    cluster: InProcessCluster, name: str
) -> None:
    """As code behind a clock does, which a test replaces by a global depot."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random()).global_()
        setup.declare_tick_depot("*tick", 10)
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(int, int)).global_()
        mb.pstate("$$ticks", int).global_().initial_value(0)
        every = Block.all_partition().each(Ops.CURRENT_TASK_ID).out("*task").each(Ops.TIMES, "*task", "*v").out("*w")
        summed = (
            every.global_partition()
            .agg(Agg.sum("*w"))
            .out("*sum")
            .local_transform("$$sums", Path.key("*sum").term_val(0))
        )
        rows = mb.source("*in").out("*microbatch").explode_microbatch("*microbatch").out("*v").batch_block(summed)
        rows.local_transform("$$sums", Path.key("*v").null_to_val(0).term(Ops.INC))
        counted = Block.all_partition().global_partition().agg("$$ticks", Agg.count())
        mb.source("*tick").out("*tick").explode_microbatch("*tick").batch_block(counted)

    story = Story(cluster, name, define)
    story.batch(**{"in": [1, 2, 2]})
    assert story.pstate("$$sums").select(Path.all()) == [[1, 1], [2, 2], [6, 0], [12, 0]]
    eventually(lambda: story.pstate("$$ticks").select_one(Path.stay()) >= 4)
    assert story.pstate("$$ticks").select_one(Path.stay()) % 4 == 0


def test_batch_blocks_run_inside_loops_and_conditions(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int).global_().initial_value(0)
        add = Block.explode_microbatch("*microbatch").out("*v").global_partition().agg("$$sum", Agg.sum("*v"))
        step = Block.if_true(
            Expr(Ops.LESS_THAN, "*i", 3),
            Block.batch_block(add).continue_loop(Expr(Ops.INC, "*i")),
            Block.emit_loop("*i"),
        )
        mb.source("*in").out("*microbatch").loop_with_vars(LoopVars.var("*i", 0), step).out("*done")

    story = Story(cluster, name, define)
    story.batch(**{"in": [1, 2, 4]})
    assert story.pstate("$$sum").select_one(Path.stay()) == 21


def test_all_changes_of_a_task_are_read_back_in_the_same_microbatch(cluster: InProcessCluster, name: str) -> None:
    def body(mb: Any, rows: Any) -> None:
        mb.pstate("$$n", int).initial_value(10)
        (
            rows.local_transform("$$n", Path.term(Ops.INC))
            .local_select("$$n", Path.stay())
            .out("*n")
            .macro(say("n", "*n"))
            .if_true(Expr(Ops.EQUAL, "*n", 12), Block.local_clear("$$n"))
        )

    story = Story(cluster, name, with_rows(body), 1, 1)
    story.batch(**{"in": [0, 0, 0]})
    assert said(story, "n", 1) == [[11], [12], [11]]


def test_money_is_moved_exactly_once_between_tasks(cluster: InProcessCluster, name: str) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*deposit", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*transfer", Depot.hash_by(lambda record: record["from"]))
        mb = topologies.microbatch("mb")
        mb.pstate("$$funds", PState.map_schema(str, int))
        mb.pstate("$$outgoing", PState.map_schema(str, PState.map_schema(str, PState.fixed_keys_schema(
            "to", str, "amount", int, "is_success", bool)).subindexed()))  # fmt: skip
        (
            mb.source("*deposit")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*tuple")
            .each(Ops.EXPAND, "*tuple")
            .out("*user", "*amount")
            .compound_agg("$$funds", CompoundAgg.map("*user", Agg.sum("*amount")))
        )
        read = lambda key: Block.each(Ops.GET, "*data", key).out(f"*{key}")  # noqa: E731
        (
            mb.source("*transfer")
            .out("*microbatch")
            .explode_microbatch("*microbatch")
            .out("*data")
            .macro(read("id")).macro(read("from")).macro(read("to")).macro(read("amount"))
            .local_select("$$funds", Path.key("*from").null_to_val(0))
            .out("*funds")
            .each(Ops.GREATER_THAN_OR_EQUAL, "*funds", "*amount")
            .out("*ok")
            .each(lambda to, amount, ok: {"to": to, "amount": amount, "is_success": ok}, "*to", "*amount", "*ok")
            .out("*entry")
            .local_transform("$$outgoing", Path.key("*from", "*id").term_val("*entry"))
            .keep_true("*ok")
            .compound_agg("$$funds", CompoundAgg.map("*from", Agg.sum(Expr(Ops.MINUS, 0, "*amount"))))
            .hash_partition("*to")
            .compound_agg("$$funds", CompoundAgg.map("*to", Agg.sum("*amount")))
        )  # fmt: skip

    story = Story(cluster, name, define, 8, 2)
    story.batch(deposit=[["alice", 100], ["bob", 10]])
    story.batch(
        transfer=[
            {"id": "t1", "from": "alice", "to": "bob", "amount": 60},
            {"id": "t2", "from": "alice", "to": "carol", "amount": 60},
        ]
    )
    funds, outgoing = story.pstate("$$funds"), story.pstate("$$outgoing")
    assert [funds.select_one(Path.key(user)) for user in ("alice", "bob", "carol")] == [40, 70, None]
    assert outgoing.select(Path.key("alice").map_vals().key("is_success")) == [True, False]
    assert to_text(outgoing.select(Path.key("alice", "t2").key("to"))) == '["carol"]'


@pytest.mark.parametrize("is_by_rows", [False, True])
def test_about_the_fraction_of_rows_goes_on_when_rows_are_sampled(
    cluster: InProcessCluster, name: str, is_by_rows: bool
) -> None:
    def body(mb: Any, chain: Any) -> None:
        if is_by_rows:  # one segment reads and writes a PState
            chain = chain.local_select("$$rows", Path.key("none")).out("*none")
        sampled = Block.sample(0.25).macro(say("some", "*record"))
        chain.anchor("rows").branch("rows", sampled).sample(1).macro(say("all", "*record"))

    story = Story(cluster, name, with_rows(body, Depot.random()))
    cluster.cluster_depot(name, "*in").append_many(list(range(2_000)))
    cluster.wait_for_microbatch_processed_count(name, "mb", 2_000)
    every = sorted(value for task in said(story, "all") for value in task)
    some = sorted(value for task in said(story, "some") for value in task)

    assert every == list(range(2_000))
    assert 400 < len(some) < 600 and len(set(some)) == len(some)  # 500, and five standard deviations of 19
