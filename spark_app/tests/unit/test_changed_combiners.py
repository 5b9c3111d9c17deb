"""An update that changes a combiner: operands of both meanings stand above one base, and are merged right."""

from __future__ import annotations

from typing import Any

from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.tables.compaction_plan import DELTAS_MAX

KEYS = 200


class Tally(Module):
    """Counts of records by key, or sums of what they hold."""

    def __init__(self, aggregator: Any) -> None:
        self.aggregator = aggregator

    def module_name(self) -> str:
        return "Tally"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$tally", PState.map_schema(int, int))
        (
            mb.source("*pairs").out("*m")
            .explode_microbatch("*m").out("*pair")
            .each(Ops.EXPAND, "*pair").out("*k", "*v")
            .compound_agg("$$tally", CompoundAgg.map("*k", self.aggregator))
        )  # fmt: skip


def test_operands_of_both_combiners_are_merged_in_order_when_an_update_changed_it() -> None:
    with InProcessCluster.create() as cluster:
        cluster.launch_module(Tally(Agg.count()), LaunchConfig(1, 1))
        depot = cluster.cluster_depot("Tally", "*pairs")
        tally = cluster.cluster_pstate("Tally", "$$tally")
        processed = 0

        def batch(pairs: list[list[int]]) -> None:
            nonlocal processed
            processed += len(pairs)
            depot.append_many(pairs)
            cluster.wait_for_microbatch_processed_count("Tally", "mb", processed)

        def kinds() -> list[str]:
            definition = DefinitionLog(cluster.store, "Tally").newest()
            head = CommitLog(cluster.store, definition.topology_prefix("mb")).head()
            return [level.kind for level in head[1].snapshot.levels] if head else []

        for _ in range(DELTAS_MAX):
            batch([[key, 5] for key in range(KEYS)])
        eventually(lambda: kinds() == ["run"])
        for _ in range(DELTAS_MAX // 2):
            batch([[7, 5]])
        cluster.update_module(Tally(Agg.sum("*v")))
        for _ in range(DELTAS_MAX - DELTAS_MAX // 2):
            batch([[7, 5], [KEYS, 1]])
        expected = DELTAS_MAX + DELTAS_MAX // 2 + 5 * (DELTAS_MAX - DELTAS_MAX // 2)
        assert tally.select_one(Path.key(7)) == expected
        eventually(lambda: kinds() == ["run"])
        assert tally.select_one(Path.key(7)) == expected
        assert [tally.select_one(Path.key(key)) for key in (3, KEYS)] == [DELTAS_MAX, DELTAS_MAX - DELTAS_MAX // 2]
