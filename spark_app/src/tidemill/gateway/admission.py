"""How many requests, and how many bytes of theirs, a gateway has under way at once.

A request keeps its place and its bytes until the work that it began has ended, also where its client has got the
answer that it took too long: what still uses memory and a thread still counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tidemill.gateway import faults
from tidemill.gateway.faults import HttpRefusal


def _ignore(count: int) -> None:
    """Nobody shows the count."""


class Admission:
    """The places and bytes of one gateway; safe for several threads."""

    def __init__(self, places: int, size: int, show: Callable[[int], None] = _ignore) -> None:
        self._places = places
        self._bytes = size
        self._show = show
        self._lock = threading.Lock()

    def enter(self, size: int) -> Ticket:
        """A place, and so many bytes.

        Raises:
            HttpRefusal: 503 Busy, there is no room now.
        """
        self.take(1, size)
        return Ticket(self, size)

    def take(self, places: int, size: int) -> None:
        """Take so many places and bytes at once. Raises HttpRefusal: 503 Busy, there is no room; nothing was taken."""
        with self._lock:
            if self._places < places or self._bytes < size:
                text = "The gateway has as many requests under way as it takes; try again. Nothing was done."
                raise HttpRefusal(503, "Busy", text, {"retry-after": str(faults.RETRY_SECONDS)})
            self._places -= places
            self._bytes -= size
        self._show(places)

    def give_back(self, places: int, size: int) -> None:
        """Return places and bytes that `take` gave."""
        with self._lock:
            self._places += places
            self._bytes += size
        self._show(-places)


class Ticket:
    """The place and the bytes of one request; given back when nobody holds it any more. Begins with one holder."""

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size = size
        self._holders = 1
        self._lock = threading.Lock()

    def grow(self, size: int) -> None:
        """Hold at least so many bytes. Raises HttpRefusal: 503 Busy, there is no room for more."""
        with self._lock:
            more = size - self._size
            if more > 0:
                self._admission.take(0, more)
                self._size = size

    def hold_until(self, done: Future[Any]) -> None:
        """One more holder, until this future is done or cancelled."""
        with self._lock:
            self._holders += 1
        done.add_done_callback(lambda _: self.release())

    def release(self) -> None:
        """One holder less."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self._admission.give_back(1, self._size)
