"""sub_source, out_stream, atomic_block, each_async and macros, in blocks that are executed and on the engine."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from attempts import Attempts

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    Helpers,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    SubBatch,
    SubSource,
    UserCodeError,
    emit_stream,
    operation,
)
from tidemill.journal.clock import SystemClock
from tidemill.plan import program as pg
from tidemill.values.errors import AttemptTimeout

PLACES = [(1, 1, False), (4, 1, False), (4, 2, True), (8, 4, True)]


def values(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def exploded(data: list[Any]) -> Block:
    return Block.each(Ops.EXPLODE, data).out("*v")


# --- execute: the published examples ---------------------------------------------------------------------------------


def test_prints_come_row_by_row_when_a_block_is_executed(capsys: Any) -> None:
    rows = exploded([1, 2]).each(Ops.PRINTLN, "Elem:", "*v").each(Ops.PRINTLN, "X").execute()

    assert capsys.readouterr().out.splitlines() == ["Elem: 1", "X", "Elem: 2", "X"]
    assert rows == [{"*v": 1}, {"*v": 2}]


def test_functions_run_row_by_row_when_a_block_is_executed() -> None:
    seen: list[Any] = []
    exploded([1, 2]).each(seen.append, "*v").each(lambda v: seen.append(-v), "*v").execute()

    assert seen == [1, -1, 2, -2]


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_batch_block_prints_as_published_when_it_is_executed(capsys: Any, tasks: int) -> None:
    rows = exploded([1, 2, 3, 4]).each(Ops.PRINTLN, "Data:", "*v")
    block = (
        (rows if tasks == 1 else rows.global_partition())
        .agg(Agg.count()).out("*count")
        .agg(Agg.sum("*v")).out("*sum")
        .each(Ops.PRINTLN, "Count:", "*count")
        .each(Ops.PRINTLN, "Sum:", "*sum")
    )  # fmt: skip
    whole = Block.each(Ops.PRINTLN, "Starting").batch_block(block).each(Ops.PRINTLN, "Finished")

    assert whole.execute(tasks=tasks) == [{}]
    assert capsys.readouterr().out.splitlines() == [
        "Starting", "Data: 1", "Data: 2", "Data: 3", "Data: 4", "Count: 4", "Sum: 10", "Finished",
    ]  # fmt: skip


def test_the_greatest_count_is_the_published_one_when_a_sub_batch_counts_into_a_variable() -> None:
    counted = (
        Block.each(Ops.EXPLODE, ["a", "b", "c", "a"]).out("*k")
        .compound_agg(CompoundAgg.map("*k", Agg.count())).out("*m")
        .each(Ops.EXPLODE_MAP, "*m").out("*k", "*count")
    )  # fmt: skip
    block = Block.sub_batch(SubBatch(counted, "*k", "*count")).out("*k", "*c").agg(Agg.max("*c")).out("*max")

    assert Block.batch_block(block).execute() == [{"*max": 2}]
    with pytest.raises(DefinitionError, match="does not end in a partitioner"):
        Block.batch_block(block).execute(tasks=2)


def pairs(data: list[Any], record: str, value: str) -> Block:
    return Block.each(Ops.EXPLODE, data).out(record).each(Ops.EXPAND, record).out("*k", value)


@pytest.mark.parametrize("tasks", [1, 4])
def test_rows_are_those_of_the_batch_block_when_a_chain_ends_with_one(tasks: int) -> None:
    """T8: a join, rows that are only joined, and what is aggregated of them."""
    left = pairs([["a", 1], ["b", 2], ["c", 3]], "*l", "*v1")
    joined = left.fresh_batch_source().macro(pairs([["a", 10], ["a", 11], ["c", 30]], "*r", "*v2"))
    joined = joined.each(Ops.TUPLE, "*k", "*v1", "*v2").out("*row")

    rows = Block.batch_block(joined).execute(tasks=tasks)
    assert sorted(values(rows, "*row")) == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]
    grouped = joined.group_by("*k", Block.agg(Agg.sum("*v2")).out("*sum"))
    rows = Block.batch_block(grouped).execute(tasks=tasks)
    assert sorted(rows, key=lambda row: str(row["*k"])) == [{"*k": "a", "*sum": 21}, {"*k": "c", "*sum": 30}]
    assert Block.batch_block(grouped).each(Ops.IDENTITY, 1).out("*x").execute(tasks=tasks) == [{"*x": 1}]


NESTED = {"a0": {"a1": [9, 3, 6], "b1": [0, 8]}, "b0": {"c1": ["x", "y"]}}
SELECTED = [
    (Path.key("a0").key("a1").nth(1), [3]),
    (Path.key("a0").map_vals().all().filter_less_than(7), [3, 6, 0]),
    (Path.key("z").first(), []),
    (Path.key("a0").all(), [["a1", [9, 3, 6]], ["b1", [0, 8]]]),
    (Path.map_vals().filter_selected(Path.map_vals().all().filter_equal(8)).key("a1").all(), [9, 3, 6]),
    (Path.key("a0", "a1").transformed(Path.nth(1).term_val("!")), [[9, "!", 6]]),
    (Path.collect_one(Path.key("b0", "c1")).key("a0", "b1"), [[["x", "y"], [0, 8]]]),
]


@pytest.mark.parametrize(("path", "expected"), SELECTED)
def test_a_select_finds_the_published_values_when_it_is_given_a_value(path: Path, expected: list[Any]) -> None:
    bound = Block.each(Ops.IDENTITY, NESTED).out("*d")
    assert values(Block.select(NESTED, path).out("*v").execute(), "*v") == expected
    assert values(bound.local_select("*d", path).out("*v").execute(), "*v") == expected


def test_a_path_takes_what_rows_bring_when_it_is_followed_in_a_value() -> None:
    block = Block.each(Ops.EXPLODE_INDEXED, [[5, 6], [7, 8]]).out("*i", "*list")
    path = Path.filter_selected(Path.nth(Expr(Ops.MINUS, 1, "*i"))).nth("*i").view(Ops.PLUS, "*i")

    assert values(block.local_select("*list", path).out("*v").execute(), "*v") == [5, 9]


def test_operations_of_the_attempt_have_values_when_a_block_is_executed() -> None:
    block = Block.each(Ops.CURRENT_MICROBATCH_ID).out("*mb").each(Ops.MODULE_INSTANCE_INFO).out("*info")
    (row,) = block.each(Ops.RANDOM_UUID7).out("*id").execute(tasks=2)

    assert (row["*mb"], row["*info"]["tasks"]) == (1, 2)
    assert abs(int(row["*id"].replace("-", "")[:12], 16) - SystemClock().now_ms()) < 3_600_000


def test_pstates_begin_empty_when_a_block_is_executed_again() -> None:
    counted = exploded(["a", "b", "a"]).compound_agg("$$n", CompoundAgg.map("*v", Agg.count()))
    block = counted.local_select("$$n", Path.key("*v")).out("*n")

    for _ in range(2):
        assert values(block.execute(pstates={"$$n": PState.map_schema(str, int)}), "*n") == [1, 1, 2]


def test_rows_go_to_their_tasks_when_a_block_is_executed_on_several() -> None:
    rows = Block.all_partition().each(Ops.CURRENT_TASK_ID).out("*task").execute(tasks=4)

    assert sorted(values(rows, "*task")) == [0, 1, 2, 3]


def test_error_names_step_and_record_when_a_function_raises_in_an_executed_block() -> None:
    with pytest.raises(UserCodeError, match=r"each\(DIV\) at .*test_forms.py.*ZeroDivisionError.*record: \*v=0"):
        exploded([0]).each(Ops.DIV, 1, "*v").out("*w").execute()


def test_a_block_is_executed_when_a_loop_runs_in_this_thread() -> None:
    async def inside() -> list[dict[str, Any]]:
        return exploded([1, 2]).each_async(doubled, "*v").out("*w").execute()

    assert values(asyncio.run(inside()), "*w") == [2, 4]


# --- sub_source ------------------------------------------------------------------------------------------------------


def kind_of(*wanted: Any) -> Block:
    """A block that binds `*kind`: the number of the case that takes `*v`."""
    cases = (SubSource.create(each).each(Ops.IDENTITY, number).out("*kind") for number, each in enumerate(wanted))
    return Block.sub_source("*v", *cases)


def is_large(value: Any) -> bool:
    return isinstance(value, int) and value > 100


def test_values_go_by_their_class_when_each_class_has_a_case() -> None:
    data = ["a", 1, True, 2.5, b"x", datetime(2026, 1, 1, tzinfo=UTC), {"a": 1}, [1], (1,), {1}, frozenset((1,)), None]
    kinds = [str, int, bool, float, bytes, datetime, dict, list, set, None]

    rows = exploded(data).macro(kind_of(*kinds)).execute()

    assert values(rows, "*kind") == [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9]


def test_the_first_case_takes_a_value_when_several_would() -> None:
    rows = exploded([1000, 7, 8, "x"]).macro(kind_of(is_large, 7, int, object)).execute()

    assert values(rows, "*kind") == [0, 1, 2, 3]


def test_a_field_decides_when_sub_source_is_given_an_expression() -> None:
    events = [{"type": "in", "n": 1}, {"type": "out", "n": 2}, {"n": 3}]
    chain = Block.each(Ops.EXPLODE, events).out("*e").sub_source(
        Expr(Ops.GET, "*e", "type"),
        SubSource.create("in").each(Ops.GET, "*e", "n").out("*n"),
        SubSource.create("out").each(Ops.MINUS, Expr(Ops.GET, "*e", "n")).out("*n"),
        SubSource.create(None).each(Ops.IDENTITY, 0).out("*n"),
    )  # fmt: skip

    assert values(chain.execute(), "*n") == [1, -2, 0]


def test_microbatch_fails_with_the_record_when_no_case_takes_a_value() -> None:
    text = r"no case takes 2.5 \(float\); there are cases for int, 'x', is_large\(…\).*record: \*v=2.5"
    with pytest.raises(UserCodeError, match=text):
        exploded([1, 2.5]).macro(kind_of(int, "x", is_large)).execute()


def test_cases_do_not_meet_when_one_block_is_used_twice_in_a_batch_block() -> None:
    """Both uses bind variables of their own inside; the second would else be taken to bind those of the first again."""
    seen = Block.sub_source("*v", SubSource.create(int).each(Ops.INC, "*v"), SubSource.create(object))
    batch = exploded([1, "a"]).macro(seen).macro(seen).global_partition().agg(Agg.count()).out("*n")
    printed: list[Any] = []
    Block.batch_block(batch.each(printed.append, "*n")).execute()

    assert printed == [2]


# --- out_stream ------------------------------------------------------------------------------------------------------


@operation
def by_parity(*numbers: int) -> Iterator[Any]:
    for number in numbers:
        yield (emit_stream("odd", number, str(number)) if number % 2 else number)
        yield emit_stream("nobody", number)


def split(*numbers: Any) -> Block:
    return Block.each(by_parity, *numbers).out_stream("odd", "oddAnchor", "*v", "*text").out("*v")


def test_rows_go_on_from_their_anchor_when_they_are_emitted_to_a_stream() -> None:
    numbers = split(1, 2, 3, 4)

    assert numbers.execute() == [{"*v": 2}, {"*v": 4}]
    assert numbers.hook("oddAnchor").execute() == [{"*v": 1, "*text": "1"}, {"*v": 3, "*text": "3"}]
    assert sorted(values(numbers.anchor("even").unify("even", "oddAnchor").execute(), "*v")) == [1, 2, 3, 4]


def test_the_default_stream_is_bound_when_out_comes_first() -> None:
    block = Block.each(by_parity, 1, 2).out("*v").out_stream("odd", "odd", "*v", "*text")

    assert block.execute() == [{"*v": 2}]


def test_several_streams_are_bound_when_each_has_an_anchor() -> None:
    block = Block.each(by_parity, 1, 2).out_stream("odd", "odd", "*v", "*t").out_stream("nobody", "all", "*v").out("*v")

    assert values(block.hook("all").execute(), "*v") == [1, 2]
    assert values(block.hook("odd").execute(), "*v") == [1]
    assert values(block.execute(), "*v") == [2]


def test_rows_go_on_without_values_when_the_default_stream_is_not_bound() -> None:
    block = Block.each(by_parity, 1, 2, 4).out_stream("odd", "odd", "*v", "*text")

    assert block.execute() == [{}, {}]


def test_named_emits_are_dropped_when_nothing_binds_their_stream() -> None:
    assert Block.each(by_parity, 1, 2).out("*v").execute() == [{"*v": 2}]


def test_error_names_the_operation_when_a_stream_has_other_values_than_variables() -> None:
    with pytest.raises(UserCodeError, match=r"each\(by_parity\) at .*emitted 2 values for 1 out variables"):
        Block.each(by_parity, 1).out_stream("odd", "odd", "*v").out("*v").execute()


@operation
def halves(key: str) -> Iterator[Any]:
    yield key, 1
    yield emit_stream("right", key, 2)


def test_streams_of_one_operation_are_joined_by_what_users_named() -> None:
    """The variables by which rows of streams are told apart differ between them, and are no join columns."""
    both = exploded(["x", "y"]).each(halves, "*v").out_stream("right", "right", "*k", "*b").out("*k", "*a")
    rows = Block.batch_block(both.each(Ops.TUPLE, "*k", "*a", "*b").out("*row")).execute(tasks=2)

    assert sorted(values(rows, "*row")) == [["x", 1, 2], ["y", 1, 2]]


def test_branches_are_joined_by_what_users_named_when_one_has_cases_and_an_atomic_block() -> None:
    seen: list[Any] = []
    kinds = exploded(["x", 1]).macro(kind_of(str, int)).atomic_block(Block.each(seen.append, "*kind"))
    other = Block.each(Ops.EXPLODE, [["x", 10], [1, 11]]).out("*pair").each(Ops.EXPAND, "*pair").out("*v", "*n")
    joined = kinds.fresh_batch_source().macro(other).each(Ops.TUPLE, "*v", "*kind", "*n").out("*row")

    assert sorted(values(Block.batch_block(joined).execute(), "*row"), key=str) == [["x", 0, 10], [1, 1, 11]]
    assert seen == [0, 1]


# --- atomic_block ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[], [1, 3, 4, 5]])
def test_what_follows_runs_once_when_an_atomic_block_emits_any_number_of_rows(data: list[int]) -> None:
    filled = Block.each(Ops.EXPLODE, data).out("*v").local_transform("$$all", Path.term(lambda old, v: [*old, v], "*v"))
    block = Block.local_transform("$$all", Path.term_val([])).atomic_block(filled).local_select("$$all").out("*all")

    assert block.execute(pstates={"$$all": list}) == [{"*all": data}]


@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_each_row_sees_what_its_atomic_block_wrote_when_rows_share_a_key(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool, form: str
) -> None:
    """Loops, branches and partitioners inside: the work on this task is done before the row goes on."""
    bump = Block.compound_agg("$$n", CompoundAgg.map("*k", Agg.count()))
    twice = Block.loop_with_vars(
        LoopVars.var("*i", 0),
        bump.if_true(Expr(Ops.LESS_THAN, "*i", 1), Block.continue_loop(Expr(Ops.INC, "*i")), Block.emit_loop("*i")),
    ).out("*rounds")

    away = Block.all_partition().compound_agg("$$far", CompoundAgg.map("*k", Agg.count()))

    def define(chain: Block) -> None:
        (chain.hash_partition("*k")
              .atomic_block(twice.branch(away))
              .local_select("$$n", Path.key("*k")).out("*n")
              .compound_agg("$$seen", CompoundAgg.map("*k", Agg.list("*n"))))  # fmt: skip

    keys = ["a", "b", "a", "a"]
    attempts = Attempts(tmp_path, module_of(define), tasks, threads, as_bytes=as_bytes)
    attempts.program = in_form(attempts.program, form)
    attempts.feed("*d", [[key, 0] for key in keys])
    attempts.attempt()

    assert dict(attempts.everywhere("$$seen", Path.all())) == {"a": [2, 4, 6], "b": [2]}
    far = Counter({"a": 3 * tasks, "b": tasks})
    assert sum((Counter(dict([pair])) for pair in attempts.everywhere("$$far", Path.all())), Counter()) == far


# --- each_async ------------------------------------------------------------------------------------------------------


async def doubled(value: Any) -> Any:
    await asyncio.sleep(0)
    return value * 2


def in_form(program: pg.Program, form: str) -> pg.Program:
    """The program as it is, or row by row."""
    if form == "columns":
        return program
    segments = {number: replace(segment, mode="rows") for number, segment in program.segments.items()}
    return replace(program, segments=segments, key=program.key + "r")


def module_of(build: Callable[[Block], Any]) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            mb = topologies.microbatch("mb")
            for name in ("$$n", "$$far"):
                mb.pstate(name, PState.map_schema(str, int))
            mb.pstate("$$seen", PState.map_schema(str, PState.list_schema(object)))
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r")
            build(rows.out("*k", "*v"))

    return Made()


def listed(chain: Block) -> Block:
    return chain.hash_partition("*k").compound_agg("$$seen", CompoundAgg.map("*k", Agg.list("*w")))


@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_rows_keep_their_order_when_later_calls_end_first(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool, form: str
) -> None:
    async def slow_first(value: int) -> int:
        for _ in range(20 - value):
            await asyncio.sleep(0)
        return value

    attempts = Attempts(
        tmp_path,
        module_of(lambda chain: listed(chain.hash_partition("*k").each_async(slow_first, "*v").out("*w"))),
        tasks,
        threads,
        as_bytes=as_bytes,
    )
    attempts.program = in_form(attempts.program, form)
    attempts.feed("*d", [["k", n] for n in range(20)])
    attempts.attempt()

    (found,) = attempts.everywhere("$$seen", Path.key("k").filter_pred(bool))
    assert sorted(found) == list(range(20))
    if tasks == 1:
        assert found == list(range(20))


def test_futures_of_a_pool_are_awaited_when_a_function_returns_them() -> None:
    with ThreadPoolExecutor(2) as pool:
        POOLS["ask"] = lambda value: pool.submit(lambda: (value, threading.get_ident()))
        rows = exploded([1, 2, 3]).each_async(by_pool, "*v").out("*w").execute()
    assert [value for value, _ in values(rows, "*w")] == [1, 2, 3]
    assert threading.get_ident() not in {thread for _, thread in values(rows, "*w")}


POOLS: dict[str, Callable[[Any], Any]] = {}


def by_pool(value: Any) -> Any:
    """Calls what a test put into `POOLS`: pools and locks cannot be part of a module."""
    return POOLS["ask"](value)


class Calls:
    """How many calls are under way, and how many were at most."""

    def __init__(self) -> None:
        self.now = self.most = self.ended = 0

    async def __call__(self, value: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            return value
        finally:
            self.now -= 1
            self.ended += 1


@pytest.mark.parametrize("is_by_rows", [False, True])
def test_calls_run_together_up_to_the_bound_when_a_thread_has_many_rows(tmp_path: Any, is_by_rows: bool) -> None:
    """Also where a PState that is read and written around the call makes the segments go row by row."""
    calls = Calls()
    POOLS["ask"] = calls

    def build(chain: Block) -> None:
        if is_by_rows:
            chain = chain.local_select("$$n", Path.key("*k")).out("*n")
        chain = chain.each_async(by_pool, "*v", concurrency=7).out("*w")
        chain.compound_agg("$$n", CompoundAgg.map("*k", Agg.sum("*w"))).local_select("$$n", Path.key("*k")).out("*m")

    attempts = Attempts(tmp_path, module_of(build), 4, 1)
    attempts.feed("*d", [["k", n] for n in range(100)])
    attempts.attempt()

    assert {segment.mode for segment in attempts.program.segments.values()} >= {"rows"}
    assert sum(dict([pair])["k"] for pair in attempts.everywhere("$$n", Path.all())) == sum(range(100))
    assert (calls.most, calls.now, calls.ended) == (7, 0, 100)


def test_rows_come_in_a_loop_when_each_round_awaits() -> None:
    again = Block.each_async(doubled, "*i").out("*j").if_true(
        Expr(Ops.LESS_THAN, "*j", 100), Block.continue_loop("*j"), Block.emit_loop("*j")
    )  # fmt: skip
    rows = exploded([1, 3]).loop_with_vars(LoopVars.var("*i", "*v"), again).out("*end").execute(tasks=2)

    assert sorted((row["*v"], row["*end"]) for row in rows) == [(1, 128), (3, 192)]


def test_results_are_grouped_when_calls_stand_in_a_batch_block() -> None:
    seen: list[Any] = []
    batch = (
        exploded([1, 2, 3]).each_async(doubled, "*v").out("*w").each(Ops.MOD, "*v", 2).out("*k")
        .group_by("*k", Block.agg(Agg.sum("*w")).out("*sum"))
        .each_async(doubled, "*sum").out("*twice")
    )  # fmt: skip
    Block.batch_block(batch.each(lambda *row: seen.append(row), "*k", "*twice")).execute(tasks=4)

    assert sorted(seen) == [(0, 8), (1, 16)]


@pytest.mark.parametrize("form", ["columns", "rows"])
def test_error_shows_the_record_when_a_call_raises(tmp_path: Any, form: str) -> None:
    async def refuses(value: int) -> int:
        await asyncio.sleep(0)
        if value == 3:
            raise KeyError("three")
        return value

    attempts = Attempts(tmp_path, module_of(lambda chain: listed(chain.each_async(refuses, "*v").out("*w"))), 1)
    attempts.program = in_form(attempts.program, form)
    attempts.feed("*d", [["k", n] for n in range(5)])

    text = r"each_async\(.*refuses\) at .*test_forms.py.* raised KeyError: 'three' \(record: .*\*v=3"
    with pytest.raises(UserCodeError, match=text) as raised:
        attempts.attempt()
    assert "in refuses" in raised.value.trace and "event_loops.py" not in raised.value.trace


def test_error_says_so_when_a_function_returns_nothing_to_await() -> None:
    with pytest.raises(UserCodeError, match="returned int, which cannot be awaited; use each for plain functions"):
        exploded([1]).each_async(abs, "*v").out("*w").execute()


def test_error_is_of_the_record_when_it_awaits_what_others_cancelled() -> None:
    cancelled: Future[int] = Future()
    cancelled.cancel()
    POOLS["ask"] = lambda value: cancelled
    with pytest.raises(UserCodeError, match=r"somebody cancelled what it waits for \(record: \*v=1"):
        exploded([1]).each_async(by_pool, "*v").out("*w").execute()


ENDED: list[Any] = []


async def forever(value: Any) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ENDED.append(value)


def open_loops() -> int:
    gc.collect()
    return sum(isinstance(each, asyncio.BaseEventLoop) and not each.is_closed() for each in gc.get_objects())


def test_microbatch_fails_with_the_record_when_a_call_takes_too_long(tmp_path: Any) -> None:
    def build(chain: Block) -> None:
        chain.each_async(forever, "*v", timeout_seconds=0.01)

    attempts = Attempts(tmp_path, module_of(build), 1)
    attempts.feed("*d", [["k", 1], ["k", 2]])
    ENDED.clear()
    before = (open_loops(), threading.active_count())
    text = r"each_async\(forever\).* raised TimeoutError: no result within 0.01 s \(record: .*\*v=[12]"
    with pytest.raises(UserCodeError, match=text):
        attempts.attempt()
    assert sorted(ENDED) == [1, 2]
    assert (open_loops(), threading.active_count()) == before


async def failing(value: Any) -> Any:
    await asyncio.sleep(0)
    raise ValueError(f"of {value}")


def test_nothing_is_logged_and_the_first_row_is_named_when_many_calls_fail_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(UserCodeError, match=r"ValueError: of 0 \(record: \*v=0"):
        exploded(list(range(9))).each_async(failing, "*v").out("*w").execute()
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def stubborn(value: Any) -> Any:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return value


def test_microbatch_fails_when_a_call_goes_on_after_its_time() -> None:
    with pytest.raises(UserCodeError, match="no result within 0.01 s"):
        exploded([1]).each_async(stubborn, "*v", timeout_seconds=0.01).out("*w").execute()


@pytest.mark.parametrize("timeout_seconds", [None, 3600])
def test_a_call_gets_no_more_than_the_time_of_a_phase_when_it_asks_for_more(
    tmp_path: Any, timeout_seconds: float | None
) -> None:
    def build(chain: Block) -> None:
        chain.each_async(forever, "*v", timeout_seconds=timeout_seconds)

    attempts = Attempts(tmp_path, module_of(build), 1)
    attempts.options["topology.microbatch.phase.timeout.seconds"] = 0.02
    attempts.feed("*d", [["k", 1]])

    with pytest.raises(UserCodeError, match="no result within 0.02 s"):
        attempts.attempt()


@pytest.mark.parametrize("form", ["columns", "rows"])
def test_calls_are_cancelled_and_nothing_is_left_when_the_attempt_is_cancelled(tmp_path: Any, form: str) -> None:
    cancel = threading.Event()

    CANCELS["it"] = cancel
    attempts = Attempts(tmp_path, module_of(lambda chain: chain.each_async(cancel_it, "*v")), 4)
    attempts.program = in_form(attempts.program, form)
    attempts.feed("*d", [["k", n] for n in range(8)])
    ENDED.clear()
    before = (open_loops(), threading.active_count())
    began = time.monotonic()

    with pytest.raises(AttemptTimeout):
        attempts.attempt(cancel)

    assert time.monotonic() - began < 60  # far less than the time of a phase
    assert ENDED and (open_loops(), threading.active_count()) == before


CANCELS: dict[str, threading.Event] = {}


async def cancel_it(value: Any) -> None:
    CANCELS["it"].set()
    await forever(value)


# --- macros ----------------------------------------------------------------------------------------------------------


def full_name(block: Block, record: str, out: str) -> Block:
    """A macro with variables of its own."""
    first, last = Helpers.gen_var("first"), Helpers.gen_var("last")
    block = block.each(Ops.GET, record, "first").out(first).each(Ops.GET, record, "last").out(last)
    return block.each(Ops.TO_STRING, first, " ", last).out(out)


def test_macro_is_used_twice_when_its_variables_are_generated() -> None:
    people = [{"first": "Ada", "last": "L"}, {"first": "Alan", "last": "T"}]
    block = Block.each(Ops.EXPAND, people).out("*a", "*b")
    block = block.macro(full_name, "*a", "*x").macro(full_name, "*b", "*y")

    (row,) = block.execute()
    assert (row["*x"], row["*y"]) == ("Ada L", "Alan T")
    assert not [name for name in row if "first" in name]
    seen: list[Any] = []
    Block.batch_block(block.each(lambda *names: seen.append(names), "*x", "*y")).execute()
    assert seen == [("Ada L", "Alan T")]


def test_block_grows_in_a_python_loop_when_it_begins_empty() -> None:
    block = Block.create()
    for name in ("a", "b"):
        block = block.each(Ops.IDENTITY, name).out(f"*{name}")

    assert Block.macro(block).yield_if_overtime().execute() == [{"*a": "a", "*b": "b"}]
