"""One after the other: who makes or deletes backups in a place is alone there.

A backup relies on objects that other ones left, and its own are named by nothing until it ends; so whoever deletes
meanwhile what no backup needs would take them from it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tidemill.journal.clock import Clock, SystemClock
from tidemill.store.lease import TTL_MILLIS, FileLease, StoreLease, lease_for
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import StoreUnavailable

_FOLDER: Final = "lease"
_SLACK_MILLIS: Final = 1_000


class BackupTurn:
    """The right to change the backups in one place. It falls with its process: at once on a local folder, and after
    TTL_MILLIS in a bucket.

    The clock of this process does not tell that it is lost: it stands still while its machine does. So the store is
    asked, and what was lost once stays lost.
    """

    def __init__(self, store: ObjectStore, clock: Clock | None = None) -> None:
        self._url, self._clock = store.url, clock or SystemClock()
        self._asking, self._is_lost = threading.Lock(), False
        self._lease: StoreLease = lease_for(store, _FOLDER, lambda: int(self._clock.monotonic_ms()))

    @contextmanager
    def taken(self) -> Iterator[BackupTurn]:
        """Hold it. Raises StoreUnavailable where somebody else does."""
        self._take()
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(ended,), name="backup-turn", daemon=True)
        renewing.start()
        try:
            yield self
        finally:
            ended.set()
            renewing.join()
            self._lease.release()

    def check(self) -> None:
        """Whether it is still held. Raises StoreUnavailable where it is not, for this process slept or was cut off, or
        where the store does not answer.
        """
        with self._asking:
            self._look()
        if self._is_lost:
            text = f"This process was away for so long that another one may change the backups in {self._url}"
            raise StoreUnavailable(f"{text}: begin anew.")

    def _take(self) -> None:
        begun = self._clock.monotonic_ms()
        while not self._lease.try_acquire():
            # Of a heartbeat that is seen for the first time nobody knows how old it is.
            if isinstance(self._lease, FileLease) or self._clock.monotonic_ms() - begun > TTL_MILLIS + _SLACK_MILLIS:
                text = f"Another process makes or deletes backups in {self._url} ({self._lease.holder})"
                raise StoreUnavailable(f"{text}: try again when it is done.")
            self._clock.wait(threading.Event(), self._lease.pace.poll_ms)

    def _renew(self, ended: threading.Event) -> None:
        """What was lost is not taken again: somebody may have deleted since."""
        while not ended.wait(self._lease.pace.renew_ms / 1000) and not self._is_lost:
            with self._asking, suppress(StoreUnavailable):
                self._look()
                if not self._is_lost:
                    self._lease.try_acquire()

    def _look(self) -> None:
        self._lease.peek()
        self._is_lost = self._is_lost or not self._lease.is_held()
