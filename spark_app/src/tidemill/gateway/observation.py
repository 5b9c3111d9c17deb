"""Routes for those who watch: all modules at once, one topology as it goes on, its log, and what options there are."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.clients.history import lines_of
from tidemill.clients.module_history import KINDS, HistoryPlace
from tidemill.gateway import schemas
from tidemill.gateway.access import Access
from tidemill.gateway.exchange import answer, answered, check_query, gateway_of, number_of, sent
from tidemill.gateway.faults import told_failure, unfitting
from tidemill.gateway.guard import ACCESS
from tidemill.gateway.live import FollowingStream, LiveStream, module_changes, topology_changes
from tidemill.gateway.module_looks import module_news
from tidemill.gateway.topologies import definition_of
from tidemill.journal.commit_log import CommitLog
from tidemill.language.options import ENGINES, OPTIONS
from tidemill.leader.kept_plans import kept_picture
from tidemill.plan.compile.topology import compile_alone
from tidemill.plan.picture import picture
from tidemill.values.errors import NeedsCode

LINES_MAX: Final = 500
"""Lines of a log in one answer."""

routes = APIRouter(tags=["watching"])


@routes.get("/overview", responses=schemas.answers({"type": "array", "items": schemas.ANYTHING}))
async def overview(request: Request) -> Response:
    """Every module that the token may see, with how its topologies stand; who ask within a second share a look."""
    access: Access = request.scope[ACCESS]
    found = await gateway_of(request).overview.get()
    return answer(request, [module for name, module in found.items() if access.may_see(name)])


@routes.get("/overview/subscribe", responses=schemas.event_answers(), response_class=Response)
async def overview_events(request: Request) -> Response:
    """The same as server-sent events: `modules` with those that changed by name, null for one that is gone."""
    gateway, access = gateway_of(request), request.scope[ACCESS]
    return LiveStream(gateway.subscriptions, gateway.overview, module_changes(access.may_see))


@routes.get("/options", responses=schemas.answers({"type": "array", "items": schemas.ANYTHING}))
async def registry(request: Request) -> Response:
    """All dynamic options: type, unit, default, bounds, help, and where each may be set."""
    return answer(request, [_described(option) for option in OPTIONS.values()])


def _described(option: Any) -> dict[str, Any]:
    shown = {name: value for name, value in vars(option).items() if name != "meaning"}
    return {**shown, "bounds": option.bounds, "meaning": {engine: option.meaning_on(engine) for engine in ENGINES}}


_LOG_QUERY: Final[list[dict[str, Any]]] = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1, "maximum": bound}}
    for name, bound in (("limit", LINES_MAX), ("before", 2**53 - 1))
]


@routes.get(
    "/modules/{module}/topologies/{topology}/log",
    responses=schemas.answers({"type": "array", "items": schemas.ANYTHING}),
    openapi_extra={"parameters": _LOG_QUERY},
)
async def log(request: Request, module: str, topology: str) -> Response:
    """The newest lines of a topology's log, or those before entry `before`, oldest first, as `tidemill log --json`."""
    check_query(request, "limit", "before")
    gateway = gateway_of(request)
    limit, before = number_of(request, "limit"), number_of(request, "before")
    limit = 100 if limit is None else limit
    if not 1 <= limit <= LINES_MAX or before == 0:
        raise unfitting(f"limit is a number from 1 to {LINES_MAX}, and before the number of an entry.")

    def read() -> Any:
        definition = definition_of(gateway, module)
        definition.topology(topology)
        entries = CommitLog(gateway.modules.store, definition.topology_prefix(topology))
        # All of a log is before an entry beyond its end, as of one that was begun anew since.
        is_beyond = before is not None and before > entries.newest_number()
        return [told_failure(line) for line in lines_of(entries, limit, None if is_beyond else before)]

    return await answered(request, read)


@routes.get(
    "/modules/{module}/log",
    responses=schemas.answers(schemas.HISTORY),
    openapi_extra={"parameters": schemas.HISTORY_QUERY},
)
async def module_log(request: Request, module: str) -> Response:
    """What happened to a module, newest first: entries of its topologies, decisions on their quarantines, definitions
    and changes of options. `before`, sent back, gives the lines behind these, and is null at the end; `kind` and
    `topology` leave out all others.
    """
    check_query(request, "before", "limit", "kind", "topology")
    gateway, asked = gateway_of(request), request.query_params
    limit, kind, topology = number_of(request, "limit"), asked.get("kind"), asked.get("topology")
    limit = 50 if limit is None else limit
    if not 1 <= limit <= schemas.HISTORY_LINES_MAX or kind not in (None, *KINDS):
        raise unfitting(f"limit is a number from 1 to {schemas.HISTORY_LINES_MAX}, and kind one of {', '.join(KINDS)}.")
    place = _place(asked.get("before"))

    def read() -> Any:
        served = gateway.modules.module(module)
        asked = "log", limit, msgspec.json.encode(place), kind, topology
        lines, behind = served.answers.get(
            asked, lambda: served.history.read(served.client.definition(), limit, place, kind, topology)
        )
        lines = [told_failure(line) for line in lines]
        return {"lines": lines, "before": None if behind is None else msgspec.json.encode(behind).decode()}

    return await answered(request, read)


def _place(text: str | None) -> HistoryPlace:
    """A place in the history that was sent back."""
    try:
        place = HistoryPlace() if text is None else msgspec.json.decode(text, type=HistoryPlace)
    except (msgspec.MsgspecError, ValueError) as error:
        raise unfitting("before is what an answer had as `before`.") from error
    numbers = [*place.topologies.values(), *place.decisions.values(), place.definitions or 1, place.options or 1]
    if not all(1 <= number < 2**53 for number in numbers):
        raise unfitting("before is what an answer had as `before`: its numbers are those of entries.")
    return place


@routes.get(
    "/modules/{module}/topologies/{topology}/plan", responses=schemas.picture_answers(), response_class=Response
)
async def plan(request: Request, module: str, topology: str) -> Response:
    """The topology's plan as SVG: the one with which its newest leader began, else that of the module's code here."""
    gateway = gateway_of(request)

    def draw() -> bytes:
        client = gateway.modules.module(module).client
        definition = client.definition()
        definition.topology(topology)
        kept = kept_picture(gateway.modules.store, definition.topology_prefix(topology))
        if kept is not None:
            return kept.encode()
        if client.code is None:
            text = f"No leader has kept the plan of {topology} yet, and the code of {module} is not here"
            raise NeedsCode(f"{text}: start the module, or the gateway with --entry MODULE:CLASS.", name=module)
        programs = compile_alone(client.code)
        if topology not in programs:
            raise NeedsCode(f"The code of {module} here has no topology {topology}: load the version that runs.")
        return picture(programs[topology]).encode()

    return await sent(request, draw, schemas.SVG)


@routes.get(
    "/modules/{module}/topologies/{topology}/subscribe", responses=schemas.event_answers(), response_class=Response
)
async def topology_events(request: Request, module: str, topology: str) -> Response:
    """How a topology stands, and the lines of its log as they come: server-sent events `status` and `log`."""
    gateway = gateway_of(request)

    def check() -> None:
        definition_of(gateway, module).topology(topology)

    await gateway.work.read(check)
    return FollowingStream(gateway.subscriptions, gateway.topologies, (module, topology), topology_changes())


@routes.get("/modules/{module}/subscribe", responses=schemas.event_answers(), response_class=Response)
async def module_events(request: Request, module: str) -> Response:
    """That something of a module changed, as server-sent events `module`: the numbers of its definition and options,
    the topologies that changed, and how far the depots reach that none of them reads.
    """
    gateway = gateway_of(request)
    await gateway.work.read(lambda: definition_of(gateway, module))
    return FollowingStream(gateway.subscriptions, gateway.module_looks, (module,), module_news())
