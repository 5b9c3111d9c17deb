"""Quarantines over HTTP: the records that topologies left out, and what is decided on them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.clients.quarantine import DECIDED_MAX, Quarantine
from tidemill.clients.quarantined import PAGE_RECORDS
from tidemill.gateway import schemas
from tidemill.gateway.access import Access
from tidemill.gateway.exchange import Gateway, answered, body_of, gateway_of, ticket_of
from tidemill.gateway.formats import ANSWERS, answer_type, converted, decoded, encoded_in_parts, media_type, whole
from tidemill.gateway.guard import ACCESS, FACTS

routes = APIRouter(tags=["quarantine"])
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] | Annotated[float, msgspec.Meta(ge=0, le=2**53 - 1)]
_PATH = "/modules/{module}/topologies/{topology}/quarantine"


class DecidedRecords(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a decision: the numbers of records; all of them without any."""

    numbers: Annotated[list[Number], msgspec.Meta(max_length=DECIDED_MAX)] | None = None


class HeldAsked(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a question for records behind a number."""

    after: Annotated[int, msgspec.Meta(ge=-1, le=2**53 - 1)] | Annotated[float, msgspec.Meta(ge=-1, le=2**53 - 1)] = -1
    limit: (
        Annotated[int, msgspec.Meta(ge=1, le=PAGE_RECORDS)] | Annotated[float, msgspec.Meta(ge=1, le=PAGE_RECORDS)]
    ) = PAGE_RECORDS


@routes.post(
    f"{_PATH}/page", responses=schemas.answers(schemas.ANYTHING), openapi_extra=schemas.body(schemas.HELD_ASKED)
)
async def page(request: Request, module: str, topology: str) -> Response:
    """The records that wait for a decision, oldest first."""
    gateway = gateway_of(request)
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    answer_kind = answer_type(request.headers.get("accept"))
    body = await body_of(request, gateway.settings.body_bytes_max)

    def read() -> bytes:
        asked = converted(decoded(body, kind, ticket_of(request).grow), HeldAsked)
        limit, last = whole(asked.limit, "limit"), whole(asked.after, "after", least=-1)
        held = _opened(gateway, module, topology)

        def following(count: int) -> list[Any]:
            nonlocal last
            records = held.records(count, last)
            last = records[-1].number if records else last
            return [vars(record) for record in records]

        return encoded_in_parts(following, limit, answer_kind)

    return Response(await gateway.work.read(read, ticket_of(request)), media_type=answer_kind)


@routes.post(f"{_PATH}/retry", responses=schemas.answers(schemas.ANYTHING), openapi_extra=schemas.body(schemas.CHOSEN))
async def retry(request: Request, module: str, topology: str) -> Response:
    """Append records to their depots again, where they come last; each topology of the depot gets them."""
    return await _decided(request, module, topology, is_retry=True)


@routes.post(f"{_PATH}/drop", responses=schemas.answers(schemas.ANYTHING), openapi_extra=schemas.body(schemas.CHOSEN))
async def drop(request: Request, module: str, topology: str) -> Response:
    """Forget records."""
    return await _decided(request, module, topology, is_retry=False)


async def _decided(request: Request, module: str, topology: str, *, is_retry: bool) -> Response:
    gateway = gateway_of(request)
    access: Access = request.scope[ACCESS]
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)

    def change() -> Any:
        chosen = converted(decoded(body, kind, ticket_of(request).grow), DecidedRecords)
        numbers = None if chosen.numbers is None else [whole(number, "numbers") for number in chosen.numbers]
        request.scope[FACTS] = {"numbers": numbers}
        found = _opened(gateway, module, topology, by=access.signature)
        try:
            count = found.retry(numbers) if is_retry else found.drop(numbers)
        finally:  # a retry that failed may have come as far as to decide
            gateway.modules.changed(module)
        return {"retried" if is_retry else "dropped": count}

    return await answered(request, change)


def _opened(gateway: Gateway, module: str, topology: str, by: str = "") -> Quarantine:
    modules, client = gateway.modules, gateway.modules.module(module).client
    return Quarantine(modules.store, client.definition, topology, modules.clock, client.hub.notify, by=by)
