"""Programs in which one part of the language meets another: joins, queries, sub-batches, loops, captures."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from stories import module_of

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    SubBatch,
)
from tidemill.api.declaration import record_module
from tidemill.plan.check.module import checked

WAYS = [(1, 1, False), (4, 1, False), (4, 2, True), (8, 2, False)]
ROWS = Block.explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")


def topology(setup: Any, topologies: Any, schema: Any) -> Any:
    setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
    mb = topologies.microbatch("mb")
    mb.pstate("$$o", schema)
    return mb.source("*d").out("*m")


class Asked(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        chain = topology(setup, topologies, PState.map_schema(int, int))
        (chain.explode_microbatch("*m").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
              .local_transform("$$o", Path.key("*k").term_val("*v")))  # fmt: skip
        entries = topologies.query("ways", "*a").out("*res").all_partition().local_select("$$o", Path.all()).out("*e")
        (entries.each(Ops.EXPAND, "*e").out("*k", "*v")
                .if_true(Expr(Ops.IS_ODD, "*k"),
                         Block.hash_partition("*a").each(Ops.TUPLE, "*k", "*a").out("*t"),
                         Block.hash_partition("*k").each(Ops.TUPLE, "*k", "*a").out("*t"))
                .origin_partition().agg(Agg.list("*t")).out("*res"))  # fmt: skip


def test_inputs_of_a_query_are_there_when_a_case_partitions_by_one() -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Asked(), LaunchConfig(2, 1))
        cluster.cluster_depot("Asked", "*d").append_many([[number, 10 * number] for number in range(4)])
        cluster.wait_until_processed("Asked")

        assert sorted(cluster.cluster_query("Asked", "ways").invoke(7)) == [[0, 7], [1, 7], [2, 7], [3, 7]]


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), WAYS)
def test_rows_are_joined_when_a_sub_batch_binds_its_key_anew(
    tasks: int, threads: int, as_bytes: bool, tmp_path: Folder
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        chain = topology(setup, topologies, PState.map_schema(int, object))
        counted = ROWS.group_by("*k", Block.agg(Agg.sum("*v")).out("*s")).each(Ops.INC, "*k").out("*k")
        chain.batch_block(
            ROWS.sub_batch(SubBatch(counted, "*k", "*s")).out("*k", "*s").each(Ops.TUPLE, "*v", "*s").out("*t")
            .hash_partition("*k").compound_agg("$$o", CompoundAgg.map("*k", Agg.list("*t")))
        )  # fmt: skip

    attempts = Attempts(tmp_path, module_of("M", define), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [[number, 10 * number] for number in range(8)])
    attempts.attempt()

    wanted = {number: [[10 * number, 10 * number - 10]] for number in range(1, 8)}
    assert dict(attempts.everywhere("$$o", Path.all())) == wanted


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), WAYS)
def test_the_key_of_a_join_is_the_left_one_when_equal_numbers_differ_in_type(
    tasks: int, threads: int, as_bytes: bool, tmp_path: Folder
) -> None:
    def side(kind: str, number: str) -> Block:
        is_kind = Expr(Ops.EQUAL, Expr(Ops.FIRST, f"*{kind}"), kind)
        return (Block.explode_microbatch("*m").out(f"*{kind}").keep_true(is_kind)
                     .each(Ops.EXPAND, f"*{kind}").out(f"*kind {kind}", "*k", number))  # fmt: skip

    def define(setup: Any, topologies: Any) -> None:
        chain = topology(setup, topologies, PState.map_schema(str, int))
        text = Block.each(Ops.TO_STRING, "*k", "/", "*x", "/", "*y").out("*o").hash_partition("*o")
        count = text.compound_agg("$$o", CompoundAgg.map("*o", Agg.count()))
        chain.batch_block(side("a", "*x").macro(side("b", "*y")).macro(count))

    attempts = Attempts(tmp_path, module_of("M", define), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [["a", 1, 1], ["a", 2, 3], ["b", 1.0, 10], ["b", 2.0, 20], ["b", 2.0, 21], ["b", 2.0, 22]])
    attempts.attempt()

    found = sorted(key for key, _ in attempts.everywhere("$$o", Path.all()))
    assert found == ["1/1/10", "2/3/20", "2/3/21", "2/3/22"]


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), WAYS)
def test_rows_keep_their_order_when_a_loop_comes_round_by_different_partitioners(
    tasks: int, threads: int, as_bytes: bool, tmp_path: Folder
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        chain = topology(setup, topologies, PState.map_schema(str, list))
        body = (
            Block.compound_agg("$$o", CompoundAgg.map("z", Agg.list("*v")))
            .keep_true(Expr(Ops.LESS_THAN, "*i", 2))
            .if_true(Expr(Ops.IS_ODD, "*v"), Block.hash_partition("z"), Block.hash_partition("$$o", "z"))
            .continue_loop(Expr(Ops.INC, "*i"))
        )
        chain.macro(ROWS).hash_partition("z").loop_with_vars(LoopVars.var("*i", 0), body)

    attempts = Attempts(tmp_path, module_of("M", define), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", [["a", number] for number in range(4)])
    attempts.attempt()

    assert attempts.everywhere("$$o", Path.all()) == [["z", [0, 1, 2, 3] * 3]]


def test_a_module_is_refused_when_an_output_has_the_name_of_a_captured_key() -> None:
    def define(setup: Any, topologies: Any) -> None:
        chain = topology(setup, topologies, PState.map_schema(int, int))
        chain.batch_block(
            ROWS.hash_partition("*k")
            .compound_agg("$$o", CompoundAgg.map("*k", Agg.count().capture_new_val_into("*c")))
            .agg(Agg.count()).out("*k")
        )  # fmt: skip

    with pytest.raises(DefinitionError, match="'\\*k' is a key of captured values"):
        checked(record_module(module_of("M", define)))
