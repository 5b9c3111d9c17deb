"""Answers in gzip: large ones only, for who takes it, the same bytes inside; never errors, sessions or events."""

from __future__ import annotations

import gzip
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from gateways import served
from starlette.testclient import TestClient

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, PState
from tidemill.gateway import compression, exchange
from tidemill.gateway.app import make_app
from tidemill.gateway.compression import BYTES_MIN, packed, takes_gzip
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens

AT = "/api/v1/modules/Large"
RECORDS = f"{AT}/depots/log/partitions/0/records?start=0&end=2000"
PLAIN = {"accept-encoding": "identity"}


class Large(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*log", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$kept", PState.map_schema(str, int))
        (mb.source("*log").out("*microbatch").explode_microbatch("*microbatch").out("*v").hash_partition("*v")
           .compound_agg("$$kept", CompoundAgg.map("*v", Agg.count())))  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Large(), LaunchConfig(1, 1))
        cluster.cluster_depot("Large", "*log").append_many([f"record {number}" for number in range(2_000)])
        cluster.wait_until_processed("Large")
        yield cluster


@pytest.fixture(scope="module")
def http(cluster: InProcessCluster) -> Iterator[TestClient]:
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:
        yield client


@pytest.mark.parametrize(
    ("accept", "takes"),
    [
        (None, False), ("", False), ("identity", False), ("gzip", True), ("GZIP", True), ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False), ("gzip; q=0.0, *", False), ("*", True), ("*;q=0", False), ("gzip;q=x", False),
        ("br", False), ("gzip;q=1;q=0", False), (",;,", False), ("xgzip", False),
    ],
)  # fmt: skip
def test_gzip_is_sent_to_those_only_who_take_it(accept: str | None, takes: bool) -> None:
    assert takes_gzip(accept) is takes


def test_a_body_is_sent_as_it_is_when_it_is_small_or_grows() -> None:
    assert packed(b"x" * (BYTES_MIN - 1), "gzip")[1] == {"vary": "accept-encoding"}
    assert packed(b"x" * BYTES_MIN, "gzip")[1]["content-encoding"] == "gzip"
    noise = gzip.compress(bytes(range(256)) * 100)
    while len(noise) < 2 * BYTES_MIN:
        noise += gzip.compress(noise)
    body, headers = packed(noise[: 2 * BYTES_MIN], "gzip")
    assert len(body) <= 2 * BYTES_MIN and ("content-encoding" in headers) == (len(body) < 2 * BYTES_MIN)


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
def test_the_same_comes_out_when_a_large_answer_is_compressed(http: TestClient, accept: str) -> None:
    for method, path, body in (
        ("GET", RECORDS, None), ("POST", f"{AT}/pstates/kept/page", {"limit": 1_000}),
        ("GET", "/page/vendor/uplot.js", None),
    ):  # fmt: skip
        small = http.request(method, path, json=body, headers={"accept": accept, "accept-encoding": "gzip"})
        plain = http.request(method, path, json=body, headers={"accept": accept, **PLAIN})
        assert small.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert small.content == plain.content and int(small.headers["content-length"]) < len(plain.content)
        assert "accept-encoding" in small.headers["vary"] and "accept-encoding" in plain.headers["vary"]


def test_a_file_of_the_page_is_not_sent_again_when_its_tag_is_known_in_either_form(http: TestClient) -> None:
    tags = set()
    for kind in ("gzip", "identity"):
        accept = {"accept-encoding": kind}
        tag = http.get("/page/vendor/uplot.js", headers=accept).headers["etag"]
        again = http.get("/page/vendor/uplot.js", headers={**accept, "if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        tags.add(tag)
    assert len(tags) == 2


def test_errors_and_sessions_are_never_compressed_when_a_request_is_repeated_in_them(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "BYTES_MIN", 1)
    with TestClient(make_app(Modules(cluster.store), GatewaySettings(tokens=Tokens(token="secret")))) as client:
        asked = [
            client.get(f"{AT}/depots/{'x' * 3_000}", headers={"authorization": "Bearer secret"}),
            client.get(f"{AT}/depots/log", headers={"authorization": "Bearer wrong"}),
            client.post("/session", json={"token": "secret"}, headers={"x-tidemill-page": "1"}),
            client.get("/session"),
        ]
    for answer in asked:
        assert "content-encoding" not in answer.headers and "secret" not in answer.text


def test_events_are_never_compressed_when_a_client_would_take_it(cluster: InProcessCluster) -> None:
    with served(Modules(cluster.store)) as server:
        url = f"{server.url}{AT}/topologies/mb/subscribe"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"accept-encoding": "gzip"})) as answer:
            assert answer.headers["content-encoding"] is None
            assert answer.readline().startswith(b"event: ")


def test_a_list_is_sent_as_it_is_when_others_would_wait_for_it(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"accept-encoding": "gzip"}
    assert http.get("/api/v1/options", headers=asked).headers["content-encoding"] == "gzip"
    monkeypatch.setattr(exchange, "HERE_BYTES_MAX", 100)
    assert "content-encoding" not in http.get("/api/v1/options", headers=asked).headers


def test_the_answer_is_bounded_when_it_is_compressed(http: TestClient) -> None:
    """What takes too many bytes is refused before it is compressed, as ever."""
    answer = http.get(f"{AT}/depots/log/partitions/0/records?start=0&end=100001", headers={"accept-encoding": "gzip"})
    assert answer.status_code == 422 and json.loads(answer.content)["error"]["code"] == "BadInput"
