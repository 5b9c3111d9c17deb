"""What a gateway keeps up to date for its clients, as server-sent events: values of PStates, and looks at the store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from fastapi import Response

from tidemill.clients.diffs import Diff, ResyncDiff, UngracefulTerminationDiff
from tidemill.clients.proxies import ProxyState
from tidemill.gateway.formats import JSON, encoded
from tidemill.gateway.guard import Receive, Scope, Send

EVENTS: Final = "text/event-stream"
VALUE_BYTES_MAX: Final = 256 * 1024
"""Of a value that is followed, in memory."""

PENDING_BYTES_MAX: Final = 512 * 1024
"""Of events that wait for a client; one that is slower is sent away."""

HEARTBEAT_SECONDS: Final = 15.0
LIFE_SECONDS: Final = 3_600.0
"""How long a subscription lasts: then its client comes again, with a token that is still good."""

_STOPS = "The gateway stops; come again."
_SLOW = f"The client did not take the events in time: more than {PENDING_BYTES_MAX:,} bytes waited. Come again."
_OVER = "An hour is over; come again."


class Subscriptions:
    """The open ones of one gateway; used in its event loop only."""

    def __init__(self, show: Callable[[int], object]) -> None:
        self._open: set[EventStream] = set()
        self._show = show
        self._is_stopping = False

    def add(self, one: EventStream) -> None:
        """One more."""
        self._open.add(one)
        self._show(len(self._open))
        if self._is_stopping:
            one.end(_STOPS)

    def remove(self, one: EventStream) -> None:
        """It is over."""
        self._open.discard(one)
        self._show(len(self._open))

    def end(self) -> None:
        """Send all clients away, also those that come from now on: the gateway stops."""
        self._is_stopping = True
        for one in self._open:
            one.end(_STOPS)


class EventStream(Response):
    """The answer to one client: events until one side goes, the last of them `end` with its reason."""

    def __init__(self, all_of_them: Subscriptions) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"}, media_type=EVENTS)
        del self.headers["content-length"]
        self._all = all_of_them
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._reason: str | None = None
        self.is_over = False

    def take(self, name: str, data: Any) -> None:
        """One more event for the client; one that is too slow is sent away."""
        self.take_all([(name, data)])

    def take_all(self, events: Iterable[tuple[str, Any]]) -> None:
        """Events that are told at one moment; only what waited before them says that a client is too slow."""
        taken = b"".join(event_of(name, data) for name, data in events)
        if self._events and self._bytes + len(taken) > PENDING_BYTES_MAX:
            self.end(_SLOW)
        elif taken:
            self._events.append(taken)
            self._bytes += len(taken)
            self._news.set()

    def end(self, reason: str) -> None:
        """Send no more events but this reason."""
        if self._reason is None:
            self._reason = reason
            self._events.clear()
            self._events.append(event_of("end", {"reason": reason}))
            self._news.set()

    def close(self) -> None:
        """It is over: let go of what it follows."""
        self.is_over = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with events until the client goes, or an end is told."""
        self._all.add(self)
        leaving = asyncio.ensure_future(self._wait_for_leave(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with asyncio.timeout(LIFE_SECONDS):
                await self._send_events(send)
        except TimeoutError:
            await send({"type": "http.response.body", "body": event_of("end", {"reason": _OVER})})
        finally:
            leaving.cancel()
            self._all.remove(self)
            self.close()

    async def _send_events(self, send: Send) -> None:
        while not self.is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._news.wait()
            self._news.clear()
            is_last = self._reason is not None
            body = b"".join(self._events) or b": still here\n\n"
            self._events.clear()
            self._bytes = 0
            await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            if is_last:
                return

    async def _wait_for_leave(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_over = True
        self._news.set()


def event_of(name: str, data: Any) -> bytes:
    """One event as it is sent; the data is JSON."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encoded(data, JSON))


class Subscription(EventStream):
    """A value of a PState: `resync` has it as it is, `diff` what changed since the event before."""

    def __init__(self, all_of_them: Subscriptions) -> None:
        super().__init__(all_of_them)
        self._loop = asyncio.get_running_loop()
        self._proxy: ProxyState | None = None

    def told(self, new: Any, diff: Diff, old: Any) -> None:
        """The callback of its proxy, in another thread."""
        if self.is_over or self._loop.is_closed():
            return
        if isinstance(diff, UngracefulTerminationDiff):
            self._loop.call_soon_threadsafe(self.end, diff.reason)
        elif isinstance(diff, ResyncDiff):
            self._loop.call_soon_threadsafe(self.take, "resync", {"value": new})
        else:
            self._loop.call_soon_threadsafe(self.take, "diff", {"diff": diff.to_json()})

    def hold(self, proxy: ProxyState) -> None:
        """Close this proxy at the end, which may be over by now."""
        self._proxy = proxy
        if self.is_over:
            proxy.close()

    def close(self) -> None:
        """It is over: let go of its value."""
        super().close()
        if self._proxy is not None:
            self._proxy.close()
