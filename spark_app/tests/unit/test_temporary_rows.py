"""`materialize` and `explode_materialized`: rows that a later batch block of the chain gets back, on both engines."""

from __future__ import annotations

import os
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from stories import Story, module_of

from tidemill import Agg, Block, CompoundAgg, Constant, Depot, Expr, InProcessCluster, LoopVars, Ops, Path, PState
from tidemill.engine.materialized import MAX_BYTES
from tidemill.values.errors import UserCodeError

RECORDS = Block.explode_microbatch("*mb").out("*v")


def topology(setup: Any, topologies: Any) -> Any:
    """The source of a topology with one global PState of results by name."""
    setup.declare_depot("*d", Depot.hash_by(Ops.IDENTITY))
    mb = topologies.microbatch("mb")
    mb.pstate("$$found", PState.map_schema(str, object)).global_()
    return mb.source("*d").out("*mb")


def found(name: str, value: str) -> Block:
    return Block.local_transform("$$found", Path.key(Constant(name)).term_val(value))


def results(story: Story) -> dict[str, Any]:
    return dict(story.pstate("$$found").select(Path.all()))


def sums(setup: Any, topologies: Any) -> None:
    """T7: numbers are materialized, and summed in two batch blocks behind."""
    back = Block.explode_materialized("$$nums").out("*v")
    topology(setup, topologies).batch_block(RECORDS.materialize("*v").out("$$nums")).batch_block(
        back.global_partition().agg(Agg.sum("*v")).out("*sum").macro(found("plain", "*sum"))
    ).batch_block(
        back.each(Ops.INC, "*v").out("*w").global_partition().agg(Agg.sum("*w")).out("*sum").macro(found("inc", "*sum"))
    )


def test_sums_are_those_of_the_reference_when_rows_are_materialized(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Materialize", sums)
        story.batch(d=[1, 2, 3])
        assert results(story) == {"plain": 6, "inc": 9}
        story.batch(d=[10])
        assert results(story) == {"plain": 10, "inc": 11}, "rows of the microbatch before came back"


def tasks_and_groups(setup: Any, topologies: Any) -> None:
    """Rows are materialized in post-agg, where their groups are, and come back there; a loop and a condition add more.

    In plain code behind the blocks they come back, too.
    """
    grouped = RECORDS.group_by("*v", Block.agg(Agg.count()).out("*n"))
    rounds = Block.if_true(
        Expr(Ops.LESS_THAN, "*i", "*n"),
        Block.materialize("*v", "*i").out("$$rounds").continue_loop(Expr(Ops.INC, "*i")),
        Block.emit_loop(),
    )
    counted = (
        grouped.each(Ops.CURRENT_TASK_ID).out("*home")
        .materialize("*v", "*n", "*home").out("$$groups")
        .if_true(Expr(Ops.GREATER_THAN, "*n", 1), Block.materialize("*v").out("$$often"))
        .loop_with_vars(LoopVars.var("*i", 0), rounds)
    )  # fmt: skip
    moved = Block.explode_materialized("$$groups").out("*v", "*n", "*home")
    chain = topology(setup, topologies).batch_block(counted)
    chain = chain.batch_block(
        moved.keep_true(Expr(Ops.EQUAL, "*home", Expr(Ops.CURRENT_TASK_ID))).global_partition()
        .agg(Agg.map("*v", "*n")).out("*all").macro(found("groups", "*all"))
    ).batch_block(
        Block.explode_materialized("$$often").out("*v").global_partition()
        .agg(Agg.set("*v")).out("*all").macro(found("often", "*all"))
    ).batch_block(
        Block.explode_materialized("$$rounds").out("*v", "*i").global_partition()
        .agg(Agg.sum("*i")).out("*all").macro(found("rounds", "*all"))
    )  # fmt: skip
    chain = chain.explode_materialized("$$groups").global_partition()
    chain.compound_agg("$$found", CompoundAgg.map(Constant("plain"), Agg.count()))


def test_rows_keep_their_task_when_post_agg_conditions_and_loops_materialize_them(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Groups", tasks_and_groups)
        story.batch(d=["a", "b", "a", "c", "a", "b"])
        expected = {"groups": {"a": 3, "b": 2, "c": 1}, "often": {"a", "b"}, "rounds": 0 + 1 + 2 + 0 + 1 + 0}
        assert results(story) == {**expected, "plain": 3}


def doubled_in_rounds(setup: Any, topologies: Any) -> None:
    """A loop over batch blocks: how many rounds there are is known from the data only."""
    doubled = Block.explode_materialized("$$now").out("*v").materialize(Expr(Ops.TIMES, "*v", 2)).out("$$all")
    body = (
        Block.batch_block(doubled)
        .if_true(Expr(Ops.LESS_THAN, "*i", 2), Block.continue_loop(Expr(Ops.INC, "*i")), Block.emit_loop("*i"))
    )  # fmt: skip
    chain = topology(setup, topologies).batch_block(RECORDS.materialize("*v").out("$$now"))
    chain.loop_with_vars(LoopVars.var("*i", 0), body).out("*rounds").batch_block(
        Block.explode_materialized("$$all").out("*v").global_partition()
        .agg(Agg.list("*v")).out("*all").macro(found("all", "*all"))
    )  # fmt: skip


def test_rows_add_up_when_a_loop_materializes_them_in_several_rounds(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Rounds", doubled_in_rounds)
        story.batch(d=[1, 5])
        assert sorted(results(story)["all"]) == [2, 2, 2, 10, 10, 10]


def ordered(setup: Any, topologies: Any) -> None:
    """Rows of one task come back in their order, those of two branches and of a loop as well."""
    both = Block.if_true(
        Expr(Ops.IS_EVEN, "*v"), Block.each(Ops.INC, "*v").out("*w"), Block.each(Ops.IDENTITY, "*v").out("*w")
    )
    chain = topology(setup, topologies).batch_block(
        RECORDS.global_partition().macro(both).materialize("*v", "*w", Constant("c")).out("$$rows")
    )
    chain.batch_block(
        Block.explode_materialized("$$rows").out("*v", "*w", "*c").global_partition()
        .agg(Agg.list(Expr(Ops.TUPLE, "*v", "*w", "*c"))).out("*all").macro(found("all", "*all"))
    )  # fmt: skip


@pytest.mark.parametrize("as_bytes", [False, True])
def test_rows_come_back_in_their_order_when_they_were_on_one_task(tmp_path: Folder, as_bytes: bool) -> None:
    attempts = Attempts(tmp_path, module_of("Ordered", ordered), tasks=1, as_bytes=as_bytes)
    attempts.feed("*d", [4, 3, 8, 7, 6])
    attempts.attempt()
    assert attempts.select("$$found", Path.key("all"), 0) == [[[v, v + (v % 2 == 0), "c"] for v in (4, 3, 8, 7, 6)]]


def test_rows_of_a_failed_attempt_are_gone_when_the_microbatch_is_tried_again(engine: Any, tmp_path: Folder) -> None:
    marker = str(tmp_path / "failed")

    def fail_once(value: Any) -> Any:
        if not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("the first attempt ends between two supersteps")
        return value

    def define(setup: Any, topologies: Any) -> None:
        back = Block.explode_materialized("$$rows").out("*v").shuffle_partition().each(fail_once, "*v").out("*w")
        topology(setup, topologies).batch_block(RECORDS.materialize("*v").out("$$rows")).batch_block(
            back.global_partition().agg(Agg.list("*w")).out("*all").macro(found("all", "*all"))
        )

    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Retried", define)
        story.batch(d=[1, 2, 3])
        assert os.path.exists(marker)
        assert sorted(results(story)["all"]) == [1, 2, 3]


def by_rows(setup: Any, topologies: Any) -> None:
    """Steps that read what the row before wrote run row by row; rows of several places and of a loop are kept there."""
    rounds = Block.if_true(
        Expr(Ops.LESS_THAN, "*i", 2),
        Block.materialize("*v", "*i").out("$$rows").continue_loop(Expr(Ops.INC, "*i")),
        Block.materialize("*v", Constant(9)).out("$$rows").emit_loop("*i"),
    )
    counted = (
        RECORDS.global_partition()
        .local_transform("$$found", Path.key("n").null_to_val(0).term(Ops.INC))
        .local_select("$$found", Path.key("n")).out("*n")
        .materialize().out("$$none").materialize("*v", "*n").out("$$rows")
        .loop_with_vars(LoopVars.var("*i", "*n"), rounds).out("*i")
    )  # fmt: skip
    chain = topology(setup, topologies).batch_block(counted).batch_block(
        Block.explode_materialized("$$rows").out("*v", "*n").global_partition()
        .agg(Agg.list(Expr(Ops.TUPLE, "*v", "*n"))).out("*all").macro(found("all", "*all"))
    )  # fmt: skip
    chain.batch_block(
        Block.explode_materialized("$$none").global_partition().agg(Agg.count()).out("*m").macro(found("none", "*m"))
    )


@pytest.mark.parametrize("as_bytes", [False, True])
def test_rows_are_kept_when_steps_run_row_by_row(tmp_path: Folder, as_bytes: bool) -> None:
    attempts = Attempts(tmp_path, module_of("ByRows", by_rows), tasks=2, as_bytes=as_bytes)
    assert "rows" in {segment.mode for segment in attempts.program.segments.values()}
    attempts.feed("*d", ["a", "b"])
    attempts.attempt()
    (rows,) = attempts.select("$$found", Path.key("all"), 0)
    first, second = (next(value for value, number in rows if number == wanted) for wanted in (1, 2))
    assert sorted(rows) == sorted([[first, 1], [second, 2], [first, 1], [first, 9], [second, 9]])
    assert attempts.select("$$found", Path.key("none"), 0) == [2]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_nothing_is_stored_when_rows_are_only_materialized(tmp_path: Folder, as_bytes: bool) -> None:
    def only_kept(setup: Any, topologies: Any) -> None:
        topology(setup, topologies).batch_block(RECORDS.materialize("*v").out("$$rows"))

    attempts = Attempts(tmp_path, module_of("Kept", only_kept), tasks=4, threads=2, as_bytes=as_bytes)
    attempts.feed("*d", [1, 2, 3, 4])
    assert attempts.attempt().deltas == ()


MANY = [list(range(100)), [{"k": "x" * 100}] * 10, ["x" * 50] * 40, [[None, 1.5, "a"]] * 100]


@pytest.mark.parametrize("values", MANY)
def test_attempt_fails_with_advice_when_materialized_rows_pass_the_limit(tmp_path: Folder, values: list[Any]) -> None:
    attempts = Attempts(tmp_path, module_of("Sums", sums_of_sizes), tasks=1)
    attempts.feed("*d", values)
    attempts.options = {MAX_BYTES: 500}
    with pytest.raises(UserCodeError, match=f"{MAX_BYTES} is 500: keep fewer variables") as failed:
        attempts.attempt()
    assert failed.value.step.startswith("materialize($$nums) at ")
    attempts.options = {MAX_BYTES: 100_000}
    attempts.attempt()
    assert attempts.select("$$found", Path.key("n"), 0) == [len(values)]


def sums_of_sizes(setup: Any, topologies: Any) -> None:
    topology(setup, topologies).batch_block(RECORDS.materialize("*v").out("$$nums")).batch_block(
        Block.explode_materialized("$$nums").out("*v").global_partition()
        .agg(Agg.count()).out("*n").macro(found("n", "*n"))
    )  # fmt: skip
