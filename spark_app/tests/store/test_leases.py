"""Leases: at most one holder as far as clocks allow, and a dead holder is replaced."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from callable_clock import Clock

from tidemill.journal.clock import ManualClock
from tidemill.journal.leadership import topology_lease
from tidemill.store.lease import FileLease, HeartbeatLease, lease_for
from tidemill.store.local import LocalStore
from tidemill.store.objects import ObjectStore
from tidemill.store.standbys import describe_process
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import OutcomeUnknown, StoreUnavailable

TTL = 9_000
HOLD = """
import sys, pathlib
from tidemill.store.lease import FileLease
lease = FileLease(pathlib.Path(sys.argv[1]))
sys.stdout.write(f"{lease.try_acquire()}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


# --- files -----------------------------------------------------------------------------------------------------------


def test_second_holder_waits_when_both_are_in_one_process(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "a" / "lock"), FileLease(tmp_path / "a" / "lock")
    assert first.try_acquire() and first.try_acquire() and first.is_held()
    assert not second.try_acquire() and not second.is_held()
    assert second.holder == describe_process()
    first.release()
    first.release()
    assert not first.is_held() and second.holder == ""
    assert second.try_acquire() and not first.try_acquire()


def test_nobody_is_locked_out_when_the_holder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other = FileLease(tmp_path / "lock"), FileLease(tmp_path / "lock")

    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            lease.try_acquire()
    assert not lease.is_held()
    assert other.try_acquire()
    other.release()
    assert lease.try_acquire()


def test_nobody_leads_when_another_process_has_the_number_of_the_dead_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(describe_process())  # as of a killed holder, whose number this process has now
    lease = FileLease(tmp_path / "lock")

    assert (lease.peek(), lease.lost) == ("", describe_process())


def test_nobody_leads_when_the_killed_holder_is_not_reaped(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    lease = FileLease(tmp_path / "lock")
    assert lease.peek().endswith(f" process {process.pid}")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and still has its number

    assert lease.peek() == ""
    assert lease.lost.endswith(f" process {process.pid}")
    process.communicate()


def test_lease_is_free_at_once_when_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    lease = FileLease(path)
    assert not lease.try_acquire()
    assert f"process {process.pid}" in lease.holder
    process.kill()
    process.communicate()
    assert lease.try_acquire()


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_standby_takes_over_when_the_holder_is_silent_for_a_ttl(store: ObjectStore, clock: Clock) -> None:
    leader, standby = (HeartbeatLease(store, "m/lease", clock, TTL) for _ in range(2))
    assert leader.try_acquire() and leader.is_held()
    assert not standby.try_acquire() and standby.holder == describe_process()
    for _ in range(10):
        clock.millis += TTL // 2
        assert leader.try_acquire() and not standby.try_acquire()
    clock.millis += TTL - 1
    assert leader.is_held() and not standby.try_acquire()
    clock.millis += 1
    assert not leader.is_held()
    assert standby.try_acquire() and standby.is_held()
    assert not leader.try_acquire() and not leader.is_held()
    assert len(list(store.list("m/lease"))) <= 2


def test_standby_waits_a_whole_ttl_when_it_has_just_come(store: ObjectStore, clock: Clock) -> None:
    assert HeartbeatLease(store, "m/lease", clock, TTL).try_acquire()
    clock.millis += 100 * TTL
    newcomer = HeartbeatLease(store, "m/lease", clock, TTL)
    assert not newcomer.try_acquire()
    clock.millis += TTL
    assert newcomer.try_acquire()


def test_standby_takes_over_at_once_when_the_holder_releases(store: ObjectStore, clock: Clock) -> None:
    leader, standby = (HeartbeatLease(store, "m/lease", clock, TTL) for _ in range(2))
    assert leader.try_acquire() and not standby.try_acquire()
    leader.release()
    assert not leader.is_held()
    assert standby.try_acquire() and standby.is_held() and not leader.try_acquire()


def test_claimer_holds_at_once_when_the_holder_is_alive(store: ObjectStore, clock: Clock) -> None:
    holder, claimer = (HeartbeatLease(store, "m/lease", clock, TTL) for _ in range(2))
    assert holder.try_acquire() and claimer.claim()
    assert (holder.try_acquire(), claimer.is_held()) == (False, True)
    beats = list(store.list("m/lease"))
    assert claimer.claim() and list(store.list("m/lease")) == beats, "renewed only when a third of its time is over"
    clock.millis += TTL // 3
    assert claimer.claim() and list(store.list("m/lease")) != beats
    claimer.release()
    assert holder.try_acquire()


def test_one_wins_when_both_see_an_expired_lease(clock: Clock) -> None:
    store = MemoryStore()
    dead, first, second = (HeartbeatLease(store, "m/lease", clock, TTL) for _ in range(3))
    assert dead.try_acquire() and not first.try_acquire() and not second.try_acquire()
    clock.millis += TTL
    hooks = [second.try_acquire]

    def race(verb: str, key: str) -> None:
        if verb == "create" and hooks:
            assert hooks.pop()()

    first._store = FaultyObjectStore(store, FaultPlan(before=race))
    assert not first.try_acquire() and not first.is_held() and second.is_held()


def test_lease_is_held_when_only_the_answer_was_lost(clock: Clock) -> None:
    lost = [OutcomeUnknown("lost")]

    def lose(verb: str, key: str) -> None:
        if verb == "create" and lost:
            raise lost.pop()

    lease = HeartbeatLease(FaultyObjectStore(MemoryStore(), FaultPlan(after=lose)), "m/lease", clock, TTL)
    assert lease.try_acquire() and lease.is_held()


def test_stalled_holder_does_not_hold_when_others_went_on(store: ObjectStore, clock: Clock) -> None:
    stalled, other = (HeartbeatLease(store, "m/lease", clock, TTL) for _ in range(2))
    assert stalled.try_acquire() and not other.try_acquire()
    clock.millis += TTL
    for _ in range(5):
        assert other.try_acquire()
        clock.millis += TTL // 2
    assert not stalled.is_held() and not stalled.try_acquire()


def test_kind_of_lease_follows_when_the_store_is_known(tmp_path: Path, clock: Clock) -> None:
    assert isinstance(lease_for(LocalStore(tmp_path), "m/lease", clock), FileLease)
    assert isinstance(lease_for(MemoryStore(), "m/lease", clock), HeartbeatLease)


def test_holder_keeps_the_lease_when_the_wall_clock_is_set() -> None:
    clocks = [ManualClock(), ManualClock()]
    store = MemoryStore()
    first, second = (topology_lease(store, "m", clock) for clock in clocks)
    assert first.try_acquire() and not second.try_acquire()
    for clock in clocks:
        clock.jump(86_400_000)
    assert first.is_held() and not second.try_acquire()
    for clock in clocks:
        clock.jump(-2 * 86_400_000)
        clock.advance(60_000)
    assert not first.is_held() and second.try_acquire()


def test_heartbeats_begin_when_a_folder_with_its_lock_was_copied_into_a_bucket() -> None:
    store, clock = MemoryStore(), Clock()
    store.create("m/lease/leader.lock", b"")
    lease = HeartbeatLease(store, "m/lease", clock)
    assert lease.peek() == ""
    assert lease.try_acquire()
