"""Pages of other origins: none by default; those that are named, with tokens only, and never with a cookie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import served
from starlette.testclient import TestClient
from test_gateway_access import Guarded
from typer.testing import CliRunner

from tidemill import BadInput, InProcessCluster, LaunchConfig
from tidemill.cli.main import app as command
from tidemill.gateway.app import make_app
from tidemill.gateway.cors import checked_origins
from tidemill.gateway.modules import Modules
from tidemill.gateway.server import GatewayServer
from tidemill.gateway.sessions import MARK
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens

APP = "https://app.example.org"
AT = "/api/v1/modules/Guarded"
SELECT = f"{AT}/pstates/kept/select"
TOKEN = {"authorization": "Bearer all"}
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))
        yield cluster


def settings(*origins: str) -> GatewaySettings:
    return GatewaySettings(tokens=Tokens(token="all"), cors_origins=checked_origins(origins))


@pytest.fixture(scope="module")
def http(cluster: InProcessCluster) -> Iterator[TestClient]:
    with TestClient(make_app(Modules(cluster.store), settings(APP, "http://localhost:3000"))) as client:
        yield client


def allowed(answer: Any) -> str | None:
    found: str | None = answer.headers.get("access-control-allow-origin")
    return found


def test_no_origin_is_allowed_when_nobody_named_one(cluster: InProcessCluster) -> None:
    with TestClient(make_app(Modules(cluster.store), settings())) as client:
        asked = client.options(SELECT, headers={"origin": APP, **PREFLIGHT})
        answer = client.post(SELECT, json={"path": ["a"]}, headers={"origin": APP, **TOKEN})
    assert asked.status_code == 401 and answer.status_code == 200
    assert allowed(asked) is None and allowed(answer) is None and "origin" not in answer.headers.get("vary", "")


def test_a_preflight_is_answered_without_a_token_when_the_origin_is_named(http: TestClient) -> None:
    answer = http.options(SELECT, headers={"origin": APP, **PREFLIGHT})
    assert answer.status_code == 204 and allowed(answer) == APP and "origin" in answer.headers["vary"]
    assert answer.headers["access-control-allow-methods"] == "GET, POST, PATCH"
    assert answer.headers["access-control-allow-headers"].split(", ")[:2] == ["accept", "authorization"]
    assert answer.content == b""


def test_a_page_reads_answers_and_errors_when_its_origin_is_named_and_its_token_known(http: TestClient) -> None:
    good = http.post(SELECT, json={"path": ["a"]}, headers={"origin": "http://localhost:3000", **TOKEN})
    bad = http.post(SELECT, json={"path": ["a"]}, headers={"origin": APP, "authorization": "Bearer wrong"})
    assert (good.status_code, allowed(good)) == (200, "http://localhost:3000")
    assert (bad.status_code, allowed(bad)) == (401, APP)


@pytest.mark.parametrize(
    "origin",
    ["https://app.example.org.evil.com", "http://app.example.org", "https://app.example.org:8443", "https://APP.example.org",
     "null", "*", "", "https://app.example.org/", "https://app.example.org, https://evil.com", "https://evil.com\x7f"],
)  # fmt: skip
def test_another_origin_gets_nothing_when_it_only_looks_like_one_that_is_named(http: TestClient, origin: str) -> None:
    asked = http.options(SELECT, headers={"origin": origin, **PREFLIGHT})
    answer = http.post(SELECT, json={"path": ["a"]}, headers={"origin": origin, **TOKEN})
    assert asked.status_code == 401
    assert allowed(asked) is None and allowed(answer) is None and "origin" in answer.headers["vary"]


def test_no_cookie_helps_another_origin_when_somebody_is_signed_in(http: TestClient) -> None:
    signed = http.post("/session", json={"token": "all"}, headers={MARK: "1", "origin": APP})
    assert signed.status_code == 200 and allowed(signed) is None
    http.cookies.clear()  # the other tests are not signed in
    cookie = {"cookie": signed.headers["set-cookie"].split(";")[0], "origin": APP}
    preflight = http.options(SELECT, headers={"origin": APP, **PREFLIGHT})
    assert MARK not in preflight.headers["access-control-allow-headers"].lower()
    for answer in (preflight, http.get(f"{AT}/options", headers=cookie)):
        assert "access-control-allow-credentials" not in answer.headers
    changed = http.post(f"{AT}/topologies/mb/pause", headers=cookie)
    assert (changed.status_code, changed.json()["error"]["code"]) == (403, "Forbidden")


@pytest.mark.parametrize(
    "path", ["/", "/session", "/metrics", "/openapi.json", "/api/v1", "/api/v10/x", "/page/main.js"]
)
def test_only_the_api_is_open_when_an_origin_is_named(http: TestClient, path: str) -> None:
    asked = http.options(path, headers={"origin": APP, **PREFLIGHT})
    assert asked.status_code != 204 and allowed(asked) is None
    assert allowed(http.get(path, headers={"origin": APP, **TOKEN})) is None


def test_a_plain_options_is_no_preflight_when_it_asks_for_no_method(http: TestClient) -> None:
    assert http.options(SELECT, headers={"origin": APP}).status_code == 401
    assert http.options(SELECT, headers={"origin": APP, **TOKEN}).status_code == 405


def test_events_may_be_followed_when_the_origin_is_named(cluster: InProcessCluster) -> None:
    import urllib.request

    with served(Modules(cluster.store), settings(APP)) as server:
        url = f"{server.url}/api/v1/overview/subscribe"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"origin": APP, **TOKEN})) as answer:
            assert answer.headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "", "app.example.org", "https://", "https://app.example.org/", "https://app.example.org/x", "ftp://a.org",
     "https://App.example.org", "https://a.org:99999", "https://user@a.org", "https://a.org?x", "https://a.org#x", "http://[::1"],
)  # fmt: skip
def test_what_is_no_origin_is_refused_when_it_is_named(origin: str) -> None:
    with pytest.raises(BadInput, match="is no origin"):
        checked_origins([origin])


def test_origins_with_ports_and_addresses_are_taken_when_they_are_named() -> None:
    given = ["http://localhost:3000", "https://[::1]:8443", "http://127.0.0.1", APP]
    assert checked_origins(given) == frozenset(given)


def test_origins_are_refused_when_there_are_no_tokens(cluster: InProcessCluster, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="tokens"):
        GatewayServer(Modules(cluster.store), GatewaySettings(cors_origins=frozenset({APP})), "127.0.0.1", 0)
    (tmp_path / "store").mkdir()
    shell = CliRunner().invoke(command, ["gateway", "--store", str(tmp_path / "store"), "--cors-origin", APP])
    assert shell.exit_code != 0 and "token" in shell.output
