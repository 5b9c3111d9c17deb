"""What every request passes first: the token, the bounds, and one JSON body for everything bad."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

from tidemill.gateway import faults
from tidemill.gateway.admission import Admission
from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.metrics import Metrics
from tidemill.gateway.origins import check_local
from tidemill.gateway.settings import GatewaySettings
from tidemill.model.errors import TidemillError

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})
DOCS_FILES = "/docs/files"
UNBOUNDED_PATHS = OPEN_PATHS | {"/metrics"}
NO_ROUTE = "none"
TICKET = "tidemill.ticket"
"""Where a request's scope has its place among those under way."""

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """The outermost layer of the application; nothing that goes wrong below it reaches a client as it is."""

    def __init__(self, app: App, settings: GatewaySettings, metrics: Metrics, is_local_only: bool = False) -> None:
        self._is_local_only = is_local_only
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._admission = Admission(settings.in_flight_max, settings.in_flight_bytes_max, metrics.in_flight.inc)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
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
            self._count(scope, status, time.monotonic() - began)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        headers = dict(scope["headers"])
        if self._is_local_only:
            check_local(scope["method"], headers)
        self._check_token(path, headers)
        size = self._checked_size(headers)
        if path in UNBOUNDED_PATHS:
            await self._app(scope, receive, send)
            return
        # A body without a length may become as large as is allowed.
        held = size if size is not None else self._settings.body_bytes_max if _is_chunked(headers) else 0
        ticket = scope[TICKET] = self._admission.enter(held)
        try:
            await self._app(scope, receive, send)
        finally:
            ticket.release()

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        tokens = self._settings.tokens
        is_open = path in OPEN_PATHS or path.startswith(f"{DOCS_FILES}/")
        if tokens is None or is_open or (path == "/metrics" and self._settings.has_open_metrics):
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not tokens.fits(given.strip()):
            text = "Send the gateway's token: Authorization: Bearer TOKEN."
            raise HttpRefusal(401, "Unauthorized", text, {"www-authenticate": "Bearer"})

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


def too_large(bound: int) -> HttpRefusal:
    return HttpRefusal(413, "TooLarge", f"A body has at most {bound:,} bytes; send it in parts.")


def _is_chunked(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers
