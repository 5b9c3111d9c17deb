"""Gateways as processes of their own, several on one store: what a key, a kill and a signal mean for appends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from gateways import served

from tidemill import Agg, CompoundAgg, Depot, LaunchConfig, Module, Ops, PState
from tidemill import Path as Key
from tidemill.client import Client
from tidemill.cluster.launch import launch
from tidemill.gateway.modules import Modules
from tidemill.local.runner import LocalRunner
from tidemill.store.urls import connect, open_store

TIDEMILL = [sys.executable, "-c", "from tidemill.cli.main import app; app()"]
APPEND = "/api/v1/modules/Ledger/depots/entries/append"
EACH = 20
PARTITIONS = 4


class Ledger(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*entries", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(int, int))
        (mb.source("*entries").out("*microbatch").explode_microbatch("*microbatch").out("*entry")
           .each(Ops.EXPAND, "*entry").out("*k", "*n")
           .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count())))  # fmt: skip


@pytest.fixture
def store(store_url: str) -> str:
    """A store that knows the module; nobody runs it."""
    launch(store_url, Ledger(), LaunchConfig(PARTITIONS, 2), LocalRunner()).close()
    return store_url


@contextmanager
def process(store: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway process and its URL."""
    command = [*TIDEMILL, "gateway", "--store", store, "--port", "0", "--json", *arguments]
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        line = gateway.stdout.readline()
        assert line, gateway.communicate()[1]
        yield gateway, json.loads(line)["url"]
    finally:
        gateway.kill()
        gateway.communicate()


def entries(client: Client) -> list[Any]:
    """All records of the depot."""
    depot = client.depot("Ledger", "entries")
    found = []
    for partition in range(PARTITIONS):
        start, end = depot.get_partition_info(partition)
        found += depot.read(partition, start, end) if end > start else []
    return found


def expected(keys: int) -> list[Any]:
    return sorted([key, number] for key in range(keys) for number in range(EACH))


def send(http: httpx.Client, key: int) -> Any:
    """One append of several records under a key."""
    records = [[key, number] for number in range(EACH)]
    response = http.post(APPEND, json={"records": records}, headers={"idempotency-key": f"entry-{key}"})
    response.raise_for_status()
    return response.json()


def test_an_append_is_done_once_when_two_replicas_get_its_key_at_once(store: str) -> None:
    opened = connect(store)
    with served(Modules(open_store(store))) as one, served(Modules(opened)) as other, Client(one.url) as client:
        with (
            ThreadPoolExecutor(2) as threads,
            httpx.Client(base_url=one.url) as a,
            httpx.Client(base_url=other.url) as b,
        ):
            for key in range(15):
                barrier = threading.Barrier(2)

                def racing(http: httpx.Client, key: int = key, barrier: threading.Barrier = barrier) -> Any:
                    barrier.wait(10)
                    return send(http, key)

                first, second = threads.map(racing, (a, b))
                assert first == second
        assert sorted(entries(client)) == expected(15)


def test_every_append_is_there_once_when_a_replica_is_killed_and_another_is_asked_again(store: str) -> None:
    keys = 0
    with process(store) as (_, steady), httpx.Client(base_url=steady, timeout=30) as survivor:
        for _ in range(2):
            with process(store) as (victim, url), httpx.Client(base_url=url, timeout=30) as http:
                killer, first = threading.Timer(0.05, victim.kill), keys
                while True:
                    try:
                        send(http, keys)
                    except httpx.TransportError:  # killed with this append under way: done, or not
                        break
                    keys += 1
                    if keys == first + 2:  # it did some before it dies, however slow this machine is
                        killer.start()
                killer.join()
            send(survivor, keys)
            keys += 1
        with Client(steady) as client:
            assert sorted(entries(client)) == expected(keys)
    assert keys >= 6


def test_requests_under_way_are_answered_when_a_gateway_is_asked_to_stop(store: str) -> None:
    answered, refused = 0, 0
    with process(store) as (gateway, url), httpx.Client(base_url=url, timeout=30) as http:
        send(http, 0)
        threading.Timer(0.1, gateway.terminate).start()
        while not refused:
            try:
                send(http, answered + 1)
                answered += 1
            except httpx.ConnectError:
                refused += 1
            except httpx.RemoteProtocolError:  # a kept-alive connection was closed between two requests
                refused += 1
        assert gateway.wait(25) == 0
    with process(store) as (_, url), Client(url) as client:
        found = sorted(entries(client))
        assert found[: EACH * (answered + 1)] == expected(answered + 1)


def test_clients_change_over_when_a_token_rotates(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    launch(store, Ledger(), LaunchConfig(PARTITIONS, 2), LocalRunner()).close()
    token = tmp_path / "token"
    token.write_text("first\n")
    with (
        process(store, "--token-file", str(token), "--host", "127.0.0.1") as (_, url),
        Client(url, "first") as old,
        Client(url, "second") as new,
    ):
        assert old.modules() == ["Ledger"]
        with pytest.raises(ValueError, match="token"):
            new.modules()
        token.write_text("first\nsecond\n")
        assert new.modules() == old.modules() == ["Ledger"]
        token.write_text("second\n\n\n")
        assert new.modules() == ["Ledger"]
        with pytest.raises(ValueError, match="token"):
            old.modules()


def test_a_gateway_is_refused_when_it_would_serve_strangers(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    command = [*TIDEMILL, "gateway", "--store", str(tmp_path / "store"), "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "--token-file" in done.stderr


MODULE_FILE = """
from tidemill import Agg, CompoundAgg, Depot, Module, Ops, PState

class Beside(Module):
    def define(self, setup, topologies):
        setup.declare_depot("*words", Depot.hash_by(lambda word: word))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))
"""


def test_a_runner_serves_its_module_when_it_has_a_port(tmp_path: Path) -> None:
    file = tmp_path / "beside_module.py"
    file.write_text(MODULE_FILE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*TIDEMILL, "run", f"{file}:Beside", "--store", str(tmp_path / "store"), "--engine", "local"]
    runner = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE, text=True)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            client.depot("Beside", "words").append_many(["tide", "mill", "tide"])
            counts, looks = client.pstate("Beside", "counts"), 0
            while counts.select_one(Key.key("tide")) != 2:
                looks += 1
                assert looks < 2_000, client.status("Beside", "mb")
            assert client.modules() == ["Beside"]
            client.set_option("Beside", "depot.max.fetch", 100)
        runner.terminate()
        assert runner.wait(30) == 0
        assert runner.stderr is not None
        (audit,) = [line for line in runner.stderr if '"audit":' in line]
        assert '"method":"PATCH"' in audit and '"set":{"depot.max.fetch":100}' in audit
    finally:
        runner.kill()
        runner.communicate()


WITHOUT_SPARK = """
import sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoSpark())
from starlette.testclient import TestClient
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.store.urls import open_store
from tidemill.cli.commands import COMMANDS

for entry in COMMANDS.values():
    entry.load()
with TestClient(make_app(Modules(open_store(sys.argv[1])), GatewaySettings())) as http:
    response = http.post("/api/v1/modules/Ledger/depots/entries/append", json={"record": [1, 2]})
    assert response.status_code == 200, response.text
    assert http.post("/api/v1/modules/Ledger/pstates/counts/selectOne", json={"path": [1]}).status_code == 200
assert not [name for name in sys.modules if name.startswith("pyspark")]
"""


def test_the_gateway_serves_when_spark_is_not_installed(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    launch(store, Ledger(), LaunchConfig(PARTITIONS, 2), LocalRunner()).close()
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, store], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
