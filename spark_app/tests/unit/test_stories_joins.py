"""The published trace of joins (T8) in a whole cluster: run it with TIDEMILL_ENGINE=spark for the other engine."""

from __future__ import annotations

from typing import Any

from stories import Story

from tidemill import Agg, Block, Depot, Expr, InProcessCluster, Ops, Path

LEFT = [["left", "a", 1], ["left", "b", 2], ["left", "c", 3]]


def side(kind: str, value: str) -> Block:
    """The records of one kind, taken apart. Only their key is for the join, so the rest begins with `*___`."""
    rows = Block.explode_microbatch("*microbatch").out(f"*___{kind}")
    rows = rows.keep_true(Expr(Ops.EQUAL, Expr(Ops.FIRST, f"*___{kind}"), kind))
    return rows.each(Ops.EXPAND, f"*___{kind}").out(f"*___kind of {kind}", "*k", value)


def joining(right: str) -> Any:
    """A definition whose batch block keeps the joined rows."""

    def define(setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$rows", list).global_()
        rows = side("left", "*v1").macro(side("right", right)).each(Ops.TUPLE, "*k", "*v1", right).out("*row")
        rows = rows.global_partition().agg(Agg.list("*row")).out("*rows")
        rows = rows.local_transform("$$rows", Path.term_val("*rows"))
        mb.source("*in").out("*microbatch").batch_block(rows)

    return define


def test_rows_multiply_when_keys_agree(cluster: InProcessCluster) -> None:
    story = Story(cluster, "InnerJoin", joining("*v2"))
    story.batch(**{"in": [*LEFT, ["right", "a", 10], ["right", "a", 11], ["right", "c", 30]]})

    assert sorted(story.pstate("$$rows").select_one(Path.stay())) == [["a", 1, 10], ["a", 1, 11], ["c", 3, 30]]


def test_rows_of_the_left_side_stay_when_the_right_one_is_unground(cluster: InProcessCluster) -> None:
    story = Story(cluster, "OuterJoin", joining("**v2"))
    story.batch(**{"in": [*LEFT, ["right", "a", 10], ["right", "b", 20], ["right", "d", 40]]})

    assert sorted(story.pstate("$$rows").select_one(Path.stay())) == [["a", 1, 10], ["b", 2, 20], ["c", 3, None]]
