"""Blocking work of requests: in threads, within a time limit that says what became of an append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tidemill.gateway.admission import Ticket
from tidemill.gateway.faults import HttpRefusal
from tidemill.values.errors import OutcomeUnknown

T = TypeVar("T")


class Work:
    """A bounded number of threads; each request has `seconds_max` from when it came."""

    def __init__(self, threads: int, seconds_max: float) -> None:
        self.seconds_max = seconds_max
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tidemill-gateway")

    async def read(self, read: Callable[[], T], ticket: Ticket | None = None, seconds: float | None = None) -> T:
        """What a blocking read returns, within `seconds`, or the bound of all requests; it holds the ticket to its end.

        Raises:
            HttpRefusal: 504, it took too long.
        """
        bound = self.seconds_max if seconds is None else seconds
        future = self._threads.submit(read)
        if ticket is not None:
            ticket.hold_until(future)
        if not await is_done(future, _now() + bound):
            future.cancel()
            raise late("The answer took longer than {} s.", bound)
        return future.result()

    async def append(self, begin: Callable[[], Future[T]], ticket: Ticket) -> T:
        """What an append gives, that `begin` (which may block) hands in; it holds the ticket until it is ended.

        Raises:
            HttpRefusal: 504, it took too long and nothing was appended.
            OutcomeUnknown: it took too long, and was under way.
        """
        deadline = _now() + self.seconds_max
        ended: Future[None] = Future()
        ticket.hold_until(ended)
        begun = self._threads.submit(begin)
        begun.add_done_callback(lambda future: _end_after(future, ended))
        if not await is_done(begun, deadline):
            if not begun.cancel():
                begun.add_done_callback(_cancel_what_it_began)
                raise OutcomeUnknown(f"After {self.seconds_max} s it is not known whether the records are appended.")
            raise late("The gateway was busy for {} s; nothing was appended.", self.seconds_max)
        appended = begun.result()
        if not await is_done(appended, deadline):
            if not appended.cancel():
                raise OutcomeUnknown(f"After {self.seconds_max} s it is not known whether the records are appended.")
            raise late("The store was busy for {} s; nothing was appended.", self.seconds_max)
        return appended.result()

    def close(self) -> None:
        """End the threads, after all work that was handed in."""
        self._threads.shutdown()


def _now() -> float:
    """The time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


async def is_done(future: Future[T], deadline: float) -> bool:
    """Wait for a future without owning it: who stops waiting leaves it as it is."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def tell(_: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)

    if future.done():
        return True
    future.add_done_callback(tell)
    try:
        async with asyncio.timeout_at(deadline):
            await done.wait()
    except TimeoutError:
        return future.done()
    return True


def _end_after(begun: Future[Future[T]], ended: Future[None]) -> None:
    if begun.cancelled() or begun.exception() is not None:
        ended.set_result(None)
    else:
        begun.result().add_done_callback(lambda _: ended.set_result(None))


def _cancel_what_it_began(begun: Future[Future[T]]) -> None:
    if begun.exception() is None:
        begun.result().cancel()


def late(text: str, seconds: float) -> HttpRefusal:
    """The answer 504; `text` has a place `{}` for the seconds."""
    return HttpRefusal(504, "Timeout", text.format(f"{seconds:g}"))
