"""Modules that mirror each other, saved while they run and brought back; and stores that are brought back alone."""

from __future__ import annotations

from pathlib import Path as Folder

import pytest
from mirrored import bank, launch, report, values
from rings import RECORDS, ROUNDS, SECONDS, check_counts, closed, feed, others, processed, run
from stories import module_of
from waiting import eventually

from tidemill import InProcessCluster
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.restore import plan_restore, restore
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.tables.stored_parts import part_loader
from tidemill.values.errors import CorruptState, DefinitionError


def nothing(key: str, copied: object) -> None:
    pass


def save(store: ObjectStore, backups: Folder, now_ms: int) -> None:
    BackupRun(store, BackupFolder(connect(backups.as_uri())), now_ms, nothing).take()


def bring_back(url: str, backups: Folder) -> None:
    folder = BackupFolder(connect(backups.as_uri()))
    restore(plan_restore(folder), folder, url, replaces=True, now_ms=1, tell=nothing)
    forget_stores()
    part_loader.cache_clear()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_counts_are_exact_when_two_modules_that_feed_each_other_are_saved_on_the_way(
    tmp_path: Folder, share: float
) -> None:
    url, total = (tmp_path / "store").as_uri(), RECORDS * (ROUNDS + 1)
    running = closed(url)
    try:
        feed(running["Left"].store)
        eventually(lambda: processed(running) >= share * total, SECONDS)
        save(running["Left"].store, tmp_path / "backups", 1)
    finally:
        for module in running.values():
            module.close()
    bring_back(url, tmp_path / "backups")

    again = {name: run(url, name, other) for name, other in others().items()}
    try:
        eventually(lambda: processed(again) >= total, SECONDS)
        check_counts(again["Left"].store)
    finally:
        for module in again.values():
            module.close()


def test_a_reader_is_refused_when_the_store_of_the_other_module_was_brought_back(tmp_path: Folder) -> None:
    url = (tmp_path / "bank").as_uri()
    define = report(store=url)
    with InProcessCluster.create(store=tmp_path / "own") as cluster:
        with InProcessCluster.create(store=url) as banks:
            launch(banks, "Bank", bank)
            save(banks.store, tmp_path / "backups", 1)
            banks.cluster_depot("Bank", "*moves").append_many([["a", 1]] * 3)
            launch(cluster, "Report", define)
            cluster.wait_for_microbatch_processed_count("Report", "mb", 3)
        cluster._running.pop("Report").close()
        bring_back(url, tmp_path / "backups")
        with InProcessCluster.create(store=url) as banks:
            launch(banks, "Bank", bank)
            banks.cluster_depot("Bank", "*moves").append_many([["b", 1]] * 5)

            with pytest.raises(DefinitionError, match="or that store was restored"):
                launch(cluster, "Report", define)
            cluster.update_module(module_of("Report", define))
            cluster.wait_until_processed("Report", "mb")
            assert values(cluster, "Report", "$$counts", ["a", "b"]) == {"a": 3, "b": 5}


def test_a_store_is_not_brought_back_when_another_one_holds_what_it_appended_since(tmp_path: Folder) -> None:
    from test_stories_mirrors import shop_of, sink

    url = (tmp_path / "shop").as_uri()
    with InProcessCluster.create(store=tmp_path / "sink") as sinks:
        launch(sinks, "Sink", sink)
        with InProcessCluster.create(store=url) as cluster:
            launch(cluster, "Shop", shop_of(store=tmp_path / "sink"))
            cluster.cluster_depot("Shop", "*in").append({"k": "a", "v": 1})
            cluster.wait_for_microbatch_processed_count("Shop", "mb", 1)
            save(cluster.store, tmp_path / "backups", 1)
            cluster.cluster_depot("Shop", "*in").append({"k": "a", "v": 1})
            cluster.wait_for_microbatch_processed_count("Shop", "mb", 2)

        with pytest.raises(CorruptState, match="is there, but the last committed one is"):
            bring_back(url, tmp_path / "backups")
        assert open_store(url)
