"""Connections with bounds: bytes and number of headers, time for each part of a request, and how many are open.

uvicorn's parser takes headers without bound and waits for ever for the rest of a request; all of that comes before a
token is looked at. A connection that waits for its client is closed when another one needs its place, so that there
is always room for a request that is really sent, such as a probe.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from enum import Enum
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tidemill.gateway import faults
from tidemill.gateway.faults import HttpRefusal

HEAD_BYTES_MAX = 32 * 1024
"""Bytes of a request's line and headers, and of whatever else comes without a byte of a body."""

HEADERS_MAX = 100
HEAD_SECONDS = 10.0
"""From the first byte of a request, or the opening of a connection, to the end of the headers."""

BODY_BYTES_MIN = 64 * 1024
"""How much of a body must come in each `BODY_SECONDS`, if it is not whole by then."""

BODY_SECONDS = 5.0
IDLE_SECONDS = 75.0
CONNECTIONS_MAX = 2_048
PROBES_MAX = 16
"""Connections beyond that, where all others are at work: only probes are answered on them."""

PROBES = frozenset({b"/healthz", b"/readyz"})
_FILES_SHARE = 2
_SWEEP_SECONDS = 0.5
_YOUNG_SECONDS = 1.0
_LINGER_SECONDS = 5.0


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "the rest of the headers"
    BODY = "the rest of the body"
    ANSWER = "the answer, and that the client takes it"
    IDLE = "the next request"
    CUT = "its end"


@dataclass(frozen=True)
class ConnectionBounds:
    """`request_seconds` bounds a body, and then the answer to it, each of its own."""

    request_seconds: float
    connections_max: int = CONNECTIONS_MAX
    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    idle_seconds: float = IDLE_SECONDS


def connections_allowed() -> int:
    """How many connections the process may have: no more than half of the files that it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS_MAX, files // _FILES_SHARE))


class Connections:
    """The open connections of one server; used in its event loop only."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds = bounds
        self._open: set[BoundedConnection] = set()
        self._is_sweeping = False

    def made(self, **given: Any) -> BoundedConnection:
        """The protocol of a new connection, for uvicorn."""
        return BoundedConnection(self, **given)

    def add(self, connection: BoundedConnection, loop: asyncio.AbstractEventLoop) -> None:
        """Take a new one in, and close the one that waits for the least where there are too many."""
        self._open.add(connection)
        if len(self._open) > self.bounds.connections_max:
            now = loop.time()
            waiting = [one for one in self._open if one is not connection and one.waits_for_client]
            if waiting:
                min(waiting, key=lambda one: one.worth(now)).end()
            elif len(self._open) > self.bounds.connections_max + PROBES_MAX:
                connection.cut(_busy())
            else:
                connection.is_for_probes = True
        if not self._is_sweeping:
            self._is_sweeping = True
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def remove(self, connection: BoundedConnection) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._open):
            connection.check(now)
        self._is_sweeping = bool(self._open)
        if self._is_sweeping:
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)


class BoundedConnection(HttpToolsProtocol):
    """One connection, from opened to closed."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self._phase = Phase.HEAD
        self._since = 0.0
        self.is_for_probes = False
        self._silent = 0
        self._body = 0
        self._body_before = 0
        self._looked = 0.0

    # --- what the server asks ---

    @property
    def waits_for_client(self) -> bool:
        """Whether nothing of this gateway's is under way on it."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._phase in (Phase.HEAD, Phase.IDLE) or (self._phase is Phase.BODY and is_answered)

    def worth(self, now: float) -> tuple[int, float]:
        """Those that began a request and do not go on are worth the least, those that have just begun the most."""
        if self._phase is Phase.IDLE:
            return 1, self._since
        return (0 if now - self._since > _YOUNG_SECONDS else 2), self._since

    def check(self, now: float) -> None:
        """End it if it is late."""
        bounds, waited = self._all.bounds, now - self._since
        if self._phase is Phase.IDLE and waited > bounds.idle_seconds:
            self.end()
        elif self._phase is Phase.HEAD and waited > bounds.head_seconds:
            self.cut(HttpRefusal(408, "Timeout", f"The headers took longer than {bounds.head_seconds:g} s."))
        elif self._phase is Phase.BODY and not self.flow.read_paused:
            self._check_body(now)
        elif self._is_taken:
            self._since = now
        elif waited > {Phase.ANSWER: 2 * bounds.request_seconds, Phase.CUT: _LINGER_SECONDS}.get(self._phase, waited):
            self.transport.abort()

    @property
    def _is_taken(self) -> bool:
        """Whether an answer of several parts is under way, and its client takes them."""
        cycle = self.cycle
        is_begun = cycle is not None and cycle.response_started and not cycle.response_complete
        return self._phase is Phase.ANSWER and is_begun and not self.flow.write_paused

    def _check_body(self, now: float) -> None:
        bounds = self._all.bounds
        if now - self._since > bounds.request_seconds:
            self.cut(HttpRefusal(408, "Timeout", f"The body took longer than {bounds.request_seconds:g} s."))
        elif now - self._looked > bounds.body_seconds:
            if self._body - self._body_before < BODY_BYTES_MIN:
                text = f"A body comes with at least {BODY_BYTES_MIN:,} bytes in {bounds.body_seconds:g} s."
                self.cut(HttpRefusal(408, "Timeout", text))
            self._looked, self._body_before = now, self._body

    def end(self) -> None:
        """Close it without an answer; nothing of its client's is under way."""
        self._enter(Phase.CUT)
        self.transport.close()

    def cut(self, refusal: HttpRefusal) -> None:
        """Close it, with the reason as the answer if none was begun."""
        self._enter(Phase.CUT)
        is_unanswered = self.cycle is None or self.cycle.response_complete or not self.cycle.response_started
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if is_unanswered and not self.transport.is_closing():
            self.transport.write(_answer(refusal))
        self.transport.close()

    # --- calls of the transport and the parser ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """The transport is open: the time for the first headers begins."""
        super().connection_made(transport)
        self._enter(Phase.HEAD)
        self._all.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed: its place is free."""
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came. Too many without a byte of a body end the connection, as headers that are too long."""
        if self._phase is Phase.CUT:
            return
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        self._silent += len(data)
        super().data_received(data)
        if self._silent > HEAD_BYTES_MAX and self._phase in (Phase.HEAD, Phase.BODY):
            self.cut(_long_head())

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP: the answer has the gateway's JSON body, in place of uvicorn's text."""
        if self._phase is not Phase.CUT:
            self.cut(faults.malformed(msg))

    def on_message_begin(self) -> None:
        """A request begins: its bytes are counted from here."""
        super().on_message_begin()
        self._silent = 0

    def on_headers_complete(self) -> None:
        """The headers are whole: refuse those beyond the bounds before the application sees them."""
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._phase is Phase.CUT:
            return
        if size > HEAD_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            self.cut(_long_head())
            return
        if self.is_for_probes and self.url not in PROBES:
            self.cut(_busy())
            return
        self._silent = self._body = self._body_before = 0
        self._enter(Phase.BODY)
        self._looked = self._since
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body came; its bytes count towards the least pace (`BODY_BYTES_MIN`)."""
        if self._phase is not Phase.CUT:
            self._silent = 0
            self._body += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole: from now on the client waits."""
        if self._phase is not Phase.CUT:
            self._silent = 0
            super().on_message_complete()
            self._enter(Phase.IDLE if self.cycle.response_complete else Phase.ANSWER)

    def on_response_complete(self) -> None:
        """The answer is sent: the connection waits for the next request, or answers one that came already."""
        super().on_response_complete()
        self._unset_keepalive_if_required()  # this clock is read for all of them together
        if self._phase is Phase.ANSWER:
            self._enter(Phase.ANSWER if self.cycle is not None and not self.cycle.response_complete else Phase.IDLE)

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()


def _busy() -> HttpRefusal:
    text = "The gateway has as many connections under way as it takes; try again. Nothing was done."
    return HttpRefusal(503, "Busy", text, {"retry-after": str(faults.RETRY_SECONDS)})


def _long_head() -> HttpRefusal:
    text = f"A request has at most {HEADERS_MAX} headers and {HEAD_BYTES_MAX:,} bytes before its body."
    return HttpRefusal(431, "TooLarge", text)


def _answer(refusal: HttpRefusal) -> bytes:
    body = faults.body_of(refusal)
    given = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    lines = [f"{name}: {value}\r\n" for name, value in (given | refusal.headers).items()]
    return STATUS_LINE[refusal.status] + "".join(lines).encode() + b"\r\n" + body
