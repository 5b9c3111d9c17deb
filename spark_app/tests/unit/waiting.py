"""Waiting in tests: a condition that must come true, with a bound and without a sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SECONDS = 20.0


def eventually(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Return when `condition` is true; fail after `seconds`."""
    pace = threading.Event()
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not true after {seconds} s"
        pace.wait(0.01)
