"""Query topologies over HTTP; their steps run in this process, which needs the module's code for them."""

from __future__ import annotations

import time
from typing import Any, Final, get_args

from fastapi import APIRouter, Request, Response

from tidemill.gateway import schemas
from tidemill.gateway.exchange import answered, body_of, check_query, gateway_of, ticket_of
from tidemill.gateway.faults import HttpRefusal, unfitting
from tidemill.gateway.formats import ANSWERS, converted, decoded, media_type
from tidemill.language.dataflow import QueryEngine
from tidemill.paths.json import value_from_json
from tidemill.queries.handle import QueryHandle
from tidemill.values.data import check_data
from tidemill.values.errors import RecordRefused, UserCodeError

routes = APIRouter(tags=["queries"])
ENGINES: Final[tuple[QueryEngine, ...]] = get_args(QueryEngine)
_ENGINE: Final[list[dict[str, Any]]] = [
    {"name": "engine", "in": "query", "required": False, "schema": {"type": "string", "enum": [*ENGINES]}}
]


@routes.post(
    "/modules/{module}/queries/{query}/invoke",
    responses=schemas.answers(schemas.ANYTHING, "The result of the query."),
    openapi_extra={**schemas.body({"type": "array", "items": schemas.ANYTHING}), "parameters": _ENGINE},
)
async def invoke(request: Request, module: str, query: str) -> Response:
    """Call a query with a list of arguments; it reads one committed state of each topology. One that is to run on Spark
    is refused, unless `engine=local` is asked for.
    """
    check_query(request, "engine")
    engine = engine_of(request)
    gateway, began = gateway_of(request), time.monotonic()
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)

    def read() -> Any:
        items = converted(decoded(body, kind, ticket_of(request).grow), list[Any])
        args = [value_from_json(item, f"argument {number}") for number, item in enumerate(items, 1)]
        gateway.querying.take(1, 0)
        try:
            handle = gateway.modules.module(module).query(query, engine)
            return _result(handle, args, began + gateway.settings.seconds_max)
        finally:
            gateway.querying.give_back(1, 0)

    response = await answered(request, read)
    gateway.metrics.queries.labels(module, query).inc()
    gateway.metrics.query_seconds.labels(module, query).observe(time.monotonic() - began)
    return response


def engine_of(request: Request) -> QueryEngine | None:
    """The query parameter `engine`; None where it is not given. Raises HttpRefusal: there is no such engine."""
    given = request.query_params.get("engine")
    for engine in ENGINES:
        if given == engine:
            return engine
    if given is not None:
        raise unfitting(f"There is no engine {given!r}; use {' or '.join(ENGINES)}.")
    return None


def _result(handle: QueryHandle, args: list[Any], deadline: float) -> Any:
    try:
        found = handle.invoke_within(deadline - time.monotonic(), args)
        check_data(found)
    except UserCodeError as error:
        raise HttpRefusal(422, error.code, str(error)) from error
    except RecordRefused as error:
        raise unfitting(f"The query '{handle.name}' gave what cannot be sent: {str(error).rstrip('.')}.") from error
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
