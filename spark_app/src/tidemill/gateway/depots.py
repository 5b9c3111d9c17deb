"""Depots over HTTP: appends, and reads of records."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter, Request, Response

from tidemill.clients.barrier import ProcessedWatch, barrier_of
from tidemill.clients.depot import Appended
from tidemill.depot.append_identity import digest_of_bytes
from tidemill.depot.producer_names import KEY_PREFIX
from tidemill.gateway import schemas
from tidemill.gateway.access import Access
from tidemill.gateway.depot_facts import seen_by
from tidemill.gateway.exchange import (
    Gateway,
    answer,
    answered,
    body_of,
    check_query,
    gateway_of,
    number_of,
    sent,
    ticket_of,
)
from tidemill.gateway.faults import malformed, unfitting
from tidemill.gateway.formats import (
    ARROW,
    JSON,
    MSGPACK,
    NDJSON,
    answer_type,
    encoded_in_parts,
    media_type,
    records_of,
)
from tidemill.gateway.guard import ACCESS
from tidemill.gateway.waits import WAIT_SHARE, is_processed
from tidemill.values import columns
from tidemill.values.errors import TidemillError, UserCodeError

RECORDS_MAX = 100_000
"""How many records one read gives at most."""

KEY_CHARS_MAX = 255
_BODIES = (JSON, NDJSON, ARROW, MSGPACK)
routes = APIRouter(tags=["depots"])

_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "wait",
        "in": "query",
        "required": False,
        "schema": {"type": "string", "enum": ["processed"]},
        "description": "Answer when the records are processed, too: `processed` says whether they were in time.",
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": schemas.KEY,
        "description": "A name for this append: the same key and body again, at any replica, appends nothing.",
    },
    {
        "name": "Idempotency-Sequence",
        "in": "header",
        "required": False,
        "schema": schemas.SEQUENCE,
        "description": "With a key that names a producer: numbers that rise; the same number and body again is done.",
    },
]


@routes.post(
    "/modules/{module}/depots/{depot}/append",
    responses=schemas.answers(schemas.APPENDED, "The records are durable."),
    openapi_extra={**schemas.records_body(), "parameters": _PARAMETERS},
)
async def append(request: Request, module: str, depot: str) -> Response:
    """Append records; they go in whole or not at all, and are durable when this answers."""
    gateway, began = gateway_of(request), time.monotonic()
    answer_type(request.headers.get("accept"))  # a refusal must come before the append
    kind = media_type(request.headers.get("content-type"), _BODIES)
    waits_for = _awaited(request)
    producer, sequence = _producer(request)
    body = await body_of(request, gateway.settings.body_bytes_max)
    ticket = ticket_of(request)
    count = 0

    def begin() -> Future[Appended]:
        nonlocal count
        handle = gateway.modules.module(module).depot(depot)
        records = records_of(body, kind, ticket.grow)
        count = columns.length(records)
        digest = digest_of_bytes(kind, body) if producer is not None else ""
        return handle.append_column_async(records, producer=producer, sequence=sequence, digest=digest)

    appended = await gateway.work.append(begin, ticket)
    gateway.modules.changed(module)  # who appended and then asks for facts gets those with its records
    _count(gateway, module, depot, count, time.monotonic() - began)
    found: dict[str, Any] = {"appended": count, "partitions": [list(place) for place in appended.offsets]}
    if waits_for:
        left = WAIT_SHARE * gateway.settings.seconds_max - (time.monotonic() - began)
        found |= await _processed(request, depot, appended, left)
    return answer(request, found)


def _awaited(request: Request) -> bool:
    """Whether the append is to be processed, too, before it is answered."""
    check_query(request, "wait")
    asked = request.query_params.get("wait")
    if asked not in (None, "processed"):
        raise malformed(f"wait= is processed, not {asked!r}.")
    return asked is not None


async def _processed(request: Request, depot: str, appended: Appended, seconds: float) -> dict[str, Any]:
    """Whether the records are processed in time; whatever goes wrong now, they are appended, and the answer says so."""
    gateway, ticket = gateway_of(request), ticket_of(request)
    try:
        watch = await gateway.work.read(lambda: _watch(gateway, depot, appended), ticket)
        return {"processed": await is_processed(gateway, watch, ticket, seconds)}
    except UserCodeError as error:
        return {"processed": False, "message": str(error)}
    except TidemillError as error:  # its text may name the store, or say that nothing was done
        text = f"The records are appended. Whether they are processed cannot be told now ({error.code}): wait for it."
        return {"processed": False, "message": text}


def _watch(gateway: Gateway, depot: str, appended: Appended) -> ProcessedWatch:
    """Of the very depot that has the records: one that is made anew under its name knows nothing of them."""
    definition, offsets = appended
    name = "*" + depot.removeprefix("*")
    barriers = [barrier_of(definition, topology, name, offsets) for topology in definition.topologies]
    return ProcessedWatch(gateway.modules.store, definition, [barrier for barrier in barriers if barrier.offsets])


def _producer(request: Request) -> tuple[str | None, int | None]:
    """The idempotent producer that a request names: a key of its own is one whose only sequence is 0."""
    key = request.headers.get("idempotency-key")
    sequence = number_of(request, "idempotency-sequence")
    if key is None:
        if sequence is not None:
            raise unfitting("Idempotency-Sequence needs an Idempotency-Key, the name of the producer.")
        return None, None
    return KEY_PREFIX + checked_key(key), sequence or 0


def checked_key(key: str) -> str:
    """The name of an append or a producer, which may be in quotes. Raises HttpRefusal: it is none."""
    key = key[1:-1] if len(key) > 2 and key[0] == key[-1] == '"' else key
    if not 0 < len(key) <= KEY_CHARS_MAX or not all("!" <= letter <= "~" for letter in key):
        raise malformed(f"Idempotency-Key has 1 to {KEY_CHARS_MAX} printable ASCII characters and no space.")
    return key


def _count(gateway: Gateway, module: str, depot: str, count: int, seconds: float) -> None:
    labels = (module, "*" + depot.removeprefix("*"))
    gateway.metrics.appends.labels(*labels).inc()
    gateway.metrics.records.labels(*labels).inc(count)
    gateway.metrics.append_seconds.labels(*labels).observe(seconds)


@routes.get("/modules/{module}/depots/{depot}", responses=schemas.answers(schemas.ANYTHING))
async def depot_info(request: Request, module: str, depot: str) -> Response:
    """Whose the depot is, its name, and how many partitions it has."""
    gateway = gateway_of(request)

    def read() -> Any:
        return gateway.modules.module(module).depot(depot).get_object_info()._asdict()

    return await answered(request, read)


@routes.get("/modules/{module}/depots/{depot}/facts", responses=schemas.answers(schemas.ANYTHING))
async def facts(request: Request, module: str, depot: str) -> Response:
    """What a depot holds: its partitions with their offsets; what is stored of it, how fast it grows, what retention
    keeps, and how far each reader is.
    """
    check_query(request)
    gateway = gateway_of(request)
    access: Access = request.scope[ACCESS]

    def may_name(reader: str) -> bool:
        return access.may_see(reader) and gateway.modules.may_name(reader)

    def read() -> Any:
        served = gateway.modules.module(module)
        told = served.depot_facts(depot)
        return seen_by(may_name, served.answers.get(("facts", told), told.read))

    return await answered(request, read)


@routes.get("/modules/{module}/depots/{depot}/partitions/{partition}", responses=schemas.answers(schemas.ANYTHING))
async def partition_info(request: Request, module: str, depot: str, partition: int) -> Response:
    """The offsets that a partition has now: [start_offset, end_offset)."""
    gateway = gateway_of(request)

    def read() -> Any:
        return gateway.modules.module(module).depot(depot).get_partition_info(partition)._asdict()

    return await answered(request, read)


_AFTER: list[dict[str, Any]] = [{"name": "after", "in": "query", "required": True, "schema": schemas.OFFSET}]


@routes.get(
    "/modules/{module}/depots/{depot}/offsets",
    responses=schemas.answers({"type": "array", "items": schemas.OFFSET}),
    openapi_extra={"parameters": _AFTER},
)
async def offsets(request: Request, module: str, depot: str) -> Response:
    """Of each partition the offset of the first record that was appended after a time, in ms since 1970."""
    gateway = gateway_of(request)
    check_query(request, "after")
    after = number_of(request, "after")
    if after is None:
        raise malformed("Say after which time: ?after=MILLISECONDS since 1970.")

    def read() -> Any:
        return list(gateway.modules.module(module).depot(depot).offsets_after(after))

    return await answered(request, read)


_RANGE: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": True, "schema": schemas.OFFSET} for name in ("start", "end")
]


@routes.get(
    "/modules/{module}/depots/{depot}/partitions/{partition}/records",
    responses=schemas.answers({"type": "array", "items": schemas.ANYTHING}),
    openapi_extra={"parameters": _RANGE},
)
async def records(request: Request, module: str, depot: str, partition: int) -> Response:
    """The records [start, end) of a partition; at most 100,000 in one answer."""
    gateway = gateway_of(request)
    check_query(request, "start", "end")
    start, end = number_of(request, "start"), number_of(request, "end")
    if start is None or end is None:
        raise malformed("Say which records: ?start=…&end=….")
    if end - start > RECORDS_MAX:
        raise unfitting(f"One answer holds at most {RECORDS_MAX:,} records; read them in parts.")

    kind = answer_type(request.headers.get("accept"))

    def read() -> bytes:
        handle = gateway.modules.module(module).depot(depot)
        return _encoded_range(lambda at, to: handle.read(partition, at, to), start, end, kind)

    return await sent(request, read, kind)


def _encoded_range(read: Callable[[int, int], list[Any]], start: int, end: int, kind: str) -> bytes:
    """The records [start, end) as a body."""
    at = start

    def following(count: int) -> list[Any]:
        nonlocal at
        to = min(end, at + count) if end > at else end
        found = read(at, to)
        at = to
        return found

    return encoded_in_parts(following, end - start, kind)
