"""Requests that want to end, block or fill a gateway: each is refused or bounded, and the gateway goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from starlette.testclient import TestClient

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.gateway import weights
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.model.packing import EXT_SET, pack

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

    monkeypatch.setattr(weights, "unpack", noting)
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
