"""The temporary PState `$$name$$` of a query: on each task, for one call, written and read as any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidemill import (
    Agg,
    Block,
    BudgetExceeded,
    CompoundAgg,
    DefinitionError,
    Depot,
    Expr,
    InProcessCluster,
    LaunchConfig,
    LoopVars,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.journal.options_log import OptionsLog
from tidemill.queries import handle as handles

PARENTS = {"e": "d", "d": "c", "c": "b", "b": "a", "x": "y", "y": "z", "z": "x"}
"""A line, and a ring."""


class Family(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*children", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$parents", PState.map_schema(str, str))
        rows = mb.source("*children").out("*mb").explode_microbatch("*mb").out("*row")
        rows.each(Ops.EXPAND, "*row").out("*child", "*parent").local_transform(
            "$$parents", Path.key("*child").term_val("*parent")
        )
        self.queries(topologies)

    def queries(self, topologies: Any) -> None:
        """`ancestors` ends in rings, too, because it notes where it was."""
        body = (
            Block.keep_true(Expr(Ops.IS_NOT_NULL, "*at"))
            .hash_partition("*at")
            .local_select("$$ancestors$$", Path.key("*at")).out("*seen")
            .keep_true(Expr(Ops.IS_NULL, "*seen"))
            .local_transform("$$ancestors$$", Path.key("*at").term_val(True))
            .emit_loop("*at")
            .local_select("$$parents", Path.key("*at")).out("*parent")
            .continue_loop("*parent")
        )  # fmt: skip
        (topologies.query("ancestors", "*child").out("*found")
            .loop_with_vars(LoopVars.var("*at", "*child"), body).out("*ancestor")
            .origin_partition().agg(Agg.set("*ancestor")).out("*found"))  # fmt: skip
        (topologies.query("countdown", "*n").out("*seen")
            .local_select("$$countdown$$").out("*before")
            .local_transform("$$countdown$$", Path.term_val("*n"))
            .if_true(
                Expr(Ops.GREATER_THAN, "*n", 0),
                Block.invoke_query("countdown", Expr(Ops.DEC, "*n")).out("*below"),
                Block.each(Ops.TUPLE).out("*below"),
            )
            .local_select("$$countdown$$").out("*after")
            .origin_partition()
            .each(Ops.TUPLE, "*before", "*after", "*below").out("*seen"))  # fmt: skip
        (topologies.query("tasks").out("*found")
            .all_partition().each(Ops.CURRENT_TASK_ID).out("*task")
            .local_transform("$$tasks$$", Path.term_val("*task"))
            .local_select("$$tasks$$").out("*own")
            .local_clear("$$tasks$$").local_select("$$tasks$$").out("*cleared")
            .origin_partition().agg(Agg.list(Expr(Ops.TUPLE, "*task", "*own", "*cleared"))).out("*found"))  # fmt: skip
        (topologies.query("count", "*words").out("*found")
            .each(Ops.EXPLODE, "*words").out("*word")
            .origin_partition()
            .compound_agg("$$count$$", CompoundAgg.map("*word", Agg.count()))
            .local_select("$$count$$").out("*found"))  # fmt: skip
        (topologies.query("much", "*n").out("*found")
            .each(Ops.RANGE, 0, "*n").out("*i")
            .local_transform("$$much$$", Path.key("*i").term_val("x" * 20_000))
            .origin_partition().agg(Agg.count()).out("*found"))  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(handles, "OPTIONS_MILLIS", 0)
        cluster.launch_module(Family(), LaunchConfig(4, 2))
        cluster.cluster_depot("Family", "*children").append_many([[c, p] for c, p in PARENTS.items()])
        cluster.wait_until_processed("Family")
        yield cluster


def ask(cluster: InProcessCluster, query: str, *args: Any) -> Any:
    return cluster.cluster_query("Family", query).invoke(*args)


def test_a_walk_ends_when_the_query_notes_where_it_was(cluster: InProcessCluster) -> None:
    assert ask(cluster, "ancestors", "d") == {"d", "c", "b", "a"}
    assert ask(cluster, "ancestors", "x") == {"x", "y", "z"}
    assert ask(cluster, "ancestors", "x") == {"x", "y", "z"}, "another call knows nothing of it"


def test_each_call_has_its_own_when_a_query_calls_itself(cluster: InProcessCluster) -> None:
    assert ask(cluster, "countdown", 2) == [None, 2, [None, 1, [None, 0, []]]]


def test_each_task_has_its_own_when_a_query_goes_to_all(cluster: InProcessCluster) -> None:
    assert sorted(ask(cluster, "tasks")) == [[task, task, None] for task in range(4)]


def test_it_is_read_behind_the_aggregation_when_a_query_aggregates_into_it(cluster: InProcessCluster) -> None:
    assert ask(cluster, "count", ["a", "b", "a"]) == {"a": 2, "b": 1}


def test_a_call_ends_when_it_writes_more_than_a_query_may_hold(cluster: InProcessCluster) -> None:
    assert ask(cluster, "much", 10) == 10
    OptionsLog(cluster.store, "Family").set("topology", "much", "topology.query.max.mb", 1)
    with pytest.raises(BudgetExceeded, match="much"):
        ask(cluster, "much", 200)


def test_a_definition_is_refused_when_a_query_uses_the_one_of_another() -> None:
    class Reads(Family):
        def queries(self, topologies: Any) -> None:
            super().queries(topologies)
            topologies.query("other").out("*v").local_select("$$count$$").out("*v").origin_partition()

    with InProcessCluster.create() as cluster, pytest.raises(DefinitionError, match=r"no PState '\$\$count\$\$'"):
        cluster.launch_module(Reads(), LaunchConfig(4, 2))


def test_a_definition_is_refused_when_a_declared_pstate_has_its_name() -> None:
    class Declares(Family):
        def queries(self, topologies: Any) -> None:
            topologies.microbatch("other").pstate("$$tasks$$", int)
            super().queries(topologies)

    with InProcessCluster.create() as cluster, pytest.raises(DefinitionError, match=r"'\$\$tasks\$\$' is a declared"):
        cluster.launch_module(Declares(), LaunchConfig(4, 2))
