"""What tokens may do: roles, modules, rates; and the line of audit that each change leaves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from tidemill import Agg, BadInput, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, PState
from tidemill.gateway import shared_answers
from tidemill.gateway.access import APPEND, OPERATE, READ, ROLES, Access, RateLimits, Rates, name_of, role_of
from tidemill.gateway.app import API, PREFIX, make_app
from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens

LINES = "all\nreader read\nwriter append\noperator operate\nboth read,append Guarded\nother read,operate Elsewhere\n"
AT = "/api/v1/modules/Guarded"
ROUTES = {
    READ: [
        "GET /overview", "GET /overview/subscribe", "GET /options",
        "GET /modules/{module}/topologies/{topology}/log", "GET /modules/{module}/topologies/{topology}/subscribe",
        "GET /modules/{module}/topologies/{topology}/plan", "GET /modules/{module}/subscribe",
        "GET /modules/{module}/log",
        "GET /modules", "GET /modules/{module}", "GET /modules/{module}/options", "POST /modules/{module}/wait",
        "GET /modules/{module}/depots/{depot}", "GET /modules/{module}/depots/{depot}/partitions/{partition}",
        "GET /modules/{module}/depots/{depot}/partitions/{partition}/records",
        "GET /modules/{module}/depots/{depot}/facts", "GET /modules/{module}/depots/{depot}/offsets",
        "GET /modules/{module}/pstates/{pstate}", "GET /modules/{module}/pstates/{pstate}/tasks",
        "GET /modules/{module}/pstates/{pstate}/levels", "GET /modules/{module}/pstates/{pstate}/navigators",
        "GET /modules/{module}/pstates/{pstate}/subscribe", "POST /modules/{module}/pstates/{pstate}/select",
        "POST /modules/{module}/pstates/{pstate}/selectOne", "POST /modules/{module}/pstates/{pstate}/selectMany",
        "POST /modules/{module}/pstates/{pstate}/diff", "GET /modules/{module}/queries/{query}",
        "POST /modules/{module}/queries/{query}/invoke",
        "POST /modules/{module}/pstates/{pstate}/page", "GET /modules/{module}/topologies/{topology}",
        "GET /graphs", "GET /graphs/subscribe", "GET /graphs/{graph}", "GET /graphs/{graph}/plan",
        "GET /graphs/{graph}/subscribe", "GET /datasets", "GET /datasets/{dataset:path}",
        "GET /datasets/{dataset:path}/rows", "POST /modules/{module}/topologies/{topology}/quarantine/page",
    ],
    APPEND: ["POST /modules/{module}/depots/{depot}/append", "POST /modules/{module}/depots/{depot}/producers"],
    OPERATE: [
        "POST /modules/{module}/topologies/{topology}/pause", "POST /modules/{module}/topologies/{topology}/resume",
        "PATCH /modules/{module}/options", "POST /modules/{module}/topologies/{topology}/quarantine/retry",
        "POST /modules/{module}/topologies/{topology}/quarantine/drop",
    ],
}  # fmt: skip


class Guarded(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*log", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$kept", PState.map_schema(object, int))
        (mb.source("*log").out("*microbatch").explode_microbatch("*microbatch").out("*v").hash_partition("*v")
           .compound_agg("$$kept", CompoundAgg.map("*v", Agg.count())))  # fmt: skip


class Secret(Guarded):
    def module_name(self) -> str:
        return "Secret"


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        yield cluster


@pytest.fixture
def asked(cluster: InProcessCluster, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Requests with a token of `LINES`."""
    (tmp_path / "tokens").write_text(LINES)
    settings = GatewaySettings(tokens=Tokens(file=tmp_path / "tokens"))
    with TestClient(make_app(Modules(cluster.store), settings)) as http:

        def ask(token: str, method: str, path: str, **given: Any) -> Any:
            return http.request(method, path, headers={"authorization": f"Bearer {token}"}, **given)

        yield ask


def test_no_other_module_and_no_store_is_named_when_a_module_was_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "FRESH_MS", 0.0)
    with InProcessCluster.create(engine="local") as cluster:
        for module in (Guarded(), Secret()):
            cluster.launch_module(module, LaunchConfig(1, 1))
        with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
            ways = ("", "/log", "/options", "/subscribe", "/depots/log/facts", "/pstates/kept/levels")
            assert http.get(f"{AT}/depots/log/facts").status_code == 200
            cluster.destroy_module("Guarded")
            for answer in (http.get(f"{AT}{way}") for way in ways):
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "UnknownName")
                assert "Secret" not in answer.text and cluster.store.url not in answer.text


def test_every_route_has_a_role_when_they_are_listed() -> None:
    found: dict[str, list[str]] = {role: [] for role in ROLES}
    for router in API:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods:
                found[role_of(method, PREFIX + route.path)].append(f"{method} {route.path}")
    assert {role: sorted(routes) for role, routes in found.items()} == {r: sorted(known) for r, known in ROUTES.items()}


@pytest.mark.parametrize("path", ["/api/v1/modules/append", "/x", "/api/v1/modules/M/topologies/select/pause"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_request_needs_the_role_to_operate_when_nobody_knows_it(method: str, path: str) -> None:
    is_append = method == "POST" and path.endswith("/append")
    assert role_of(method, path) == (APPEND if is_append else OPERATE)


REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    READ: ("POST", f"{AT}/pstates/kept/select", {"json": {"path": ["a"]}}),
    APPEND: ("POST", f"{AT}/depots/log/append", {"json": {"record": 1}}),
    OPERATE: ("PATCH", f"{AT}/options", {"json": {}}),
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("token", "allowed"),
    [("all", set(ROLES)), ("reader", {READ}), ("writer", {APPEND}), ("operator", {OPERATE}), ("both", {READ, APPEND}),
     ("other", set())],
)  # fmt: skip
def test_a_request_is_refused_when_its_token_has_not_the_role_or_the_module(
    asked: Callable[..., Any], token: str, allowed: set[str], role: str
) -> None:
    method, path, given = REQUESTS[role]
    response = asked(token, method, path, **given)

    assert response.status_code == (200 if role in allowed else 403)
    if role not in allowed:
        assert response.json()["error"]["code"] == "Forbidden"


def test_names_and_metrics_of_other_modules_are_hidden_when_a_token_is_of_some(asked: Callable[..., Any]) -> None:
    assert asked("both", "GET", "/api/v1/modules").json() == ["Guarded"]
    assert asked("other", "GET", "/api/v1/modules").json() == []
    assert asked("other", "GET", AT.replace("Guarded", "Nothing")).status_code == 403
    assert [asked(token, "GET", "/metrics").status_code for token in ("reader", "other")] == [200, 403]
    assert asked("other", "GET", "/api/v1/modules/%47uarded").status_code == 403


@pytest.mark.parametrize("line", ["t admin", "t read,", "t read M more", "t READ"])
def test_a_line_of_tokens_is_refused_when_it_cannot_be_understood(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(line + "\n")
    with pytest.raises(BadInput):
        Tokens(file=file)
    file.write_text("good read\n")
    tokens = Tokens(file=file)
    file.write_text(f"good read\n{line} and longer\n")
    assert tokens.access(b"good") == Access(name_of(b"good"), frozenset({READ}))
    assert not tokens.fits(b"t")


def test_a_line_of_audit_tells_who_changed_what_when_something_changes(
    asked: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    edit = {"set": {"depot.microbatch.max.records": 5000}}
    asked("operator", "PATCH", f"{AT}/options", json=edit)
    asked("reader", "POST", f"{AT}/topologies/mb/pause")
    asked("wrong", "POST", f"{AT}/topologies/mb/pause")
    asked("reader", "GET", AT)
    asked("writer", "POST", f"{AT}/depots/log/append", json={"record": 1})

    lines = [json.loads(record.message) for record in caplog.records if record.name == "tidemill.audit"]
    assert [(line["audit"], line["method"], line["status"]) for line in lines] == [
        (name_of(b"operator"), "PATCH", 200), (name_of(b"reader"), "POST", 403), ("unknown", "POST", 401),
    ]  # fmt: skip
    assert lines[0]["set"] == edit["set"]
    assert (lines[0]["path"], lines[0]["from"]) == (f"{AT}/options", "testclient")
    assert "operator" not in lines[0]["audit"]


@pytest.mark.parametrize("route", ROUTES[OPERATE])
def test_a_line_of_audit_is_left_by_each_route_that_changes_something(
    asked: Callable[..., Any], caplog: pytest.LogCaptureFixture, route: str
) -> None:
    caplog.set_level(logging.INFO)
    method, _, path = route.partition(" ")
    url = PREFIX + path.format(module="Guarded", topology="mb")
    statuses = [asked(token, method, url, json={}).status_code for token in ("operator", "reader")]

    lines = [json.loads(record.message) for record in caplog.records if record.name == "tidemill.audit"]
    assert statuses == [200, 403]
    assert [(line["audit"], line["method"], line["path"], line["status"]) for line in lines] == [
        (name_of(b"operator"), method, url, 200), (name_of(b"reader"), method, url, 403),
    ]  # fmt: skip


# --- rates -----------------------------------------------------------------------------------------------------------


class Watch:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(limits: RateLimits, who: str) -> int:
    """How long a request has to wait."""
    try:
        limits.take_request(who)
    except HttpRefusal as error:
        assert (error.status, error.code) == (429, "TooManyRequests")
        return int(error.headers["retry-after"])
    return 0


def test_requests_wait_when_a_token_has_asked_more_than_its_share() -> None:
    watch = Watch()
    limits = RateLimits(Rates(requests=2), watch)
    assert [refused(limits, "a") for _ in range(3)] == [0, 0, 1]
    assert refused(limits, "b") == 0
    watch.now += 0.5
    assert [refused(limits, "a") for _ in range(2)] == [0, 1]


def test_requests_wait_when_a_token_has_sent_more_than_its_share() -> None:
    watch = Watch()
    limits = RateLimits(Rates(bytes=1_000), watch)
    assert refused(limits, "a") == 0
    limits.take_bytes("a", 4_000)
    assert refused(limits, "a") == 4
    assert refused(limits, "b") == 0
    watch.now += 4
    assert refused(limits, "a") == 0


def test_a_request_is_answered_429_when_its_token_asks_too_much(cluster: InProcessCluster) -> None:
    settings = GatewaySettings(tokens=Tokens(token="t"), rates=Rates(requests=0.001, bytes=1))
    with TestClient(make_app(Modules(cluster.store), settings), headers={"authorization": "Bearer t"}) as http:
        assert http.post(f"{AT}/depots/log/append", json={"record": 1}).status_code == 200
        response = http.get(AT)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "TooManyRequests")
        assert int(response.headers["retry-after"]) > 0
        assert http.get("/healthz").status_code == 200
