"""Requests that want to end, block or fill a gateway: each is refused or bounded, and the gateway goes on."""

from __future__ import annotations

import io
import shutil
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from gateways import served
from starlette.testclient import TestClient

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.gateway import looks as gateway_looks
from tidemill.gateway import weights
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import member
from tidemill.store.urls import open_store
from tidemill.tables import container
from tidemill.values.errors import CorruptState, StoreUnavailable, TidemillError
from tidemill.values.message_pack import EXT_SET, pack

AT = "/api/v1/modules/Attacked"
APPEND = f"{AT}/depots/log/append"
SELECT = f"{AT}/pstates/counts/select"
OPTIONS = f"{AT}/options"
MSGPACK = {"content-type": "application/msgpack"}


class Attacked(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*log", Depot.random())
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(object, int))
        (mb.source("*pairs").out("*microbatch").explode_microbatch("*microbatch").out("*pair")
           .each(Ops.EXPAND, "*pair").out("*k", "*n")
           .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count())))  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Attacked(), LaunchConfig(1, 1))
        yield cluster


@pytest.fixture
def http(cluster: InProcessCluster) -> Iterator[TestClient]:
    with TestClient(make_app(Modules(cluster.store), GatewaySettings()), raise_server_exceptions=False) as client:
        yield client


def refused(response: Any, status: int, code: str) -> str:
    """The message of an error of this status and code."""
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code), error
    return str(error["message"])


# --- bodies of MessagePack -------------------------------------------------------------------------------------------


def _nested(levels: int, innermost: Any) -> bytes:
    data: bytes = msgpack.packb([innermost])
    for _ in range(levels):
        data = msgpack.packb([msgpack.ExtType(EXT_SET, data)])
    return data


BODIES = {
    "sets 200 deep": _nested(200, 1),
    "an unhashable element 14 deep": _nested(14, {}),
    "5,000 deep": _nested(5_000, 1),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("where", [APPEND, SELECT, f"{SELECT}One", OPTIONS])
def test_a_body_is_refused_when_its_sets_are_nested_to_end_or_block_the_process(
    http: TestClient, where: str, body: bytes
) -> None:
    name = {APPEND: b"records", OPTIONS: b"unset"}.get(where, b"path")
    whole = b"\x81" + msgpack.packb(name.decode()) + body
    response = http.request("PATCH" if where == OPTIONS else "POST", where, content=whole, headers=MSGPACK)

    assert "MessagePack" in refused(response, 400, "BadInput")
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize("where", [APPEND, SELECT, OPTIONS])
def test_bodies_are_decoded_outside_of_the_event_loop_when_they_come(
    http: TestClient, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def noting(data: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return msgpack.unpackb(data)

    monkeypatch.setattr(weights, "unpack_foreign", noting)
    http.request("PATCH" if where == OPTIONS else "POST", where, content=pack({}), headers=MSGPACK)

    assert [name.startswith("tidemill-gateway") for name in threads] == [True]


# --- paths -----------------------------------------------------------------------------------------------------------

PATHS: dict[str, tuple[list[Any], str, str]] = {
    "2^40 results": (["a", *[["multiPath", [], []]] * 40], "BudgetExceeded", "path[40]"),
    "a large text": (["a", ["nullToVal", "x"], ["view", "#__fOps.TIMES", 10**9]], "BudgetExceeded", "path[2]"),
    "a function that writes": (["a", ["view", "#__fOps.PRINTLN"]], "BadPath", "path[1][1]"),
    "a class": (["a", ["view", "#__fOps.CLASS_OF"]], "BadPath", "path[1]"),
    "a sum of a text": (["a", ["view", "#__fOps.TO_STRING"], ["view", "#__fOps.SUM"]], "BadPath", "path[2]"),
    "one argument too few": (["a", ["filterPred", "#__fOps.IS_INSTANCE_OF"]], "BadPath", "path[1][1]"),
    "a number of 5,000 digits": (["a", "#__L" + "9" * 5_000], "BadPath", "path[1]"),
    "half a million navigators": (["a", *[["stay"]] * 500_000], "BadPath", "path[100]"),
}


@pytest.mark.parametrize(("path", "code", "at"), PATHS.values(), ids=PATHS)
def test_a_path_is_refused_with_its_place_when_it_asks_too_much_or_is_wrong(
    http: TestClient, capfd: pytest.CaptureFixture[str], path: list[Any], code: str, at: str
) -> None:
    response = http.post(SELECT, json={"path": path})

    refused(response, 422, code)
    assert response.json()["error"]["at"] == at
    assert capfd.readouterr().out == ""


def test_paths_in_paths_are_refused_when_they_are_400_deep(http: TestClient) -> None:
    path: list[Any] = []
    for _ in range(400):
        path = [["multiPath", path]]

    assert "deep" in refused(http.post(SELECT, json={"path": ["a", *path]}), 422, "BadPath")


# --- what clients are told, and when the gateway is ready ------------------------------------------------------------


def test_a_module_is_unknown_when_its_name_is_too_long_for_any_folder(http: TestClient) -> None:
    refused(http.get("/api/v1/modules/" + "\N{CRAB}" * 200), 404, "UnknownName")


@pytest.mark.parametrize("kind", [CorruptState, StoreUnavailable])
def test_no_name_of_the_store_is_told_when_an_answer_fails_because_of_it(
    http: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[TidemillError]
) -> None:
    def failing(self: Any) -> Any:
        raise kind("/data/secret-folder/Attacked/definition/1.json is damaged", key="secret-folder")

    monkeypatch.setattr(DefinitionLog, "newest", failing)
    response = http.get(f"{AT}x")

    assert response.status_code in (500, 503)
    assert "secret-folder" not in response.text
    assert "secret-folder" in caplog.text


def test_a_gateway_is_not_ready_when_its_store_is_gone(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    with TestClient(make_app(Modules(store), GatewaySettings())) as http:
        assert http.get("/readyz").status_code == 200
    shutil.rmtree(tmp_path / "store")
    with TestClient(make_app(Modules(store), GatewaySettings())) as http:
        assert http.get("/readyz").status_code == 503
    (tmp_path / "store").mkdir()
    with TestClient(make_app(Modules(store), GatewaySettings())) as http:
        assert http.get("/readyz").status_code == 503


@pytest.mark.parametrize(("path", "look"), [("/readyz", "readiness"), ("/metrics", "statuses")])
def test_the_store_is_asked_once_a_second_when_many_probes_come(
    http: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, look: str
) -> None:
    looks: list[str] = []
    shared = getattr(http.app.state.gateway, look)  # type: ignore[attr-defined]  # the application is Starlette's
    inner = shared._look
    monkeypatch.setattr(shared, "_look", lambda: (looks.append(""), inner())[1])
    monkeypatch.setattr(gateway_looks, "FRESH_SECONDS", 3_600.0)

    assert {http.get(path).status_code for _ in range(50)} == {200}
    assert len(looks) == 1


def test_an_entry_is_refused_unread_when_it_is_compressed() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("entry.json", bytes(10_000_000))
    for read in (lambda data: member(data, "entry.json"), container.decode):
        with pytest.raises(CorruptState):
            read(packed.getvalue())


# --- web pages -------------------------------------------------------------------------------------------------------

JSON = {"content-type": "application/json"}
PAGES: dict[str, tuple[str, dict[str, str], bytes, int]] = {
    "a program": ("POST", {**JSON}, b"{}", 400),
    "a program that names localhost": ("GET", {"host": "localhost:8080"}, b"", 200),
    "a program that names the sixth version": ("GET", {"host": "[::1]:8080"}, b"", 200),
    "the page of the gateway": ("POST", {**JSON, "origin": "http://127.0.0.1:8080"}, b"{}", 400),
    "a page of another host": ("POST", {**JSON, "origin": "https://evil.example"}, b"{}", 403),
    "a page without an origin": ("POST", {**JSON, "origin": "null"}, b"{}", 403),
    "a name that leads here": ("GET", {"host": "evil.example:8080"}, b"", 403),
    "a name that looks so": ("GET", {"host": "127.0.0.1.evil.example"}, b"", 403),
    "a name with a user": ("GET", {"host": "localhost@evil.example"}, b"", 403),
    "no name": ("GET", {"host": ""}, b"", 403),
    "a body without a type": ("POST", {}, b"{}", 415),
}


@pytest.mark.parametrize(("method", "headers", "body", "status"), PAGES.values(), ids=PAGES)
def test_only_programs_of_this_machine_are_answered_when_there_is_no_token(
    cluster: InProcessCluster, method: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    app = make_app(Modules(cluster.store), GatewaySettings(), is_local_only=True)
    with TestClient(app, base_url="http://127.0.0.1:8080") as http:
        where = APPEND if method == "POST" else "/api/v1/modules"
        assert http.request(method, where, content=body or None, headers=headers).status_code == status


def test_a_server_asks_where_requests_come_from_when_it_has_no_token(cluster: InProcessCluster) -> None:
    with served(Modules(cluster.store)) as server:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            asked = urllib.request.Request(f"{server.url}/api/v1/modules", headers=headers)
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(asked)
