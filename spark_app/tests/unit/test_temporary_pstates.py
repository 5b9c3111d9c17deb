"""Aggregation into temporary PStates: what a batch block aggregates, and code behind it reads, on both engines."""

from __future__ import annotations

import os
from pathlib import Path as Folder
from typing import Any

import pytest
from attempts import Attempts
from stories import Story, module_of
from test_temporary_rows import RECORDS, found, results, topology

from tidemill import (
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
    UnknownName,
    UpdateOptions,
)
from tidemill.engine.materialized import MAX_BYTES
from tidemill.values.errors import UserCodeError

LISTED = RECORDS.hash_partition("*v").compound_agg(CompoundAgg.map("*v", Agg.list("*v"))).out("$$lists")
COUNTED = RECORDS.hash_partition("*v").compound_agg(CompoundAgg.map("*v", Agg.count())).out("$$counts")
ALL_COUNTS = (
    Block.all_partition().local_select("$$counts", Path.all()).out("*pair").each(Ops.EXPAND, "*pair").out("*k", "*n")
)


def extremes(setup: Any, topologies: Any) -> None:
    """T6: how often each word came, and from that the greatest and the least count."""
    topology(setup, topologies).batch_block(COUNTED).batch_block(
        ALL_COUNTS.global_partition().agg(Agg.max("*n")).out("*max").agg(Agg.min("*n")).out("*min")
        .macro(found("max", "*max")).macro(found("min", "*min"))
    )  # fmt: skip


def test_counts_are_those_of_the_reference_when_they_are_aggregated_again(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "TmpPState", extremes)
        story.batch(d=["apple", "apple", "plum"])
        assert results(story) == {"max": 2, "min": 1}
        story.batch(d=["apple", "banana", "banana"])
        assert results(story) == {"max": 2, "min": 1}, "counts of the microbatch before were left"
        with pytest.raises(UnknownName):
            story.pstate("$$counts").select(Path.all())


@pytest.mark.parametrize("as_bytes", [False, True])
def test_attempt_fails_with_advice_when_temporary_pstates_pass_the_limit(tmp_path: Folder, as_bytes: bool) -> None:
    """Rows that are materialized count with them."""

    def define(setup: Any, topologies: Any) -> None:
        rows = LISTED.each(Ops.IDENTITY, 0).out("*n").materialize("*n").out("$$rows")
        topology(setup, topologies).batch_block(rows)

    attempts = Attempts(tmp_path, module_of("Lists", define), tasks=4, threads=2, as_bytes=as_bytes)
    attempts.feed("*d", [f"{number:1000}" for number in range(20)])
    attempts.options = {MAX_BYTES: 5_000}
    with pytest.raises(UserCodeError, match=rf"bytes of temporary PStates, and {MAX_BYTES} is 5,000: keep") as failed:
        attempts.attempt()
    assert "'$$lists'" in failed.value.step
    attempts.options = {MAX_BYTES: 500_000}
    attempts.attempt()


def read_everywhere(setup: Any, topologies: Any) -> None:
    """Post-agg, the code behind the block and a later block read it; a loop of blocks adds to it."""
    chain = topology(setup, topologies).batch_block(
        RECORDS.global_partition().agg(Agg.sum("*v")).out("$$sum").agg(Agg.count()).out("*n")
        .local_select("$$sum").out("*sum").macro(found("post", "*sum")).macro(found("n", "*n"))
    )  # fmt: skip
    chain = chain.local_select("$$sum").out("*behind").macro(found("behind", "*behind"))
    chain = chain.batch_block(RECORDS.global_partition().agg(Agg.sum("*v")).out("$$sum"))
    chain = chain.local_select("$$sum").out("*twice").macro(found("twice", "*twice"))
    chain = chain.local_transform("$$sum", Path.term(Ops.INC)).local_select("$$sum").out("*more")
    chain = chain.macro(found("more", "*more")).agg("$$sum", Agg.sum("*more")).local_select("$$sum").out("*last")
    chain.macro(found("last", "*last")).local_clear("$$sum").local_select("$$sum").out("*zero").macro(
        found("zero", "*zero")
    )


def test_sum_is_read_in_post_agg_and_behind_when_a_block_keeps_it(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Everywhere", read_everywhere)
        story.batch(d=[1, 2, 3])
        expected = {"post": 6, "n": 3, "behind": 6, "twice": 12, "more": 13, "last": 26, "zero": 0}
        assert results(story) == expected


def nested(setup: Any, topologies: Any) -> None:
    """Nested maps are sorted and can be read by ranges; keys of several types and None are keys."""
    by_key = CompoundAgg.map(
        Expr(Ops.GET, "*v", 0), CompoundAgg.map(Expr(Ops.GET, "*v", 1), Agg.list(Expr(Ops.GET, "*v", 2)))
    )
    chain = topology(setup, topologies).batch_block(RECORDS.global_partition().compound_agg(by_key).out("$$t"))
    for name, path in (
        ("range", Path.key("a").sorted_map_range(2, 5)),
        ("size", Path.key("a").view(Ops.SIZE)),
        ("last", Path.key("a").sorted_map_range_to(9, max_amt=2, include_end=True)),
        ("none", Path.key(None).key(1)),
        ("missing", Path.key("b").key(1)),
    ):
        chain = chain.local_select("$$t", path).out(f"*{name}").macro(found(name, f"*{name}"))


def test_nested_map_is_read_by_ranges_when_it_is_temporary(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Nested", nested)
        story.batch(d=[["a", i, i * 10] for i in (5, 3, 1, 4)] + [["a", 3, 0], [None, 1, "x"]])
        held = results(story)
        assert dict(held["range"]) == {3: [30, 0], 4: [40]}
        assert held["size"] == 4 and held["none"] == ["x"] and held["missing"] is None


def shapes(setup: Any, topologies: Any) -> None:
    """What is no map of like entries is a plain value; tasks without rows have the zero value."""
    rows = CompoundAgg.list(Agg.count(), Agg.max("*v"))
    several = CompoundAgg.map(Constant("sum"), Agg.sum("*v"), Constant("rows"), rows)
    own = Agg.combiner(Longest, "*v")
    chain = topology(setup, topologies).batch_block(
        RECORDS.global_partition().compound_agg(several).out("$$several")
        .compound_agg(CompoundAgg.list(Agg.min("*v"), Agg.set("*v"))).out("$$list")
        .agg(own).out("$$own").agg(Agg.top_monotonic(2, "*v")).out("$$top").agg(Agg.max("*v")).out("$$max")
    )  # fmt: skip
    for name in ("several", "list", "own", "top", "max"):
        path = Path.all() if name == "several" else Path.stay()
        chain = chain.batch_block(
            Block.all_partition().local_select(f"$${name}", path).out("*x").global_partition()
            .agg(Agg.list("*x")).out("*xs").macro(found(name, "*xs"))
        )  # fmt: skip


class Longest(CombinerAgg):
    def combine(self, current: Any, value: Any) -> Any:
        return max(current, value)

    def zero_val(self) -> Any:
        return -1


def test_value_is_plain_when_the_aggregation_is_no_map_of_like_entries(engine: Any) -> None:
    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Shapes", shapes, tasks=2)
        story.batch(d=[3, 9, 4])
        assert results(story) == {
            "several": [["rows", [3, 9]], ["sum", 16]], "list": [[3, {3, 4, 9}], None],
            "own": [9, -1], "top": [[9, 4], []], "max": [9, None],
        }  # fmt: skip


def test_temporary_pstate_of_a_failed_attempt_is_gone_when_the_microbatch_is_tried_again(
    engine: Any, tmp_path: Folder
) -> None:
    marker = str(tmp_path / "failed")

    def fail_once(value: Any) -> Any:
        if not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("the first attempt ends between two supersteps")
        return value

    def define(setup: Any, topologies: Any) -> None:
        back = ALL_COUNTS.shuffle_partition().each(fail_once, "*n").out("*m").global_partition()
        topology(setup, topologies).batch_block(COUNTED).batch_block(
            back.agg(Agg.map("*k", "*m")).out("*all").macro(found("all", "*all"))
        )

    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "RetriedCounts", define)
        story.batch(d=["a", "b", "a"])
        assert os.path.exists(marker)
        assert results(story)["all"] == {"a": 2, "b": 1}


@pytest.mark.parametrize("as_bytes", [False, True])
def test_nothing_is_stored_when_only_temporary_pstates_are_written(tmp_path: Folder, as_bytes: bool) -> None:
    def only_counted(setup: Any, topologies: Any) -> None:
        topology(setup, topologies).batch_block(COUNTED)

    attempts = Attempts(tmp_path, module_of("Counted", only_counted), tasks=4, threads=2, as_bytes=as_bytes)
    attempts.feed("*d", [1, 2, 3, 4])
    assert attempts.attempt().deltas == ()


def test_declared_pstate_of_the_same_name_is_not_read_when_it_was_removed(engine: Any) -> None:
    """A PState `$$counts` that an earlier version of the module stored has nothing to do with the temporary one."""

    def before(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.source("*d").out("*mb").batch_block(
            RECORDS.hash_partition("*v").compound_agg("$$counts", CompoundAgg.map("*v", Agg.count()))
        )

    with InProcessCluster.create(engine) as cluster:
        story = Story(cluster, "Renamed", before)
        story.batch(d=["a", "a"])
        cluster.update_module(module_of("Renamed", extremes), UpdateOptions.objects_to_delete("$$counts"))
        story.batch(d=["a", "b"])
        assert results(story) == {"max": 1, "min": 1}
