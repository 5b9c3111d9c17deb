"""Records at which the module's code raises: the result is that without them, and the quarantine holds exactly those.

Each shape of program fails at another place: a function under columns or under rows, a vectorized function, a schema,
an aggregator behind which no record is to be seen, a partitioner, a join, a query, an append to a depot.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from tidemill import (
    AccumulatorAgg,
    Agg,
    Block,
    CombinerAgg,
    CompoundAgg,
    Constant,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LimitAgg,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
    SubBatch,
    SubSource,
    operation,
    vectorized,
)
from tidemill.leader.check import check_module

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests on their path
NAME = "Poisoned"
RECORDS = 60
ON_ERROR = "topology.on.record.error"
PLACEMENT = "topology.microbatch.placement"
Build = Callable[[Any, Any], Any]


class Poison(Exception):
    """What the module's code raises."""


def is_bad(record: Any) -> bool:
    return isinstance(record, int) and record >= 1_000


def checked(record: int) -> int:
    if is_bad(record):
        raise Poison(f"no {record}")
    return record


def ends_process(record: int) -> int:
    if is_bad(record):
        sys.exit(3)
    return record


def panics(record: int) -> int:
    """As Polars does where it comes to a state that its authors took for impossible: that is no Exception."""
    if is_bad(record):
        raise pl.exceptions.PanicException("impossible")
    return record


@operation
def emitted_first(record: int) -> Iterator[int]:
    """It fails when a row was emitted."""
    yield record
    checked(record)


@vectorized
def checked_at_once(records: pl.Series) -> pl.Series:
    if (records >= 1_000).any():
        raise Poison("one of them")
    return records


def text_of_bad(record: int) -> Any:
    return "no number" if is_bad(record) else 1


class Sum(AccumulatorAgg):
    """Fails on a value that came through an aggregation."""

    def accumulate(self, current: int, value: int) -> int:
        return current + (checked(value) * 0 + 1)

    def init_val(self) -> int:
        return 0


class Union(CombinerAgg):
    """Fails where a bad value meets any other one."""

    def combine(self, current: Any, value: Any) -> Any:
        if any(map(is_bad, (current, value))):
            raise Poison("they do not go together")
        return current + value

    def zero_val(self) -> int:
        return 0


def count(rows: Any) -> Any:
    return rows.compound_agg("$$counts", CompoundAgg.map("*key", Agg.count()))


def keyed(rows: Any) -> Any:
    return rows.each(Ops.MOD, "*record", 7).out("*key").hash_partition("*key")


def by_columns(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.each(checked, "*record").out("*same")))


def behind_a_move(rows: Any, mb: Any) -> Any:
    """The row does not hold the record any more."""
    bad = rows.each(Ops.GREATER_THAN_OR_EQUAL, "*record", 1_000).out("*bad")
    return count(keyed(bad).each(lambda bad: checked(1_000 if bad else 1), "*bad").out("*same"))


def by_rows(rows: Any, mb: Any) -> Any:
    """Each row reads what the rows before it wrote."""
    return (
        keyed(rows)
        .local_select("$$counts", Path.key("*key").null_to_val(0)).out("*before")
        .each(checked, "*record").out("*same")
        .local_transform("$$counts", Path.key("*key").term_val(Expr(Ops.INC, "*before")))
    )  # fmt: skip


def vectorized_function(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.each(checked_at_once, "*record").out("*same")))


def emitting(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.each(emitted_first, "*record").out("*same")))


def schema(rows: Any, mb: Any) -> Any:
    return keyed(rows.each(text_of_bad, "*record").out("*one")).compound_agg(
        "$$counts", CompoundAgg.map("*key", Agg.sum("*one"))
    )


def transform_of_a_schema(rows: Any, mb: Any) -> Any:
    written = keyed(rows).each(text_of_bad, "*record").out("*one")
    return count(written.local_transform("$$last", Path.key("*key").term_val("*one")))


def accumulator(rows: Any, mb: Any) -> Any:
    return keyed(rows).compound_agg("$$counts", CompoundAgg.map("*key", Agg.accumulator(Sum(), "*record")))


def combiner(rows: Any, mb: Any) -> Any:
    """A bad value alone is no failure: it fails together with each other one."""
    ones = rows.each(lambda record: record if is_bad(record) else 1, "*record").out("*one")
    return keyed(ones).compound_agg("$$counts", CompoundAgg.map("*key", Agg.combiner(Union(), "*one")))


def batch_block(rows: Any, mb: Any) -> Any:
    """The aggregation fails in post-agg, on a list of what came from all tasks."""
    block = (
        keyed(Block.explode_microbatch("*microbatch").out("*record"))
        .group_by("*key", Block.agg(Agg.list("*record")).out("*all"))
        .each(lambda values: len([checked(value) for value in values]), "*all").out("*count")
        .local_transform("$$counts", Path.key("*key").null_to_val(0).term(Ops.PLUS, "*count"))
    )  # fmt: skip
    return rows.batch_block(block)


def join(rows: Any, mb: Any) -> Any:
    """Each record meets itself: a row comes from two records."""
    block = (
        Block.explode_microbatch("*microbatch").out("*record")
        .explode_microbatch("*microbatch").out("*other")
        .each(Ops.IDENTITY, "*other").out("*record")
        .each(lambda a, b: checked(a) + b, "*record", "*other").out("*sum")
    )  # fmt: skip
    return rows.batch_block(count(keyed(block)))


def partitioner(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.custom_partition(lambda tasks, record: checked(record) % tasks, "*record")))


def query(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.invoke_query("checked", "*record").out("*same")))


def append(rows: Any, mb: Any) -> Any:
    """Rows are staged before one of them is refused: nothing of that is published."""
    told = rows.each(text_of_bad, "*record").out("*one").depot_partition_append("*ones", "*one")
    return count(keyed(told))


def exit_of_the_process(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.each(ends_process, "*record").out("*same")))


def panic(rows: Any, mb: Any) -> Any:
    return count(keyed(rows.each(panics, "*record").out("*same")))


def cancelled(rows: Any, mb: Any) -> Any:
    """Under rows, and behind a write."""

    def cancels(record: int) -> int:
        if is_bad(record):
            raise asyncio.CancelledError
        return 1

    written = keyed(rows).local_transform("$$counts", Path.key("*key").null_to_val(0).term(Ops.INC))
    seen = written.local_select("$$counts", Path.key("*key")).out("*now").each(cancels, "*record").out("*one")
    return seen.local_transform("$$last", Path.key("*key").term_val("*one"))


def loop(rows: Any, mb: Any) -> Any:
    """It fails in the third round, behind writes of the rounds before."""
    body = Block.local_transform("$$last", Path.key("*round").term_val("*record")).if_true(
        Expr(Ops.LESS_THAN, "*round", 2),
        Block.continue_loop(Expr(Ops.INC, "*round")),
        Block.each(checked, "*record").out("*same").emit_loop("*same"),
    )
    return count(keyed(rows.loop_with_vars(LoopVars.var("*round", 0), body).out("*same")))


def asynchronous(rows: Any, mb: Any) -> Any:
    async def later(record: int) -> int:
        await asyncio.sleep(0)
        return checked(record)

    return count(keyed(rows.each_async(later, "*record", concurrency=4).out("*same")))


def atomic(rows: Any, mb: Any) -> Any:
    """The block wrote for the record before it fails."""
    inner = (
        Block.local_transform("$$counts", Path.key("*key").null_to_val(0).term(Ops.INC))
        .each(checked, "*record").out("*same")
        .local_transform("$$last", Path.key("*key").term_val("*same"))
    )  # fmt: skip
    return keyed(rows).atomic_block(inner)


def cases(rows: Any, mb: Any) -> Any:
    """A value that no case takes."""
    return count(
        keyed(rows.sub_source("*record", SubSource.create(lambda n: not is_bad(n)).each(Ops.INC, 1).out("*n")))
    )


def path_function(rows: Any, mb: Any) -> Any:
    written = keyed(rows).local_transform("$$last", Path.key("*key").term(lambda _, new: checked(new), "*record"))
    return count(written)


def two_tasks(rows: Any, mb: Any) -> Any:
    """Its own task has counted it when it fails on another one."""
    return count(keyed(rows)).hash_partition("*record").each(checked, "*record").out("*same")


def materialized(rows: Any, mb: Any) -> Any:
    """The second block fails behind what the first one wrote and kept."""
    first = (
        keyed(Block.explode_microbatch("*microbatch").out("*record"))
        .compound_agg("$$counts", CompoundAgg.map("*key", Agg.count().capture_new_val_into("*now")))
        .materialize("*key", "*now").out("$$changed")
    )  # fmt: skip
    second = (
        Block.explode_microbatch("*microbatch").out("*record")
        .each(Ops.MOD, "*record", 7).out("*key")
        .explode_materialized("$$changed").out("*key", "*now")
        .each(lambda record, now: checked(record) + now, "*record", "*now").out("*sum")
        .hash_partition("*key")
        .compound_agg("$$last", CompoundAgg.map("*key", Agg.max("*sum")))
    )  # fmt: skip
    return rows.batch_block(first).batch_block(second)


def sub_batch(rows: Any, mb: Any) -> Any:
    """A sum of sums, made of the rows of one key, is too large."""
    row = Block.explode_microbatch("*microbatch").out("*record").each(Ops.MOD, "*record", 7).out("*key")
    bad = row.each(lambda record: 1_000 if is_bad(record) else 1, "*record").out("*one")
    sums = SubBatch(bad.group_by("*key", Block.agg(Agg.sum("*one")).out("*sum")), "*key", "*sum")
    block = (
        Block.sub_batch(sums).out("*key", "*sum")
        .each(checked, "*sum").out("*same")
        .hash_partition("*key")
        .local_transform("$$counts", Path.key("*key").null_to_val(0).term(Ops.PLUS, "*same"))
    )  # fmt: skip
    return rows.batch_block(block)


def sort_function(rows: Any, mb: Any) -> Any:
    best = Agg.top_monotonic(3, "*record", id_function=Ops.IDENTITY, sort_val_function=checked)
    return count(keyed(rows)).global_partition().compound_agg("$$best", CompoundAgg.map(Constant(0), best))


def first_rows(rows: Any, mb: Any) -> Any:
    """Post-agg gets the greatest records first."""
    first = (
        Block.explode_microbatch("*microbatch").out("*record").global_partition()
        .limit_agg(LimitAgg.create(RECORDS, "*record").sort("*record").reverse())
        .each(checked, "*record").out("*record")
        .materialize("*record").out("$$first")
    )  # fmt: skip
    return rows.batch_block(first).batch_block(count(keyed(Block.explode_materialized("$$first").out("*record"))))


SHAPES = (
    by_columns, behind_a_move, by_rows, vectorized_function, emitting, schema, transform_of_a_schema, accumulator,
    combiner, batch_block, join, partitioner, query, append, exit_of_the_process, panic, cancelled, loop,
    asynchronous, atomic, cases,
    path_function, two_tasks, materialized, sub_batch, sort_function, first_rows,
)  # fmt: skip


class Poisoned(Module):
    """Counts the records of a depot by their remainder."""

    def __init__(self, build: Build, placement: str = "auto") -> None:
        self._build, self._placement = build, placement

    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*records", Depot.random())
        setup.declare_depot("*ones", Depot.disallow()).schema(int)
        setup.set_launch_module_dynamic_option(ON_ERROR, "quarantine")
        setup.set_launch_module_dynamic_option(PLACEMENT, self._placement)
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        mb.pstate("$$last", PState.map_schema(int, int))
        mb.pstate("$$best", PState.map_schema(int, list))
        rows = mb.source("*records").out("*microbatch")
        if self._build not in (batch_block, join, materialized, sub_batch, first_rows):
            rows = rows.explode_microbatch("*microbatch").out("*record")
        self._build(rows, mb)
        topologies.query("checked", "*n").out("*r").each(checked, "*n").out("*r").origin_partition()


@contextmanager
def cluster_of(build: Build, records: Iterable[Any], engine: str, placement: str = "auto") -> Iterator[Any]:
    """A cluster that processed the records, and the quarantine of its topology."""
    held = list(records)
    with InProcessCluster.create(engine=engine) as cluster:  # type: ignore[arg-type]  # "local" or "spark"
        cluster.launch_module(Poisoned(build, placement), LaunchConfig(4, 2))
        cluster.pause_microbatch_topology(NAME, "mb")
        cluster.cluster_depot(NAME, "*records").append_many(held)
        cluster.resume_microbatch_topology(NAME, "mb")
        cluster.wait_for_microbatch_processed_count(NAME, "mb", len(held), timeout_millis=120_000)
        yield cluster, cluster.quarantine(NAME, "mb")


def check(build: Build, bad: set[int], engine: str, placement: str = "auto") -> None:
    """The counts are those of the good records, and the quarantine holds the others."""
    records = [number + 1_000 if number in bad else number for number in range(RECORDS)]
    good = [record for record in records if not is_bad(record)]
    with cluster_of(build, records, engine, placement) as (cluster, quarantine):
        counts = cluster.cluster_pstate(NAME, "$$counts")
        expected = dict(Counter(record % 7 for record in good))
        assert {key: counts.select_one(Path.key(key)) for key in range(7) if key in expected} == expected
        assert sorted(held.record for held in quarantine.records()) == sorted(set(records) - set(good))
        assert check_module(cluster.store, NAME) == []
        if build is append:
            ones = cluster.cluster_depot(NAME, "*ones")
            ends = [ones.get_partition_info(partition).end_offset for partition in range(4)]
            assert sum(ends) == len(good)


@pytest.mark.parametrize("build", SHAPES, ids=[build.__name__ for build in SHAPES])
@settings(max_examples=4)
@given(bad=st.sets(st.integers(0, RECORDS - 1), min_size=1, max_size=5))
def test_result_is_that_without_poison_when_the_code_fails_on_some_records(build: Build, bad: set[int]) -> None:
    check(build, bad, "local")


ON_SPARK = [
    (by_columns, "spread"), (behind_a_move, "spread"), (by_rows, "fused"), (vectorized_function, "inline"),
    (accumulator, "spread"), (batch_block, "fused"), (schema, "spread"), (append, "auto"), (query, "fused"),
    (panic, "spread"), (cancelled, "fused"), (loop, "spread"), (asynchronous, "fused"),
    (materialized, "spread"), (sub_batch, "spread"), (atomic, "spread"),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(("build", "placement"), ON_SPARK, ids=[f"{b.__name__}-{p}" for b, p in ON_SPARK])
@settings(max_examples=1)
@given(bad=st.sets(st.integers(0, RECORDS - 1), min_size=1, max_size=3))
def test_result_is_that_without_poison_when_spark_runs_the_code(
    spark: object, build: Build, placement: str, bad: set[int]
) -> None:
    check(build, bad, "spark", placement)
