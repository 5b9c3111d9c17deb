"""The Lease of Kubernetes that shows in the store: it alone decides, whatever the store does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from waiting import eventually

from tidemill.journal.clock import SystemClock
from tidemill.kubernetes import shown_lease
from tidemill.kubernetes.shown_lease import ShownLease
from tidemill.store.lease import HeartbeatLease, LeasePace
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import StoreUnavailable


class Lease:
    """A Lease whose fate a test sets."""

    pace = LeasePace(renew_ms=1.0)
    holder = "pod"

    def __init__(self) -> None:
        self.is_mine = True

    def try_acquire(self) -> bool:
        return self.is_mine

    def is_held(self) -> bool:
        return self.is_mine

    def release(self) -> None:
        self.is_mine = False

    def peek(self) -> str:
        return self.holder


class Broken(HeartbeatLease):
    """The store's lease where each step meets `fault` first."""

    fault: Callable[[], None] = staticmethod(lambda: None)

    def claim(self) -> bool:
        self.fault()
        return super().claim()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_lease, "SHOW_MS", 5.0)


def clock() -> int:
    return int(SystemClock().monotonic_ms())


def pair(store: MemoryStore) -> tuple[Lease, Broken, ShownLease]:
    lease, shown = Lease(), Broken(store, "m/lease", clock)
    return lease, shown, ShownLease(lease, shown, SystemClock())


def watch(store: MemoryStore) -> str:
    return HeartbeatLease(store, "m/lease", clock).peek()


def test_holder_shows_in_the_store_until_it_lets_go() -> None:
    store = MemoryStore()
    lease, _, both = pair(store)
    assert both.try_acquire() and both.try_acquire()
    eventually(lambda: watch(store) != "")
    both.release()
    assert (lease.is_mine, both.is_held(), watch(store)) == (False, False, "")


def test_nothing_shows_when_the_lease_is_another_ones() -> None:
    store = MemoryStore()
    lease, _, both = pair(store)
    lease.is_mine = False
    assert not both.try_acquire()
    both.release()
    assert not store.objects


def test_store_shows_the_new_holder_when_the_old_one_lost_its_lease() -> None:
    store = MemoryStore()
    old, _, first = pair(store)
    _, shown, second = pair(store)
    assert first.try_acquire()
    eventually(lambda: watch(store) != "")
    old.is_mine = False
    assert second.try_acquire()
    eventually(shown.is_held)
    assert not first.try_acquire() and watch(store) != ""
    second.release()
    assert watch(store) == ""


def test_holder_shows_again_when_the_store_was_away() -> None:
    store = MemoryStore()
    _, shown, both = pair(store)
    seen = threading.Event()

    def refuse() -> None:
        seen.set()
        raise StoreUnavailable("away")

    shown.fault = refuse
    assert both.try_acquire() and seen.wait(5) and both.is_held()
    assert watch(store) == ""
    shown.fault = lambda: None
    eventually(lambda: watch(store) != "")
    both.release()


def test_lease_is_given_up_when_the_store_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_lease, "RELEASE_SECONDS", 0.01)
    lease, shown, both = pair(MemoryStore())
    over = threading.Event()
    shown.fault = lambda: None if over.wait(10) else None
    assert both.try_acquire()
    both.release()
    assert not lease.is_mine
    over.set()
