"""Modules and their topologies over HTTP: what there is, how it stands, options, pause and resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.clients.status_reader import topology_status
from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredPState
from tidemill.definition.stored import StoredQuery
from tidemill.gateway import schemas
from tidemill.gateway.access import Access
from tidemill.gateway.exchange import Gateway, answered, body_of, gateway_of, ticket_of
from tidemill.gateway.faults import malformed, mirror_text_of, told_failure, unfitting
from tidemill.gateway.formats import ANSWERS, converted, decoded, media_type
from tidemill.gateway.guard import ACCESS, FACTS
from tidemill.journal.options_log import OptionsEntry, OptionsLog, set_by
from tidemill.language import options
from tidemill.language import schema as pstate_schemas
from tidemill.language.options import OptionTarget

UNSET_MAX = 100
CHANGES_MAX = 100
"""Changes of options that are looked at; of a setting that is older nobody is told who made it."""

_KINDS: Final = {StoredDepot: "depot", StoredPState: "pstate", StoredQuery: "query"}
_SCOPES = ("topology", "depot", "pstate")
routes = APIRouter(tags=["modules"])


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an edit of options; the object that is named is where they are set, the module without any."""

    topology: str | None = None
    depot: str | None = None
    pstate: str | None = None
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    unset: list[str] = msgspec.field(default_factory=list)


@routes.get("/modules", responses=schemas.answers({"type": "array", "items": {"type": "string"}}))
async def modules(request: Request) -> Response:
    """The names of the modules that this gateway serves."""
    gateway = gateway_of(request)
    access: Access = request.scope[ACCESS]

    def read() -> list[str]:
        return [name for name in gateway.modules.names() if access.may_see(name)]

    return await answered(request, read)


@routes.get("/modules/{module}", responses=schemas.answers(schemas.ANYTHING))
async def module_summary(request: Request, module: str) -> Response:
    """The module's definition as it is stored: depots, PStates, topologies, queries."""
    gateway, access = gateway_of(request), request.scope[ACCESS]

    def may_name(other: str) -> bool:
        return access.may_see(other) and gateway.modules.may_name(other)

    return await answered(request, lambda: summary(definition_of(gateway, module), may_name))


def summary(definition: StoredDefinition, may_name: Callable[[str], bool]) -> dict[str, Any]:
    """A stored definition for programs that want to use it; other modules are named where `may_name` allows."""
    return {
        "module": definition.module,
        "number": definition.number,
        "tasks": definition.tasks,
        "threads": definition.threads,
        "depots": [
            {
                "name": depot.name,
                "partitioner": depot.partitioner,
                "global": depot.is_global,
                "tick_millis": depot.tick_millis,
                "partitions": definition.partitions(depot.name),
                "schema": None if depot.schema is None else pstate_schemas.to_json(depot.schema),
            }
            for depot in definition.depots.values()
        ],
        "topologies": [_topology(topology) for topology in definition.topologies.values()],
        "queries": [dict(vars(query)) for query in definition.queries.values()],
        "mirrors": [
            {
                "name": mirror.name,
                "kind": _KINDS[type(mirror.item)],
                "module": mirror.module if not mirror.store and may_name(mirror.module) else None,
                "object": mirror.item.name,
            }
            for mirror in definition.mirrors.values()
        ],
    }


def _topology(topology: Any) -> dict[str, Any]:
    return {
        "name": topology.name,
        "sources": [{"source_id": source.source_id, "depot": source.depot} for source in topology.sources],
        "pstates": [
            {
                "name": pstate.name,
                "schema": pstate_schemas.to_json(pstate.schema),
                "global": pstate.is_global,
                "private": pstate.is_private,
            }
            for pstate in topology.pstates.values()
        ],
    }


@routes.get("/modules/{module}/topologies/{topology}", responses=schemas.answers(schemas.STATUS))
async def status(request: Request, module: str, topology: str) -> Response:
    """How a topology stands, as `tidemill status --json` shows it."""
    gateway = gateway_of(request)

    def read() -> Any:
        definition = definition_of(gateway, module)
        definition.topology(topology)
        store, clock = gateway.modules.store, gateway.modules.clock
        return told_failure(topology_status(store, definition, topology, clock, mirror_text_of).to_json())

    return await answered(request, read)


@routes.post("/modules/{module}/topologies/{topology}/pause", responses=schemas.answers(schemas.ANYTHING))
async def pause(request: Request, module: str, topology: str) -> Response:
    """Pause a topology; `is_pause_seen` of its status says when the microbatch under way is done."""
    return await _paused(request, module, topology, is_paused=True)


@routes.post("/modules/{module}/topologies/{topology}/resume", responses=schemas.answers(schemas.ANYTHING))
async def resume(request: Request, module: str, topology: str) -> Response:
    """Let a paused topology go on."""
    return await _paused(request, module, topology, is_paused=False)


async def _paused(request: Request, module: str, topology: str, is_paused: bool) -> Response:
    gateway = gateway_of(request)

    def change() -> Any:
        definition_of(gateway, module).topology(topology)
        log = _signed_log(request, module)
        if is_paused:
            log.pause(topology)
        else:
            log.resume(topology)
        gateway.modules.changed(module)
        return {"topology": topology, "is_paused": is_paused}

    return await answered(request, change)


@routes.get("/modules/{module}/options", responses=schemas.answers(schemas.ANYTHING))
async def options_of(request: Request, module: str) -> Response:
    """What is set, and what is decided by a resource; who set it, and when; the newest changes, the last one first."""
    gateway = gateway_of(request)

    def read() -> Any:
        definition_of(gateway, module)
        log = OptionsLog(gateway.modules.store, module)
        entries = log.newest(CHANGES_MAX)
        return {
            **_shown(log),
            "set_by": [_signed(place, entry) for place, entry in set_by(entries).items()],
            "changes": [{"number": entry.number, **vars(entry.change)} for entry in reversed(entries)],
        }

    return await answered(request, read)


@routes.patch(
    "/modules/{module}/options",
    responses=schemas.answers(schemas.ANYTHING),
    openapi_extra=schemas.body(schemas.SETTINGS),
)
async def edit_options(request: Request, module: str) -> Response:
    """Set and unset options of the module or of one of its objects; they hold from the next microbatch on."""
    gateway = gateway_of(request)
    kind = media_type(request.headers.get("content-type"), ANSWERS)
    body = await body_of(request, gateway.settings.body_bytes_max)

    def change() -> Any:
        edit = converted(decoded(body, kind, ticket_of(request).grow), Settings)
        if len(edit.unset) > UNSET_MAX:
            raise malformed(f"One edit unsets at most {UNSET_MAX} options.")
        scope, target = _place(definition_of(gateway, module), edit)
        for name, value in edit.set.items():  # all are checked before the first is set
            options.check_scope(name, scope, target)
            options.check_value(name, value)
        for name in edit.unset:
            options.check_scope(name, scope, target)
        request.scope[FACTS] = {"set": edit.set, "unset": edit.unset}
        log = _signed_log(request, module)
        for name, value in edit.set.items():
            log.set(scope, target, name, value)
        for name in edit.unset:
            log.unset(scope, target, name)
        gateway.modules.changed(module)
        return _shown(log)

    return await answered(request, change)


def _signed_log(request: Request, module: str) -> OptionsLog:
    """The options of a module, to be changed by who asks."""
    access: Access = request.scope[ACCESS]
    modules = gateway_of(request).modules
    return OptionsLog(modules.store, module, by=access.signature, clock=modules.clock)


def _signed(place: OptionTarget, entry: OptionsEntry) -> dict[str, Any]:
    scope, target, name = place
    found = {"scope": scope, "object": target, "name": name, "number": entry.number}
    return {**found, "by": entry.change.by, "at_ms": entry.change.at_ms}


def _shown(log: OptionsLog) -> dict[str, Any]:
    now = log.read()
    return {
        "set": [
            {"scope": scope, "object": target, "name": name, "value": value}
            for scope, target, name, value in options.settings(now.values)
        ],
        "paused": sorted(now.paused),
        "managed": [
            {"scope": scope, "object": target, "name": name, "by": owner}
            for (scope, target, name), owner in now.managed.items()
        ],
    }


def _place(definition: StoredDefinition, edit: Settings) -> tuple[str, str]:
    given = [(scope, name) for scope in _SCOPES if (name := getattr(edit, scope)) is not None]
    if not all(name for _, name in given):
        raise malformed("The name of an object is not empty.")
    if len(given) > 1:
        raise unfitting("Name one object at most: topology, depot or pstate.")
    if not given:
        return "module", ""
    scope, name = given[0]
    if scope == "topology":
        return scope, definition.optioned(name)
    if scope == "depot":
        return scope, definition.optioned_depot("*" + name.removeprefix("*"), edit.set)
    return scope, definition.pstate("$$" + name.removeprefix("$$"))[1].name


def definition_of(gateway: Gateway, module: str) -> StoredDefinition:
    return gateway.modules.module(module).client.definition()
