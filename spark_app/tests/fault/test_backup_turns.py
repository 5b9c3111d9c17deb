"""Backups into one place are made one at a time, also where processes sleep, are killed, or have other clocks."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path as Folder

import pytest
from backup_site import Site

from tidemill.journal.clock import ManualClock
from tidemill.leader.backup_folder import Backup, BackupFolder
from tidemill.leader.backup_turn import BackupTurn
from tidemill.store.lease import TTL_MILLIS, lease_for
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import StoreUnavailable


@pytest.fixture
def local(tmp_path: Folder) -> Site:
    return Site((tmp_path / "store").as_uri(), (tmp_path / "backups").as_uri())


def test_a_second_backup_is_refused_when_one_is_under_way(local: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could delete, as what no backup needs, what the first one has copied and nothing names yet."""
    with local.running() as cluster:
        for number in range(2):
            local.append(cluster, f"w{number}")
            local.wait(cluster)
            first = local.save()
        local.append(cluster, "new")
        local.wait(cluster)
        real, refused = BackupFolder.add, []

        def add_while_others_try(self: BackupFolder, backup: Backup) -> None:
            for other in (local.save, lambda: local.folder.forget(backup.url, 1)):
                with pytest.raises(StoreUnavailable, match=r"makes or deletes backups in .*backups \(.*try again"):
                    other()
                refused.append(other)
            real(self, backup)

        with monkeypatch.context() as patch:
            patch.setattr(BackupFolder, "add", add_while_others_try)
            local.save()
    assert len(refused) == 2
    assert local.folder.forget(first.url, 1) == 2
    local.lose()
    local.bring_back()


def test_a_killed_backup_holds_nobody_up_for_long_when_backups_are_in_a_bucket() -> None:
    bucket, clock = MemoryStore(), ManualClock()
    killed = lease_for(bucket, "lease", lambda: int(clock.monotonic_ms()))
    assert killed.try_acquire()
    begun = clock.monotonic_ms()
    with BackupTurn(bucket, clock).taken():
        assert TTL_MILLIS <= clock.monotonic_ms() - begun < TTL_MILLIS + 1_000
    with BackupTurn(bucket, clock).taken():  # it was given up
        assert clock.monotonic_ms() - begun < TTL_MILLIS + 1_000


def test_a_backup_is_refused_when_the_holder_of_a_bucket_goes_on() -> None:
    bucket, clock = MemoryStore(), ManualClock()
    holder = lease_for(bucket, "lease", lambda: int(clock.monotonic_ms()))

    class Renewing(ManualClock):
        def wait(self, event: threading.Event, timeout_ms: float) -> bool:
            holder.try_acquire()
            clock.advance(timeout_ms)
            return super().wait(event, timeout_ms)

    assert holder.try_acquire()
    with pytest.raises(StoreUnavailable, match="try again when it is done"), BackupTurn(bucket, Renewing()).taken():
        pass


def test_a_turn_stays_lost_when_the_clock_stood_still_while_others_had_theirs() -> None:
    """As that of a machine that is stopped or moved: what was saved then named what others had deleted."""
    bucket, ours, theirs = MemoryStore(), ManualClock(), ManualClock()
    with BackupTurn(bucket, ours).taken() as mine:
        mine.check()
        with BackupTurn(bucket, theirs).taken() as others:
            with pytest.raises(StoreUnavailable, match="was away for so long"):
                mine.check()
            others.check()
        mine._renew(FewLooks(3))
        with pytest.raises(StoreUnavailable, match="was away for so long"):
            mine.check()


class FewLooks(threading.Event):
    """Not set for so many looks, and never waits."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


def test_the_newest_backup_is_the_one_that_was_made_last_when_clocks_differ(local: Site) -> None:
    """One that was made by a clock which was ahead stood above it: `--keep 1` deleted it, and older data came back."""
    with local.running() as cluster:
        local.append(cluster, "w")
        local.wait(cluster)
        local.now_ms = 9_000
        local.save()
        local.append(cluster, "v")
        local.wait(cluster)
        local.now_ms = 1_000
        made = local.save()
    assert local.folder.forget(made.url, 1) == 1
    assert local.folder.ids() == [made.id]
    local.lose()
    local.bring_back()
    with local.running() as cluster:
        assert local.counts(cluster) == local.truth


def test_a_process_that_slept_deletes_and_saves_nothing_when_its_turn_is_over(local: Site) -> None:
    bucket, clock = MemoryStore(), ManualClock()
    with local.running() as cluster:
        local.append(cluster, "w")
        local.wait(cluster)
    saved = [local.save(folder=BackupFolder(bucket)) for _ in range(2)][-1]
    before = set(bucket.objects)
    folder = BackupFolder(bucket)
    with BackupTurn(bucket, clock).taken() as folder._turn:
        clock.advance(TTL_MILLIS)
        for late in (lambda: folder.add(replace(saved, id="late")), lambda: folder.forget(saved.url, 1)):
            with pytest.raises(StoreUnavailable, match="was away for so long"):
                late()
    assert {key for key in before if not key.startswith("lease/")} <= set(bucket.objects)
    assert "late" not in folder.ids()
