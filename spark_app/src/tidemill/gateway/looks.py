"""Looks at the store for those who ask often and carry no token: all who ask within a second share one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from tidemill.gateway.work import is_done, late

FRESH_SECONDS = 1.0
"""How old an answer may be."""

T = TypeVar("T")


class SharedLook(Generic[T]):
    """One look at a time, in a thread of its own, so that those who ask and requests do not wait for each other."""

    def __init__(self, name: str, look: Callable[[], T], seconds: float) -> None:
        """`seconds`: how long one who asks waits at most."""
        self._look = look
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"tidemill-{name}")
        self._asked: Future[T] | None = None
        self._asked_at = float("-inf")

    async def get(self) -> T:
        """What the look found.

        Raises:
            HttpRefusal: 504, it took too long. And whatever the look raised.
        """
        now = asyncio.get_running_loop().time()
        asked = self._asked
        if asked is None or (asked.done() and now - self._asked_at >= FRESH_SECONDS):
            asked = self._asked = self._thread.submit(self._look)
            self._asked_at = now
        if not await is_done(asked, now + self._seconds):
            raise late("The store took longer than {} s.", self._seconds)
        return asked.result()

    def close(self) -> None:
        """End its thread after the look under way, without waiting for it."""
        self._thread.shutdown(wait=False)
