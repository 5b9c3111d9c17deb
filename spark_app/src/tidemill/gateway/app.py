"""The application: routes, health, metrics and errors put together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import topology_status
from tidemill.gateway import (
    depots,
    faults,
    graphs,
    observation,
    page,
    producers,
    pstate_looks,
    pstates,
    quarantines,
    queries,
    schemas,
    topologies,
    waits,
)
from tidemill.gateway.admission import Admission
from tidemill.gateway.exchange import Gateway, gateway_of
from tidemill.gateway.faults import HttpRefusal, malformed
from tidemill.gateway.graph_looks import GraphList, GraphLook
from tidemill.gateway.guard import DOCS_FILES, OPEN_PATHS, Guard
from tidemill.gateway.live import FollowedLooks, TopologyLook
from tidemill.gateway.looks import SharedLook
from tidemill.gateway.metrics import CONTENT_TYPE, GatewayMetrics
from tidemill.gateway.module_looks import ModuleLook
from tidemill.gateway.modules import Modules
from tidemill.gateway.overview import Overview
from tidemill.gateway.readiness import readiness_of
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.subscriptions import Subscriptions
from tidemill.gateway.work import Work
from tidemill.journal.definition_log import DefinitionLog
from tidemill.values.errors import TidemillError

PREFIX = "/api/v1"
_ROUTES_BUILT = threading.Lock()
_LISTED = frozenset({"depots", "pstates", "topologies", "queries"})
_STATUS_CODES = {404: "NotFound", 405: "MethodNotAllowed"}

operations = APIRouter(tags=["operations"])

API = (
    depots.routes, producers.routes, pstates.routes, pstate_looks.routes, quarantines.routes, queries.routes,
    topologies.routes, observation.routes, waits.routes, graphs.routes,
)  # fmt: skip
"""What is below `PREFIX`."""


def make_app(modules: Modules, settings: GatewaySettings, *, is_local_only: bool = False) -> FastAPI:
    """A gateway on these modules; whoever serves it also runs its lifespan, which settles appends at the end.

    `is_local_only` refuses what other machines and web pages ask: for a port of loopback without a token.
    """
    work, waiting = Work(settings.threads, settings.seconds_max), Admission(settings.waiting_max, 0)
    querying = Admission(settings.queries_max, 0)
    statuses = SharedLook("metrics", lambda: _statuses(modules), settings.seconds_max)
    metrics = GatewayMetrics()
    subscriptions = Subscriptions(metrics.subscribers.set)
    seconds = settings.seconds_max
    overview, graph_list = Overview(modules), GraphList(modules)
    topology_looks = FollowedLooks("topologies", lambda module, name: TopologyLook(modules, module, name).look, seconds)
    module_looks = FollowedLooks("modules", lambda module: ModuleLook(modules, module).look, seconds)
    graph_looks = FollowedLooks("graphs", lambda graph: GraphLook(modules, graph).look, seconds)
    gateway = Gateway(
        settings, modules, work, waiting, querying, subscriptions, metrics, readiness_of(modules), statuses,
        SharedLook("overview", overview.look, seconds), topology_looks, module_looks,
        SharedLook("graphs", graph_list.look, seconds), graph_looks,
    )  # fmt: skip

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(modules.close)
        gateway.work.close()
        gateway.readiness.close()
        gateway.statuses.close()
        gateway.overview.close()
        overview.close()
        topology_looks.close()
        module_looks.close()
        gateway.graph_list.close()
        graph_list.close()
        graph_looks.close()

    app = FastAPIOffline(
        redoc_url=None,
        static_url=DOCS_FILES,
        title="Tidemill",
        version="v1",
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
        swagger_ui_parameters={"validatorUrl": None},  # else the page asks a host on the internet for a badge
    )
    app.state.gateway = gateway
    app.include_router(operations)
    app.include_router(page.routes)
    for router in API:
        app.include_router(router, prefix=PREFIX)
    app.add_exception_handler(TidemillError, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_middleware(Guard, settings=settings, metrics=gateway.metrics, is_local_only=is_local_only)
    app.openapi = lambda: _document(app, settings)  # type: ignore[method-assign]
    _build_routes(app)
    return app


def _build_routes(app: FastAPI) -> None:
    """FastAPI makes the routes of a router at the first request, and these routers are of all gateways of the process:
    two that made them at one moment answered 500.
    """
    with _ROUTES_BUILT:
        for route in app.routes:
            route.matches({"type": "http", "method": "GET", "path": f"{PREFIX}/", "headers": []})


# --- operations ------------------------------------------------------------------------------------------------------


@operations.get("/healthz", response_class=Response)
async def healthz() -> Response:
    """The process answers."""
    return Response(b"ok\n", media_type="text/plain")


@operations.get("/readyz", responses=schemas.probe_answers(), response_class=Response)
async def readyz(request: Request) -> Response:
    """The store answers, and the module is there if the gateway serves only one."""
    await gateway_of(request).readiness.get()
    return Response(b"ok\n", media_type="text/plain")


@operations.get("/metrics", responses=schemas.metrics_answers(), response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus metrics of this gateway and of the topologies that it serves."""
    gateway = gateway_of(request)
    try:
        shown = await gateway.statuses.get()
        gateway.metrics.topologies.show(shown, is_store_up=True)
    except TidemillError:
        gateway.metrics.topologies.show((), is_store_up=False)
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)


def _statuses(modules: Modules) -> list[TopologyStatus]:
    found = []
    for name in modules.served():
        definition = DefinitionLog(modules.store, name).newest()
        if definition is not None and not definition.is_destroyed:
            found += [
                topology_status(modules.store, definition, topology, modules.clock)
                for topology in definition.topologies
            ]
    return found


# --- errors ----------------------------------------------------------------------------------------------------------


async def _on_error(request: Request, error: Exception) -> Response:
    found = error if isinstance(error, TidemillError) else faults.unexpected()
    if faults.status_of(found) >= 500 and not isinstance(found, HttpRefusal):
        faults.log_failure(found)
    gateway_of(request).metrics.errors.labels(found.code).inc()
    body, headers = faults.body_of(found), faults.headers_of(found)
    return Response(body, faults.status_of(found), headers, "application/json")


async def _on_http(request: Request, error: Exception) -> Response:
    """What the router refuses: no such path, no such method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    code = _STATUS_CODES.get(status, "BadInput")
    hint = _instead(request.url.path) if status == 404 else ""
    text = f"{request.method} {request.url.path}: {getattr(error, 'detail', error)}. {hint}See /openapi.json."
    return await _on_error(request, HttpRefusal(status, code, text, headers))


def _instead(path: str) -> str:
    """Where to find what a list of this path would give, if it is one that people try; it names what was asked only."""
    asked = path.removeprefix(PREFIX).strip("/").split("/")
    if path.startswith(PREFIX) and len(asked) == 3 and asked[0] == "modules" and asked[2] in _LISTED:
        return f"GET {PREFIX}/modules/{asked[1]} lists the module's depots, topologies with PStates, and queries. "
    return ""


async def _on_invalid(request: Request, error: Exception) -> Response:
    found = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": str(error)}
    place = ".".join(str(part) for part in found["loc"])
    return await _on_error(request, malformed(f"{place}: {found['msg']}."))


# --- OpenAPI ---------------------------------------------------------------------------------------------------------


def _operation_id(route: APIRoute) -> str:
    """What a generated client calls it: `pstates_select_one`, not a word made of its whole path."""
    return f"{route.endpoint.__module__.rpartition('.')[2]}_{route.name}"


def _document(app: FastAPI, settings: GatewaySettings) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, summary="Streams and state", routes=app.routes)
        parts = found.setdefault("components", {})
        parts["schemas"] = dict(schemas.COMPONENTS)
        for path, operations_ in found["paths"].items():
            for operation in operations_.values():
                operation["responses"].pop("422", None) if path in OPEN_PATHS else None
        if settings.tokens is not None:
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations_ in found["paths"].items():
                for operation in operations_.values():
                    if path not in OPEN_PATHS:
                        operation["security"] = [{"token": []}]
        app.openapi_schema = found
    return app.openapi_schema
