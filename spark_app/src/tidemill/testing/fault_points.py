"""Places in a module's own functions where a test makes an attempt fail, once or as often as it likes.

points = FaultPoints()

def enrich(record):
    points.reach("enrich")          # does nothing unless a test armed it
    return record | {"seen": True}

points.arm("enrich", times=2)       # the next two attempts that come here fail and are tried again
"""

from __future__ import annotations

import itertools
import os
import threading
from weakref import WeakValueDictionary


class Abort(Exception):
    """A fault point was reached that a test had armed; the attempt fails as with any error of the module's code."""


class FaultPoints:
    """Named places; safe for several threads.

    A module's functions may use them wherever they stand, nested in a test too: the points travel by name, and are
    the test's own where the functions run in its process (the `local` engine). In other processes they do nothing.
    """

    def __init__(self, _name: str | None = None) -> None:
        self._name = f"{os.getpid()}-{next(_NUMBERS)}" if _name is None else _name
        self._lock = threading.Lock()
        self._armed: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        _POINTS.setdefault(self._name, self)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _points_of, (self._name,)

    def arm(self, name: str, times: int = 1) -> None:
        """Let the next `times` arrivals at `name` abort."""
        with self._lock:
            self._armed[name] = times

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


_NUMBERS = itertools.count()
_POINTS: WeakValueDictionary[str, FaultPoints] = WeakValueDictionary()


def _points_of(name: str) -> FaultPoints:
    """The points of this name in this process."""
    found = _POINTS.get(name)
    return FaultPoints(name) if found is None else found
