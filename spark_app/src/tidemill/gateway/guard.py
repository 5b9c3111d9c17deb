"""What every request passes first: the token, the bounds, and one JSON body for everything bad."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

from tidemill.gateway import cors, faults
from tidemill.gateway.access import OPERATE, Access, RateLimits, Rates, audit, check_access, role_of
from tidemill.gateway.admission import Admission
from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.metrics import GatewayMetrics
from tidemill.gateway.origins import check_local
from tidemill.gateway.sessions import check_sent_by_page, cookie_token
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.clock import SystemClock
from tidemill.journal.spans import TracedSpan, tracer
from tidemill.values.errors import TidemillError

FILES_PATH = "/page/"
SESSION_PATH = "/session"
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json", "/", SESSION_PATH})
DOCS_FILES = "/docs/files"
UNBOUNDED_PATHS = OPEN_PATHS - {SESSION_PATH} | {"/metrics"}
NO_ROUTE = "none"
TICKET = "tidemill.ticket"
"""Where a request's scope has its place among those under way."""

ACCESS = "tidemill.access"
"""Where a request's scope has what its sender may do."""

FACTS = "tidemill.facts"
"""Where a request's scope has what its line of audit says of the change."""

SUBSCRIBERS_MAX = 1_000
"""Who subscribed leaves the places of requests under way to others."""

_NOBODY = Access("unknown", frozenset())
_TRACED = frozenset({b"traceparent", b"tracestate"})
logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """The outermost layer of the application; nothing that goes wrong below it reaches a client as it is."""

    def __init__(
        self, app: App, settings: GatewaySettings, metrics: GatewayMetrics, is_local_only: bool = False
    ) -> None:
        self._is_local_only = is_local_only
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._limits = RateLimits(settings.rates, time.monotonic) if settings.rates != Rates() else None
        self._admission = Admission(settings.in_flight_max, settings.in_flight_bytes_max, metrics.in_flight.inc)
        self._subscribers = Admission(SUBSCRIBERS_MAX, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0
        scope[ACCESS] = _NOBODY
        origins = self._settings.cors_origins
        origin = cors.origin_allowed(origins, scope["path"], dict(scope["headers"])) if origins else ""

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if origins:
                    message["headers"] = [*message.get("headers", []), *cors.answer_headers(origin)]
            await send(message)

        try:
            if origin and cors.is_preflight(scope["method"], dict(scope["headers"])):
                await sending({"type": "http.response.start", "status": 204, "headers": cors.preflight_headers()})
                await sending({"type": "http.response.body", "body": b""})
                return
            await self._admitted(scope, receive, sending)
        except ClientDisconnect:
            return  # nobody is there to be answered
        except TidemillError as error:
            await self._refuse(error, sending)
        except Exception:
            logger.exception("A request failed unexpectedly.")
            if not status:
                await self._refuse(faults.unexpected(), sending)
        finally:
            seconds = time.monotonic() - began
            self._count(scope, status, seconds)
            logger.debug("%s %a %d in %.1f ms", scope["method"], scope["path"], status, 1000 * seconds)
            self._note(scope, status)
            wanted = tracer()
            if wanted is not None and not _is_open(scope["path"]) and scope["path"] not in UNBOUNDED_PATHS:
                wanted.record(_span(scope, status, 1000 * (time.monotonic() - began)))

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        headers = dict(scope["headers"])
        if self._is_local_only:
            check_local(scope["method"], headers)
        access = scope[ACCESS] = self._access(scope["method"], path, headers)
        if not _is_open(path):
            check_access(access, scope["method"], path)
            if self._limits is not None:
                self._limits.take_request(access.who)
                receive = self._metered(receive, access.who, self._limits)
        size = self._checked_size(headers)
        if path in UNBOUNDED_PATHS:
            await self._app(scope, receive, send)
            return
        # A body without a length may become as large as is allowed.
        held = size if size is not None else self._settings.body_bytes_max if _is_chunked(headers) else 0
        is_subscriber = scope["method"] == "GET" and path.endswith("/subscribe")
        ticket = scope[TICKET] = self._subscribers.enter(0) if is_subscriber else self._admission.enter(held)
        try:
            await self._app(scope, receive, send)
        finally:
            ticket.release()

    def _access(self, method: str, path: str, headers: dict[bytes, bytes]) -> Access:
        """Who asks, and what they may do: by the token in the header, or in the cookie of a browser that signed in."""
        tokens = self._settings.tokens
        if tokens is None or _is_open(path) or (path == "/metrics" and self._settings.has_open_metrics):
            return Access()
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        found = tokens.access(given.strip()) if scheme.lower() == b"bearer" else None
        if not scheme and (found := tokens.access(cookie_token(headers))) is not None:
            check_sent_by_page(method, headers)
        if found is None:
            text = "Send the gateway's token: Authorization: Bearer TOKEN."
            raise HttpRefusal(401, "Unauthorized", text, {"www-authenticate": "Bearer"})
        return found

    def _metered(self, receive: Receive, who: str, limits: RateLimits) -> Receive:
        async def counted() -> Message:
            message = await receive()
            limits.take_bytes(who, len(message.get("body", b"")))
            return message

        return counted

    def _note(self, scope: Scope, status: int) -> None:
        """A line of audit for what changes something, or would have."""
        method, path = scope["method"], scope["path"]
        if role_of(method, path) == OPERATE:
            client = str((scope.get("client") or ("unknown",))[0])
            audit(scope[ACCESS].who, client, method, path, status, scope.get(FACTS, {}))

    def _checked_size(self, headers: dict[bytes, bytes]) -> int | None:
        given = headers.get(b"content-length")
        if given is None:
            return None
        if not given.isdigit():
            raise faults.malformed("Content-Length is no number.")
        if int(given) > self._settings.body_bytes_max:
            raise too_large(self._settings.body_bytes_max)
        return int(given)

    async def _refuse(self, error: TidemillError, send: Send) -> None:
        self._metrics.errors.labels(error.code).inc()
        body = faults.body_of(error)
        given = {"content-type": "application/json", "content-length": str(len(body)), **faults.headers_of(error)}
        headers = [(name.encode(), value.encode()) for name, value in given.items()]
        await send({"type": "http.response.start", "status": faults.status_of(error), "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)


def _span(scope: Scope, status: int, took_ms: float) -> TracedSpan:
    """A request that was answered just now; `status` 0 is one whose sender went away."""
    route = getattr(scope.get("route"), "path", NO_ROUTE)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"] if name in _TRACED}
    is_known = scope[ACCESS] is not _NOBODY  # others put nothing into somebody's trace, and switch no sampling off
    places = {f"tidemill.{name}": str(value) for name, value in scope.get("path_params", {}).items()}
    end = SystemClock().now_ms()
    return TracedSpan(
        name=f"{scope['method']} {route}",
        begin_ms=end - took_ms,
        end_ms=end,
        attributes={
            "http.request.method": scope["method"],
            "http.route": route,
            "url.path": scope["path"],
            "http.response.status_code": status,
            **places,
        },
        error=f"answered with {status}" if status >= 500 else "",
        kind="server",
        asked_by=headers if is_known else {},
    )


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith((f"{DOCS_FILES}/", FILES_PATH))


def too_large(bound: int) -> HttpRefusal:
    """The answer 413 to a body of more than `bound` bytes."""
    return HttpRefusal(413, "TooLarge", f"A body has at most {bound:,} bytes; send it in parts.")


def _is_chunked(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers
