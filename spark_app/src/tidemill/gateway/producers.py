"""Producers over HTTP: opening one shuts out whoever opened it before."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.depot.producer_names import KEY_PREFIX
from tidemill.gateway import schemas
from tidemill.gateway.depots import checked_key
from tidemill.gateway.exchange import answer, body_of, gateway_of, ticket_of
from tidemill.gateway.formats import ANSWERS, answer_type, converted, decoded, media_type
from tidemill.values.numbers import EPOCH_APPENDS

routes = APIRouter(tags=["depots"])


class OpenBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an opening."""

    producer: str


@routes.post(
    "/modules/{module}/depots/{depot}/producers",
    responses=schemas.answers(schemas.OPENED, "The producer is open."),
    openapi_extra=schemas.body(schemas.OPEN),
)
async def open_producer(request: Request, module: str, depot: str) -> Response:
    """Begin the next epoch of a producer. Its name is the Idempotency-Key of its appends, and the number of each is
    above `sequence`; appends of those who opened it before are refused from now on (SequenceUnknown, KeyReused).
    """
    gateway = gateway_of(request)
    answer_type(request.headers.get("accept"))
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)
    ticket = ticket_of(request)

    def opened() -> dict[str, Any]:
        name = checked_key(converted(decoded(body, kind, ticket.grow), OpenBody).producer)
        handle = gateway.modules.module(module).depot(depot)
        sequence = handle.open_epoch(KEY_PREFIX + name, schemas.SEQUENCE["maximum"])
        return {"producer": name, "epoch": sequence // EPOCH_APPENDS, "sequence": sequence}

    return answer(request, await gateway.work.read(opened, ticket))
