"""What a microbatch clears is gone for the steps behind the clear, whatever was committed or written before it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from stories import Story

from tidemill import Agg, Block, CompoundAgg, Depot, InProcessCluster, Ops, Path, PState

PLAIN = PState.map_schema(str, int)
RECORDS = PState.map_schema(str, PState.fixed_keys_schema("n", int, "m", PState.map_schema(str, int).subindexed()))
CLEAR = Block.each(Ops.IDENTITY, 0).out("*zero").all_partition().local_clear("$$n")
KEYS = Block.explode_microbatch("*batch").out("*k")
COUNTED = {
    "a transform": (PLAIN, KEYS.local_transform("$$n", Path.key("*k").null_to_val(0).term(Ops.INC))),
    "an aggregation": (PLAIN, KEYS.hash_partition("*k").agg("$$n", CompoundAgg.map("*k", Agg.count()))),
    "a select and a write": (PLAIN, KEYS.local_select("$$n", Path.key("*k").null_to_val(0)).out("*n")
                             .each(Ops.INC, "*n").out("*m").local_transform("$$n", Path.key("*k").term_val("*m"))),
    "a field of a record": (RECORDS, KEYS.local_transform("$$n", Path.key("*k", "n").null_to_val(0).term(Ops.INC))),
}  # fmt: skip


_NUMBERS = itertools.count()


@pytest.mark.parametrize("is_written_before", [False, True], ids=["committed", "written before"])
@pytest.mark.parametrize(("schema", "counted"), COUNTED.values(), ids=COUNTED)
def test_counts_begin_at_nothing_when_the_steps_before_cleared_all(
    cluster: InProcessCluster, schema: Any, counted: Block, is_written_before: bool
) -> None:
    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", schema)
        source = mb.source("*in").out("*batch")
        source = source.batch_block(counted) if is_written_before else source
        source.batch_block(CLEAR).batch_block(counted)

    story = Story(cluster, f"Clears{next(_NUMBERS)}", define)
    for _ in range(2):
        story.batch(**{"in": ["a", "b", "a", "c"]})

    path = Path.key("a", "n") if schema is RECORDS else Path.key("a")
    assert story.pstate("$$n").select(path, pkey="a") == [2]
