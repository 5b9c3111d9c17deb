"""Rows that wait for calls keep their order against rows of other cases, and a block that is atomic ends first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from stories import module_of

from tidemill import Agg, Block, Case, CompoundAgg, Depot, Expr, Ops, Path, PState
from tidemill.plan import program as pg

AT_ONCE: list[int] = [0, 0]
"""How many calls are under way, and how many were at most."""


async def tenfold(value: int) -> int:
    AT_ONCE[0] += 1
    AT_ONCE[1] = max(AT_ONCE)
    await asyncio.sleep(0.001 * (9 - value % 10))  # who came last is answered first
    AT_ONCE[0] -= 1
    return 10 * value


async def halves(value: int) -> list[int]:
    await asyncio.sleep(0)
    return [value // 2, value - value // 2]


_POOL = ThreadPoolExecutor(2)


def pooled(value: int) -> Future[int]:
    return _POOL.submit(lambda: 10 * value)


def is_odd(name: str = "*v") -> Expr:
    return Expr(Ops.IS_ODD, name)


def logged(value: str) -> Block:
    """The value, at the end of the log of the key."""
    return Block.compound_agg("$$log", CompoundAgg.map("*k", Agg.list(value)))


def in_one_case(rows: Block) -> Block:
    return rows.if_true(is_odd(), Block.each_async(tenfold, "*v").out("*v")).macro(logged("*v"))


def in_both_cases(rows: Block) -> Block:
    other = Block.each_async(tenfold, "*v").out("*w").each(Ops.PLUS, "*w", 0).out("*v")
    return rows.if_true(is_odd(), Block.each_async(pooled, "*v").out("*v"), other).macro(logged("*v"))


def inside_the_cases(rows: Block) -> Block:
    awaited = Block.each_async(tenfold, "*v").out("*w").macro(logged("*w"))
    return rows.cond(Case.create(is_odd()).macro(awaited), Case.create(True).macro(logged("*v")))


def twice(rows: Block) -> Block:
    again = Block.each_async(tenfold, "*v").out("*w").each_async(tenfold, "*w").out("*v")
    return rows.if_true(is_odd(), again).macro(logged("*v"))


def of_several_results(rows: Block) -> Block:
    split = Block.each_async(halves, "*v").out("*a", "*b").each(Ops.TUPLE, "*a", "*b").out("*v")
    return rows.if_true(is_odd(), split).macro(logged("*v"))


def behind_reads(rows: Block) -> Block:
    """The segment goes row by row."""
    read = Path.key("*k").null_to_list().view(Ops.SIZE)
    before = Block.local_select("$$log", read).out("*n").each_async(tenfold, "*v").out("*v")
    return rows.if_true(is_odd(), before).macro(logged("*v"))


def beside_a_partitioner(rows: Block) -> Block:
    moved = Case.create(Expr(Ops.EQUAL, "*v", 4)).hash_partition("*k")
    return rows.cond(Case.create(is_odd()).each_async(tenfold, "*v").out("*v"), moved).macro(logged("*v"))


def expected(program: Callable[[Block], Block], values: list[int]) -> list[Any]:
    def of(value: int) -> Any:
        if program is of_several_results:
            return [value // 2, value - value // 2] if value % 2 else value
        factor = 100 if program is twice else 10
        return value * factor if value % 2 or program is in_both_cases else value

    return [of(value) for value in values]


PROGRAMS = [
    in_one_case, in_both_cases, inside_the_cases, twice, of_several_results, behind_reads, beside_a_partitioner,
]  # fmt: skip


def module(build: Callable[[Block], Any]) -> Any:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$log", PState.map_schema(str, list))
        mb.pstate("$$n", PState.map_schema(str, int))
        build(mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v"))

    return module_of("M", define)


@pytest.mark.parametrize(("threads", "as_bytes"), [(1, False), (2, True)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_rows_keep_their_order_when_some_wait_for_a_call(
    tmp_path: Folder, program: Callable[[Block], Block], threads: int, as_bytes: bool
) -> None:
    attempts = Attempts(tmp_path, module(program), 4, threads, as_bytes=as_bytes)
    values = [3, 2, 1, 4, 6, 5, 7, 8, 2, 9]
    attempts.feed("*d", [[key, value] for value in values for key in "ab"])
    attempts.attempt()

    for key in "ab":
        assert attempts.at_key("$$log", key, Path.key(key)) == [expected(program, values)]


@pytest.mark.parametrize("program", [in_one_case, behind_reads], ids=lambda program: program.__name__)
def test_rows_of_a_case_wait_together_when_they_wait(tmp_path: Folder, program: Callable[[Block], Block]) -> None:
    AT_ONCE[:] = [0, 0]
    attempts = Attempts(tmp_path, module(program), 1)
    attempts.feed("*d", [["a", value] for value in (1, 2, 3, 5, 7)])
    attempts.attempt()

    assert AT_ONCE == [0, 4]


def test_rows_of_other_cases_do_not_wait_when_nobody_sees_an_order(tmp_path: Folder) -> None:
    def build(rows: Block) -> None:
        awaited = Block.each_async(tenfold, "*v").out("*w").local_transform("$$n", Path.key("*k").term_val("*w"))
        rows.if_true(is_odd(), awaited, Block.each(Ops.INC, "*v").out("*w"))

    attempts = Attempts(tmp_path, module(build), 4)
    assert not any(getattr(operator, "ways", ()) for operator in attempts.program.operators)


@pytest.mark.parametrize(("threads", "as_bytes"), [(1, False), (2, True)])
def test_what_follows_an_atomic_block_sees_what_was_awaited_in_it(
    tmp_path: Folder, threads: int, as_bytes: bool
) -> None:
    def build(rows: Block) -> None:
        inner = (
            Block.local_select("$$n", Path.key("*k").null_to_val(0))
            .out("*n")
            .if_true(is_odd(), Block.each_async(tenfold, "*v").out("*v"))
        )
        inner = inner.local_transform("$$n", Path.key("*k").term_val(Expr(Ops.PLUS, "*n", "*v")))
        rows.atomic_block(inner).local_select("$$n", Path.key("*k")).out("*sum").macro(logged("*sum"))

    attempts = Attempts(tmp_path, module(build), 4, threads, as_bytes=as_bytes)
    attempts.feed("*d", [["a", value] for value in (1, 2, 3, 4)])
    attempts.attempt()

    assert attempts.at_key("$$log", "a", Path.key("a")) == [[10, 12, 42, 46]]
    assert not any(isinstance(operator, pg.Move) for operator in attempts.program.operators)
