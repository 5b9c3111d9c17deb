"""Random small programs come to what plain Python comes to: on 1, 2, 4 and 8 tasks, in process and on Spark."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from test_engine_equality import chains, module_of, values

from tidemill import Agg, Block, CompoundAgg, Depot, Expr, LoopVars, Module, Ops, Path, PState
from tidemill.spark.runner import SparkRunner
from tidemill.values.errors import UserCodeError

TASKS = (1, 2, 4, 8)
PLACEMENT = "topology.microbatch.placement"
LOCAL = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
ON_SPARK = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests on their path
cloudpickle.register_pickle_by_value(sys.modules[chains.__module__])

Row = tuple[str, int]


@dataclass
class Model:
    """What the PStates hold: how often each number was visited, and sums a key three ways."""

    visits: Counter[int] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    total: int = 0


@dataclass(frozen=True)
class Step:
    """One step as dataflow, and as what it does to rows in plain Python."""

    name: str
    build: Callable[[Any], Any]
    run: Callable[[list[Row], Model], list[Row]]


def same(rows: list[Row], _model: Model) -> list[Row]:
    return rows


def add(number: int) -> Step:
    def run(rows: list[Row], _model: Model) -> list[Row]:
        return [(k, v + number) for k, v in rows]

    return Step(f"add {number}", lambda at: at.each(Ops.PLUS, "*v", number).out("*v"), run)


def keep_below(limit: int) -> Step:
    def run(rows: list[Row], _model: Model) -> list[Row]:
        return [row for row in rows if row[1] < limit]

    return Step(f"keep below {limit}", lambda at: at.keep_true(Expr(Ops.LESS_THAN, "*v", limit)), run)


MOVES = [
    Step("to the hash of the key", lambda at: at.hash_partition("*k"), same),
    Step("to the hash of the value", lambda at: at.hash_partition("*v"), same),
    Step("anywhere", lambda at: at.shuffle_partition(), same),
    Step("to task 0", lambda at: at.global_partition(), same),
]


def visit(rounds: int) -> Step:
    """A loop whose body moves between tasks."""

    def build(at: Any) -> Any:
        again = (Block.hash_partition("*i").compound_agg("$$visits", CompoundAgg.map("*i", Agg.count()))
                      .each(Ops.INC, "*i").out("*next").continue_loop("*next"))  # fmt: skip
        body = Block.if_true(Expr(Ops.LESS_THAN, "*i", rounds), again, Block.emit_loop("*i"))
        return at.loop_with_vars(LoopVars.var("*i", 0), body).out("*visited")

    def run(rows: list[Row], model: Model) -> list[Row]:
        for i in range(rounds if rows else 0):
            model.visits[i] += len(rows)
        return rows

    return Step(f"visit {rounds}", build, run)


def _summed(rows: list[Row], into: Counter[str]) -> list[Row]:
    for k, v in rows:
        into[k] += v
    return rows


SUM = Step(
    "sum",
    lambda at: at.hash_partition("*k").compound_agg("$$sums", CompoundAgg.map("*k", Agg.sum("*v"))),
    lambda rows, model: _summed(rows, model.sums),
)
SUM_ROW_BY_ROW = Step(
    "sum row by row",
    lambda at: (at.hash_partition("*k")
                  .local_select("$$rows", Path.key("*k").null_to_val(0)).out("*old")
                  .each(Ops.PLUS, "*old", "*v").out("*new")
                  .local_transform("$$rows", Path.key("*k").term_val("*new"))),
    lambda rows, model: _summed(rows, model.rows),
)  # fmt: skip
plain_steps = st.one_of(
    st.builds(add, st.integers(-3, 3)), st.builds(keep_below, st.integers(0, 6)), st.sampled_from(MOVES)
)
steps = st.one_of(plain_steps, st.builds(visit, st.integers(0, 3)), st.just(SUM), st.just(SUM_ROW_BY_ROW))
flows = st.tuples(st.lists(steps, max_size=4), st.sampled_from([SUM, SUM_ROW_BY_ROW])).map(lambda f: [*f[0], f[1]])
blocks = st.tuples(st.lists(plain_steps, max_size=2), st.booleans())
records = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 5)).map(list), max_size=12)
feeds = st.lists(st.tuples(records, records), min_size=1, max_size=2)


def build_all(at: Any, flow: list[Step]) -> Any:
    for step in flow:
        at = step.build(at)
    return at


def module(plain: list[Step], block: tuple[list[Step], bool]) -> Module:
    """One source with a plain flow, and one with a batch block that groups or sums all."""
    before, is_grouped = block
    exploded = Block.explode_microbatch("*mb2").out("*r2").each(Ops.EXPAND, "*r2").out("*k", "*v")
    rows = build_all(exploded, before)
    if is_grouped:
        store = Path.key("*k").null_to_val(0).term(Ops.PLUS, "*s")
        body = rows.group_by("*k", Block.agg(Agg.sum("*v")).out("*s")).local_transform("$$groups", store)
    else:
        body = rows.global_partition().agg("$$total", Agg.sum("*v"))

    class Made(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*d1", Depot.random())
            setup.declare_depot("*d2", Depot.hash_by(Ops.FIRST))
            mb = topologies.microbatch("mb")
            mb.pstate("$$visits", PState.map_schema(int, int))
            for name in ("$$sums", "$$rows", "$$groups"):
                mb.pstate(name, PState.map_schema(str, int))
            mb.pstate("$$total", int).global_().initial_value(0)
            first = (
                mb.source("*d1").out("*mb").explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*v")
            )
            build_all(first, plain)
            mb.source("*d2").out("*mb2").batch_block(body)

    return Made()


def expected(plain: list[Step], block: tuple[list[Step], bool], fed: list[Any]) -> Model:
    model = Model()
    for first, second in fed:
        rows = [(k, v) for k, v in first]
        for step in plain:
            rows = step.run(rows, model)
        rows = [(k, v) for k, v in second]
        for step in block[0]:
            rows = step.run(rows, model)
        if block[1]:
            _summed(rows, model.groups)
        else:
            model.total += sum(v for _, v in rows)
    return model


def check(attempts: Attempts, model: Model) -> None:
    """Each key is on its own task and nowhere else."""
    for name in ("visits", "sums", "rows", "groups"):
        counts = getattr(model, name)
        assert len(attempts.everywhere(f"$${name}", Path.all())) == len(counts)
        for key, value in counts.items():
            assert attempts.at_key(f"$${name}", key, Path.key(key)) == [value], (name, key)
    assert attempts.select("$$total", Path.stay(), 0) == [model.total]


def attempted(folder: Folder, made: Module, fed: list[Any], tasks: int, runner: Any, placement: str) -> Attempts:
    attempts = Attempts(folder, made, tasks, min(tasks, 2), runner=runner)
    attempts.options[PLACEMENT] = placement
    for first, second in fed:
        attempts.feed("*d1", first)
        attempts.feed("*d2", second)
        attempts.attempt()
    return attempts


@LOCAL
@given(flows, blocks, feeds)
def test_state_is_what_the_model_says_when_tasks_are_few_or_many(
    plain: list[Step], block: tuple[list[Step], bool], fed: list[Any]
) -> None:
    model = expected(plain, block, fed)
    for tasks in TASKS:
        with tempfile.TemporaryDirectory() as folder:
            check(attempted(Folder(folder), module(plain, block), fed, tasks, None, "auto"), model)


@pytest.mark.spark
@ON_SPARK
@given(flows, blocks, feeds, st.sampled_from(TASKS))
def test_state_is_what_the_model_says_when_spark_runs_the_program(
    spark: Any, plain: list[Step], block: tuple[list[Step], bool], fed: list[Any], tasks: int
) -> None:
    model = expected(plain, block, fed)
    for placement in ("spread", "fused", "inline"):
        with tempfile.TemporaryDirectory() as folder:
            check(attempted(Folder(folder), module(plain, block), fed, tasks, SparkRunner(), placement), model)


@pytest.mark.spark
@ON_SPARK
@given(chains(), st.lists(st.tuples(values, values).map(list), max_size=6), st.sampled_from([1, 2, 4, 8]))
def test_state_is_equal_on_spark_and_in_process_when_order_within_a_task_matters(
    spark: Any, chain: Block, fed: list[Any], tasks: int
) -> None:
    def outcome(runner: Any, placement: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            attempts = Attempts(Folder(folder), module_of(chain), tasks, min(tasks, 2), runner=runner)
            attempts.options[PLACEMENT] = placement
            attempts.feed("*d", fed)
            try:
                attempts.attempt()
            except UserCodeError:
                return "error"
            return [attempts.select(name, Path.all(), task) for task in range(tasks) for name in ("$$log", "$$n")]

    plain = outcome(None, "auto")
    assert repr(outcome(SparkRunner(), "spread")) == repr(plain)
    assert repr(outcome(SparkRunner(), "fused")) == repr(plain)
