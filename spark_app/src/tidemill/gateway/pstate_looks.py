"""PStates over HTTP, for those who look at one: the levels that it lies in, and what may follow a path in it."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.api.path import Path
from tidemill.gateway import schemas
from tidemill.gateway.exchange import answered, check_query, gateway_of
from tidemill.gateway.faults import unfitting
from tidemill.language import schema as pstate_schemas
from tidemill.paths.json import path_from_json

routes = APIRouter(tags=["pstates"])


@routes.get("/modules/{module}/pstates/{pstate}/levels", responses=schemas.answers(schemas.ANYTHING))
async def levels(request: Request, module: str, pstate: str) -> Response:
    """The levels that hold rows of the PState, oldest first, and the last compaction of its topology."""
    check_query(request)
    gateway = gateway_of(request)

    def read() -> Any:
        served = gateway.modules.module(module)
        handle = served.pstate(pstate)
        return asdict(served.answers.get(("levels", handle), handle.levels))

    return await answered(request, read)


@routes.get(
    "/modules/{module}/pstates/{pstate}/navigators",
    responses=schemas.answers(schemas.ANYTHING),
    openapi_extra=schemas.NAVIGATORS_QUERY,
)
async def navigators(request: Request, module: str, pstate: str) -> Response:
    """The navigators that may follow `path`, a JSON list, by the schema where it leads; each as an example."""
    check_query(request, "path")
    gateway = gateway_of(request)
    text = request.query_params.get("path", "[]")
    if len(text) > schemas.PATH_CHARS_MAX:
        raise unfitting(f"path has at most {schemas.PATH_CHARS_MAX} characters.")
    try:
        data = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise unfitting(f"path is no JSON: {str(error).splitlines()[0]}.") from error

    path = path_from_json(data).path

    def read() -> Any:
        found = gateway.modules.module(module).pstate(pstate).following(path)
        return {
            "schema": None if found.schema is None else pstate_schemas.to_json(found.schema),
            "navigators": [
                {"name": one.name, "example": one.example, "about": _about(one.name)} for one in found.offers
            ],
        }

    return await answered(request, read)


def _about(name: str) -> str:
    """What a select finds there: the first sentence of the reference, without what transforms do."""
    text = re.sub(r"\s+", " ", getattr(Path, name).__doc__ or "")
    return re.split(r"; |\. |\.$", text.strip())[0]
