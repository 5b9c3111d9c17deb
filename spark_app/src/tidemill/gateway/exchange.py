"""One request and its answer: the parts that all routes share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request, Response

from tidemill.clients.status import TopologyStatus
from tidemill.gateway.admission import Admission, Ticket
from tidemill.gateway.compression import packed
from tidemill.gateway.faults import malformed
from tidemill.gateway.formats import answer_type, encoded
from tidemill.gateway.guard import TICKET, too_large
from tidemill.gateway.live import FollowedLooks
from tidemill.gateway.looks import SharedLook
from tidemill.gateway.metrics import GatewayMetrics
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.subscriptions import Subscriptions
from tidemill.gateway.work import Work

HERE_BYTES_MAX: Final = 1024 * 1024
"""What is compressed in the event loop, where it takes milliseconds that others wait."""

_LARGEST: Final = 2**53 - 1
"""The largest whole number that every reader of JSON takes as it is."""


@dataclass(frozen=True)
class Gateway:
    """What one gateway consists of, for its routes."""

    settings: GatewaySettings
    modules: Modules
    work: Work
    waiting: Admission
    querying: Admission
    subscriptions: Subscriptions
    metrics: GatewayMetrics
    readiness: SharedLook[None]
    statuses: SharedLook[list[TopologyStatus]]
    overview: SharedLook[dict[str, dict[str, Any]]]
    topologies: FollowedLooks
    module_looks: FollowedLooks
    graph_list: SharedLook[dict[str, Any]]
    graphs: FollowedLooks


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves this request."""
    found: Gateway = request.app.state.gateway
    return found


def ticket_of(request: Request) -> Ticket:
    """The request's place, which the guard gave it."""
    found: Ticket = request.scope[TICKET]
    return found


async def body_of(request: Request, bound: int) -> bytes:
    """The whole body.

    Raises:
        HttpRefusal: 413, it is longer than allowed.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > bound:
            raise too_large(bound)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def answered(request: Request, work: Callable[[], Any]) -> Response:
    """What blocking work gives, in the form that the client likes best; bodies are read and written in its thread."""
    kind = answer_type(request.headers.get("accept"))  # a refusal must come before anything is done
    return await sent(request, lambda: encoded(work(), kind), kind)


async def sent(request: Request, make: Callable[[], bytes], kind: str) -> Response:
    """The body that blocking work makes, compressed in its thread where it is large and the client takes that."""
    accept = request.headers.get("accept-encoding")
    read = gateway_of(request).work.read(lambda: packed(make(), accept), ticket_of(request))
    body, headers = await read
    return Response(body, headers=headers, media_type=kind)


def answer(request: Request, value: Any) -> Response:
    """A small value in the form that the client likes best."""
    kind = answer_type(request.headers.get("accept"))
    body = encoded(value, kind)
    accept = request.headers.get("accept-encoding") if len(body) <= HERE_BYTES_MAX else None
    body, headers = packed(body, accept)
    return Response(body, headers=headers, media_type=kind)


def check_query(request: Request, *known: str) -> None:
    """Whether each query parameter is one that is read here: a mistyped one would be left out in silence.

    Raises:
        HttpRefusal: 400, one is not.
    """
    strange = next((name for name in request.query_params if name not in known), None)
    if strange is not None:
        others = f"; there is {' and '.join(known)}" if known else ""
        raise malformed(f"There is no query parameter {strange!r} here{others}.")


def number_of(request: Request, name: str) -> int | None:
    """A query parameter or header that is a whole number from 0 on; None where it is not given.

    Raises:
        HttpRefusal: 400, it is none.
    """
    text = request.query_params.get(name, request.headers.get(name))
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > _LARGEST:
        raise malformed(f"{name} is a whole number from 0 to {_LARGEST}, not {text!r}.")
    return int(text)
