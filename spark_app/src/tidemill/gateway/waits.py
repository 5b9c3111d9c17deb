"""Reading one's own writes over HTTP: waiting until records are processed, without a thread for each who waits."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.clients.barrier import Barrier, ProcessedWatch, barrier_now, barriers_from, barriers_text
from tidemill.gateway import schemas
from tidemill.gateway.admission import Ticket
from tidemill.gateway.exchange import Gateway, answer, body_of, gateway_of, ticket_of
from tidemill.gateway.faults import malformed
from tidemill.gateway.formats import ANSWERS, answer_type, converted, decoded, media_type
from tidemill.gateway.weights import Reserve

TIMEOUT_MS_MAX = 86_400_000.0
LOOK_SECONDS = 0.005
LOOK_SECONDS_MAX = 0.25
WAIT_SHARE = 0.9
"""Of a request's time: what is left is for the answer."""

routes = APIRouter(tags=["modules"])


class WaitBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of a wait; `barrier` is that of an earlier answer, which goes on waiting for the same records."""

    topology: str | None = None
    barrier: str | None = None
    timeout_ms: float | None = None


@routes.post(
    "/modules/{module}/wait",
    responses=schemas.answers(schemas.WAITED, "Whether the records are processed."),
    openapi_extra=schemas.body(schemas.WAIT),
)
async def wait(request: Request, module: str) -> Response:
    """Wait until all that is appended by now is processed; `processed` is false if it was not in time."""
    gateway = gateway_of(request)
    answer_type(request.headers.get("accept"))
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)
    ticket = ticket_of(request)
    asked = await gateway.work.read(lambda: _asked(body, kind, ticket.grow), ticket)
    barriers = await gateway.work.read(lambda: _barriers(gateway, module, asked), ticket)
    watch = await gateway.work.read(lambda: _watch(gateway, module, barriers), ticket)
    given = asked.timeout_ms / 1000 if asked.timeout_ms is not None else gateway.settings.seconds_max
    seconds = min(given, WAIT_SHARE * gateway.settings.seconds_max)
    found: dict[str, Any] = {"barrier": barriers_text(barriers)}
    found["processed"] = await is_processed(gateway, watch, ticket, seconds)
    if not found["processed"]:
        found["message"] = await gateway.work.read(lambda: watch.late(seconds, gateway.modules.clock), ticket)
    return answer(request, found)


async def is_processed(gateway: Gateway, watch: ProcessedWatch, ticket: Ticket, seconds: float) -> bool:
    """Whether the barriers are reached within so many seconds.

    Raises:
        HttpRefusal: 503 Busy, as many wait as may.
        UserCodeError: the module's code fails on each attempt.
    """
    gateway.waiting.take(1, 0)
    try:
        return await _is_reached(gateway, watch, ticket, seconds)
    finally:
        gateway.waiting.give_back(1, 0)


async def _is_reached(gateway: Gateway, watch: ProcessedWatch, ticket: Ticket, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, LOOK_SECONDS
    while not await gateway.work.read(watch.look, ticket):
        left = deadline - loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(pause, left))
        pause = min(LOOK_SECONDS_MAX, 1.5 * pause)
    return True


def _asked(body: bytes, kind: str, reserve: Reserve) -> WaitBody:
    asked = converted(decoded(body, kind, reserve), WaitBody)
    if asked.timeout_ms is not None and not 0 <= asked.timeout_ms <= TIMEOUT_MS_MAX:
        raise malformed(f"timeoutMs is a number from 0 to {TIMEOUT_MS_MAX:,.0f}.")
    return asked


def _barriers(gateway: Gateway, module: str, asked: WaitBody) -> list[Barrier]:
    definition = gateway.modules.module(module).client.definition()
    if asked.barrier is None:
        names = [asked.topology] if asked.topology is not None else list(definition.topologies)
        return [barrier_now(gateway.modules.store, definition, name) for name in names]
    return barriers_from(definition, asked.barrier)


def _watch(gateway: Gateway, module: str, barriers: list[Barrier]) -> ProcessedWatch:
    return ProcessedWatch(gateway.modules.store, gateway.modules.module(module).client.definition(), barriers)
