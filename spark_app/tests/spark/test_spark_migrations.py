"""T11 on Spark: migrated values are read as soon as the module was updated, in attempts and in compactions too."""

from __future__ import annotations

import pytest
from spark_migrations import MigratedNumbers, Numbers
from waiting import eventually

from tidemill import InProcessCluster, LaunchConfig, Ops, Path
from tidemill.clients.status_reader import topology_status
from tidemill.leader.check import check_module
from tidemill.spark.session import Session
from tidemill.tables.migration_progress import MigrationStatus

pytestmark = pytest.mark.spark


def migrations(cluster: InProcessCluster) -> tuple[MigrationStatus, ...]:
    return topology_status(cluster.store, cluster._client("Numbers").definition(), "mb").migrations


def test_t11_values_are_migrated_when_attempts_and_compactions_run_on_spark(
    spark: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.leader.maintenance.PIECE_ROWS", 1)  # four pieces, two at a time
    with InProcessCluster.create(engine="spark") as cluster:
        cluster.launch_module(Numbers(), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("Numbers", "*pairs")
        for number, key in enumerate("abc", 1):
            depot.append([key, number])
        cluster.wait_for_microbatch_processed_count("Numbers", "mb", 3)
        newest, sums, times = (cluster.cluster_pstate("Numbers", name) for name in ("$$newest", "$$sums", "$$times"))
        cluster.update_module(MigratedNumbers())
        assert [newest.select_one(Path.key(key)) for key in "abc"] == ["1!", "2!", "3!"]
        assert [times.select(Path.key(key).all()) for key in "abc"] == [[[1, 1]], [[2, 1]], [[3, 1]]]
        depot.append(["a", 5])
        cluster.wait_for_microbatch_processed_count("Numbers", "mb", 4)
        assert [newest.select_one(Path.key(key)) for key in "abc"] == ["5!", "2!", "3!"]
        assert [sums.select_one(Path.key(key)) for key in "abc"] == [600, 200, 300]
        eventually(lambda: not any(found.waiting for found in migrations(cluster)), 120)
        assert [found.pstate for found in migrations(cluster)] == ["$$newest", "$$sums", "$$times"]
        assert [sums.select_one(Path.key(key)) for key in "abc"] == [600, 200, 300]
        assert [times.select(Path.key(key).all()) for key in "abc"] == [[[1, 1], [5, 1]], [[2, 1]], [[3, 1]]]
        assert [times.select_one(Path.key(key).view(Ops.SIZE)) for key in "abc"] == [2, 1, 1]
        assert check_module(cluster.store, "Numbers") == []
