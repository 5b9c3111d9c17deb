"""Rows that can see each other's writes go one after the other, also into batch blocks, and into rows and depots."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from stories import module_of

from tidemill import Block, Case, Constant, Depot, Expr, LoopVars, Ops, Path, PState, SubBatch

ADDED = Path.null_to_val(0).term(Ops.PLUS, "*v")
WAYS = [(1, False), (2, False), (2, True)]
"""(threads, whether threads know of each other only by bytes)"""


def summed(rows: Block) -> Block:
    """Each row sees the sum of those before it."""
    return rows.local_select("$$sum").out("*before").local_transform("$$sum", ADDED)


def numbers(*values: int) -> Block:
    return Block.each(Ops.EXPLODE, list(values)).out("*v")


def inside(rows: Block) -> Block:
    return Block.batch_block(summed(rows))


def in_front(rows: Block) -> Block:
    return summed(rows).batch_block(Block.each(Ops.IDENTITY, "*before").out("*seen"))


def behind(rows: Block) -> Block:
    return Block.batch_block(Block.each(Ops.IDENTITY, 0)).macro(summed(rows))


def in_a_sub_batch(rows: Block) -> Block:
    first = SubBatch(summed(rows).global_partition().each(Ops.IDENTITY, "*v").out("*w"), "*before", "*w")
    return Block.batch_block(Block.sub_batch(first).out("*before", "*v"))


def beside_a_block(rows: Block) -> Block:
    """The block that begins in one case is no reason to run the other case by columns."""
    block = Block.batch_block(Block.each(Ops.IDENTITY, 1))
    return rows.cond(Case.create(Expr(Ops.LESS_THAN, "*v", 0)).macro(block), Case.create(True).macro(summed(Block)))


PROGRAMS = [inside, in_front, behind, in_a_sub_batch]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_row_sees_what_those_before_it_wrote_when_a_batch_block_is_near(program: Any) -> None:
    rows = program(numbers(1, 2, 3)).execute(pstates={"$$sum": int})
    assert [row["*before"] for row in rows] == [None, 1, 3]


def kept(*more: Block) -> Block:
    """The rows of `$$rows` in the list of task 0."""
    back = Block.explode_materialized("$$rows").out("*row").global_partition()
    return back.local_transform("$$found", Path.null_to_list().after_elem().term_val("*row"))


def found(folder: Folder, define: Any, threads: int, as_bytes: bool, records: list[Any]) -> list[Any]:
    def module(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        mb.pstate("$$sum", int)
        mb.pstate("$$found", object).global_()
        define(mb.source("*d").out("*mb"))

    attempts = Attempts(folder, module_of("M", module), 4, threads, as_bytes=as_bytes)
    attempts.feed("*d", records)
    attempts.attempt()
    (result,) = attempts.select("$$found", Path.stay(), 0)
    return result


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
@pytest.mark.parametrize("is_in_block", [True, False])
def test_each_record_sees_what_those_before_it_wrote_when_a_block_reads_and_writes(
    tmp_path: Folder, threads: int, as_bytes: bool, is_in_block: bool
) -> None:
    """On the engine, where a segment goes by columns as far as it can."""
    listed = Path.null_to_list().after_elem().term_val("*before")
    steps = summed(Block.each(Ops.EXPLODE, "*list").out("*v")).local_transform("$$found", listed)

    def define(source: Any) -> None:
        block = Block.each(Ops.IDENTITY, Constant([1, 2, 3])).out("*list")
        if is_in_block:
            source.batch_block(block.macro(steps))
        else:
            source.macro(block).macro(steps).batch_block(Block.each(Ops.INC, "*v"))

    assert found(tmp_path, define, threads, as_bytes, []) == [None, 1, 3]


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_rows_come_back_row_by_row_when_two_steps_materialize_into_one_name(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def define(source: Any) -> None:
        rows = Block.explode_microbatch("*mb").out("*v").materialize("*v").out("$$rows")
        source.batch_block(rows.materialize(Expr(Ops.TIMES, "*v", 10)).out("$$rows")).batch_block(kept())

    assert found(tmp_path, define, threads, as_bytes, [1, 2, 3]) == [1, 10, 2, 20, 3, 30]


@pytest.mark.parametrize(("threads", "as_bytes"), WAYS)
def test_rows_come_back_row_by_row_when_a_loop_materializes_them(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def define(source: Any) -> None:
        body = Block.materialize("*i").out("$$rows").if_true(
            Expr(Ops.LESS_THAN, "*i", Expr(Ops.TIMES, "*v", 2)), Block.continue_loop(Expr(Ops.PLUS, "*i", "*v"))
        )  # fmt: skip
        rows = Block.explode_microbatch("*mb").out("*v").loop_with_vars(LoopVars.var("*i", "*v"), body)
        source.batch_block(rows).batch_block(kept())

    assert found(tmp_path, define, threads, as_bytes, [1, 2, 3]) == [1, 2, 2, 4, 3, 6]


def test_rows_of_both_cases_come_back_in_order_when_cases_materialize_into_one_name(tmp_path: Folder) -> None:
    def define(source: Any) -> None:
        rows = Block.explode_microbatch("*mb").out("*v").if_true(
            Expr(Ops.IS_ODD, "*v"), Block.materialize("*v").out("$$rows"),
            Block.materialize(Expr(Ops.MINUS, 0, "*v")).out("$$rows"),
        )  # fmt: skip
        source.batch_block(rows).batch_block(kept())

    assert found(tmp_path, define, 1, False, [1, 2, 3, 4]) == [1, -2, 3, -4]


def test_a_pstate_is_written_in_the_order_of_rows_when_a_case_holds_a_batch_block() -> None:
    rows = beside_a_block(numbers(1, 2, 3)).batch_block(Block.each(Ops.IDENTITY, "*v").out("*w"))
    seen = rows.local_select("$$sum").out("*sum").execute(pstates={"$$sum": int})
    assert [(row["*v"], row["*sum"]) for row in seen] == [(1, 6), (2, 6), (3, 6)]


def test_pstates_of_schemas_are_whole_when_blocks_write_them_row_by_row() -> None:
    """A read-modify-write of a map in a block, of keys that come again."""
    counts = PState.map_schema(str, int)
    path = Path.key("*k")
    rows = Block.each(Ops.EXPLODE, ["a", "b", "a", "a"]).out("*k").local_select("$$n", path.null_to_val(0)).out("*n")
    block = Block.batch_block(rows.local_transform("$$n", path.term_val(Expr(Ops.INC, "*n"))))
    assert [(row["*k"], row["*n"]) for row in block.execute(pstates={"$$n": counts})] == [
        ("a", 0), ("b", 0), ("a", 1), ("a", 2),
    ]  # fmt: skip
