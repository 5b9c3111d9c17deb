"""Places in a module's own functions where a test makes an attempt fail, once or as often as it likes.

points = FaultPoints()

def enrich(record):
    points.reach("enrich")          # does nothing unless a test armed it
    return record | {"seen": True}

points.arm("enrich", times=2)       # the next two attempts that come here fail and are tried again
"""

from __future__ import annotations

import threading


class Abort(Exception):
    """A fault point was reached that a test had armed; the attempt fails as with any error of the module's code."""


class FaultPoints:
    """Named places; safe for several threads. Works where the functions run in this process (the `local` engine)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[str, int] = {}
        self._reached: dict[str, int] = {}

    def arm(self, name: str, times: int = 1) -> None:
        """Let the next `times` arrivals at `name` abort."""
        with self._lock:
            self._armed[name] = times

    def disarm(self, name: str) -> None:
        with self._lock:
            self._armed.pop(name, None)

    def reach(self, name: str) -> None:
        """Called by the module's function.

        Raises:
            Abort: a test armed this point.
        """
        with self._lock:
            self._reached[name] = self._reached.get(name, 0) + 1
            left = self._armed.get(name, 0)
            if left:
                self._armed[name] = left - 1
        if left:
            raise Abort(f"the test armed {name}")

    def reached(self, name: str) -> int:
        """How often `name` was reached."""
        return self._reached.get(name, 0)
