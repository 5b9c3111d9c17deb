"""PStates over HTTP: selects."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.gateway import schemas
from tidemill.gateway.exchange import answered, body_of, gateway_of, ticket_of
from tidemill.gateway.faults import malformed
from tidemill.gateway.formats import ANSWERS, converted, decoded, media_type
from tidemill.state.nodes import ABSENT
from tidemill.state.path_budget import Budget
from tidemill.state.path_json import path_from_json, value_from_json

STALENESS_MS_MAX = 86_400_000.0
routes = APIRouter(tags=["pstates"])


class Select(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of a select."""

    path: list[Any] = msgspec.field(default_factory=list)
    pkey: Any = msgspec.UNSET
    max_staleness_ms: float = 0
    at: int | float | None = None


@routes.post(
    "/modules/{module}/pstates/{pstate}/select",
    responses=schemas.answers({"type": "array", "items": schemas.ANYTHING}, "What the path navigates to, in order."),
    openapi_extra=schemas.body(schemas.SELECT),
)
async def select(request: Request, module: str, pstate: str) -> Response:
    """Everything that the path navigates to."""
    return await _selected(request, module, pstate, is_one=False)


@routes.post(
    "/modules/{module}/pstates/{pstate}/selectOne",
    responses=schemas.answers(schemas.ANYTHING, "The one value that the path navigates to."),
    openapi_extra=schemas.body(schemas.SELECT),
)
async def select_one(request: Request, module: str, pstate: str) -> Response:
    """The one value that the path navigates to; 422 NotOneValue where there is none, or several."""
    return await _selected(request, module, pstate, is_one=True)


async def _selected(request: Request, module: str, pstate: str, is_one: bool) -> Response:
    gateway, began = gateway_of(request), time.monotonic()
    deadline = began + gateway.settings.seconds_max
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)

    def read() -> Any:
        asked = _checked(converted(decoded(body, kind, ticket_of(request).grow), Select))
        handle = gateway.modules.module(module).pstate(pstate)
        if asked.at is not None:
            handle = handle.at(int(asked.at))
        found = path_from_json(asked.path)
        if found.pkey is not ABSENT and asked.pkey is not msgspec.UNSET:
            raise malformed("Say pkey once: beside the path, or as its first navigator.")
        pkey = found.pkey if asked.pkey is msgspec.UNSET else value_from_json(asked.pkey, "pkey")
        given: dict[str, Any] = {} if pkey is ABSENT else {"pkey": pkey}
        chosen = handle.select_one if is_one else handle.select
        budget = Budget(lambda: time.monotonic() > deadline, first=found.first)
        return chosen(found.path, max_staleness_ms=asked.max_staleness_ms, budget=budget, **given)

    response = await answered(request, read)
    labels = (module, "$$" + pstate.removeprefix("$$"))
    gateway.metrics.selects.labels(*labels).inc()
    gateway.metrics.select_seconds.labels(*labels).observe(time.monotonic() - began)
    return response


def _checked(asked: Select) -> Select:
    if not 0 <= asked.max_staleness_ms <= STALENESS_MS_MAX:
        raise malformed(f"maxStalenessMs is a number from 0 to {STALENESS_MS_MAX:.0f}.")
    if asked.at is not None and (asked.at != int(asked.at) or not 0 <= asked.at < 2**53):
        raise malformed("at is the number of an entry of the commit log.")
    return asked


@routes.get("/modules/{module}/pstates/{pstate}", responses=schemas.answers(schemas.ANYTHING))
async def pstate_info(request: Request, module: str, pstate: str) -> Response:
    """Whose the PState is, its name, its partitions, and the entry that a select would read now, for `at`."""
    gateway = gateway_of(request)

    def read() -> Any:
        handle = gateway.modules.module(module).pstate(pstate)
        return {**handle.get_object_info()._asdict(), "entry": handle.current_entry()}

    return await answered(request, read)
