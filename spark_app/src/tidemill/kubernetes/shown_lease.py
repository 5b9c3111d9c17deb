"""A Lease of Kubernetes whose holder shows in the store as well, where every client of the store can see who leads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tidemill.journal.clock import Clock
from tidemill.store.lease import LeaderLease, LeasePace, StoreLease
from tidemill.values.errors import OutcomeUnknown, StoreUnavailable

SHOW_MS: Final = 3_000.0
RELEASE_SECONDS: Final = 1.0


class ShownLease:
    """`lease` decides who leads; whoever does claims the store's lease too, which decides nothing here.

    `tidemill status`, a pause, `destroy` and a runner by hand know only the store. It is asked in a thread of its own,
    so that asking it delays no renewal of the Lease.
    """

    def __init__(self, lease: LeaderLease, shown: StoreLease, clock: Clock) -> None:
        self._lease = lease
        self._shown = shown
        self._clock = clock
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._told = ("", "")

    @property
    def pace(self) -> LeasePace:
        return self._lease.pace

    @property
    def holder(self) -> str:
        return self._lease.holder

    def try_acquire(self) -> bool:
        is_held = self._lease.try_acquire()
        if is_held and (self._thread is None or not self._thread.is_alive()):
            self._over.clear()
            self._thread = threading.Thread(target=self._show, name="shown lease", daemon=True)
            self._thread.start()
        return is_held

    def is_held(self) -> bool:
        return self._lease.is_held()

    def peek(self) -> str:
        return self._lease.peek()

    def stand_by(self) -> None:
        """The store says who waits: its clients do not see pods."""
        self._shown.stand_by()

    def tell(self, engine: str, spark_ui: str) -> None:
        self._told = engine, spark_ui

    def release(self) -> None:
        """Give the Lease up first, then the store's, which has `RELEASE_SECONDS` to answer."""
        self._over.set()
        self._lease.release()
        if self._thread is None:  # it stood by
            self._thread = threading.Thread(target=_try, args=(self._shown.release,), name="shown lease", daemon=True)
            self._thread.start()
        self._thread.join(RELEASE_SECONDS)

    def _show(self) -> None:
        while self._lease.is_held() and not self._over.is_set():
            self._shown.tell(*self._told)
            _try(self._shown.claim)
            self._clock.wait(self._over, SHOW_MS)
        _try(self._shown.release)


def _try(step: Callable[[], object]) -> None:
    with suppress(StoreUnavailable, OutcomeUnknown):
        step()
