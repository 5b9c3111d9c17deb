"""A query that is to run on Spark is refused, and not run in silence, where there is no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from gateways import served
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tidemill import BadInput, InProcessCluster, LaunchConfig, Module, Ops
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.cli.output import EXIT_REFUSED
from tidemill.client import Client
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.queries.handle import QueryHandle

NAME, AT = "Engines", "/api/v1/modules/Engines/queries"


class Engines(Module):
    """Two queries that are the same but for the engine."""

    def define(self, setup: Any, topologies: Any) -> None:
        for name, engine in (("here", "local"), ("there", "spark")):
            query = topologies.query(name, "*n", engine=engine).out("*more")
            query.each(Ops.INC, "*n").out("*more").origin_partition()


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local") as found:
        found.launch_module(Engines(), LaunchConfig(4, 2))
        yield found


def modules(cluster: InProcessCluster) -> Modules:
    return Modules(cluster.store, declaration=record_module(Engines()))


def test_a_gateway_says_that_it_has_no_spark_when_a_query_is_to_run_there(cluster: InProcessCluster) -> None:
    with TestClient(make_app(modules(cluster), GatewaySettings())) as asked:
        for place in ("there/invoke", "here/invoke?engine=spark"):
            refused = asked.post(f"{AT}/{place}", json=[1])
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "BadInput")
            assert "is to run on Spark, and this process has none" in refused.json()["error"]["message"]
            assert "?engine=local" in refused.json()["error"]["message"]
        assert asked.post(f"{AT}/there/invoke?engine=local", json=[1]).json() == 2
        assert asked.post(f"{AT}/here/invoke", json=[1]).json() == 2
        assert asked.post(f"{AT}/here/invoke?engine=dask", json=[1]).status_code == 422
        assert asked.post(f"{AT}/here/invoke?motor=local", json=[1]).status_code == 400
        (parameter,) = (
            each
            for each in asked.get("/openapi.json").json()["paths"]["/api/v1/modules/{module}/queries/{query}/invoke"][
                "post"
            ]["parameters"]
            if each["in"] == "query"
        )
        assert (parameter["name"], parameter["schema"]["enum"]) == ("engine", ["local", "spark"])


def test_a_client_gets_an_answer_of_the_gateway_when_it_names_the_local_engine(cluster: InProcessCluster) -> None:
    with served(modules(cluster), GatewaySettings(seconds_max=60)) as server, Client(server.url) as client:
        assert client.query(NAME, "there", engine="local").invoke(1) == 2
        with pytest.raises(BadInput, match="this process has none"):
            client.query(NAME, "there").invoke(1)
        with pytest.raises(BadInput, match="no engine 'dask'"):
            client.query(NAME, "here", engine="dask").invoke(1)  # type: ignore[arg-type]  # the mistake


def test_a_handle_refuses_at_once_when_it_cannot_open_spark(cluster: InProcessCluster) -> None:
    client = cluster._client(NAME)
    with pytest.raises(BadInput, match="this process has none"):
        QueryHandle(client, "there").invoke(1)
    assert QueryHandle(client, "there", "local").invoke(1) == 2


def test_a_command_says_what_to_install_or_to_ask_when_spark_is_missing(
    cluster: InProcessCluster, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(engine: str) -> Any:
        raise BadInput("This needs the package pyspark. Install it: pip install 'tidemill[spark]'", extra="spark")

    monkeypatch.setattr("tidemill.cluster.engines.open_engine", without)
    (tmp_path / "engines_code.py").write_text("from test_query_engines import Engines\n")
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Any:
        return CliRunner().invoke(app, ["query", "engines_code:Engines", *args, "--store", cluster.store_url])

    for args in (("there", "[1]"), ("here", "[1]", "--engine", "spark")):
        refused = run(*args)
        assert refused.exit_code == EXIT_REFUSED
        assert (
            "pip install 'tidemill[spark]', or let the query run in this process, within its bounds: --engine local"
            in (" ".join(refused.output.split()))
        )
    assert run("there", "[1]", "--engine", "local").stdout.strip() == "2"
    assert run("here", "[1]").stdout.strip() == "2"
    assert "no engine 'dask'" in run("here", "[1]", "--engine", "dask").output
