"""Records that retention deleted before a topology read them: skipped, counted, and shown to people."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module
from tidemill.model.entries import Attempt, SourceProgress
from tidemill.runtime.check import check_module
from tidemill.runtime.commit_log import CommitLog
from tidemill.runtime.definition_log import DefinitionLog
from tidemill.runtime.overview import topology_overview
from tidemill.runtime.ranges import skipped_records
from tidemill.runtime.status import topology_history
from tidemill.store.depot import DepotLog

PROGRESS = {"a": SourceProgress("*a", (10, 20), (0, 0)), "b": SourceProgress("*b", (0, 0), (0, 0))}


class Total(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*numbers", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$total", int).global_().initial_value(0)
        rows = mb.source("*numbers").out("*m").explode_microbatch("*m").out("*n")
        rows.global_partition().agg("$$total", Agg.sum("*n"))


def test_only_gaps_of_exploded_sources_count_when_ranges_begin_behind_the_progress() -> None:
    attempt = Attempt(1, 1, {"a": ((13, 20), (20, 21)), "b": ((5, 9), (0, 0)), "gone": ((1, 2),)})
    assert skipped_records(PROGRESS, attempt, frozenset({"a"})) == 3
    assert skipped_records(PROGRESS, attempt, frozenset({"a", "b", "gone"})) == 8


def test_skipped_records_are_told_when_retention_overtook_a_paused_topology(tmp_path: Folder) -> None:
    with InProcessCluster.create(store=str(tmp_path)) as cluster:
        cluster.launch_module(Total(), LaunchConfig(1, 1))
        cluster.pause_microbatch_topology("Total", "mb")
        cluster.cluster_depot("Total", "*numbers").append_many([1] * 100)
        definition = DefinitionLog(cluster.store, "Total").newest()
        depot = DepotLog(cluster.store, definition.depot_prefix("*numbers"), 1)
        depot.follow()
        depot.record_starts([40])
        cluster.resume_microbatch_topology("Total", "mb")
        cluster.wait_for_microbatch_processed_count("Total", "mb", 60)
        head = CommitLog(cluster.store, definition.topology_prefix("mb")).head()
        assert head is not None and (head[1].processed, head[1].skipped) == (60, 40)
        assert topology_overview(cluster.store, definition, "mb")["skipped"] == 40
        assert any(line.get("skipped") == 40 for line in topology_history(cluster.store, definition, "mb"))
        assert check_module(cluster.store, "Total") == []
