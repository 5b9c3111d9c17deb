"""Retried records where a depot belongs to another module, or another store, and where all of it is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest
from mirrored import BEGINNING, bank, launch, values
from stories import module_of

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, Ops, PState, UpdateOptions
from tidemill.clients.depot_target import reopen
from tidemill.depot.log import DepotLog
from tidemill.leader import backup as backups
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.check import check_module
from tidemill.leader.restore import plan_restore, restore
from tidemill.store.local import LocalStore
from tidemill.values.errors import BadInput, CorruptState, DepotClosed

FIXED: set[str] = set()
MOVES = [["ann", 1], ["bob", -1], ["cid", -2]]


def liked(record: list[Any]) -> str:
    name, amount = record
    if amount < 0 and name not in FIXED:
        raise ValueError(f"{name} has {amount}")
    return str(name)


def counting(rows: Any) -> None:
    rows = rows.explode_microbatch("*b").out("*r").each(liked, "*r").out("*k").hash_partition("*k")
    rows.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))


def strict(**where: Any) -> Callable[[Any, Any], None]:
    """Counts the moves of the bank that it likes."""

    def define(setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*theirs", "Bank", "*moves", **where)
        setup.set_launch_module_dynamic_option("topology.on.record.error", "quarantine")
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        counting(mb.source("*theirs", BEGINNING).out("*b"))

    return define


def own(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*moves", Depot.hash_by(Ops.FIRST))
    setup.set_launch_module_dynamic_option("topology.on.record.error", "quarantine")
    mb = topologies.microbatch("mb")
    mb.pstate("$$counts", PState.map_schema(str, int))
    counting(mb.source("*moves", BEGINNING).out("*b"))


def without_moves(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*others", Depot.random())
    mb = topologies.microbatch("mb")
    mb.pstate("$$sums", PState.map_schema(str, int))
    mb.source("*others").out("*b").explode_microbatch("*b").out("*r")


def sink(setup: Any, topologies: Any) -> None:
    setup.declare_depot("*orders", Depot.random())


def shop(setup: Any, topologies: Any) -> None:
    setup.cluster_depot("*orders", "Sink", "*orders")
    setup.declare_depot("*in", Depot.random())
    rows = topologies.microbatch("mb").source("*in", BEGINNING).out("*b").explode_microbatch("*b").out("*r")
    rows.hash_partition("*orders", "*r").depot_partition_append("*orders", "*r")


@pytest.fixture(autouse=True)
def nothing_is_fixed() -> None:
    FIXED.clear()


def append(theirs: InProcessCluster, module: str = "Bank") -> None:
    theirs.cluster_depot(module, "*moves").append_many(MOVES)


def held(cluster: InProcessCluster, module: str = "Strict") -> list[str]:
    return sorted(each.record[0] for each in cluster.quarantine(module, "mb").records())


def saved(store: Any, folder: Folder) -> BackupFolder:
    target = BackupFolder(LocalStore(folder))
    BackupRun(store, target, 1_000, lambda key, copied: None).take()
    return target


def test_record_is_in_another_modules_depot_again_when_it_is_retried() -> None:
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "Bank", bank, tasks=4)
        launch(cluster, "Strict", strict())
        append(cluster)
        cluster.wait_for_microbatch_processed_count("Strict", "mb", 3)
        FIXED.update(("bob", "cid"))
        assert cluster.quarantine("Strict", "mb").retry() == 2
        cluster.wait_for_microbatch_processed_count("Strict", "mb", 5)
        assert values(cluster, "Strict", "$$counts", ["ann", "bob", "cid"]) == {"ann": 1, "bob": 1, "cid": 1}
        assert check_module(cluster.store, "Strict") == check_module(cluster.store, "Bank") == []


@pytest.mark.parametrize("how", ["destroyed", "deleted"])
def test_record_stays_in_quarantine_when_another_module_gave_its_depot_up(how: str) -> None:
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "Bank", bank, tasks=4)
        launch(cluster, "Strict", strict())
        append(cluster)
        cluster.wait_for_microbatch_processed_count("Strict", "mb", 3)
        if how == "destroyed":
            cluster.destroy_module("Bank", breaks_mirrors=True)
        else:
            gone = UpdateOptions.objects_to_delete("*moves").break_mirrors()
            cluster.update_module(module_of("Bank", without_moves), gone)
        with pytest.raises(BadInput, match="was deleted, or is outside the store"):
            cluster.quarantine("Strict", "mb").retry()
        assert held(cluster) == ["bob", "cid"]
        assert cluster.quarantine("Strict", "mb").drop() == 2


def test_reader_is_not_restored_when_a_retry_since_is_in_another_store(tmp_path: Folder) -> None:
    url, own_url = (tmp_path / "bank").as_uri(), (tmp_path / "strict").as_uri()
    with InProcessCluster.create("local", url) as theirs, InProcessCluster.create("local", own_url) as cluster:
        launch(theirs, "Bank", bank, tasks=4)
        launch(cluster, "Strict", strict(store=url))
        append(theirs)
        cluster.wait_for_microbatch_processed_count("Strict", "mb", 3)
        before = saved(cluster.store, tmp_path / "before")
        FIXED.add("bob")
        quarantine = cluster.quarantine("Strict", "mb")
        quarantine.retry([each.number for each in quarantine.records() if each.record[0] == "bob"])
        cluster.wait_for_microbatch_processed_count("Strict", "mb", 4)
        after = saved(cluster.store, tmp_path / "after")
    with pytest.raises(CorruptState, match="the records of decision 1 are there, but the last one that was made is 0"):
        brought_back(before, own_url)
    brought_back(after, own_url)


def brought_back(folder: BackupFolder, url: str) -> None:
    restore(plan_restore(folder), folder, url, replaces=True, now_ms=2_000, tell=lambda key, copied: None)


def test_every_retry_is_in_the_backup_when_decisions_are_made_while_it_is_taken(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, copy = (tmp_path / "store").as_uri(), (tmp_path / "copy").as_uri()
    with InProcessCluster.create("local", url) as cluster:
        launch(cluster, "Own", own)
        append(cluster, "Own")
        cluster.wait_for_microbatch_processed_count("Own", "mb", 3)
        quarantine = cluster.quarantine("Own", "mb")
        FIXED.update(("bob", "cid"))
        numbers = [each.number for each in quarantine.records()]
        save = BackupRun._save

        def late(self: Any, *args: Any) -> None:
            while numbers:
                quarantine.retry([numbers.pop()])
            save(self, *args)

        monkeypatch.setattr(backups.BackupRun, "_save", late)
        folder = saved(cluster.store, tmp_path / "backup")
    brought_back(folder, copy)
    with InProcessCluster.create("local", copy) as cluster:
        launch(cluster, "Own", own)
        cluster.wait_for_microbatch_processed_count("Own", "mb", 5)
        assert values(cluster, "Own", "$$counts", ["ann", "bob", "cid"]) == {"ann": 1, "bob": 1, "cid": 1}
        assert held(cluster, "Own") == []


def test_closed_depot_opens_only_when_its_own_module_has_it(tmp_path: Folder) -> None:
    """Numbers of definitions of two modules say nothing of each other."""
    with InProcessCluster.create("local", tmp_path.as_uri()) as cluster:
        launch(cluster, "Bank", bank, tasks=4)
        client = cluster._client("Bank").definition()
        log = DepotLog(cluster.store, client.depot_prefix("*moves"), 4)
        log.close(7)
        reopen(log)
        assert log.newest().gate.is_closed, "a later definition than the newest closed it"
        gone = DepotLog(cluster.store, "Bank/depots/other-1", 4)
        gone.close(1)
        with pytest.raises(DepotClosed, match="was deleted by an update of its module"):
            reopen(gone)


def test_record_is_in_its_depot_when_a_rollback_brought_that_back() -> None:
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "Own", own)
        append(cluster, "Own")
        cluster.wait_for_microbatch_processed_count("Own", "mb", 3)
        for _ in range(2):
            cluster.update_module(module_of("Own", own))
        DepotLog(cluster.store, cluster._client("Own").definition().depot_prefix("*moves"), 2).close(2)
        FIXED.update(("bob", "cid"))
        assert cluster.quarantine("Own", "mb").retry() == 2
        cluster.wait_for_microbatch_processed_count("Own", "mb", 5)


def test_a_reader_does_not_open_a_depot_again_when_its_module_closed_it() -> None:
    """The reader's definitions have higher numbers; they say nothing of the depot."""
    with InProcessCluster.create("local") as cluster:
        launch(cluster, "Sink", sink)
        launch(cluster, "Shop", shop)
        for _ in range(3):
            cluster.update_module(module_of("Shop", shop))
        log = DepotLog(cluster.store, cluster._client("Sink").definition().depot_prefix("*orders"), 2)
        log.close(2)
        cluster.cluster_depot("Shop", "*in").append(7)
        runner = cluster._running["Shop"].topologies["mb"]
        runner.wait_for(lambda now: bool(now.report.publishing_trouble), 20)
        log.follow()
        assert (log.newest().gate.is_closed, log.ends()) == (True, (0, 0))
