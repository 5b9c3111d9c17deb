"""Who waits for a lease: told by its holder, for people; a dead process is not told for long, and leaves nothing."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from callable_clock import Clock

from tidemill.store.lease import LeaderNotes, StoreLease, lease_for
from tidemill.store.local import LocalStore
from tidemill.store.objects import ObjectStore
from tidemill.store.standbys import (
    ASKED_MAX,
    BEAT_MS,
    GONE_MS,
    STANDBYS_MAX,
    BeatingStandbys,
    LockedStandbys,
    describe_process,
)
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import OutcomeUnknown, StoreUnavailable

WAIT = """
import sys, pathlib
from tidemill.store.standbys import LockedStandbys
LockedStandbys(pathlib.Path(sys.argv[1])).enter()
print("waits", flush=True)
sys.stdin.read()
"""
ME = describe_process()


# --- in a folder -----------------------------------------------------------------------------------------------------


def test_a_standby_is_seen_until_it_leaves_when_it_locks_a_file(tmp_path: Path) -> None:
    one, other, holder = (LockedStandbys(tmp_path) for _ in range(3))
    one.enter()
    one.enter()
    other.enter()
    assert holder.look() == (ME, ME)
    one.leave()
    one.leave()
    assert holder.look() == (ME,)
    other.leave()
    assert holder.look() == () and list(tmp_path.iterdir()) == []


def test_a_killed_standby_is_forgotten_with_its_file_when_somebody_looks(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "waits\n"
    [told] = LockedStandbys(tmp_path).look()
    assert told.endswith(f"process {process.pid}")
    process.kill()
    process.communicate()
    assert LockedStandbys(tmp_path).look() == () and list(tmp_path.iterdir()) == []


def test_a_file_without_a_text_is_left_alone_when_its_standby_has_not_locked_it_yet(tmp_path: Path) -> None:
    (tmp_path / "standby-1").touch()
    assert LockedStandbys(tmp_path).look() == () and (tmp_path / "standby-1").exists()


def test_nothing_is_left_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    standby, opened = LockedStandbys(tmp_path), len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        standby.enter()
    assert list(tmp_path.iterdir()) == [] and len(os.listdir("/proc/self/fd")) == opened
    standby.enter()
    assert LockedStandbys(tmp_path).look() == (ME,)
    standby.leave()


def test_a_look_ends_when_a_pipe_or_a_folder_is_called_like_a_standby(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "standby-1")
    (tmp_path / "standby-2").mkdir()
    assert LockedStandbys(tmp_path).look() == ()


@pytest.mark.parametrize("host", ["a\udcff", "a\nb", "\x1b[2J", "h" * 10_000])
def test_a_process_waits_and_leads_when_its_host_has_an_odd_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    store, clock = LocalStore(tmp_path), Clock()
    holder, standby = (lease_for(store, "m/lease", clock) for _ in range(2))
    assert holder.try_acquire() and not standby.try_acquire()
    standby.stand_by()
    holder.tell("local", "")
    seen = lease_for(store, "m/lease", clock)
    assert seen.peek() == describe_process() == seen.notes.standbys[0]
    assert describe_process().isprintable() and len(describe_process()) < 300
    standby.release()
    holder.release()


def test_nothing_is_raised_when_the_folder_is_gone(tmp_path: Path) -> None:
    standbys = LockedStandbys(tmp_path / "absent")
    standbys.enter()
    standbys.leave()
    assert standbys.look() == ()


# --- as objects ------------------------------------------------------------------------------------------------------


def test_a_standby_is_seen_for_as_long_as_it_beats_when_there_are_no_locks(store: ObjectStore, clock: Clock) -> None:
    standby, holder = (BeatingStandbys(store, "m/lease", clock) for _ in range(2))
    for _ in range(12):
        standby.enter()
        assert holder.look() == (ME,)
        clock.millis += BEAT_MS
    assert len(list(store.list("m/lease"))) == 1
    clock.millis += GONE_MS
    assert holder.look() == () and list(store.list("m/lease")) == []
    standby.enter()
    clock.millis += BEAT_MS
    assert holder.look() == (ME,)
    standby.leave()
    assert list(store.list("m/lease")) == []


def test_the_store_is_asked_seldom_when_a_standby_waits_and_a_holder_looks(clock: Clock) -> None:
    store = MemoryStore()
    standby, holder = (BeatingStandbys(store, "m/lease", clock) for _ in range(2))
    for _ in range(1_000):
        standby.enter()
        holder.look()
        clock.millis += BEAT_MS // 100
    counts = store.counts
    assert counts["list"] <= 10 and counts["create"] <= 10 and counts["get"] == 1


def test_the_list_is_bounded_when_many_wait(clock: Clock) -> None:
    store = MemoryStore()
    for _ in range(2 * STANDBYS_MAX):
        BeatingStandbys(store, "m/lease", clock).enter()
    assert len(BeatingStandbys(store, "m/lease", clock).look()) == STANDBYS_MAX


def test_a_look_asks_a_bounded_number_of_times_when_many_dead_standbys_left_objects(clock: Clock) -> None:
    store = MemoryStore()
    for _ in range(5 * ASKED_MAX):
        BeatingStandbys(store, "m/lease", clock).enter()
    holder = BeatingStandbys(store, "m/lease", clock)
    for _ in range(20):
        before = dict(store.counts)
        holder.look()
        asked = {verb: count - before.get(verb, 0) for verb, count in store.counts.items()}
        assert asked["list"] == 1 and asked["get"] <= ASKED_MAX and asked.get("delete", 0) <= ASKED_MAX
        clock.millis += GONE_MS
    assert list(store.list("m/lease")) == [] and holder.look() == ()


@pytest.mark.parametrize("verb", ["get", "delete"])
def test_a_look_ends_with_the_first_request_that_fails_when_the_store_goes_away(clock: Clock, verb: str) -> None:
    store, asked = MemoryStore(), []

    def answer(asks: str, key: str) -> None:
        if asks == verb:
            asked.append(key)
            raise StoreUnavailable("no answer")

    for _ in range(5):
        BeatingStandbys(store, "m/lease", clock).enter()
    holder = BeatingStandbys(FaultyObjectStore(store, FaultPlan(before=answer)), "m/lease", clock)
    holder.look()
    clock.millis += GONE_MS
    holder.look()
    assert 1 <= len(asked) <= 2


def test_nothing_is_left_when_creates_and_deletes_of_a_standby_had_no_answer(clock: Clock) -> None:
    store, is_bad = MemoryStore(), [True]

    def answer(verb: str, key: str) -> None:
        if is_bad[0] and verb == "create":
            raise OutcomeUnknown("no answer")

    standby = BeatingStandbys(FaultyObjectStore(store, FaultPlan(after=answer)), "m/lease", clock)
    for _ in range(3):
        standby.enter()
        clock.millis += BEAT_MS
    is_bad[0] = False
    assert len(list(store.list("m/lease"))) == 3
    assert BeatingStandbys(store, "m/lease", clock).look() == (ME,)
    assert len(list(store.list("m/lease"))) == 1
    standby.leave()
    assert list(store.list("m/lease")) == []


def test_nothing_is_raised_when_the_store_fails(clock: Clock) -> None:
    def away(verb: str, key: str) -> None:
        raise StoreUnavailable("away")

    store = FaultyObjectStore(MemoryStore(), FaultPlan(before=away))
    standbys = BeatingStandbys(store, "m/lease", clock)
    standbys.enter()
    standbys.leave()
    assert standbys.look() == ()


# --- told by the holder ----------------------------------------------------------------------------------------------


def pair(store: ObjectStore, clock: Clock) -> tuple[StoreLease, StoreLease, StoreLease]:
    found = tuple(lease_for(store, "m/lease", clock) for _ in range(3))
    return found[0], found[1], found[2]


def test_everybody_reads_the_notes_when_the_holder_tells_them(store: ObjectStore, clock: Clock) -> None:
    holder, standby, watch = pair(store, clock)
    assert holder.try_acquire() and not standby.try_acquire()
    assert watch.peek() == ME and watch.notes == LeaderNotes()
    standby.stand_by()
    clock.millis += BEAT_MS
    holder.tell("Spark", "http://127.0.0.1:4040")
    assert holder.try_acquire()
    assert watch.peek() == ME and watch.notes == LeaderNotes("Spark", "http://127.0.0.1:4040", (ME,))
    holder.release()
    assert watch.peek() == "" and watch.lost == ""
    assert standby.try_acquire()
    clock.millis += BEAT_MS
    standby.tell("local", "")
    assert standby.try_acquire()
    assert watch.peek() == ME and watch.notes == LeaderNotes("local")


def test_a_holder_is_told_as_lost_when_it_went_without_a_word(store: ObjectStore, clock: Clock) -> None:
    if isinstance(store, LocalStore):
        code = "import sys; from tidemill.store.urls import connect; from tidemill.store.lease import lease_for\n"
        code += "lease_for(connect(sys.argv[1]), 'm/lease', lambda: 0).try_acquire(); import os; os._exit(1)"
        subprocess.run([sys.executable, "-c", code, store.url], check=False)
    else:
        assert lease_for(store, "m/lease", clock).try_acquire()
    watch = lease_for(store, "m/lease", clock)
    watch.peek()
    clock.millis += GONE_MS
    assert watch.peek() == "" and " process " in watch.lost
    assert watch.peek() == "" and " process " in watch.lost
    again = lease_for(store, "m/lease", clock)
    again.try_acquire()
    clock.millis += GONE_MS
    assert again.try_acquire()
    assert watch.peek() == ME and watch.lost == ""
