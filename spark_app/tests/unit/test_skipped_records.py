"""Records that retention deleted before a topology read them: skipped, counted, and shown to people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path as Folder
from typing import Any

from prometheus_client.core import Metric
from typer.testing import CliRunner

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module
from tidemill.cli.main import app
from tidemill.clients.history import topology_history
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import topology_status
from tidemill.depot.log import DepotLog
from tidemill.gateway.metrics import TopologyCollector
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Attempt, SourceProgress
from tidemill.kubernetes.probes import DriverHealth, DriverMetrics
from tidemill.kubernetes.status import LeaderHistory, resource_status
from tidemill.leader.check import check_module
from tidemill.leader.ranges import skipped_records
from tidemill.leader.runner import TopologyRunner
from tidemill.values.offsets import OffsetRanges

PROGRESS = {"a": SourceProgress("*a", (10, 20), (0, 0)), "b": SourceProgress("*b", (0, 0), (0, 0))}


class Total(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*numbers", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$total", int).global_().initial_value(0)
        rows = mb.source("*numbers").out("*m").explode_microbatch("*m").out("*n")
        rows.global_partition().agg("$$total", Agg.sum("*n"))


def test_only_gaps_of_exploded_sources_count_when_ranges_begin_behind_the_progress() -> None:
    attempt = Attempt(
        1,
        1,
        {"a": OffsetRanges((13, 20), (20, 21)), "b": OffsetRanges((5, 0), (9, 0)), "gone": OffsetRanges((1,), (2,))},
    )
    assert skipped_records(PROGRESS, attempt, frozenset({"a"})) == 3
    assert skipped_records(PROGRESS, attempt, frozenset({"a", "b", "gone"})) == 8


def shown_by_gateway(status: TopologyStatus) -> float:
    collector = TopologyCollector()
    collector.show([status], True)
    return sample(collector.collect(), "tidemill_topology_skipped_records_total")


def told_by_driver(runner: TopologyRunner) -> tuple[int, float]:
    """What a driver writes into its Topology's status, and what it tells Prometheus."""
    found = resource_status(runner.status(), LeaderHistory(), {}, now_ms=0, revision=1, leader="pod", application="")
    metrics = DriverMetrics(DriverHealth(state="leader", status=runner.status), {"module": "Total"})
    return found["skippedCount"], sample(metrics.collect(), "tidemill_skipped_records_total")


def sample(families: Iterable[Metric], name: str) -> float:
    [value] = [each.value for family in families for each in family.samples if each.name == name]
    return value


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
        status = topology_status(cluster.store, definition, "mb")
        assert status.skipped == 40
        assert shown_by_gateway(status) == 40
        runner = cluster._running["Total"].topologies["mb"]
        runner.wait_for(lambda now: now.processed == 60, 20)  # the entry is there before its writer has its answer
        assert told_by_driver(runner) == (40, 40)
        assert any(line.get("skipped") == 40 for line in topology_history(cluster.store, definition, "mb"))
        shown = CliRunner().invoke(app, ["status", "Total", "--store", str(tmp_path)], env={"COLUMNS": "200"})
        assert "Total mb: retention deleted 40 records before they were read" in shown.stdout
        assert check_module(cluster.store, "Total") == []
