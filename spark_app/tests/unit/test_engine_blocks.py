"""Batch blocks: barriers, aggregation, post-agg, group_by, merges (published traces T1, T2, T3, T7 and T9)."""

from __future__ import annotations

from typing import Any

import pytest
from attempts import Attempts

from tidemill import Agg, Block, CompoundAgg, Depot, Expr, LoopVars, Module, Ops, Path, PState
from tidemill.engine import combined

PLACES = [(1, 1, False), (4, 1, False), (4, 2, True), (8, 4, True)]
places = pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)


def module_of(build: Any, schema: Any = None, **options: Any) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            setup.declare_depot("*e", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$p", schema or PState.map_schema(str, int))
            mb.pstate("$$sum", int).global_().initial_value(0)
            mb.pstate("$$log", PState.map_schema(int, list))
            build(mb)

    return Made()


def exploded(mb: Any, depot: str = "*d") -> Any:
    return mb.source(depot).out("*mb")


def note(*names: str) -> Block:
    """Appends values to the list of this task in $$log."""
    there = Path.key(Expr(Ops.CURRENT_TASK_ID)).null_to_val([])
    return Block.local_transform("$$log", there.term(lambda old, *new: [*old, list(new)], *names))


def log_of(attempts: Attempts) -> dict[int, list[Any]]:
    return dict(attempts.everywhere("$$log", Path.all()))


@places
def test_post_agg_runs_once_on_task_0_with_the_sum_when_the_final_partitioner_is_global(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    def build(mb: Any) -> None:
        body = Block.explode_microbatch("*mb").out("*v").global_partition().agg(Agg.sum("*v")).out("*sum")
        exploded(mb).batch_block(body.macro(note("*sum")))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.attempt()
    attempts.feed("*d", [4, 1, 3, 2])
    attempts.attempt()
    attempts.attempt()
    assert log_of(attempts) == {0: [[0], [10], [0]]}


@places
@pytest.mark.parametrize("is_static", [True, False])
def test_an_explode_sees_what_a_block_wrote_when_it_follows_the_block(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool, is_static: bool
) -> None:
    def build(mb: Any) -> None:
        add = Path.key("*v").null_to_val(0).term(Ops.PLUS, 1)
        block = Block.explode_microbatch("*mb").out("*v").all_partition().local_transform("$$n", add)
        mb.pstate("$$n", PState.map_schema(int, int))
        chain = exploded(mb).batch_block(block)
        if not is_static:
            chain = chain.if_true(Expr(Ops.EQUAL, 1, 1), Block.batch_block(Block.each(Ops.IDENTITY, 1).out("*one")))
        rows = chain.explode_microbatch("*mb").out("*v").local_select("$$n", Path.key("*v")).out("*n")
        rows.macro(note("*v", "*n"))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [1, 2, 3, 1])
    attempts.attempt()
    assert sorted(sum(log_of(attempts).values(), [])) == [[1, 2], [1, 2], [2, 1], [3, 1]]


@places
def test_post_agg_runs_on_every_task_with_zero_values_when_rows_reach_few(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    def build(mb: Any) -> None:
        body = Block.explode_microbatch("*mb").out("*v").direct_partition(0)
        body = body.agg(Agg.count()).out("*n").agg(Agg.list("*v")).out("*l").agg(Agg.max("*v")).out("*max")
        exploded(mb).batch_block(body.agg(Agg.avg("*v")).out("*avg").macro(note("*n", "*l", "*max", "*avg")))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [5, 7])
    attempts.attempt()
    assert log_of(attempts) == {
        task: [[2, [5, 7], 7, 6.0]] if task == 0 else [[0, [], None, None]] for task in range(tasks)
    }


@places
def test_one_row_a_key_comes_out_of_group_by(tmp_path: Any, tasks: int, threads: int, as_bytes: bool) -> None:
    def build(mb: Any) -> None:
        body = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
        body = body.group_by("*k", Block.agg(Agg.count()).out("*n").agg(Agg.sum("*v")).out("*s"))
        row = body.each(Ops.PLUS, "*n", Expr(Ops.TIMES, 100, "*s")).out("*both")
        exploded(mb).batch_block(row.local_transform("$$p", Path.key("*k").term_val("*both")))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [[f"k{i % 5}", i] for i in range(200)])
    attempts.attempt()
    expected = {f"k{k}": 40 + 100 * sum(range(k, 200, 5)) for k in range(5)}
    assert dict(attempts.everywhere("$$p", Path.all())) == expected
    for key, value in expected.items():
        assert attempts.at_key("$$p", key, Path.key(key)) == [value]


@places
def test_several_keys_group_alike_whatever_the_threads(tmp_path: Any, tasks: int, threads: int, as_bytes: bool) -> None:
    def build(mb: Any) -> None:
        body = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*a", "*b")
        body = body.group_by("*a", "*b", Block.agg(Agg.count()).out("*n"))
        row = body.each(Ops.TO_STRING, "*a", "/", "*b").out("*k")
        exploded(mb).batch_block(row.compound_agg("$$p", CompoundAgg.map("*k", Agg.sum("*n"))))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [[i % 3, f"b{i % 2}"] for i in range(60)])
    attempts.attempt()
    found = dict(attempts.everywhere("$$p", Path.all()))
    assert found == {f"{a}/b{b}": 10 for a in range(3) for b in range(2)}


@places
def test_what_follows_a_block_sees_all_that_the_block_wrote(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    """T7 without materialize: a block writes on all tasks, two later ones read it from all tasks."""

    def build(mb: Any) -> None:
        write = Block.explode_microbatch("*mb").out("*v").each(Ops.TO_STRING, "*v").out("*k").hash_partition("*k")
        read = Block.all_partition().local_select("$$p", Path.map_vals()).out("*v").each(Ops.PLUS, "*v", "*more")
        read = read.out("*w").global_partition().agg(Agg.sum("*w")).out("*sum").macro(note("*sum"))
        chain = exploded(mb).batch_block(write.local_transform("$$p", Path.key("*k").term_val("*v")))
        chain = chain.each(Ops.IDENTITY, 0).out("*more").batch_block(read)
        chain.each(Ops.IDENTITY, 1).out("*more").batch_block(read).macro(note("*more"))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    assert attempts.program.schedule is not None
    attempts.feed("*d", [1, 2, 3])
    attempts.attempt()
    assert log_of(attempts) == {0: [[6], [9], [1]]}


@places
def test_rows_of_two_explodes_are_merged_by_unify(tmp_path: Any, tasks: int, threads: int, as_bytes: bool) -> None:
    def build(mb: Any) -> None:
        body = Block.anchor("root").each(Ops.EXPLODE, [1, 2]).out("*v").anchor("a").hook("root")
        body = body.each(Ops.EXPLODE, [2, 3]).out("*v").anchor("b").unify("a", "b")
        exploded(mb).batch_block(body.global_partition().agg("$$sum", Agg.sum("*v")))
        twice = Block.explode_microbatch("*mb").out("*v").anchor("a").explode_microbatch("*mb").out("*v").anchor("b")
        twice = twice.unify("a", "b").global_partition().agg(Agg.sum("*v")).out("*s").macro(note("*s"))
        exploded(mb, "*e").batch_block(twice)

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*e", [10, 20])
    attempts.attempt()
    assert attempts.select("$$sum", Path.stay(), 0) == [8]
    assert log_of(attempts) == {0: [[60]]}


@places
def test_blocks_in_a_loop_run_one_after_the_other(tmp_path: Any, tasks: int, threads: int, as_bytes: bool) -> None:
    count = Block.explode_microbatch("*mb").out("*v").global_partition().agg("$$sum", Agg.sum("*v"))
    again = Block.if_true(
        Expr(Ops.LESS_THAN, "*i", 3), Block.each(Ops.INC, "*i").out("*j").continue_loop("*j"), Block.emit_loop("*i")
    )

    def build(mb: Any) -> None:
        loop = exploded(mb).loop_with_vars(LoopVars.var("*i", 1), Block.batch_block(count).macro(again)).out("*rounds")
        loop.local_select("$$sum", Path.stay()).out("*sum").macro(note("*rounds", "*sum"))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    assert attempts.program.schedule is None
    attempts.feed("*d", [1, 2, 3, 4])
    attempts.attempt()
    assert log_of(attempts) == {0: [[3, 30]]}


@places
def test_block_in_a_condition_runs_only_where_it_holds(tmp_path: Any, tasks: int, threads: int, as_bytes: bool) -> None:
    body = Block.explode_microbatch("*mb").out("*v").global_partition().agg("$$sum", Agg.sum("*v"))

    def build(mb: Any) -> None:
        chain = exploded(mb).each(Ops.CURRENT_MICROBATCH_ID).out("*id")
        chain.if_true(Expr(Ops.IS_EVEN, "*id"), Block.batch_block(body)).macro(note("*id"))

    attempts = Attempts(tmp_path, module_of(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [5])
    first = attempts.attempt()
    assert "*d" not in first.exploded
    second = attempts.attempt()
    assert "*d" in second.exploded
    assert attempts.select("$$sum", Path.stay(), 0) == [5]
    assert log_of(attempts) == {0: [[1], [2]]}


def test_fewer_rows_travel_when_combiners_run_before_the_final_partitioner(tmp_path: Any, monkeypatch: Any) -> None:
    def build(mb: Any) -> None:
        body = Block.explode_microbatch("*mb").out("*v").each(Ops.MOD, "*v", 3).out("*k")
        body = body.group_by("*k", Block.agg(Agg.sum("*v")).out("*s").agg(Agg.max("*v")).out("*max"))
        exploded(mb).batch_block(body.macro(note("*k", "*s", "*max")))

    results = []
    for name, least in (("two", 1), ("one", 10**9)):
        monkeypatch.setattr(combined, "COMBINE_ROWS_MIN", least)
        attempts = Attempts(tmp_path / name, module_of(build), 4, 2, as_bytes=False)
        attempts.feed("*d", list(range(300)))
        outcome = attempts.attempt()
        results.append((sorted(row for rows in log_of(attempts).values() for row in rows), outcome.metrics["rows"]))
    (two, few), (one, many) = results
    assert two == one == [[k, sum(range(k, 300, 3)), 297 + k] for k in range(3)]
    assert few < many - 250


def test_tick_runs_the_chain_once_on_task_0_when_it_is_due(tmp_path: Any) -> None:
    class Ticking(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_tick_depot("*tick", 1000)
            mb = topologies.microbatch("mb")
            mb.pstate("$$sum", int).global_().initial_value(0)
            mb.source("*tick").out("*mb").explode_microbatch("*mb").agg("$$sum", Agg.count())

    attempts = Attempts(tmp_path, Ticking(), 4, 2, as_bytes=True)
    attempts.attempt()
    attempts.due.add("*tick")
    attempts.attempt()
    assert attempts.select("$$sum", Path.stay(), 0) == [1]


@pytest.mark.parametrize("least", [1, 10**9])
def test_sums_into_pstates_are_equal_when_rows_are_combined_before_they_travel(
    tmp_path: Any, monkeypatch: Any, least: int
) -> None:
    monkeypatch.setattr(combined, "COMBINE_ROWS_MIN", least)

    def build(mb: Any) -> None:
        exploded(mb).batch_block(
            Block.explode_microbatch("*mb").out("*v").global_partition().agg("$$sum", Agg.sum("*v"))
        )
        keyed = Block.explode_microbatch("*mb").out("*v").each(Ops.TO_STRING, Expr(Ops.MOD, "*v", 5)).out("*k")
        keyed = keyed.hash_partition("*k").compound_agg("$$p", CompoundAgg.map("*k", Agg.max("*v")))
        exploded(mb, "*e").batch_block(keyed)

    attempts = Attempts(tmp_path, module_of(build), 4, 2, as_bytes=True)
    for _ in range(2):
        attempts.feed("*d", list(range(100)))
        attempts.feed("*e", list(range(200)))
        attempts.attempt()
    assert attempts.select("$$sum", Path.stay(), 0) == [9900]
    assert dict(attempts.everywhere("$$p", Path.all())) == {str(k): 195 + k for k in range(5)}


def test_arguments_that_show_the_task_are_computed_behind_the_final_partitioner(
    tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(combined, "COMBINE_ROWS_MIN", 1)

    def build(mb: Any) -> None:
        body = Block.explode_microbatch("*mb").out("*v").direct_partition(3)
        body = body.agg(Agg.max(Expr(Ops.PLUS, 10, Expr(Ops.CURRENT_TASK_ID)))).out("*m")
        exploded(mb).batch_block(body.macro(note("*m")))

    attempts = Attempts(tmp_path, module_of(build), 4, 2, as_bytes=True)
    attempts.feed("*d", [1, 2, 3])
    attempts.attempt()
    assert log_of(attempts)[3] == [[13]]
