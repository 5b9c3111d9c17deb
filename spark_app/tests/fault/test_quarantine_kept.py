"""A quarantine through all that happens to a module: kills, backups, updates, deletions, sources outside the store."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Any

import pytest

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.journal.commit_log import CommitLog
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.check import check_module
from tidemill.leader.restore import plan_restore, restore
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.tables.stored_parts import part_loader
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.values.errors import BadInput, CorruptState, UnknownName

NAME, TOPOLOGY = "Kept", "mb"
CALLS: list[int] = []


def liked(record: int) -> int:
    CALLS.append(record)
    if record < 0:
        raise ValueError(f"{record} is below zero")
    return record


class Kept(Module):
    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*numbers", Depot.hash_by(Ops.IDENTITY))
        setup.set_launch_module_dynamic_option("topology.on.record.error", "quarantine")
        mb = topologies.microbatch(TOPOLOGY)
        mb.pstate("$$counts", PState.map_schema(int, int))
        rows = mb.source("*numbers").out("*microbatch").explode_microbatch("*microbatch").out("*n")
        rows = self.checked(rows).hash_partition("*k")
        rows.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))

    def checked(self, rows: Any) -> Any:
        return rows.each(liked, "*n").out("*k")


class Mended(Kept):
    def checked(self, rows: Any) -> Any:
        return rows.each(Ops.IDENTITY, "*n").out("*k")


def launched(url: str, module: Module | None = None) -> InProcessCluster:
    forget_stores()
    part_loader.cache_clear()
    cluster = InProcessCluster.create("local", url)
    cluster.launch_module(module or Kept(), LaunchConfig(2, 1))
    return cluster


def append(cluster: InProcessCluster, count: int, *records: int) -> None:
    cluster.cluster_depot(NAME, "*numbers").append_many(list(records))
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, count)


def counted(cluster: InProcessCluster, *keys: int) -> list[Any]:
    handle = cluster.cluster_pstate(NAME, "$$counts")
    return [handle.select_one(Path.key(key)) for key in keys]


def held(cluster: InProcessCluster) -> list[int]:
    return sorted(each.record for each in cluster.quarantine(NAME, TOPOLOGY).records())


def test_quarantine_goes_on_when_the_module_is_updated_and_its_records_are_retried(tmp_path: Folder) -> None:
    with launched(tmp_path.as_uri()) as cluster:
        append(cluster, 3, 1, -1, -2)
        cluster.update_module(Mended())
        assert held(cluster) == [-2, -1]
        assert cluster.quarantine(NAME, TOPOLOGY).retry() == 2
        cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 5)
        assert (counted(cluster, 1, -1, -2), held(cluster)) == ([1, 1, 1], [])
        assert check_module(cluster.store, NAME) == []


def test_quarantine_and_decisions_come_back_when_a_backup_is_restored(tmp_path: Folder) -> None:
    url, backups = (tmp_path / "store").as_uri(), (tmp_path / "backups").as_uri()
    with launched(url) as cluster:
        append(cluster, 4, 1, -1, -2, -3)
        found = cluster.quarantine(NAME, TOPOLOGY)
        found.drop([found.records()[0].number])
        kept = held(cluster)
        BackupRun(open_store(url), BackupFolder(connect(backups)), 1_000, lambda *_: None).take()
        append(cluster, 6, -4, 5)
        found.drop()
    plan = plan_restore(BackupFolder(connect(backups)))
    restore(plan, BackupFolder(connect(backups)), url, replaces=True, now_ms=2_000, tell=lambda *_: None)
    with launched(url, Mended()) as cluster:
        cluster.wait_until_processed(NAME, TOPOLOGY)
        assert (held(cluster), len(kept)) == (kept, 2)
        append(cluster, 5, 7)
        assert cluster.quarantine(NAME, TOPOLOGY).retry() == 2
        cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 7)
        assert counted(cluster, *kept, 7) == [1, 1, 1]
        assert check_module(cluster.store, NAME) == []


@pytest.mark.parametrize("action", ["drop", "retry"])
def test_lost_decision_is_a_fault_when_it_was_the_newest(tmp_path: Folder, action: str) -> None:
    """The records that it was on would be decided on again, by a decision that could never be finished."""
    with launched(tmp_path.as_uri()) as cluster:
        append(cluster, 3, 1, -1, -2)
        found = cluster.quarantine(NAME, TOPOLOGY)
        getattr(found, action)([0])
        key = next(key for key in cluster.store.list(NAME) if "/settled/" in key)
        content = cluster.store.get(key)
        cluster.store.delete(key)

        texts = [f"{each.place}: {each.text}" for each in check_module(cluster.store, NAME)]
        text = "notes of decision 1 are there, but the last one that was made is 0"
        assert f"{TOPOLOGY} quarantine: {text}" in texts
        with pytest.raises(CorruptState, match="Decision 1 on the quarantine of mb was made"):
            cluster.quarantine(NAME, TOPOLOGY).drop()
        cluster.store.create(key, content)
        assert cluster.quarantine(NAME, TOPOLOGY).drop([1]) == 1
        assert check_module(cluster.store, NAME) == []


def test_backup_is_whole_when_somebody_decides_between_its_looks(tmp_path: Folder) -> None:
    """It holds the note of no decision that it does not hold."""
    url, backups = (tmp_path / "store").as_uri(), (tmp_path / "backups").as_uri()
    with launched(url) as cluster:
        append(cluster, 4, 1, -1, -2, -3)
        found, decided = cluster.quarantine(NAME, TOPOLOGY), list[int]()
        found.drop([0])

        def decide(verb: str, key: str) -> None:
            if "/quarantine/" in key and not decided:
                decided.append(found.drop([1]))

        store = FaultyObjectStore(open_store(url), FaultPlan(decide))
        BackupRun(store, BackupFolder(connect(backups)), 1_000, lambda *_: None).take()
        assert decided == [1]
    plan = plan_restore(BackupFolder(connect(backups)))
    restore(plan, BackupFolder(connect(backups)), url, replaces=True, now_ms=2_000, tell=lambda *_: None)
    with launched(url) as cluster:
        assert check_module(cluster.store, NAME) == []


def test_quarantine_goes_when_its_module_is_destroyed(tmp_path: Folder) -> None:
    with launched(tmp_path.as_uri()) as cluster:
        append(cluster, 2, 1, -1)
        found = cluster.quarantine(NAME, TOPOLOGY)
        found.drop()
        cluster.destroy_module(NAME)
        assert not [key for key in cluster.store.list(NAME) if "/quarantine/" in key or "/settled/" in key]
        with pytest.raises(UnknownName):
            found.retry([0])
        cluster.launch_module(Kept(), LaunchConfig(2, 1))
        append(cluster, 1, 2)
        assert held(cluster) == []


def test_next_leader_leaves_the_same_record_out_when_the_first_dies_behind_its_begin(tmp_path: Folder) -> None:
    """The record is not looked for again: the begin entry says it."""
    url = tmp_path.as_uri()
    cluster = launched(url)
    runner = cluster._running[NAME].topologies[TOPOLOGY]
    machine = runner._machine
    started = machine._start

    def die(attempt: Any, *rest: Any) -> Any:
        if attempt.poisons:
            runner._is_killed = True
        return started(attempt, *rest)

    machine._start = die  # type: ignore[method-assign]  # a death at one place of the machine
    cluster.cluster_depot(NAME, "*numbers").append_many([1, -1, 2])
    runner.join(20)
    head = CommitLog(cluster.store, cluster._client(NAME).definition().topology_prefix(TOPOLOGY)).head()
    assert head is not None and head[1].attempt is not None
    assert [poison.source_id for poison in head[1].attempt.poisons] == ["*numbers"]
    cluster.close()
    CALLS.clear()
    with launched(url) as cluster:
        cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 3)
        assert -1 not in CALLS
        assert (counted(cluster, 1, 2), held(cluster)) == ([1, 1], [-1])
        assert check_module(cluster.store, NAME) == []


def test_record_cannot_be_retried_when_its_depot_is_another_one_now(tmp_path: Folder) -> None:
    with launched(tmp_path.as_uri()) as cluster:
        append(cluster, 2, 1, -1)
        found = cluster.quarantine(NAME, TOPOLOGY)
        definition = cluster._client(NAME).definition()
        other = type(definition.depots["*numbers"])(**{**vars(definition.depots["*numbers"]), "id": "other"})
        known = type(definition)(**{**vars(definition), "depots": {"*numbers": other}})
        found._definition = lambda: known
        with pytest.raises(BadInput, match="was deleted, or is outside the store, so it cannot be retried"):
            found.retry([0])
        assert held(cluster) == [-1]
