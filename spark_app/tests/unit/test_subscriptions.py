"""Values that a gateway keeps up to date for its clients: events of values, diffs and ends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import httpx2 as httpx
import pytest
from gateways import served
from waiting import eventually

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.gateway import guard, subscriptions
from tidemill.gateway.modules import Modules
from tidemill.gateway.server import GatewayServer
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens


class Tally(Module):
    """A record [key, text] counts a text of a key, and keeps the last text."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, PState.map_schema(str, int)))
        mb.pstate("$$last", PState.map_schema(str, str))
        (
            mb.source("*d").out("*m")
            .explode_microbatch("*m").out("*r")
            .each(Ops.EXPAND, "*r").out("*k", "*text")
            .compound_agg("$$last", CompoundAgg.map("*k", Agg.last("*text")))
            .each(lambda text: text[:8], "*text").out("*short")
            .compound_agg("$$counts", CompoundAgg.map("*k", CompoundAgg.map("*short", Agg.count())))
        )  # fmt: skip


class Served:
    def __init__(self, cluster: InProcessCluster, server: GatewayServer) -> None:
        self.cluster, self.server, self.count = cluster, server, 0

    def write(self, *records: tuple[str, str]) -> None:
        self.cluster.cluster_depot("Tally", "*d").append_many([list(record) for record in records])
        self.count += len(records)
        self.cluster.wait_for_microbatch_processed_count("Tally", "mb", self.count)

    def url(self, pstate: str, path: Any) -> str:
        return f"{self.server.url}/api/v1/modules/Tally/pstates/{pstate}/subscribe?path={quote(json.dumps(path))}"

    @contextmanager
    def events(self, pstate: str, path: Any) -> Iterator[Iterator[tuple[str, Any]]]:
        with urlopen(self.url(pstate, path), timeout=20) as answer:
            yield events_of(answer)

    def subscribers(self) -> float:
        text = urlopen(f"{self.server.url}/metrics").read().decode()
        return float(text.split("\ntidemill_gateway_subscribers ")[1].split("\n")[0])


def events_of(lines: Any) -> Iterator[tuple[str, Any]]:
    name = ""
    for raw in lines:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@pytest.fixture
def tally() -> Iterator[Served]:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Tally(), LaunchConfig(4, 2))
        with served(Modules(cluster.store)) as server:
            yield Served(cluster, server)


def test_changes_are_told_when_a_value_is_followed(tally: Served) -> None:
    tally.write(("a", "x"))
    with tally.events("counts", ["a"]) as events:
        assert next(events) == ("resync", {"value": {"x": 1}})
        tally.write(("b", "x"))
        tally.write(("a", "x"), ("a", "y"))
        assert next(events) == (
            "diff",
            {"diff": {"kind": "keys", "diffs": [["x", {"kind": "newValue", "value": 2}],
                                                ["y", {"kind": "newValue", "value": 1}]]}},
        )  # fmt: skip
    with tally.events("counts", ["a"]) as events:
        assert next(events) == ("resync", {"value": {"x": 2, "y": 1}}), "who comes again gets the value as it is"
    eventually(lambda: tally.subscribers() == 0)


def test_a_subscription_is_refused_when_it_cannot_be(tally: Served) -> None:
    for path, status in (([["all"]], 422), (["a", ["must", "x"]], 422), ([["term", 1]], 422), ({}, 422)):
        assert httpx.get(tally.url("counts", path)).status_code == status, path
    assert httpx.get(tally.url("nothing", ["a"])).status_code == 404
    assert httpx.get(tally.url("counts", ["a"]) + "&max=3").status_code == 400
    assert httpx.get(tally.url("counts", ["a"])[:-3]).status_code == 400
    assert tally.subscribers() == 0


def test_a_client_is_sent_away_with_the_reason_when_it_ends(tally: Served) -> None:
    with tally.events("counts", ["a"]) as events:
        next(events)
        tally.cluster.destroy_module("Tally")
        name, said = next(events)
        assert (name, "Tally" in said["reason"]) == ("end", True)
        assert list(events) == []


def test_clients_are_sent_away_at_once_when_the_gateway_stops(tally: Served) -> None:
    with tally.events("counts", ["a"]) as events:
        next(events)
        stopping = threading.Thread(target=tally.server.stop)
        stopping.start()
        assert [name for name, _ in events] == ["end"]
        stopping.join(10)
        assert not stopping.is_alive()


def test_a_slow_client_is_sent_away_when_too_much_waits_for_it(tally: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "PENDING_BYTES_MAX", 300_000)
    path = tally.url("last", ["a"]).removeprefix(tally.server.url)
    with socket.create_connection(("127.0.0.1", tally.server.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)
        slow.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        eventually(lambda: tally.subscribers() == 1)
        with tally.events("last", ["a"]) as events:
            next(events)
            for number in range(60):
                tally.write(("a", str(number) * 60_000))
                assert next(events)[0] == "diff", "who takes the events gets them all"
        taken = b""
        while b"event: end" not in taken and (part := slow.recv(65_536)):
            taken = taken[-100:] + part
            assert len(taken) < 10_000_000
        assert b"event: end" in taken
    eventually(lambda: tally.subscribers() == 0)


def test_a_value_is_refused_when_it_is_too_large(tally: Served) -> None:
    tally.write(("a", "x" * (subscriptions.VALUE_BYTES_MAX + 1)))
    assert httpx.get(tally.url("last", ["a"])).status_code == 422


def test_others_are_refused_when_there_are_as_many_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SUBSCRIBERS_MAX", 2)
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Tally(), LaunchConfig(1, 1))
        with served(Modules(cluster.store)) as server:
            tally = Served(cluster, server)
            with tally.events("counts", ["a"]) as first, tally.events("counts", ["b"]) as second:
                next(first), next(second)
                assert httpx.get(tally.url("counts", ["c"])).status_code == 503
                assert httpx.get(f"{server.url}/api/v1/modules/Tally").status_code == 200
            eventually(lambda: httpx_status(tally) == 200)


def httpx_status(tally: Served) -> int:
    with httpx.stream("GET", tally.url("counts", ["c"])) as answer:
        return answer.status_code


def test_a_life_is_bounded_when_a_client_stays(tally: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LIFE_SECONDS", 0.3)
    monkeypatch.setattr(subscriptions, "HEARTBEAT_SECONDS", 0.1)
    with urlopen(tally.url("counts", ["a"]), timeout=20) as answer:
        said = answer.read()
    assert b": still here" in said and b"event: end" in said


def test_a_token_is_asked_for_when_there_are_tokens() -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(Tally(), LaunchConfig(1, 1))
        settings = GatewaySettings(tokens=Tokens(token="a-token-of-the-test"))
        with served(Modules(cluster.store), settings) as server:
            assert httpx.get(Served(cluster, server).url("counts", ["a"])).status_code == 401


@pytest.mark.slow
def test_a_thousand_are_told_when_one_key_changes(tally: Served) -> None:
    path = tally.url("counts", ["a"]).removeprefix(tally.server.url)
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    clients = []
    try:
        for _ in range(guard.SUBSCRIBERS_MAX):
            client = socket.create_connection(("127.0.0.1", tally.server.port), timeout=60)
            clients.append(client)
            client.sendall(request)
        eventually(lambda: tally.subscribers() == guard.SUBSCRIBERS_MAX, 60)
        tally.write(("a", "x"))
        for client in clients:
            taken = b""
            while b'"newValue"' not in taken:
                taken += client.recv(65_536)
    finally:
        for client in clients:
            client.close()
    eventually(lambda: tally.subscribers() == 0, 60)
