"""What waits to be reconciled: each object at most once, each worked on by one worker at a time, with back-off."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

BACK_OFF_BASE_SECONDS: Final = 0.5
BACK_OFF_LIMIT_SECONDS: Final = 60.0


class WorkKey(NamedTuple):
    """An object that is reconciled: Module or Topology."""

    kind: str
    namespace: str
    name: str


class WorkQueue:
    """Wakes coalesce: an object that waits is not added again, only made earlier. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[WorkKey, float] = {}
        self._heap: list[tuple[float, WorkKey]] = []
        self._busy: set[WorkKey] = set()
        self._failures: dict[WorkKey, int] = {}
        self._changed = asyncio.Event()
        self.last_done: float | None = None

    def __len__(self) -> int:
        return len(self._due)

    def oldest_wait_seconds(self) -> float:
        """How long the object that waits longest has been due."""
        return max(0.0, self._clock() - min(self._due.values(), default=self._clock()))

    def wake(self, key: WorkKey, delay_seconds: float = 0.0) -> None:
        """Reconcile `key` after `delay_seconds`, or earlier if it is due earlier already."""
        due = self._clock() + delay_seconds
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    async def take(self) -> tuple[WorkKey, float]:
        """The next object and since when it was due; nobody else gets it until `done` or `failed`."""
        while True:
            found = self.take_due()
            if isinstance(found, tuple):
                return found
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), found)
            except TimeoutError:
                continue

    def take_due(self) -> tuple[WorkKey, float] | float | None:
        """An object that is due, and since when; else seconds until one is; else None."""
        held: list[tuple[float, WorkKey]] = []
        found: tuple[WorkKey, float] | float | None = None
        while self._heap and found is None:
            due, key = self._heap[0]
            if self._due.get(key) != due:
                heapq.heappop(self._heap)
            elif due > self._clock():
                found = due - self._clock()
            else:
                heapq.heappop(self._heap)
                if key in self._busy:
                    held.append((due, key))
                    continue
                del self._due[key]
                self._busy.add(key)
                found = (key, due)
        for item in held:
            heapq.heappush(self._heap, item)
        return found

    def done(self, key: WorkKey, again_seconds: float | None = None) -> None:
        """The object was reconciled; look at it again after a while, if at all."""
        self._busy.discard(key)
        self._failures.pop(key, None)
        self.last_done = self._clock()
        if again_seconds is not None:
            self.wake(key, again_seconds)
        self._changed.set()

    def failed(self, key: WorkKey) -> float:
        """It did not work: again with back-off. Returns the delay in seconds."""
        self._busy.discard(key)
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(BACK_OFF_LIMIT_SECONDS, BACK_OFF_BASE_SECONDS * 2.0 ** min(count, 20))
        self.wake(key, delay)
        self._changed.set()
        return delay
