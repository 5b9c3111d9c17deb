"""The pages on HTTP and on clients, told as a test: each example of theirs is run as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import served

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, PState
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens

DOCS = Path(__file__).parents[3] / "docs"
TOKEN = "a-token-of-the-test"
EXAMPLE = re.compile(r"```sh\n(.*?)```\n```json\n(.*?)\n```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


class Words(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*record")
           .each(Ops.EXPAND, "*record").out("*word", "*n")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Words(), LaunchConfig(4, 2))
        yield cluster


def test_the_page_on_http_tells_what_happens_when_its_examples_are_run(cluster: InProcessCluster) -> None:
    examples = EXAMPLE.findall((DOCS / "reference" / "http.md").read_text())
    assert len(examples) == 7
    settings = GatewaySettings(tokens=Tokens(token=TOKEN))
    with served(Modules(cluster.store), settings) as server:
        environment = os.environ | {"GATEWAY": server.url, "TIDEMILL_TOKEN": TOKEN}
        appended = 0
        for command, told in examples:
            if "select" in command:
                cluster.wait_for_microbatch_processed_count("Words", "mb", appended)
            done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
            assert json.loads(done.stdout) == json.loads(told), command
            appended += json.loads(told)["appended"] if "/append" in command else 0


def test_the_page_on_clients_tells_what_happens_when_its_example_is_run(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, _ = PYTHON.findall((DOCS / "guide" / "clients.md").read_text())
    monkeypatch.setenv("TIDEMILL_TOKEN", TOKEN)
    with served(Modules(cluster.store), GatewaySettings(tokens=Tokens(token=TOKEN))) as server:
        names: dict[str, Any] = {}
        exec(example.replace("http://127.0.0.1:8080", server.url), names)
    cluster.wait_for_microbatch_processed_count("Words", "mb", 1001)
    counts = cluster.cluster_pstate("Words", "$$counts")
    from tidemill import Path as Key

    assert (counts.select_one(Key.key("tide")), counts.select_one(Key.key("mill"))) == (1, 1000)


def test_a_proxy_is_told_of_a_commit_when_the_example_of_the_page_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    _, example = PYTHON.findall((DOCS / "guide" / "clients.md").read_text())
    exec(example, {"InProcessCluster": InProcessCluster, "Words": Words})

    assert capsys.readouterr().out.splitlines()[:1] == ["ResyncDiff None"]
