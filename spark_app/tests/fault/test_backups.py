"""A store that is saved while it runs, lost, brought back, and goes on: results equal the truth."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any, cast

import pytest
from backup_site import LARGE, MODULE, Site, nothing, words
from typer.testing import CliRunner

from tidemill import InProcessCluster, Path
from tidemill.cli.backup import _check_apart
from tidemill.cli.main import app
from tidemill.depot.log import DepotLog
from tidemill.depot.retention import RollingLimits, roll
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.leader.check import check_module
from tidemill.leader.collection import collect
from tidemill.leader.restore import At, needed_objects, plan_restore, restore
from tidemill.store import incarnations
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.testing.faulty_store import Crash, FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import BadInput, CorruptState, StoreRestored, TidemillError, UnknownName


@pytest.fixture
def site(store_url: str, tmp_path: Folder) -> Site:
    backups = f"{tmp_path}-backups" if "://" not in store_url or store_url.startswith("file") else None
    if backups is None:
        backups = store_url.replace("?", "-backups?", 1)
    return Site(store_url, backups)


@pytest.fixture
def local(tmp_path: Folder) -> Site:
    return Site((tmp_path / "store").as_uri(), (tmp_path / "backups").as_uri())


def test_results_equal_the_truth_when_a_lost_store_is_brought_back(site: Site) -> None:
    with site.running() as cluster:
        site.append(cluster, *words(5))
        site.append(cluster, *(f"{i:06d}".ljust(1_000, "x") for i in range(LARGE)))
        site.wait(cluster)
        site.append(cluster, *words(3))
        made = site.save()
    saved = list(site.appended)
    assert [topology.name for topology in made.topologies] == ["first", "second"]
    site.lose()
    site.bring_back(replaces=False)
    with site.running() as cluster:
        site.append(cluster, *words(2, "later"))
        site.wait(cluster)
        assert site.counts(cluster) == site.truth
    assert len(site.appended) == len(saved) + 2
    assert check_module(open_store(site.url), MODULE) == []


def test_results_equal_the_truth_when_a_store_was_saved_while_appends_ran(local: Site) -> None:
    stop = threading.Event()
    acknowledged: list[str] = []
    with local.running() as cluster:

        def append_all() -> None:
            number = 0
            while not stop.is_set():
                cluster.cluster_depot(MODULE, "*words").append(f"r{number}")
                acknowledged.append(f"r{number}")
                number += 1

        thread = threading.Thread(target=append_all)
        thread.start()
        cluster.wait_for_microbatch_processed_count(MODULE, "first", 20)
        for _ in range(3):
            before = len(acknowledged)
            _roll_and_collect(cluster, local.url)
            local.save()
        stop.set()
        thread.join()
        cluster._running[MODULE].kill()
    local.lose()
    local.bring_back()
    with local.running() as cluster:
        info = cluster.cluster_depot(MODULE, "*words")
        held = [word for p in (0, 1) for word in info.read(p, *info.get_partition_info(p))]
        assert set(held) >= set(acknowledged[:before]), "what was acknowledged before the backup began is there"
        local.appended = list(held)
        local.append(cluster, "after")
        local.wait(cluster)
        assert local.counts(cluster) == local.truth
        assert set(local.truth.values()) == {1}


@pytest.mark.parametrize(("log", "ask"), [(CommitLog, "head"), (DepotLog, "newest")])
def test_all_that_the_newest_entry_needs_is_saved_when_logs_are_trimmed_beyond_it(
    log: type, ask: str, local: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(log, ask)
    asked: list[object] = []
    with local.running() as cluster:

        def asked_before_much_happens(self: Any, *arguments: Any) -> Any:
            found = real(self, *arguments)
            if threading.current_thread() is threading.main_thread() and not asked:
                asked.append(found)
                for _ in range(5):
                    local.append(cluster, "later")
                    local.wait(cluster)
                _roll_and_collect(cluster, local.url)
            return found

        local.append(cluster, *words(3))
        local.wait(cluster)
        forget_stores()
        run = BackupRun(open_store(local.url), local.folder, 1, nothing)
        monkeypatch.setattr(log, ask, asked_before_much_happens)
        run.take()
        monkeypatch.undo()
    assert asked
    local.lose()
    local.bring_back()
    with local.running() as cluster:
        local.wait(cluster)
        assert local.counts(cluster) == local.truth


def test_rolled_segments_know_no_more_than_the_saved_log_when_they_are_rolled_meanwhile(
    local: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(1))
        local.wait(cluster)
    definition = DefinitionLog(connect(local.url), MODULE).newest()
    assert definition is not None
    depot = DepotLog(connect(local.url), definition.depot_prefix("*words"), 2)
    for number in range(4):
        depot.append([(0, [f"early {number}"])])
    real, rolled = BackupRun._log, []

    def log_before_others_roll(self: Any, found: Any, log: Any, last: int) -> None:
        real(self, found, log, last)
        if log.prefix == depot.files.log.prefix and not rolled:
            depot.append([(0, ["late"])])
            rolled.append(roll(depot, RollingLimits(1, 2)))

    monkeypatch.setattr(BackupRun, "_log", log_before_others_roll)
    local.save()
    assert rolled == [2]
    local.lose()
    local.bring_back()
    copy = DepotLog(open_store(local.url), depot.files.prefix, 2)
    assert copy.files.list_rolled() and copy.newest().number == depot.newest().number


def _roll_and_collect(cluster: InProcessCluster, url: str) -> None:
    for runner in cluster._running[MODULE].topologies.values():
        for depot in runner._topology_store.depots.values():
            roll(depot, RollingLimits(2, 8))
        collect(runner._topology_store, 0)


def test_objects_are_copied_once_when_backups_share_them(local: Site) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(5))
        local.wait(cluster)
        first = BackupRun(open_store(local.url), local.folder, 1, nothing)
        first.take()
        again = BackupRun(open_store(local.url), local.folder, 2, nothing)
        again.take()
        assert again.copied.objects == 0 < first.copied.objects
        local.append(cluster, "one more")
        local.wait(cluster)
        third = BackupRun(open_store(local.url), local.folder, 3, nothing)
        third.take()
        assert 0 < third.copied.objects < first.copied.objects + 10
    assert len(local.folder.ids()) == 3


def test_older_backups_go_when_only_some_are_kept(local: Site) -> None:
    with local.running() as cluster:
        for number in range(4):
            local.append(cluster, f"w{number}")
            local.wait(cluster)
            made = local.save()
    assert local.folder.forget(made.url, 2) == 2
    assert len(local.folder.ids()) == 2
    for backup in local.folder.all():
        for key in backup.objects:
            local.folder.get(backup, key)
    kept = {f"stores/{made.store}/{key}" for backup in local.folder.all() for key in backup.objects}
    assert set(local.folder.store.list("stores")) == kept
    local.lose()
    local.bring_back()


def test_backups_stay_whole_when_those_of_the_same_store_under_another_url_go(local: Site, tmp_path: Folder) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        local.save()
        made = local.save()
        (tmp_path / "elsewhere").symlink_to(tmp_path / "store")
        local.append(cluster, *words(3))
        local.wait(cluster)
        other = Site((tmp_path / "elsewhere").as_uri(), local.backups)
        other.now_ms = local.now_ms
        newer = other.save()
    assert (newer.store, newer.url) == (made.store, other.url)
    assert newer.url != made.url
    assert local.folder.forget(made.url, 1) == 1
    for backup in local.folder.all():
        for key in backup.objects:
            local.folder.get(backup, key)


class Place:
    """A place with nothing but a name."""

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.mark.parametrize(
    ("target", "is_refused"),
    [("s3://b/data", True), ("s3://b/data/in", True), ("s3://b/data-backups", False), ("s3://b", False)],
)
def test_a_place_is_refused_only_when_it_is_in_the_store(target: str, is_refused: bool) -> None:
    refused = pytest.raises(BadInput, match="is in the store") if is_refused else nullcontext()
    with refused:
        _check_apart(cast(Any, Place("s3://b/data?endpoint=http://x")), cast(Any, Place(f"{target}?endpoint=http://x")))


def test_an_earlier_state_comes_back_when_a_time_or_an_entry_is_named(local: Site) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        topology_store = cluster._running[MODULE].topologies["first"]._topology_store
        number, entry = topology_store.commit_log.head()
        local.append(cluster, *words(3))
        local.wait(cluster)
        local.now_ms = topology_store.commit_log.head()[1].written_ms + 1_000
        local.save()
    for at in (At(millis=entry.written_ms), At(topology=f"{MODULE}/first", entry=number)):
        plan = plan_restore(local.folder, at=at)
        (first,) = (point for point in plan.points if point.topology.name == "first")
        assert first.entry.written_ms <= entry.written_ms
        assert first.entry.processed <= 3
        assert all(point.entry.written_ms <= entry.written_ms for point in plan.points)
    with pytest.raises(BadInput, match="too long ago"):
        plan_restore(local.folder, at=At(millis=1))
    with pytest.raises(BadInput, match="has entry 999"):
        plan_restore(local.folder, at=At(topology=f"{MODULE}/first", entry=999))
    local.bring_back(At(millis=entry.written_ms))
    with local.running() as cluster:  # the depot is whole: what followed is processed again
        local.wait(cluster)
        assert local.counts(cluster) == local.truth


def test_whoever_has_the_store_open_stops_when_it_is_restored(local: Site) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        local.save()
        local.append(cluster, "lost")
        local.wait(cluster)
        runner = cluster._running[MODULE].topologies["first"]
        local.bring_back()
        with pytest.raises(StoreRestored, match="start the process anew"):
            cluster.cluster_depot(MODULE, "*words").append("never acknowledged")
        with pytest.raises(StoreRestored):
            cluster.cluster_pstate(MODULE, "$$first").select_one(Path.key("w0"))
        runner.wait_for(lambda state: state.is_over, 30)
        assert isinstance(runner.state.error, StoreRestored)
        with pytest.raises(StoreRestored):
            collect(runner._topology_store, 0)
    local.appended = words(3)
    with local.running() as cluster:
        local.append(cluster, "new")
        local.wait(cluster)
        assert local.counts(cluster) == local.truth


def test_a_store_is_left_alone_when_nobody_says_that_it_is_to_be_replaced(local: Site) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        local.save()
        with pytest.raises(BadInput, match="--replace"):
            local.bring_back(replaces=False)
        local.append(cluster, "goes on")
        local.wait(cluster)


def test_a_backup_of_a_restored_store_is_restored(local: Site) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        local.save()
    for round_ in range(2):
        local.bring_back()
        with local.running() as cluster:
            local.append(cluster, f"round {round_}")
            local.wait(cluster)
            assert local.counts(cluster) == local.truth
        made = local.save()
    assert made.url == local.url
    assert local.folder.forget(made.url, 1) == 2
    assert {key.split("/")[1] for key in local.folder.store.list("stores")} == {made.store}


def test_a_store_with_another_history_is_not_saved_over_the_first(local: Site, tmp_path: Folder) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with local.running() as cluster:
        local.append(cluster, "here")
        local.wait(cluster)
        local.save()
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "copy", tmp_path / "store")
    local.appended.remove("here")
    with local.running() as cluster:
        local.append(cluster, "there")
        local.wait(cluster)
        with pytest.raises(BadInput, match="another history"):
            local.save()


def test_damage_is_told_and_nothing_is_changed_when_a_saved_object_is_not_what_was_saved(local: Site) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        made = local.save()
    store = local.folder.store
    for key in sorted(needed_objects(plan_restore(local.folder))):
        place = f"stores/{made.store}/{key}"
        kept = store.get(place)
        store.delete(place)
        with pytest.raises(CorruptState, match="is missing"):
            local.bring_back()
        store.create(place, kept[:-1])
        with pytest.raises(CorruptState, match="is not what was saved"):
            local.bring_back()
        store.delete(place)
        store.create(place, kept)
    assert incarnations.current(connect(local.url)).number == 0
    local.bring_back()


# --- cut off ---------------------------------------------------------------------------------------------------------


class Cut:
    """Dies at the n-th write, before or after it."""

    def __init__(self, at: int, is_after: bool) -> None:
        self.at, self.is_after, self.writes = at, is_after, 0
        self._lock = threading.Lock()

    def _is_now(self, verb: str, is_after: bool) -> bool:
        return verb in ("create", "delete") and is_after == self.is_after and self.writes == self.at

    def before(self, verb: str, key: str) -> None:
        with self._lock:
            self.writes += verb in ("create", "delete")
            if self._is_now(verb, False):
                raise Crash(key)

    def after(self, verb: str, key: str) -> None:
        with self._lock:
            if self._is_now(verb, True):
                raise Crash(key)

    def on(self, store: ObjectStore) -> ObjectStore:
        return FaultyObjectStore(store, FaultPlan(self.before, self.after))


def cuts() -> Iterator[Cut]:
    for at in range(1, 1_000):
        for is_after in (False, True):
            yield Cut(at, is_after)


@pytest.fixture
def small(local: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A saved store of few objects, and one thread, so that each write can be cut off."""
    monkeypatch.setattr("tidemill.leader.backup.THREADS", 1)
    monkeypatch.setattr("tidemill.leader.restore.THREADS", 1)
    with local.running() as cluster:
        local.append(cluster, *words(2))
        local.wait(cluster)
    return local


def test_a_backup_never_looks_whole_and_can_be_repeated_when_it_is_cut_off_anywhere(small: Site) -> None:
    done = 0
    for cut in cuts():
        store = small.folder.store
        for key in list(store.list("")):
            store.delete(key)
        try:
            small.save(folder=BackupFolder(cut.on(connect(small.backups))))
        except Crash:
            for backup in small.folder.all():  # cut off while it gave its turn up
                assert all(small.folder.get(backup, key) for key in backup.objects)
            small.save()
            plan = plan_restore(small.folder)
            assert [point.entry.processed for point in plan.points] == [2, 2]
            done += 1
            continue
        if cut.writes < cut.at:
            break
    assert done > 10


def test_backups_that_stay_are_whole_and_nothing_else_stays_when_a_deletion_is_cut_off_anywhere(small: Site) -> None:
    """Also of a store that was replaced since: no later backup is of it."""
    old, done = MemoryStore(), 0
    small.save(folder=BackupFolder(old))
    with small.running() as cluster:
        small.append(cluster, *words(2))
        small.wait(cluster)
    plan = plan_restore(BackupFolder(old))
    restore(plan, BackupFolder(old), small.url, replaces=True, now_ms=1, tell=nothing)
    newest = small.save(folder=BackupFolder(old))
    for cut in cuts():
        again = MemoryStore()
        for key in old.list(""):
            again.create(key, old.get(key))
        try:
            BackupFolder(cut.on(again)).forget(newest.url, 1)
        except Crash:
            done += 1
            for key in list(again.list("lease")):  # as if its time was over
                again.delete(key)
        left = list(BackupFolder(again).all())
        assert all(BackupFolder(again).get(backup, key) for backup in left for key in backup.objects)
        folder = BackupFolder(again)
        folder.add(replace(newest, id=folder.new_id(2_000)))  # the next backup, of the same state
        folder.forget(newest.url, 1)
        assert set(again.list("stores")) == {f"stores/{newest.store}/{key}" for key in newest.objects}
        if cut.writes < cut.at:
            break
    assert done > 10


def test_the_old_or_the_new_store_lives_when_a_restore_is_cut_off_anywhere(small: Site) -> None:
    small.save()
    done = 0
    for cut in cuts():
        before = incarnations.current(connect(small.url))
        try:
            small.bring_back(opener=lambda url, cut=cut: cut.on(connect(url)))
        except Crash:
            done += 1
            after = incarnations.current(connect(small.url))
            assert after.number in (before.number, before.number + 1)
            forget_stores()
            try:
                assert check_module(open_store(small.url), MODULE) == []
            except StoreRestored as error:  # its logs are closed, and the copy is not chosen yet
                assert "repeat it" in str(error)
                assert after == before
                small.bring_back()
                assert check_module(open_store(small.url), MODULE) == []
            continue
        if cut.writes < cut.at:
            break
    assert done > 20
    assert len(list(connect(small.url).list(incarnations.CURRENT))) > 2
    with small.running() as cluster:
        small.append(cluster, "w0")
        small.wait(cluster)
        assert small.counts(cluster) == small.truth


def test_backups_go_on_when_the_list_of_one_is_damaged(local: Site, tmp_path: Folder) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
        older, damaged = local.save(), local.save()
    (tmp_path / "backups" / "backups" / f"{damaged.id}.json").write_bytes(b"{")
    newest = local.save()
    assert len(newest.objects) == len(older.objects)
    listed = called("backup", str(tmp_path / "backups"), "--list")
    assert [each["id"] for each in listed["backups"]] == [newest.id, older.id]
    (text,) = listed["damaged"]
    assert damaged.id in text and "Delete backups/" in text
    with pytest.raises(CorruptState, match="nor be one of those that --keep counts"):
        local.folder.forget(newest.url, 1)
    assert len(local.folder.ids()) == 3
    local.folder.store.delete(f"backups/{damaged.id}.json")
    assert local.folder.forget(newest.url, 1) == 1
    local.lose()
    local.bring_back()


def test_a_backup_that_is_deleted_meanwhile_is_left_out_when_backups_are_listed(
    local: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local.running() as cluster:
        local.append(cluster, "w")
        local.wait(cluster)
        made = local.save()
    monkeypatch.setattr(BackupFolder, "ids", lambda self: ["gone", made.id])
    assert [backup.id for backup in local.folder.all()] == [made.id]


# --- the command line ------------------------------------------------------------------------------------------------


def called(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout or result.stderr)


def test_commands_save_list_and_bring_back(local: Site, tmp_path: Folder) -> None:
    with local.running() as cluster:
        local.append(cluster, *words(3))
        local.wait(cluster)
    store, target = str(tmp_path / "store"), str(tmp_path / "backups")
    made = called("backup", target, "--store", store)
    assert (made["modules"], made["forgotten"], made["copied"]["objects"]) == ([MODULE], 0, made["objects"])
    told = CliRunner().invoke(app, ["restore", target, "--store", str(tmp_path / "old"), "--backup", made["id"]])
    assert "newer" not in told.output
    newest = called("backup", target, "--store", store)
    told = CliRunner().invoke(app, ["restore", target, "--store", str(tmp_path / "older"), "--backup", made["id"]])
    assert "is in newer backups only (1 backup in" in " ".join(told.output.split())
    assert newest["id"] > made["id"]
    assert called("backup", target, "--store", store, "--keep", "1")["forgotten"] == 2
    (listed,) = called("backup", target, "--list")["backups"]
    refused = called("restore", target, "--store", store, code=1)
    assert "--replace" in refused["error"]["message"]
    restored = called("restore", target, "--store", store, "--replace", "--backup", listed["id"])
    assert restored["backup"] == listed["id"]
    assert {t["name"]: t["processed"] for t in restored["topologies"]} == {"first": 3, "second": 3}
    assert called("check", "--store", store)["findings"] == []
    at = f"Counted/first@{restored['topologies'][0]['entry']}"
    assert "error" in called("restore", target, "--store", str(tmp_path / "other"), "--at", "yesterday", code=1)
    assert called("restore", target, "--store", str(tmp_path / "other"), "--at", at)["replaced"] == []
    assert called("restore", target, "--backup", "none", "--store", store, code=1)["error"]["code"] == "UnknownName"
    assert called("backup", f"{store}/inside", "--store", store, code=1)["error"]["code"] == "BadInput"


def test_errors_are_of_the_documented_kinds() -> None:
    assert issubclass(UnknownName, TidemillError)
    assert CliRunner().invoke(app, ["backup", "/nowhere/at/all", "--list"]).exit_code == 0
