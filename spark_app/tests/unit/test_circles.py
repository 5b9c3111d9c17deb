"""What a call held goes when the call ends: nothing of ours waits for Python's search for garbage, which may come
after thousands of microbatches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path as Folder
from typing import Any

import polars as pl
import pytest

from tidemill import (
    Agg,
    Block,
    CountExecutor,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
    TaskGraph,
    scan,
)


def in_circles(call: Callable[[], object]) -> set[str]:
    """The types of ours of which an object was left in a circle by the call; a first one fills what is kept."""
    call()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        call()
        gc.collect()
        kinds = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return {kind.__qualname__ for kind in kinds if kind.__module__.startswith("tidemill.")}


def side(name: str) -> Block:
    """One side of a join on *x."""
    rows = Block.explode_microbatch("*mb").out("*x")
    return rows.each(Ops.INC, "*x").out(name)


class Ways(Module):
    """Rows by columns (*columns), row by row (*rows), in a batch block with a join (*joined), and a query."""

    def define(self, setup: Any, topologies: Any) -> None:
        for name in ("*columns", "*rows", "*joined"):
            setup.declare_depot(name, Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        mb.pstate("$$nested", PState.map_schema(int, PState.map_schema(int, int).subindexed()))
        mb.pstate("$$pairs", list).global_().initial_value([])
        rows = mb.source("*columns").out("*mb").explode_microbatch("*mb").out("*x")
        rows.hash_partition("*x").local_transform("$$counts", Path.key("*x").term_val("*x"))
        rows = mb.source("*rows").out("*mb").explode_microbatch("*mb").out("*x").hash_partition("*x")
        rows.local_select("$$nested", Path.key("*x").view(Ops.SIZE)).out("*size")
        rows.local_transform("$$nested", Path.key("*x", "*size").term_val("*x"))
        joined = side("*a").macro(side("*b")).each(Ops.TUPLE, "*a", "*b").out("*pair").global_partition()
        kept = joined.agg(Agg.list("*pair")).out("*pairs").local_transform("$$pairs", Path.term_val("*pairs"))
        mb.source("*joined").out("*mb").batch_block(kept)
        query = topologies.query("q", "*k").out("*r")
        query.hash_partition("*k").local_select("$$counts", Path.key("*k")).out("*r").origin_partition()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local", store=tmp_path_factory.mktemp("circles") / "store") as made:
        made.launch_module(Ways(), LaunchConfig(4, 2))
        yield made


appended = count(2, 2)


@pytest.mark.parametrize("depot", ["*columns", "*rows", "*joined"])
def test_a_microbatch_leaves_no_circle_when_it_is_done(cluster: InProcessCluster, depot: str) -> None:
    target = cluster.cluster_depot("Ways", depot)

    def microbatch() -> None:
        target.append_many([1, 2])
        cluster.wait_for_microbatch_processed_count("Ways", "mb", next(appended), 20_000)

    assert in_circles(microbatch) == set()


def test_a_read_leaves_no_circle_when_it_is_answered(cluster: InProcessCluster) -> None:
    counts, query = cluster.cluster_pstate("Ways", "$$counts"), cluster.cluster_query("Ways", "q")
    assert in_circles(lambda: counts.select_one(Path.key(1))) == set()
    assert in_circles(lambda: query.invoke(1)) == set()
    assert in_circles(lambda: scan(cluster.store.url, "Ways", "$$counts").collect()) == set()


def test_a_graph_leaves_no_circle_when_it_has_run(tmp_path: Folder) -> None:
    def graph() -> None:
        made = TaskGraph(store=str(tmp_path / "store"))
        source = made.new_input_frames([pl.DataFrame({"a": [1, 2]})], 2)
        found = made.new_blocking_node({0: source}, CountExecutor(), 1, {0: None})
        made.run()
        assert found.to_polars().height == 1

    assert in_circles(graph) == set()
