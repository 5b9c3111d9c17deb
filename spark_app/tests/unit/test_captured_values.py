"""`capture_new_val_into`: post-agg gets a row for each key that was aggregated into, on both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from stories import Story, module_of
from test_temporary_rows import found, results

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
    Ops,
    Path,
    PState,
)

RECORDS = Block.explode_microbatch("*mb").out("*r").each(Ops.EXPAND, "*r").out("*k", "*k2", "*v")
COUNT = Agg.count().capture_new_val_into("*count")
SUM = Agg.sum("*v").capture_new_val_into("*sum")
BATCHES = ([["a", "b", 3], ["a", "c", 2], ["d", "b", 9], ["a", "b", 4]], [["a", "b", 1], ["f", "g", 11]])


def captured(schema: Any, tree: Any, *names: str, rows: Block = RECORDS) -> Callable[[Any, Any], None]:
    """A topology whose captured rows are added to the set of each batch; `hash_partition` keeps a key on one task."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$p", schema)
        mb.pstate("$$found", PState.map_schema(str, object)).global_()
        row = Block.each(Ops.TUPLE, *names).out("*row")
        chain = mb.source("*d").out("*mb").batch_block(
            rows.hash_partition("*k").compound_agg("$$p", tree).macro(row).materialize("*row").out("$$rows")
        )  # fmt: skip
        chain.batch_block(
            Block.explode_materialized("$$rows").out("*row").global_partition()
            .agg(Agg.list("*row")).out("*rows").macro(found("rows", "*rows"))
        )  # fmt: skip

    return define


def rows_of(engine: str, define: Callable[[Any, Any], None], batches: Any = BATCHES) -> list[list[Any]]:
    """The captured rows of each microbatch, sorted."""
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Captured", define)
        seen = []
        for records in batches:
            story.batch(d=records)
            seen.append(sorted(results(story)["rows"]))
        return seen


INDEXED = PState.map_schema(str, PState.map_schema(str, object).subindexed())
RECORD = PState.fixed_keys_schema("count", int, "sum", int)
AS_LIST = CompoundAgg.map("*k", CompoundAgg.map("*k2", CompoundAgg.list(COUNT, SUM)))
AS_RECORD = CompoundAgg.map("*k", CompoundAgg.map("*k2", CompoundAgg.map("count", COUNT, "sum", SUM)))
SHAPES = {
    "lists": (INDEXED, AS_LIST),
    "records": (PState.map_schema(str, PState.map_schema(str, RECORD).subindexed()), AS_RECORD),
    "plain values": (PState.map_schema(str, object), AS_LIST),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_of_the_reference_when_two_values_of_a_key_are_captured(engine: Any, shape: str) -> None:
    """T5."""
    define = captured(*SHAPES[shape], "*k", "*k2", "*count", "*sum")
    assert rows_of(engine, define) == [
        [["a", "b", 2, 7], ["a", "c", 1, 2], ["d", "b", 1, 9]],
        [["a", "b", 3, 8], ["f", "g", 1, 11]],
    ]


def test_operands_are_merged_when_what_is_stored_unmerged_is_captured(engine: Any) -> None:
    """Nothing but the capture reads the PState: without it, counts would be stored as operands."""
    many = [[["a", "b", i], ["c", "d", i]] for i in range(4)]
    schema = PState.map_schema(str, int)
    assert rows_of(engine, captured(schema, CompoundAgg.map("*k", COUNT), "*k", "*count"), many) == [
        [["a", i], ["c", i]] for i in (1, 2, 3, 4)
    ]


def test_outer_value_stands_beside_each_inner_one_when_both_are_on_one_way(engine: Any) -> None:
    schema = PState.map_schema(
        str, PState.fixed_keys_schema("sum", int, "by", PState.map_schema(str, int).subindexed())
    )
    tree = CompoundAgg.map("*k", CompoundAgg.map("sum", SUM, "by", CompoundAgg.map("*k2", COUNT)))
    assert rows_of(engine, captured(schema, tree, "*k", "*k2", "*sum", "*count")) == [
        [["a", "b", 9, 2], ["a", "c", 9, 1], ["d", "b", 9, 1]],
        [["a", "b", 10, 3], ["f", "g", 11, 1]],
    ]


class Joined(AccumulatorAgg):
    def init_val(self) -> Any:
        return []

    def accumulate(self, current: Any, *args: Any) -> Any:
        return sorted([*current, args[0]])


class Least(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return value if current is None else current if value is None else min(current, value)


JOINED = Agg.accumulator(Joined, "*v")
VALUES = {
    "max": (Agg.max("*v"), [[["a", 4], ["d", 9]], [["a", 4], ["f", 11]]]),
    "set": (Agg.set("*v"), [[["a", {2, 3, 4}], ["d", {9}]], [["a", {1, 2, 3, 4}], ["f", {11}]]]),
    "top": (Agg.top_monotonic(2, "*v"), [[["a", [4, 3]], ["d", [9]]], [["a", [4, 3]], ["f", [11]]]]),
    "accumulator": (JOINED, [[["a", [2, 3, 4]], ["d", [9]]], [["a", [1, 2, 3, 4]], ["f", [11]]]]),
    "combiner": (Agg.combiner(Least, "*v"), [[["a", 2], ["d", 9]], [["a", 1], ["f", 11]]]),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_new_value_is_captured_whatever_aggregates_it(name: str) -> None:
    aggregator, expected = VALUES[name]
    tree = CompoundAgg.map("*k", aggregator.capture_new_val_into("*new"))
    assert rows_of("local", captured(PState.map_schema(str, object), tree, "*k", "*new")) == expected


def key_of(record: Any) -> Any:
    return record[0].upper()


def test_keys_may_be_expressions_when_values_are_captured(engine: Any) -> None:
    tree = CompoundAgg.map(Expr(key_of, "*r"), CompoundAgg.map("*k2", COUNT))
    first, second = rows_of(engine, captured(INDEXED, tree, "*k2", "*count"))
    assert (first, second) == ([["b", 1], ["b", 2], ["c", 1]], [["b", 3], ["g", 1]])


def beside_others(setup: Any, topologies: Any) -> None:
    """Captures of a declared and of a temporary PState, a value without keys, and an output that each task has once."""
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(str, int))
    mb.pstate("$$all", int)
    mb.pstate("$$found", PState.map_schema(str, object)).global_()
    chain = mb.source("*d").out("*mb").batch_block(
        RECORDS.global_partition()
        .compound_agg("$$p", CompoundAgg.map("*k", Agg.sum("*v").capture_new_val_into("*sum")))
        .compound_agg(CompoundAgg.map("*k", COUNT)).out("$$counts")
        .agg("$$all", Agg.count().capture_new_val_into("*all"))
        .agg(Agg.avg("*v")).out("*mean")
        .each(Ops.TUPLE, "*k", "*sum", "*count", "*all", "*mean").out("*row")
        .materialize("*row").out("$$rows")
    )  # fmt: skip
    chain.batch_block(
        Block.explode_materialized("$$rows").out("*row").global_partition()
        .agg(Agg.list("*row")).out("*rows").macro(found("rows", "*rows"))
    )  # fmt: skip


def test_outputs_stand_beside_captured_values_when_a_block_has_both(engine: Any) -> None:
    assert rows_of(engine, beside_others) == [
        [["a", 9, 3, 4, 4.5], ["d", 9, 1, 4, 4.5]],
        [["a", 10, 1, 6, 6.0], ["f", 11, 1, 6, 6.0]],
    ]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_new_values_are_captured_when_rows_are_combined_before_they_are_sent(tmp_path: Folder, as_bytes: bool) -> None:
    """Threads send partial counts and sums in place of their rows."""
    define = captured(INDEXED, AS_LIST, "*k", "*k2", "*count", "*sum")
    flat = captured(PState.map_schema(str, int), CompoundAgg.map("*k", COUNT), "*k", "*count")
    rows = [["abc"[i % 3], "xy"[i % 2], i] for i in range(600)]
    for number, chosen in enumerate((define, flat)):
        attempts = Attempts(tmp_path / str(number), module_of("Many", chosen), tasks=4, threads=2, as_bytes=as_bytes)
        attempts.feed("*d", rows)
        attempts.attempt()
        found = attempts.select("$$found", Path.key("rows"), 0)[0]
        width = len(found[0]) - (2 if chosen is define else 1)
        counts = Counter(tuple(row[:width]) for row in rows)
        assert {tuple(row[:width]): row[width] for row in found} == counts
        assert len(found) == len(counts)


def top_words(setup: Any, topologies: Any) -> None:
    """T4: of all words the three that came most often; a word is once in the ranking, with its newest count."""
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$counts", PState.map_schema(str, int))
    mb.pstate("$$top", list).global_()
    mb.pstate("$$found", PState.map_schema(str, object)).global_()
    counted = Block.explode_microbatch("*mb").out("*word").hash_partition("*word")
    counts = CompoundAgg.map("*word", Agg.count().capture_new_val_into("*count"))
    ranking = Agg.top_monotonic(3, "*pair", id_function=Ops.FIRST, sort_val_function=Ops.LAST)
    chain = mb.source("*d").out("*mb").batch_block(
        counted.compound_agg("$$counts", counts).materialize("*word", "*count").out("$$new")
    )  # fmt: skip
    chain = chain.batch_block(
        Block.explode_materialized("$$new").out("*word", "*count").each(Ops.TUPLE, "*word", "*count").out("*pair")
        .global_partition().agg("$$top", ranking).agg(ranking).out("*newest").macro(found("newest", "*newest"))
    )  # fmt: skip
    chain.batch_block(
        Block.explode_materialized("$$new").out("*word", "*count").global_partition()
        .agg(Agg.list("*word")).out("*words").macro(found("words", "*words"))
    )  # fmt: skip


def test_top_words_are_those_of_the_reference_when_words_come_in_several_microbatches(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "TopNWords", top_words)
        story.batch(d=["apple"] * 4 + ["plum"] * 3 + ["banana"] * 2 + ["orange"])
        assert story.pstate("$$top").select_one(Path.stay()) == [["apple", 4], ["plum", 3], ["banana", 2]]
        assert sorted(results(story)["words"]) == ["apple", "banana", "orange", "plum"], "a word came twice"
        story.batch(d=["orange"] * 3 + ["apple"])
        assert story.pstate("$$top").select_one(Path.stay()) == [["apple", 5], ["orange", 4], ["plum", 3]]
        story.batch(d=["orange"] * 2)
        assert story.pstate("$$top").select_one(Path.stay()) == [["orange", 6], ["apple", 5], ["plum", 3]]
        assert results(story)["newest"] == [["orange", 6]]


def test_post_agg_gets_no_row_when_no_record_came(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Empty", two_sources)
        story.batch(e=[1])
        assert results(story) == {"source": 1}
        story.batch(d=[["a", "b", 3]], e=[2])
        assert results(story) == {"source": 2, "captured": 1}


def two_sources(setup: Any, topologies: Any) -> None:
    """Only one of the two sources has records in the first microbatch."""
    setup.declare_depot("*d", Depot.random())
    setup.declare_depot("*e", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(str, int)).global_()
    mb.pstate("$$found", PState.map_schema(str, object)).global_()
    block = (
        RECORDS.global_partition().compound_agg("$$p", CompoundAgg.map("*k", COUNT)).macro(found("captured", "*count"))
    )
    mb.source("*d").out("*mb").batch_block(block)
    mb.source("*e").out("*mb").explode_microbatch("*mb").out("*x").global_partition().local_transform(
        "$$found", Path.key(Constant("source")).term_val("*x")
    )


def cleared(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*d", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$p", PState.map_schema(str, int))
    mb.pstate("$$seen", PState.map_schema(str, int))
    mb.source("*d").out("*mb").batch_block(
        Block.explode_microbatch("*mb").out("*k").global_partition()
        .compound_agg("$$p", CompoundAgg.map("*k", COUNT))
        .local_transform("$$seen", Path.key("*k").term_val("*count"))
        .local_clear("$$p")
    )  # fmt: skip


def test_every_row_has_its_new_value_when_post_agg_changes_what_was_captured(tmp_path: Folder) -> None:
    attempts = Attempts(tmp_path, module_of("M", cleared), 1)
    attempts.feed("*d", ["a", "b", "a", "c"])
    attempts.attempt()

    assert dict(attempts.everywhere("$$seen", Path.all())) == {"a": 2, "b": 1, "c": 1}
