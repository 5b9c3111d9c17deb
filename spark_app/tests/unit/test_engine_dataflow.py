"""Dataflow on the engine: the same module on several numbers of tasks and threads, in process and over bytes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from attempts import Attempts

from tidemill import (
    Agg,
    Block,
    Case,
    CompoundAgg,
    Depot,
    Expr,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    operation,
    vectorized,
)
from tidemill.engine.work import Pinned
from tidemill.values.data import route
from tidemill.values.errors import AttemptTimeout, UserCodeError

PLACES = [(1, 1, False), (4, 1, False), (4, 2, True), (8, 4, True)]


def module_of(define: Any) -> Module:
    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            define(setup, topologies)

    return Made()


def one_depot(build: Any, schema: Any = None, depot: Any = None) -> Module:
    """A module with the depot *d, the PState $$p and what `build(source)` adds."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", depot or Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", schema or PState.map_schema(str, int))
        build(mb.source("*d").out("*mb"))

    return module_of(define)


def count_of(name: str) -> Any:
    return CompoundAgg.map(name, Agg.count())


def merged(attempts: Attempts, pstate: str = "$$p") -> dict[Any, Any]:
    pairs = attempts.everywhere(pstate, Path.all())
    assert len({repr(key) for key, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_every_key_is_counted_on_its_task_when_hash_partitioned(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    def build(source: Any) -> None:
        source.explode_microbatch("*mb").out("*w").hash_partition("*w").compound_agg("$$p", count_of("*w"))

    attempts = Attempts(tmp_path, one_depot(build), tasks, threads, as_bytes=as_bytes)
    words = [f"w{i % 7}" for i in range(50)]
    for _ in range(2):
        attempts.feed("*d", words)
        attempts.attempt()
    assert merged(attempts) == {word: 2 * words.count(word) for word in words}
    for word in set(words):
        assert attempts.at_key("$$p", word, Path.key(word)) == [2 * words.count(word)]


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_rows_go_where_each_partitioner_says(tmp_path: Any, tasks: int, threads: int, as_bytes: bool) -> None:
    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*n").anchor("rows")
        here = Expr(lambda kind, task: f"{kind}{task}", Expr(Ops.IDENTITY, "*kind"), Expr(Ops.CURRENT_TASK_ID))
        tally = Block.each(Ops.IDENTITY, here).out("*at").global_partition().compound_agg("$$p", count_of("*at"))
        for kind, move in {
            "all": Block.all_partition(),
            "global": Block.global_partition(),
            "shuffle": Block.shuffle_partition(),
            "direct": Block.direct_partition(Expr(Ops.MOD, "*n", tasks)),
            "custom": Block.custom_partition(lambda parts, n: (n + 1) % parts, "*n"),
            "path": Block.path_partition("$$p", Path.key("*n")),
        }.items():
            rows.branch("rows", Block.each(Ops.IDENTITY, kind).out("*kind").macro(move).macro(tally))

    attempts = Attempts(tmp_path, one_depot(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", list(range(16)))
    attempts.attempt()
    found = merged(attempts)
    share = 16 // tasks
    for task in range(tasks):
        assert found[f"all{task}"] == 16
        assert found[f"direct{task}"] == share
        assert found[f"custom{task}"] == share
        assert found.get(f"path{task}", 0) == sum(route(n, tasks) == task for n in range(16))
    assert found["global0"] == 16 and "global1" not in found
    assert sum(value for key, value in found.items() if key.startswith("shuffle")) == 16


def test_shuffle_repeats_itself_when_the_attempt_is_run_again(tmp_path: Any) -> None:
    def build(source: Any) -> None:
        source.explode_microbatch("*mb").out("*n").shuffle_partition().local_transform(
            "$$p", Path.key(Expr(Ops.TO_STRING, "*n")).term_val(Expr(Ops.CURRENT_TASK_ID))
        )

    outcomes = []
    for name, threads in (("a", 1), ("b", 1), ("c", 4)):
        attempts = Attempts(tmp_path / name, one_depot(build), 4, threads)
        attempts.feed("*d", list(range(40)))
        attempts.attempt()
        outcomes.append(merged(attempts))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(set(outcomes[0].values())) == 4


@pytest.mark.parametrize("choice", [4, -1, "0", True, None])
def test_attempt_fails_when_a_partitioner_leaves_the_range(tmp_path: Any, choice: Any) -> None:
    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*n").custom_partition(lambda parts, n: choice, "*n")
        rows.compound_agg("$$p", count_of("*n"))

    attempts = Attempts(tmp_path, one_depot(build), 4)
    attempts.feed("*d", ["x"])
    with pytest.raises(UserCodeError, match="tasks are 0 to 3"):
        attempts.attempt()


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_tokens_hop_from_task_to_task_when_a_loop_holds_a_partitioner(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    body = (
        Block.direct_partition(Expr(Ops.MOD, "*i", tasks))
        .if_true(
            Expr(Ops.LESS_THAN, "*i", "*n"),
            Block.each(Ops.INC, "*i").out("*next").continue_loop("*next"),
            Block.emit_loop("*i"),
        )
    )  # fmt: skip

    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*n")
        hops = rows.loop_with_vars(LoopVars.var("*i", 0), body).out("*hops")
        hops.each(Ops.TO_STRING, "*n", "-", "*hops").out("*k").hash_partition("*k").compound_agg("$$p", count_of("*k"))

    attempts = Attempts(tmp_path, one_depot(build), tasks, threads, as_bytes=as_bytes)
    assert attempts.program.schedule is None
    attempts.feed("*d", [0, 3, 7, 3])
    attempts.attempt()
    assert merged(attempts) == {"0-0": 1, "3-3": 2, "7-7": 1}


def test_attempt_fails_when_a_loop_never_ends(tmp_path: Any) -> None:
    body = Block.global_partition().continue_loop("*i")

    def build(source: Any) -> None:
        source.explode_microbatch("*mb").out("*n").loop_with_vars(LoopVars.var("*i", 0), body).out("*x")

    attempts = Attempts(tmp_path, one_depot(build), 2)
    attempts.options["topology.microbatch.superstep.limit"] = 20
    attempts.feed("*d", [1])
    with pytest.raises(ValueError, match="20 supersteps"):
        attempts.attempt()


@operation
def letters(word: str) -> Any:
    yield from word


@vectorized
def doubled(series: pl.Series) -> pl.Series:
    return series * 2


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_operations_conditions_and_functions_give_what_python_gives(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*word", "*n")
        rows = (
            rows.each(doubled, "*n")
            .out("*two")
            .each(letters, "*word")
            .out("*c")
            .keep_true(Expr(Ops.NOT_EQUAL, "*c", "z"))
        )
        rows = rows.cond(
            Case.create(Expr(Ops.EQUAL, "*c", "a")).each(Ops.TO_STRING, "first-", "*c").out("*k"),
            Case.create(Expr(Ops.IS_EVEN, "*n")).each(lambda c, n: f"even-{c}-{n}", "*c", "*two").out("*k"),
            Case.create(True).each(Ops.TO_STRING, "odd-", "*c").out("*k"),
        )
        rows.hash_partition("*k").compound_agg("$$p", count_of("*k"))

    attempts = Attempts(tmp_path, one_depot(build), tasks, threads, as_bytes=as_bytes)
    records = [["abz", 1], ["ca", 2], ["", 5], ["bb", 4]]
    attempts.feed("*d", records)
    attempts.attempt()
    expected: dict[str, int] = {}
    for word, n in records:
        for c in word.replace("z", ""):
            key = f"first-{c}" if c == "a" else f"even-{c}-{2 * n}" if n % 2 == 0 else f"odd-{c}"
            expected[key] = expected.get(key, 0) + 1
    assert merged(attempts) == expected


def bank() -> Module:
    """Transfers between accounts on different tasks, with an account of failures."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*opened", Depot.hash_by(Ops.FIRST))
        setup.declare_depot("*transfers", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$funds", PState.map_schema(str, int))
        mb.pstate("$$failed", PState.map_schema(str, int))
        opened = mb.source("*opened").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r")
        opened.out("*who", "*amount").compound_agg("$$funds", CompoundAgg.map("*who", Agg.sum("*amount")))
        rows = mb.source("*transfers").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r")
        rows = rows.out("*from", "*to", "*amount").local_select("$$funds", Path.key("*from")).out("*has")
        enough = Expr(lambda has, amount: has is not None and has >= amount, "*has", "*amount")
        pay = (
            Block.local_transform("$$funds", Path.key("*from").term(Ops.MINUS, "*amount"))
            .hash_partition("*to")
            .local_transform("$$funds", Path.key("*to").null_to_val(0).term(Ops.PLUS, "*amount"))
        )
        rows.if_true(enough, pay, Block.compound_agg("$$failed", count_of("*from")))

    return module_of(define)


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_money_is_neither_made_nor_lost_when_transfers_cross_tasks(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    attempts = Attempts(tmp_path, bank(), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*opened", [["a", 100], ["b", 50], ["c", 0]])
    attempts.attempt()
    attempts.feed("*transfers", [["a", "b", 60], ["a", "c", 60], ["b", "c", 50], ["c", "a", 1000], ["a", "d", 40]])
    attempts.attempt()
    funds = merged(attempts, "$$funds")
    assert sum(funds.values()) == 150
    assert funds == {"a": 0, "b": 60, "c": 50, "d": 40}
    assert merged(attempts, "$$failed") == {"a": 1, "c": 1}
    assert any(segment.mode == "rows" for segment in attempts.program.segments.values())


@pytest.mark.parametrize("mode", ["columns", "rows"])
def test_error_shows_step_traceback_and_record_when_a_function_raises(tmp_path: Any, mode: str) -> None:
    def picky(word: str) -> str:
        if word == "bad":
            raise ValueError("I do not like this word")
        return word

    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*w").each(picky, "*w").out("*v")
        if mode == "rows":
            rows = rows.local_select("$$p", Path.key("*v")).out("*old")
            rows.local_transform("$$p", Path.key("*v").term_val(1))
        else:
            rows.compound_agg("$$p", count_of("*v"))

    attempts = Attempts(tmp_path, one_depot(build), 1)
    attempts.feed("*d", ["fine", "bad", "other"])
    with pytest.raises(UserCodeError) as caught:
        attempts.attempt()
    error = caught.value
    assert "picky" in error.step and "test_engine_dataflow.py" in error.step
    assert "I do not like this word" in error.trace and "in picky" in error.trace
    assert "'bad'" in error.sample and "fine" not in error.sample


def test_attempt_stops_when_it_is_cancelled(tmp_path: Any) -> None:
    import threading

    def build(source: Any) -> None:
        source.explode_microbatch("*mb").out("*w").compound_agg("$$p", count_of("*w"))

    attempts = Attempts(tmp_path, one_depot(build), 1)
    attempts.feed("*d", ["x"])
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(AttemptTimeout):
        attempts.attempt(cancel)
    attempts.attempt()
    assert merged(attempts) == {"x": 1}


@pytest.mark.parametrize("threads", [1, 2])
def test_other_topologies_are_read_as_they_were_committed(tmp_path: Any, threads: int) -> None:
    class Two(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d", Depot.hash_by(Ops.IDENTITY))
            first = topologies.microbatch("first")
            first.pstate("$$seen", PState.map_schema(str, int))
            rows = first.source("*d").out("*mb").explode_microbatch("*mb").out("*w")
            rows.compound_agg("$$seen", count_of("*w"))
            second = topologies.microbatch("second")
            second.pstate("$$p", PState.map_schema(str, int))
            rows = second.source("*d").out("*mb").explode_microbatch("*mb").out("*w")
            rows = rows.select("$$seen", Path.key("*w")).out("*n")
            rows.local_transform("$$p", Path.key("*w").term_val("*n"))

    first = Attempts(tmp_path, Two(), 4, threads, "first")
    first.feed("*d", ["a", "b", "a"])
    first.attempt()
    second = Attempts(tmp_path, Two(), 4, threads, "second")
    second.microbatch_id = 100
    second.others["first"] = Pinned("m/topologies/t", first.snapshot)
    second.attempt()
    assert merged(second) == {"a": 2, "b": 1}
    assert second.program.reads == {"$$seen": "first"}


def test_attempt_fails_when_a_batch_block_is_reached_off_task_0(tmp_path: Any) -> None:
    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*n")
        rows.batch_block(Block.all_partition().compound_agg("$$p", count_of("*n")))

    attempts = Attempts(tmp_path, one_depot(build), 4)
    attempts.feed("*d", ["x", "y"])
    with pytest.raises(UserCodeError, match="only begin on task 0"):
        attempts.attempt()


def test_rows_wait_their_turn_when_several_reach_one_batch_block(tmp_path: Any) -> None:
    def build(source: Any) -> None:
        rows = source.explode_microbatch("*mb").out("*n").global_partition()
        body = Block.all_partition().each(Ops.TO_STRING, "*n").out("*k").compound_agg("$$p", count_of("*k"))
        rows.batch_block(body).each(Ops.TO_STRING, "after-", "*n").out("*k").compound_agg("$$p", count_of("*k"))

    for threads, as_bytes in ((1, False), (2, True)):
        attempts = Attempts(tmp_path / str(threads), one_depot(build), 4, threads, as_bytes=as_bytes)
        attempts.feed("*d", [1, 2, 2])
        attempts.attempt()
        found: dict[str, int] = {}
        for key, value in attempts.everywhere("$$p", Path.all()):
            found[key] = found.get(key, 0) + value
        assert found == {"1": 4, "2": 8, "after-1": 1, "after-2": 2}


ROWS_AT_THE_END: dict[str, Any] = {
    "chain": lambda rows: rows.hash_partition("*k"),
    "every task": lambda rows: rows.all_partition(),
    "task 0": lambda rows: rows.global_partition(),
    "anywhere": lambda rows: rows.shuffle_partition(),
    "two in a row": lambda rows: rows.hash_partition("*k").shuffle_partition(),
    "branch": lambda rows: rows.branch(Block.hash_partition("*k")).compound_agg("$$p", count_of("*k")),
    "condition": lambda rows: rows.if_true(
        Expr(Ops.EQUAL, "*k", "a"), Block.hash_partition("*k"), Block.each(Ops.IDENTITY, 1).out("*x")
    ),
    "row segment": lambda rows: (
        rows.local_select("$$p", Path.key("*k")).out("*n").local_transform("$$p", Path.key("*k").term_val(1))
        .hash_partition("*k")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS_AT_THE_END)
@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_rows_end_there_when_nothing_follows_a_partitioner(
    tmp_path: Any, name: str, tasks: int, threads: int, as_bytes: bool
) -> None:
    def build(source: Any) -> None:
        ROWS_AT_THE_END[name](source.explode_microbatch("*mb").out("*k"))

    attempts = Attempts(tmp_path, one_depot(build), tasks, threads, as_bytes=as_bytes)
    attempts.feed("*d", ["a", "b", "c"])
    assert len(attempts.attempt().exploded) == 1


@pytest.mark.parametrize(("tasks", "threads", "as_bytes"), PLACES)
def test_blocks_and_explodes_end_there_when_nothing_follows(
    tmp_path: Any, tasks: int, threads: int, as_bytes: bool
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        for depot in ("*d", "*e"):
            setup.declare_depot(depot, Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", PState.map_schema(str, int))
        block = Block.explode_microbatch("*mb").out("*k").hash_partition("*k")
        mb.source("*d").out("*mb").batch_block(block).each(Ops.IDENTITY, "x").out("*x").hash_partition("*x")
        mb.source("*e").out("*mb2").each(Ops.RANGE, 0, 2).out("*x").explode_microbatch("*mb2")

    attempts = Attempts(tmp_path, module_of(define), tasks, threads, as_bytes=as_bytes)
    for depot in ("*d", "*e"):
        attempts.feed(depot, ["a", "b", "c"])
    assert len(attempts.attempt().exploded) == 2


def test_a_partitioner_that_leaves_the_range_is_reported_when_nothing_follows_it(tmp_path: Any) -> None:
    def build(source: Any) -> None:
        source.explode_microbatch("*mb").out("*k").direct_partition(99)

    attempts = Attempts(tmp_path, one_depot(build), 4)
    attempts.feed("*d", ["a"])
    with pytest.raises(UserCodeError):
        attempts.attempt()
