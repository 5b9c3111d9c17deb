"""Appends between their commit and their publication: through deaths, backups, updates, collections, and a store that
refuses to take them. Each is in its depot once in the end, or nowhere where its depot was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from rollouts import Rollouts
from waiting import eventually

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Path,
    PState,
    UpdateOptions,
)
from tidemill.clients.depot import DepotHandle
from tidemill.clients.status_reader import topology_status
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader import events, publication, runner
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.check import check_module
from tidemill.leader.restore import At, plan_restore, restore
from tidemill.leader.topology_store import TopologyStore
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.tables.stored_parts import part_loader
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.values.errors import CorruptState, StoreUnavailable

BEGINNING = MicrobatchSourceOptions.start_from_beginning()
LARGE = "x" * 300_000
"""So large that its microbatch's appends are objects."""


class Relay(Module):
    """`relay` appends each record to `*out`, and `count` counts them there."""

    def module_name(self) -> str:
        return "Relay"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow())
        rows = topologies.microbatch("relay").source("*in", BEGINNING).out("*mb").explode_microbatch("*mb").out("*v")
        rows.hash_partition("*v").depot_partition_append("*out", "*v")
        count = topologies.microbatch("count")
        count.pstate("$$counts", PState.map_schema(str, int))
        rows = count.source("*out", BEGINNING).out("*mb").explode_microbatch("*mb").out("*v")
        rows.compound_agg("$$counts", CompoundAgg.map("*v", Agg.count()))


class Alone(Module):
    """The same module without `*out` and who reads it."""

    def module_name(self) -> str:
        return "Relay"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        rows = topologies.microbatch("relay").source("*in", BEGINNING).out("*mb").explode_microbatch("*mb").out("*v")
        rows.hash_partition("*v")


@pytest.fixture
def withheld(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing is published until this is called, as if leaders died before it."""

    def publish(store: Any, start: events.PublishAppends, *more: Any) -> events.AppendsPublished:
        return events.AppendsPublished(start.token, frozenset(), "not in this test")

    monkeypatch.setattr(runner, "publish", publish)
    return monkeypatch.undo


def running(url: str) -> InProcessCluster:
    forget_stores()
    part_loader.cache_clear()
    cluster = InProcessCluster.create("local", store=url)
    cluster.launch_module(Relay(), LaunchConfig(2, 1))
    return cluster


def committed(cluster: InProcessCluster, count: int) -> None:
    """Wait until so many records are committed, whether or not what they led to is published."""
    definition = DefinitionLog(cluster.store, "Relay").newest()
    assert definition is not None
    log = CommitLog(cluster.store, definition.topology_prefix("relay"))
    eventually(lambda: (head := log.head()) is not None and head[1].processed >= count, 20)


def published(cluster: InProcessCluster) -> list[str]:
    out = cluster.cluster_depot("Relay", "*out")
    infos = [out.get_partition_info(p) for p in range(2)]
    return sorted(row for p, info in enumerate(infos) for row in out.read(p, info.start_offset, info.end_offset))


def through(cluster: InProcessCluster) -> None:
    """What waits goes through both topologies."""
    for topology in ("relay", "count"):
        cluster.wait_until_processed("Relay", topology)


def counts(cluster: InProcessCluster, words: list[str]) -> list[int | None]:
    through(cluster)
    handle = cluster.cluster_pstate("Relay", "$$counts")
    return [handle.select_one(Path.key(word)) for word in words]


@pytest.mark.parametrize("words", [["a", "b", "c"], ["a", LARGE]], ids=["in the entry", "as objects"])
def test_the_next_leader_publishes_when_one_died_after_its_commit(
    store_url: str, withheld: Callable[[], None], words: list[str]
) -> None:
    with running(store_url) as cluster:
        cluster.cluster_depot("Relay", "*in").append_many(words)
        committed(cluster, len(words))
        assert published(cluster) == []
        assert check_module(cluster.store, "Relay") == []
        definition = DefinitionLog(cluster.store, "Relay").newest()
        assert definition is not None
        assert topology_status(cluster.store, definition, "relay").unpublished == 1
    withheld()

    with running(store_url) as cluster:
        assert counts(cluster, words) == [1] * len(words)
        assert published(cluster) == sorted(words)
        assert topology_status(cluster.store, definition, "relay").unpublished == 0
        assert check_module(cluster.store, "Relay") == []


def test_nothing_is_published_again_when_a_leader_died_before_it_noted_that_it_was(store_url: str) -> None:
    with running(store_url) as cluster:
        cluster.cluster_depot("Relay", "*in").append_many(["a", "b"])
        cluster.wait_for_microbatch_processed_count("Relay", "relay", 2)
        definition = DefinitionLog(cluster.store, "Relay").newest()
        assert definition is not None
        head = CommitLog(cluster.store, definition.topology_prefix("relay")).head()
        assert head is not None
        assert len(head[1].appends) == 1, "no entry was written for it"

    with running(store_url) as cluster:
        cluster.cluster_depot("Relay", "*in").append("c")
        assert counts(cluster, ["a", "b", "c"]) == [1, 1, 1]
        assert published(cluster) == ["a", "b", "c"]


# --- backups ---------------------------------------------------------------------------------------------------------


def save(url: str, backups: str, store: ObjectStore | None = None, now_ms: int = 1) -> BackupFolder:
    forget_stores()
    folder = BackupFolder(connect(backups))
    BackupRun(store or open_store(url), folder, now_ms, lambda *_: None).take()
    return folder


def bring_back(url: str, folder: BackupFolder, at: At | None = None) -> None:
    restore(plan_restore(folder, at=at), folder, url, replaces=True, now_ms=1, tell=lambda *_: None)
    forget_stores()


@pytest.mark.parametrize("words", [["a", "b"], ["a", LARGE]], ids=["in the entry", "as objects"])
def test_a_restored_store_publishes_once_when_it_was_saved_before_the_publication(
    tmp_path: Folder, withheld: Callable[[], None], words: list[str]
) -> None:
    url = (tmp_path / "store").as_uri()
    with running(url) as cluster:
        cluster.cluster_depot("Relay", "*in").append_many(words)
        committed(cluster, len(words))
        folder = save(url, (tmp_path / "backups").as_uri())
    withheld()
    with running(url) as cluster:
        through(cluster)

    bring_back(url, folder)

    with running(url) as cluster:
        assert counts(cluster, words) == [1] * len(words)
        assert published(cluster) == sorted(words)
        assert check_module(cluster.store, "Relay") == []


def test_a_backup_holds_no_append_of_a_microbatch_that_it_does_not_know(tmp_path: Folder) -> None:
    """Between the look at the heads and that at the depots a topology commits and publishes."""
    url = (tmp_path / "store").as_uri()
    with running(url) as cluster:
        cluster.cluster_depot("Relay", "*in").append("a")
        assert counts(cluster, ["a"]) == [1]
        late = iter(["b"])

        def meanwhile(verb: str, key: str) -> None:
            for word in late if "/depots/" in key else ():
                cluster.cluster_depot("Relay", "*in").append(word)
                cluster.wait_for_microbatch_processed_count("Relay", "relay", 2)

        store = FaultyObjectStore(open_store(url), FaultPlan(before=meanwhile))
        folder = save(url, (tmp_path / "backups").as_uri(), store)
        assert published(cluster) == ["a", "b"]

    bring_back(url, folder)

    with running(url) as cluster:
        through(cluster)
        assert published(cluster) == ["a", "b"], "b was appended to *in before that depot was saved"
        assert counts(cluster, ["a", "b"]) == [1, 1]
        assert check_module(cluster.store, "Relay") == []


def test_a_restore_is_refused_when_a_depot_holds_what_the_older_state_did_not_append_yet(tmp_path: Folder) -> None:
    url = (tmp_path / "store").as_uri()
    with running(url) as cluster:
        for count, word in enumerate("ab", 1):
            cluster.cluster_depot("Relay", "*in").append(word)
            cluster.wait_for_microbatch_processed_count("Relay", "relay", count)
        definition = DefinitionLog(cluster.store, "Relay").newest()
        assert definition is not None
        head = CommitLog(cluster.store, definition.topology_prefix("relay")).head()
        assert head is not None
        folder = save(url, (tmp_path / "backups").as_uri())

    with pytest.raises(CorruptState, match="S8 relay appends to .out: microbatch 2 is there, but the last committed"):
        bring_back(url, folder, At(topology="Relay/relay", entry=head[1].committed[1].entry))


# --- a store that does not take them ---------------------------------------------------------------------------------


def test_a_topology_waits_with_all_its_appends_when_its_depot_takes_none(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = [True]

    def refuse(verb: str, key: str) -> None:
        if verb == "create" and is_away:
            raise StoreUnavailable("the depot's folder takes nothing")

    old = TopologyStore.target

    def target(self: TopologyStore, depot: str) -> DepotLog:
        found = old(self, depot)
        store = FaultyObjectStore(self.store, FaultPlan(before=refuse))
        return DepotLog(store, found.files.prefix, found.partitions, patience=())

    monkeypatch.setattr(TopologyStore, "target", target)
    monkeypatch.setattr(publication, "BACK_OFF_MS", (1.0,))
    words = [f"w{number}" for number in range(publication.MICROBATCHES_MAX + 4)]
    with running((tmp_path / "store").as_uri()) as cluster:
        depot = cluster.cluster_depot("Relay", "*in")
        for number, word in enumerate(words[: publication.MICROBATCHES_MAX], 1):
            depot.append(word)
            committed(cluster, number)
        depot.append_many(words[publication.MICROBATCHES_MAX :])
        with pytest.raises(TimeoutError) as late:
            cluster.wait_for_microbatch_processed_count("Relay", "relay", len(words), timeout_millis=300)
        assert f"{publication.MICROBATCHES_MAX} of its appends are not published" in str(late.value)
        assert "its appends cannot be published: to out-" in str(late.value)
        assert "the depot's folder takes nothing" in str(late.value)
        assert cluster.microbatch_state("Relay", "relay")[0] == publication.MICROBATCHES_MAX
        with pytest.raises(TimeoutError, match="relay has not processed 4 of the records"):
            cluster.wait_until_processed("Relay", "relay", timeout_millis=50)
        assert published(cluster) == []

        is_away.clear()

        cluster.wait_for_microbatch_processed_count("Relay", "relay", len(words))
        assert counts(cluster, words) == [1] * len(words)
        assert published(cluster) == sorted(words)


def test_nothing_staged_goes_when_everything_old_is_collected(tmp_path: Folder, withheld: Callable[[], None]) -> None:
    words = ["a", LARGE, "b", "c"]
    shop = Relays(tmp_path)
    definition = shop.run(Relay())
    for number, word in enumerate(words, 1):
        shop.append("*in", word)
        shop.processed("relay", number)
    shop.stop()

    shop.collect(Relay(), definition)

    withheld()
    shop.run(Relay())
    shop.processed("count", len(words))
    assert shop.out() == sorted(words)
    assert check_module(shop.store, "Relay") == []
    shop.collect(Relay(), shop.definition)
    shop.append("*in", "d")
    shop.processed("count", len(words) + 1)
    shop.collect(Relay(), shop.definition)
    assert shop.keys(f"{definition.topology_prefix('relay')}/appends") == [], "what is published goes"
    shop.stop()


class Unread(Module):
    """Appends to a depot that no topology reads."""

    def module_name(self) -> str:
        return "Relay"

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*in", Depot.random())
        setup.declare_depot("*out", Depot.disallow())
        rows = topologies.microbatch("relay").source("*in", BEGINNING).out("*mb").explode_microbatch("*mb").out("*v")
        rows.depot_partition_append("*out", "*v")


def test_segments_are_rolled_when_only_a_topology_appends_to_a_depot_and_nobody_reads_it(relays: Relays) -> None:
    definition = relays.run(Unread())
    relays.append("*in", "a")
    relays.processed("relay", 1)
    out = DepotLog(relays.store, definition.depot_prefix("*out"), 2)
    for _ in range(RollingLimits().segments_min + 2):
        out.append([(0, ["more"])])
    relays.stop()

    relays.collect(Unread(), definition)

    assert len(out.files.list_rolled()) == 1
    assert relays.out().count("more") == RollingLimits().segments_min + 2
    assert check_module(relays.store, "Relay") == []


# --- updates ---------------------------------------------------------------------------------------------------------


class Relays(Rollouts):
    """Revisions of the module Relay."""

    module = "Relay"

    def out(self) -> list[str]:
        handle = DepotHandle(self.client, "*out")
        infos = [handle.get_partition_info(p) for p in range(2)]
        return sorted(row for p, info in enumerate(infos) for row in handle.read(p, info.start_offset, info.end_offset))


@pytest.fixture
def relays(tmp_path: Folder) -> Iterator[Relays]:
    made = Relays(tmp_path)
    yield made
    made.stop()


def test_appends_are_there_once_when_the_update_that_deleted_their_depot_is_rolled_back(
    relays: Relays, withheld: Callable[[], None]
) -> None:
    relays.run(Relay())
    relays.append("*in", "a", "b")
    relays.processed("relay", 2)
    relays.run(Alone(), "*out", "$$counts")
    withheld()
    relays.append("*in", "c")
    relays.processed("relay", 3)

    relays.run(Relay(), restores=True)
    relays.append("*in", "d")
    relays.processed("count", 3)

    assert relays.out() == ["a", "b", "d"]
    assert relays.counts("$$counts", "abcd") == {"a": 1, "b": 1, "d": 1}, "c was read by code that appends nothing"
    assert check_module(relays.store, "Relay") == []


def test_appends_go_nowhere_when_their_depot_is_deleted_for_good(relays: Relays, withheld: Callable[[], None]) -> None:
    relays.run(Relay())
    relays.append("*in", "a", "b")
    relays.processed("relay", 2)
    relays.run(Alone(), "*out", "$$counts")
    assert relays.confirm()
    withheld()

    relays.run(Relay())
    relays.append("*in", "c")
    relays.processed("count", 1)

    assert relays.out() == ["c"]
    assert check_module(relays.store, "Relay") == []


def test_appends_are_published_when_an_update_follows_that_keeps_their_depot(
    tmp_path: Folder, withheld: Callable[[], None]
) -> None:
    with running(tmp_path.as_uri()) as cluster:
        cluster.cluster_depot("Relay", "*in").append("a")
        committed(cluster, 1)
        withheld()
        cluster.update_module(Relay(), UpdateOptions.objects_to_delete())
        assert counts(cluster, ["a"]) == [1]


def test_nothing_stops_a_module_from_being_destroyed_when_it_has_something_to_publish(
    tmp_path: Folder, withheld: Callable[[], None]
) -> None:
    with running(tmp_path.as_uri()) as cluster:
        cluster.cluster_depot("Relay", "*in").append("a")
        committed(cluster, 1)
        cluster.destroy_module("Relay")
        withheld()
        cluster.launch_module(Relay(), LaunchConfig(2, 1))
        cluster.cluster_depot("Relay", "*in").append("b")
        assert counts(cluster, ["a", "b"]) == [None, 1]
        assert published(cluster) == ["b"]
