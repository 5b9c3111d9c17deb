"""A PState of which several places are migrated, one update after the other: its code stays the one that is stored."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState


class Pair(Module):
    """A record at the top whose two fields go through as many migrations each."""

    def __init__(self, migrations: int) -> None:
        self.migrations = migrations

    def define(self, setup: Any, topologies: Any) -> None:
        number: Any = int
        for step in range(self.migrations):
            number = (number if step else PState).migrated(int, f"m{step}", Ops.INC)
        setup.declare_depot("*numbers", Depot.random()).global_()
        mb = topologies.microbatch("mb")
        mb.pstate("$$pair", PState.fixed_keys_schema("b", number, "a", number)).global_()
        rows = mb.source("*numbers").out("*m").explode_microbatch("*m").out("*n")
        rows.local_transform("$$pair", Path.multi_path(Path.key("a"), Path.key("b")).term_val("*n"))
        sum_ = Path.sub_map("a", "b").map_vals()
        query = topologies.query("sum").out("*sum").global_partition().local_select("$$pair", sum_).out("*n")
        query.origin_partition().agg(Agg.sum("*n")).out("*sum")


def test_module_starts_and_answers_when_two_updates_migrated_two_fields_each(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(Pair(0), LaunchConfig(1, 1))
        cluster.cluster_depot("Pair", "*numbers").append(1)
        cluster.wait_until_processed("Pair")
        for migrations in (1, 2):
            cluster.update_module(Pair(migrations))
            assert cluster.cluster_query("Pair", "sum").invoke() == 2 + 2 * migrations
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(Pair(2), LaunchConfig(1, 1))
        assert cluster.cluster_query("Pair", "sum").invoke() == 6
