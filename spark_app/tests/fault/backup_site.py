"""What the tests of backups share: a module, its store, and a folder of backups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import Backup, BackupFolder
from tidemill.leader.restore import At, plan_restore, restore
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.tables.stored_parts import part_loader

MODULE = "Counted"
LARGE = 400


class Counted(Module):
    """Two topologies that read the same depot, with small and large microbatches."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        for name, pstate in (("first", "$$first"), ("second", "$$second")):
            mb = topologies.microbatch(name)
            mb.pstate(pstate, PState.map_schema(str, int))
            (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*word")
               .compound_agg(pstate, CompoundAgg.map("*word", Agg.count())))  # fmt: skip


def nothing(key: str, copied: object) -> None:
    pass


class Site:
    """A store and a folder of backups."""

    def __init__(self, url: str, backups: str) -> None:
        self.url, self.backups = url, backups
        self.appended: list[str] = []
        self.now_ms = 1_000

    def running(self) -> InProcessCluster:
        forget_stores()
        part_loader.cache_clear()
        cluster = InProcessCluster.create("local", store=self.url)
        cluster.launch_module(Counted(), LaunchConfig(2, 2))
        return cluster

    def append(self, cluster: InProcessCluster, *words: str) -> None:
        cluster.cluster_depot(MODULE, "*words").append_many(list(words))
        self.appended += words

    def wait(self, cluster: InProcessCluster) -> None:
        for topology in ("first", "second"):
            cluster.wait_for_microbatch_processed_count(MODULE, topology, len(self.appended))

    def counts(self, cluster: InProcessCluster) -> dict[str, int]:
        handles = [cluster.cluster_pstate(MODULE, name) for name in ("$$first", "$$second")]
        first, second = ({w: handle.select_one(Path.key(w)) for w in set(self.appended)} for handle in handles)
        assert first == second
        return first

    @property
    def truth(self) -> dict[str, int]:
        return {word: self.appended.count(word) for word in set(self.appended)}

    @property
    def folder(self) -> BackupFolder:
        return BackupFolder(connect(self.backups))

    def save(self, store: ObjectStore | None = None, folder: BackupFolder | None = None) -> Backup:
        self.now_ms += 1
        forget_stores()
        return BackupRun(store or open_store(self.url), folder or self.folder, self.now_ms, nothing).take()

    def bring_back(
        self, at: At | None = None, *, replaces: bool = True, opener: Callable[[str], ObjectStore] = connect
    ) -> None:
        plan = plan_restore(self.folder, at=at)
        restore(plan, self.folder, self.url, replaces=replaces, now_ms=1, tell=nothing, opener=opener)

    def lose(self) -> None:
        """The store is gone."""
        base = connect(self.url)
        for key in list(base.list("")):
            base.delete(key)
        forget_stores()


def words(count: int, name: str = "w") -> list[str]:
    return [f"{name}{i}" for i in range(count)]
