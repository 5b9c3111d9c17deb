"""Time as a seam: wall-clock milliseconds for what is stored, and waiting that a simulation can steer."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time and waits; a test moves it by hand."""

    def now_ms(self) -> int:
        """Milliseconds since 1970; may jump, so only compared with what is stored."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back; for timeouts and durations."""
        ...

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        """Wait until `event` is set, or until the time is over; whether it is set."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        return event.wait(max(timeout_ms, 0) / 1000)


class ManualClock:
    """A clock that moves only when told to; waiting moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        if not event.is_set():
            self.advance(max(timeout_ms, 0))
        return event.is_set()

    def advance(self, milliseconds: float) -> None:
        """Let time pass."""
        self._now_ms += int(milliseconds)
        self._monotonic_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock only, back or forth, as an administrator or NTP does."""
        self._now_ms += milliseconds
