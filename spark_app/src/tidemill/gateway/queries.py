"""Query topologies over HTTP; their steps run in this process, which needs the module's code for them."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from tidemill.gateway import schemas
from tidemill.gateway.exchange import Gateway, answered, body_of, gateway_of, ticket_of
from tidemill.gateway.faults import HttpRefusal, unfitting
from tidemill.gateway.formats import ANSWERS, converted, decoded, media_type
from tidemill.paths.json import value_from_json
from tidemill.values.data import check_data
from tidemill.values.errors import RecordRefused, UserCodeError

routes = APIRouter(tags=["queries"])


@routes.post(
    "/modules/{module}/queries/{query}/invoke",
    responses=schemas.answers(schemas.ANYTHING, "The result of the query."),
    openapi_extra=schemas.body({"type": "array", "items": schemas.ANYTHING}),
)
async def invoke(request: Request, module: str, query: str) -> Response:
    """Call a query with a list of arguments; it reads one committed state of each topology."""
    gateway, began = gateway_of(request), time.monotonic()
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)

    def read() -> Any:
        items = converted(decoded(body, kind, ticket_of(request).grow), list[Any])
        args = [value_from_json(item, f"argument {number}") for number, item in enumerate(items, 1)]
        gateway.querying.take(1, 0)
        try:
            return _result(gateway, module, query, args, began + gateway.settings.seconds_max)
        finally:
            gateway.querying.give_back(1, 0)

    response = await answered(request, read)
    gateway.metrics.queries.labels(module, query).inc()
    gateway.metrics.query_seconds.labels(module, query).observe(time.monotonic() - began)
    return response


def _result(gateway: Gateway, module: str, query: str, args: list[Any], deadline: float) -> Any:
    handle = gateway.modules.module(module).query(query)
    try:
        found = handle.invoke_within(deadline - time.monotonic(), args)
        check_data(found)
    except UserCodeError as error:
        raise HttpRefusal(422, error.code, str(error)) from error
    except RecordRefused as error:
        raise unfitting(f"The query '{query}' gave what cannot be sent: {str(error).rstrip('.')}.") from error
    return found


@routes.get("/modules/{module}/queries/{query}", responses=schemas.answers(schemas.ANYTHING))
async def query_info(request: Request, module: str, query: str) -> Response:
    """Whose the query is, its name, its inputs and its result."""
    gateway = gateway_of(request)

    def read() -> Any:
        definition = gateway.modules.module(module).client.definition()
        return {
            "module_name": definition.module,
            **vars(definition.query(query)),
            "num_partitions": definition.tasks,
        }

    return await answered(request, read)
