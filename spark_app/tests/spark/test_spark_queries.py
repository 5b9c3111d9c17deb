"""Queries that a topology calls on Spark: their code travels to the workers, which read what the attempt was given."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    PState,
)
from tidemill import Path as StatePath
from tidemill.spark.session import Session

pytestmark = pytest.mark.spark


class Calling(Module):
    """A topology that asks, for each word, how often it and all words came, in a query of its own code."""

    def __init__(self, placement: str) -> None:
        self.placement = placement

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        setup.declare_depot("*asked", Depot.random())
        start = MicrobatchSourceOptions.start_from_beginning()
        counts = topologies.microbatch("counts")
        counts.pstate("$$counts", PState.map_schema(str, int))
        rows = counts.source("*words", start).out("*mb").explode_microbatch("*mb").out("*word").hash_partition("*word")
        rows.compound_agg("$$counts", CompoundAgg.map("*word", Agg.count()))
        answers = topologies.microbatch("answers")
        answers.pstate("$$answers", PState.map_schema(str, object))
        setup.set_launch_topology_dynamic_option("answers", "topology.microbatch.placement", self.placement)
        asked = answers.source("*asked", start).out("*mb").explode_microbatch("*mb").out("*word")
        asked = asked.invoke_query("both", "*word").out("*both").hash_partition("*word")
        asked.compound_agg("$$answers", CompoundAgg.map("*word", Agg.last("*both")))
        total = topologies.query("total").out("*sum").all_partition()
        total = total.local_select("$$counts", StatePath.map_vals()).out("*n").origin_partition()
        total.agg(Agg.sum("*n")).out("*sum")
        both = topologies.query("both", "*word").out("*both").invoke_query("total").out("*total")
        both = both.select("$$counts", StatePath.key("*word")).out("*n").origin_partition()
        both.each(lambda one, total: [one, total], "*n", "*total").out("*both").each(Ops.IDENTITY, "*both").out("*same")


@pytest.mark.parametrize("placement", ["spread", "fused", "inline"])
def test_a_topology_gets_the_answers_of_queries_when_supersteps_run(spark: Session, placement: str) -> None:
    with InProcessCluster.create(engine="spark") as cluster:
        cluster.launch_module(Calling(placement), LaunchConfig(4, 2))
        cluster.cluster_depot("Calling", "*words").append_many(["a", "b", "a", "c"])
        cluster.wait_until_processed("Calling", "counts", 60_000)
        cluster.cluster_depot("Calling", "*asked").append_many(["a", "b", "none"])
        cluster.wait_until_processed("Calling", "answers", 60_000)

        answers = cluster.cluster_pstate("Calling", "$$answers")
        found = {word: answers.select_one(StatePath.key(word)) for word in ("a", "b", "none")}
    assert found == {"a": [2, 4], "b": [1, 4], "none": [None, 4]}
