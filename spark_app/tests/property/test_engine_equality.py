"""Random small programs give equal PStates by columns and by rows, on any number of tasks and threads."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Folder(__file__).parents[1] / "unit"))
from attempts import Attempts

from tidemill import (
    Agg,
    Block,
    CompoundAgg,
    Depot,
    Expr,
    Helpers,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    SubSource,
    emit_stream,
    operation,
)
from tidemill.plan.program import Program
from tidemill.values.errors import RecordRefused, UserCodeError

MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ITEMS_MAX, ITEM_CHARACTERS_MAX = 300, 2_000
HERE = Path.key(Expr(Ops.CURRENT_TASK_ID)).null_to_val([])


def by_rows(program: Program) -> Program:
    """The same program with every segment row by row."""
    segments = {number: replace(segment, mode="rows") for number, segment in program.segments.items()}
    return replace(program, segments=segments, key=program.key + "r")


@operation
def up_to(number: Any) -> Any:
    """A few rows, or none."""
    yield from range(abs(number) % 3 if isinstance(number, int) else 1)


@operation
def by_sign(number: Any) -> Any:
    """Emits to two streams in turn, and to one that nothing binds."""
    for each in range(abs(number) % 4 if isinstance(number, int) else 2):
        yield [each, emit_stream("odd", [each], number), emit_stream("nobody", each)][each % 3]


async def awaited(a: Any, b: Any) -> Any:
    await asyncio.sleep(0)
    return [b, a]


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def python_sum(a: Any, b: Any) -> Any:
    return [a, b]


numbers = st.integers(-5, 5) | st.sampled_from([2**62, -(2**62), 2**63 - 1])
values = st.one_of(
    numbers, st.floats(allow_nan=False, width=32), st.booleans(), st.none(), st.sampled_from(["", "a", "bc", "é"])
)
names = st.sampled_from(["*a", "*b"])
maybe = st.sampled_from(["EQUAL", "IS_NULL", "NOT", "AND", "OR", "IS_NOT_NULL"])


def _truth(op: str, left: str, right: str) -> Expr:
    return (
        Expr(getattr(Ops, op), left) if op in ("IS_NULL", "NOT", "IS_NOT_NULL") else Expr(getattr(Ops, op), left, right)
    )


conditions = st.builds(_truth, maybe, names, names)


class TooMuch(Exception):
    """An example that logs so much that it would run for minutes; chance finds one now and then."""


def logged(old: list[Any], item: Any) -> list[Any]:
    """The log with one item more."""
    if len(old) >= ITEMS_MAX or len(repr(item)) > ITEM_CHARACTERS_MAX:
        raise TooMuch
    return [*old, item]


@st.composite
def chains(draw: Any, depth: int = 2) -> Block:
    """A few nodes that keep *a and *b bound."""
    block = Block.each(Ops.IDENTITY, "*a").out("*a")
    for _ in range(draw(st.integers(0, 3))):
        block = block.macro(draw(nodes(depth)))
    return block


@st.composite
def nodes(draw: Any, depth: int) -> Block:
    kinds = ["function", "builtin", "many", "keep", "hash", "all", "log", "tuple", "count", "append", "async"]
    kind = draw(st.sampled_from(kinds + (["if", "loop", "branch", "sub_source", "stream", "atomic"] if depth else [])))
    x, y = draw(names), draw(names)
    if kind == "function":
        return Block.each(python_sum, x, y).out(y)
    if kind == "builtin":
        return Block.each(draw(st.sampled_from([Ops.EQUAL, Ops.AND, Ops.TO_STRING, Ops.TUPLE])), x, y).out(x)
    if kind == "many":
        return Block.each(up_to, x).out(y)
    if kind == "keep":
        return Block.keep_true(draw(conditions))
    if kind == "hash":
        return Block.hash_partition(Expr(Ops.TO_STRING, x))
    if kind == "all":
        return Block.all_partition()
    if kind == "tuple":
        return Block.each(Ops.TUPLE, x, y).out("*t").each(Ops.EXPAND, "*t").out("*b", "*a")
    if kind == "log":
        return Block.local_transform("$$log", HERE.term(lambda old, a, b: logged(old, [a, b]), "*a", "*b"))
    if kind == "count":
        return Block.compound_agg("$$n", CompoundAgg.map(Expr(Ops.TO_STRING, x), Agg.count()))
    if kind == "append":
        return Block.depot_partition_append(draw(st.sampled_from(["*out", "*more"])), Expr(Ops.TUPLE, x, y))
    if kind == "if":
        return Block.if_true(draw(conditions), draw(chains(depth - 1)), draw(chains(depth - 1)))
    if kind == "branch":
        return Block.branch(draw(chains(depth - 1)))
    if kind == "async":
        return Block.each_async(awaited, x, y, concurrency=3).out(y)
    if kind == "atomic":
        return Block.atomic_block(draw(chains(depth - 1)))
    if kind == "sub_source":
        wanted = [*draw(st.permutations([str, None, 2, is_list])), int, object]
        return Block.sub_source(x, *(SubSource.create(each).macro(draw(chains(depth - 1))) for each in wanted))
    if kind == "stream":
        odd, even = Helpers.gen_var("odd"), Helpers.gen_var("even")
        block = Block.each(by_sign, x).out_stream("odd", odd, "*a", "*b").out(y).anchor(even)
        return block.hook(odd).macro(draw(chains(depth - 1))).anchor(odd + "end").unify(odd + "end", even)
    again = Block.if_true(
        Expr(Ops.LESS_THAN, "*i", draw(st.integers(0, 3))),
        Block.each(Ops.INC, "*i").out("*j").continue_loop("*j"),
        Block.emit_loop("*i"),
    )
    body = draw(chains(depth - 1)).macro(again)
    return Block.loop_with_vars(LoopVars.var("*i", 0), body).out("*rounds")


def module_of(chain: Block) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.random())
            setup.declare_depot("*out", Depot.disallow())
            setup.declare_depot("*more", Depot.random())
            mb = topologies.microbatch("mb")
            mb.pstate("$$log", PState.map_schema(int, list))
            mb.pstate("$$n", PState.map_schema(str, int))
            rows = mb.source("*d").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*a", "*b")
            rows = rows.macro(chain).each(Ops.TO_STRING, "*a", "|", "*b").out("*k").hash_partition("*k")
            rows.local_transform("$$log", HERE.term(logged, "*k"))

    return Made()


def outcome_of(chain: Block, records: list[Any], tasks: int, threads: int, as_bytes: bool, rows: bool) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        attempts = Attempts(Folder(folder), module_of(chain), tasks, threads, as_bytes=as_bytes)
        if rows:
            attempts.program = by_rows(attempts.program)
        attempts.feed("*d", records)
        try:
            attempts.attempt()
        except UserCodeError as error:
            # besides that, only an append can fail: of what is too large or no data
            assert isinstance(error.__cause__, (TooMuch, RecordRefused))
            reject()
        state = [[task, attempts.select(name, Path.all(), task)] for task in range(tasks) for name in ("$$log", "$$n")]
        return [state, [[name, sorted(held.items())] for name, held in sorted(attempts.appended.items())]]


@MANY
@given(chains(), st.lists(st.tuples(values, values).map(list), max_size=6), st.sampled_from([1, 2, 4]))
def test_state_is_equal_whatever_runs_the_program(chain: Block, records: list[Any], tasks: int) -> None:
    plain = outcome_of(chain, records, tasks, 1, False, False)
    by_row = outcome_of(chain, records, tasks, 1, False, True)
    assert repr(by_row) == repr(plain)
    if tasks > 1:
        spread = outcome_of(chain, records, tasks, 2, True, False)
        assert repr(spread) == repr(plain)


def test_a_step_out_of_order_is_seen_when_outcomes_are_compared() -> None:
    """The comparison can fail: the same steps in another order leave another state."""
    log = Block.local_transform("$$log", HERE.term(lambda old, a, b: [*old, [a, b]], "*a", "*b"))
    first, second = Block.each(python_sum, "*a", "*b").out("*b").macro(log), log.each(python_sum, "*a", "*b").out("*b")
    outcomes = [outcome_of(chain, [[1, 2]], 1, 1, False, rows) for chain in (first, second) for rows in (False, True)]
    assert [repr(found) == repr(outcomes[0]) for found in outcomes] == [True, True, False, False]
