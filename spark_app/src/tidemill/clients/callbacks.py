"""The threads in which callbacks of proxies run: a few, and one more for each callback that takes long."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemill.journal.clock import Clock

CALLERS: Final = 2
"""Threads for callbacks that return soon."""

SLOW_MILLIS: Final = 100.0
"""A callback that takes longer keeps its thread to itself: another thread calls the others."""

HANGING_MILLIS: Final = 30_000.0
"""Of a callback that takes longer its proxy ends."""

THREADS_MAX: Final = 64
"""Threads of a module in a process, with those of callbacks that never return."""

_LOOK_SECONDS: Final = 0.05


@dataclass
class _Call:
    """A callback at work since `began` (milliseconds of the clock); `hangs` is called once if it takes too long."""

    began: float
    hangs: Callable[[], None]
    is_told: bool = False


class CallbackThreads:
    """Calls functions in threads, which end when nothing is left to call; one that hangs lets a process end."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self._threads: dict[threading.Thread, _Call | None] = {}

    def call(self, function: Callable[[], None], hangs: Callable[[], None]) -> None:
        """Call a function soon, and `hangs` if it takes longer than `HANGING_MILLIS`."""
        with self._changed:
            self._waiting.append((function, hangs))
            self._start_threads()

    def look(self) -> None:
        """Take what is slow or hangs off the threads that others wait for; to be called again and again."""
        with self._changed:
            self._start_threads()
            now = self._clock.monotonic_ms()
            calls = [call for call in self._threads.values() if call is not None and not call.is_told]
            hanging = [call for call in calls if now - call.began > HANGING_MILLIS]
            for call in hanging:
                call.is_told = True
        for call in hanging:
            call.hangs()

    @property
    def is_waiting(self) -> bool:
        """Whether functions wait for a thread."""
        with self._changed:
            return bool(self._waiting)

    @property
    def hanging(self) -> int:
        """How many callbacks take longer than `HANGING_MILLIS`, as far as `look` saw."""
        with self._changed:
            return sum(call is not None and call.is_told for call in self._threads.values())

    def wait(self, seconds: float) -> None:
        """Until all calls are done, but for those of the thread that waits; no longer than so many seconds."""
        own = {threading.current_thread()}
        end = self._clock.monotonic_ms() + 1000 * seconds
        with self._changed:
            while not self._threads.keys() <= own and (left := end - self._clock.monotonic_ms()) > 0:
                self._start_threads()
                self._changed.wait(min(_LOOK_SECONDS, left / 1000))

    def _is_slow(self, call: _Call | None) -> bool:
        return call is not None and self._clock.monotonic_ms() - call.began > SLOW_MILLIS

    def _quick(self) -> int:
        """How many threads do not call what is slow."""
        return sum(not self._is_slow(call) for call in self._threads.values())

    def _start_threads(self) -> None:
        lacking = min(CALLERS - self._quick(), THREADS_MAX - len(self._threads), len(self._waiting))
        for _ in range(lacking):
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._threads[thread] = None
            thread.start()

    def _run(self) -> None:
        own = threading.current_thread()
        while True:
            with self._changed:
                self._threads[own] = None
                if not self._waiting or self._quick() > CALLERS:
                    del self._threads[own]
                    self._changed.notify_all()
                    return
                function, hangs = self._waiting.popleft()
                self._threads[own] = _Call(self._clock.monotonic_ms(), hangs)
            function()
