"""PStates over HTTP: selects."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from tidemill.clients.pages import PAGE_KEYS
from tidemill.clients.pstate import PStateHandle
from tidemill.gateway import schemas
from tidemill.gateway.exchange import answered, body_of, check_query, gateway_of, ticket_of
from tidemill.gateway.faults import malformed
from tidemill.gateway.formats import ANSWERS, converted, decoded, media_type, whole
from tidemill.gateway.subscriptions import VALUE_BYTES_MAX, Subscription
from tidemill.language.dataflow import RecordedPath
from tidemill.paths.budget import Budget
from tidemill.paths.json import path_from_json, value_from_json
from tidemill.values.absent import ABSENT

STALENESS_MS_MAX = 86_400_000.0
S = TypeVar("S")
PATHS_MAX = 1_000
"""How many paths one request may have."""

routes = APIRouter(tags=["pstates"])


class SelectBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of a select; a path alone, as a list, is one too."""

    path: list[Any] = msgspec.field(default_factory=list)
    pkey: Any = msgspec.UNSET
    max_staleness_ms: float = 0
    at: int | float | None = None


class SelectMany(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of several selects."""

    paths: list[list[Any]]
    max_staleness_ms: float = 0
    at: int | float | None = None


class PageAsked(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of a request for a page."""

    path: list[Any] | None = None
    limit: int | float = PAGE_KEYS
    after: str | None = None
    at: int | float | None = None


class DiffAsked(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of a request for changes."""

    before: int | float
    after: int | float
    path: list[Any] | None = None
    limit: int | float = PAGE_KEYS
    cursor: str | None = None


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


@routes.post(
    "/modules/{module}/pstates/{pstate}/selectMany",
    responses=schemas.answers({"type": "array", "items": {"type": "array", "items": schemas.ANYTHING}}),
    openapi_extra=schemas.body(schemas.SELECT_MANY),
)
async def select_many(request: Request, module: str, pstate: str) -> Response:
    """What each of several paths navigates to, such as the values of several keys, all as of one entry."""
    form = _Form(request, module, pstate)
    body = await body_of(request, form.gateway.settings.body_bytes_max)

    def read() -> Any:
        asked = form.asked(body, SelectMany)
        if len(asked.paths) > PATHS_MAX:
            raise malformed(f"One request has at most {PATHS_MAX:,} paths.")
        paths = [path_from_json(path) for path in asked.paths]
        if any(path.pkey is not ABSENT for path in paths):
            raise malformed("Paths of selectMany begin with a key; pkey is for select.")
        handle = form.handle(asked.at)
        staleness = _staleness(asked.max_staleness_ms)
        return handle.select_many(
            [path.path for path in paths], max_staleness_ms=staleness, budget=form.budget(first=0)
        )

    return await form.answered(read)


@routes.post(
    "/modules/{module}/pstates/{pstate}/page",
    responses=schemas.answers(schemas.PAGE, "The next keys of all partitions."),
    openapi_extra=schemas.body(schemas.PAGE_ASKED),
)
async def page(request: Request, module: str, pstate: str) -> Response:
    """The next keys of all partitions with their values; `after` of the answer asks for the page behind it."""
    form = _Form(request, module, pstate)
    body = await body_of(request, form.gateway.settings.body_bytes_max)

    def read() -> Any:
        asked = form.asked(body, PageAsked)
        found = form.handle(asked.at).page(
            whole(asked.limit, "limit"),
            path=_below(asked.path, "page"),
            after=asked.after,
            budget=form.budget(first=0),
        )
        return found._asdict()

    return await form.answered(read)


@routes.post(
    "/modules/{module}/pstates/{pstate}/diff",
    responses=schemas.answers(schemas.DIFF, "The next changes from one microbatch to another one."),
    openapi_extra=schemas.body(schemas.DIFF_ASKED),
)
async def diff(request: Request, module: str, pstate: str) -> Response:
    """Each key whose value changed between two microbatches; `after` of the answer asks for the page behind it."""
    form = _Form(request, module, pstate)
    body = await body_of(request, form.gateway.settings.body_bytes_max)

    def read() -> Any:
        asked = form.asked(body, DiffAsked)
        found = form.handle(None).diff_page(
            whole(asked.before, "before"),
            whole(asked.after, "after"),
            whole(asked.limit, "limit"),
            path=_below(asked.path, "diff"),
            cursor=asked.cursor,
            budget=form.budget(first=0),
        )
        return found._asdict()

    return await form.answered(read)


def _below(path: list[Any] | None, verb: str) -> RecordedPath | None:
    """A path that begins below the keys. Raises BadInput: it has a pkey."""
    if path is None:
        return None
    found = path_from_json(path)
    if found.pkey is not ABSENT:
        raise malformed(f"The path of a {verb} begins below its keys; it has no pkey.")
    return found.path


class _Form:
    """One request for values of a PState."""

    def __init__(self, request: Request, module: str, pstate: str) -> None:
        self.gateway, self._request = gateway_of(request), request
        self._module, self._pstate, self._began = module, pstate, time.monotonic()
        self.kind = media_type(request.headers.get("content-type"), ANSWERS)

    def asked(self, body: bytes, form: type[S]) -> S:
        """The body in its documented form; what it becomes in memory counts as the request's."""
        return converted(decoded(body, self.kind, ticket_of(self._request).grow), form)

    def asked_select(self, body: bytes) -> SelectBody:
        """The body of a select: its fields, or the path alone."""
        given = decoded(body, self.kind, ticket_of(self._request).grow)
        return converted({"path": given} if isinstance(given, list) else given, SelectBody)

    def handle(self, at: int | float | None) -> PStateHandle:
        handle = self.gateway.modules.module(self._module).pstate(self._pstate)
        return handle if at is None else handle.at(whole(at, "at"))

    def budget(self, first: int) -> Budget:
        deadline = self._began + self.gateway.settings.seconds_max
        return Budget(lambda: time.monotonic() > deadline, first=first)

    async def answered(self, read: Callable[[], Any]) -> Response:
        response = await answered(self._request, read)
        labels = (self._module, "$$" + self._pstate.removeprefix("$$"))
        self.gateway.metrics.selects.labels(*labels).inc()
        self.gateway.metrics.select_seconds.labels(*labels).observe(time.monotonic() - self._began)
        return response


async def _selected(request: Request, module: str, pstate: str, is_one: bool) -> Response:
    form = _Form(request, module, pstate)
    body = await body_of(request, form.gateway.settings.body_bytes_max)

    def read() -> Any:
        asked = form.asked_select(body)
        handle = form.handle(asked.at)
        found = path_from_json(asked.path)
        if found.pkey is not ABSENT and asked.pkey is not msgspec.UNSET:
            raise malformed("Say pkey once: beside the path, or as its first navigator.")
        pkey = found.pkey if asked.pkey is msgspec.UNSET else value_from_json(asked.pkey, "pkey")
        given: dict[str, Any] = {} if pkey is ABSENT else {"pkey": pkey}
        chosen = handle.select_one if is_one else handle.select
        staleness = _staleness(asked.max_staleness_ms)
        return chosen(found.path, max_staleness_ms=staleness, budget=form.budget(found.first), **given)

    return await form.answered(read)


def _staleness(milliseconds: float) -> float:
    if not 0 <= milliseconds <= STALENESS_MS_MAX:
        raise malformed(f"maxStalenessMs is a number from 0 to {STALENESS_MS_MAX:,.0f}.")
    return milliseconds


@routes.get(
    "/modules/{module}/pstates/{pstate}/subscribe",
    responses=schemas.event_answers(),
    openapi_extra=schemas.SUBSCRIBE_QUERY,
    response_class=Response,
)
async def subscribe(request: Request, module: str, pstate: str) -> Response:
    """The one value that the path navigates to, and what changes in it at each commit, as server-sent events."""
    check_query(request, "path", "pkey")
    gateway = gateway_of(request)
    path = path_from_json(_query_json(request, "path", []))
    pkey = _query_json(request, "pkey", msgspec.UNSET)
    chosen = path.pkey if pkey is msgspec.UNSET else value_from_json(pkey, "pkey")
    given: dict[str, Any] = {} if chosen is ABSENT else {"pkey": chosen}
    subscription = Subscription(gateway.subscriptions)

    def budget() -> Budget:
        deadline = time.monotonic() + gateway.settings.seconds_max
        return Budget(lambda: time.monotonic() > deadline, bytes=VALUE_BYTES_MAX, first=path.first)

    def begin() -> None:
        handle = gateway.modules.module(module).pstate(pstate)
        subscription.hold(handle.proxy(path.path, subscription.told, budget=budget, **given))

    try:
        await gateway.work.read(begin, ticket_of(request))
    except BaseException:
        subscription.close()
        raise
    return subscription


def _query_json(request: Request, name: str, otherwise: Any) -> Any:
    """A query parameter that is JSON. Raises HttpRefusal: 400, it is none."""
    text = request.query_params.get(name)
    try:
        return otherwise if text is None else msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise malformed(f"{name} is no JSON: {str(error).splitlines()[0]}.") from error


@routes.get("/modules/{module}/pstates/{pstate}/tasks", responses=schemas.answers(schemas.ANYTHING))
async def tasks(request: Request, module: str, pstate: str) -> Response:
    """Stored rows of each task, and its heaviest keys; tasks for which half of the request's time is not enough, or
    that would need too many bytes, are `left_out`.
    """
    check_query(request)
    gateway = gateway_of(request)
    deadline = time.monotonic() + gateway.settings.seconds_max / 2

    def read() -> Any:
        served = gateway.modules.module(module)
        handle = served.pstate(pstate)
        found = served.answers.get(("tasks", handle), lambda: handle.task_sizes(lambda: time.monotonic() > deadline))
        return {**vars(found), "tasks": [vars(one) for one in found.tasks]}

    return await answered(request, read)


@routes.get("/modules/{module}/pstates/{pstate}", responses=schemas.answers(schemas.ANYTHING))
async def pstate_info(request: Request, module: str, pstate: str, microbatch: int | None = None) -> Response:
    """Whose the PState is, its name, its partitions, and for `at` the entry that a select would read now, or the one
    that committed `microbatch`.
    """
    check_query(request, "microbatch")
    gateway = gateway_of(request)

    def read() -> Any:
        handle = gateway.modules.module(module).pstate(pstate)
        entry = handle.current_entry() if microbatch is None else handle.at(microbatch=microbatch).entry
        return {**handle.get_object_info()._asdict(), "entry": entry}

    return await answered(request, read)
