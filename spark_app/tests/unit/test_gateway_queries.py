"""Queries through a gateway and from the command line: answers, refusals, roles and bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gateways import launched, served
from polars.exceptions import PanicException
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.cli.output import EXIT_REFUSED
from tidemill.cli.verdict import needs_code
from tidemill.client import Client
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.values.errors import BadInput, BudgetExceeded, NeedsCode, NotOneValue, UnknownName, UserCodeError

NAME, AT = "Asked", "/api/v1/modules/Asked/queries"
RELEASES: dict[str, threading.Event] = {}
BEGAN = threading.Event()


def _wait_for(name: str) -> str:
    BEGAN.set()
    RELEASES[name].wait(30)
    return name


class Strange:
    """No data."""


def _ended(how: str) -> str:
    """What would end the program of whoever asks."""
    raise {"exit": SystemExit, "panic": PanicException}[how]()


class Asked(Module):
    """Sums of amounts by name, and queries about them."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*amounts", Depot.hash_by(Ops.FIRST))
        # A million rows are to be too many before they take too long, also on a machine that is busy.
        setup.set_launch_module_dynamic_option("topology.query.timeout.millis", 200_000)
        mb = topologies.microbatch("mb")
        mb.pstate("$$sums", PState.map_schema(str, int))
        rows = mb.source("*amounts").out("*mb").explode_microbatch("*mb").out("*row").each(Ops.EXPAND, "*row")
        rows.out("*name", "*amount").compound_agg("$$sums", CompoundAgg.map("*name", Agg.sum("*amount")))
        total = topologies.query("total").out("*sum").all_partition().local_select("$$sums", Path.map_vals()).out("*n")
        total.origin_partition().agg(Agg.sum("*n")).out("*sum")
        of = topologies.query("sum of", "*name").out("*sum").select("$$sums", Path.key("*name")).out("*sum")
        of.origin_partition()
        all_ = topologies.query("all").out("*map").all_partition().local_select("$$sums", Path.all()).out("*pair")
        all_.each(Ops.EXPAND, "*pair").out("*k", "*v").origin_partition().agg(Agg.map("*k", "*v")).out("*map")
        topologies.query("same", "*value").out("*r").each(Ops.IDENTITY, "*value").out("*r").origin_partition()
        topologies.query("ended", "*how").out("*r").each(_ended, "*how").out("*r").origin_partition()
        topologies.query("inverse", "*n").out("*r").each(Ops.DIV, 1, "*n").out("*r").origin_partition()
        topologies.query("each", "*rows").out("*r").each(Ops.EXPLODE, "*rows").out("*r").origin_partition()
        numbers = topologies.query("numbers", "*n").out("*r").each(Ops.RANGE, 0, "*n").out("*i").origin_partition()
        numbers.agg(Agg.count()).out("*r")
        topologies.query("strange").out("*r").origin_partition().each(Strange).out("*r")
        topologies.query("slow", "*name").out("*r").each(_wait_for, "*name").out("*r").each(
            Ops.IDENTITY, "*r"
        ).out("*s").origin_partition()  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local") as found:
        found.launch_module(Asked(), LaunchConfig(4, 2))
        found.cluster_depot(NAME, "*amounts").append_many([["a", 1], ["b", 2], ["c", 4], ["a", 8]])
        found.wait_until_processed(NAME)
        yield found


@pytest.fixture(scope="module")
def client(cluster: InProcessCluster) -> Iterator[Client]:
    modules = Modules(cluster.store, declaration=record_module(Asked()))
    with served(modules, GatewaySettings(seconds_max=200)) as server, Client(server.url) as found:
        yield found


def http(cluster: InProcessCluster, settings: GatewaySettings | None = None, *, has_code: bool = True) -> TestClient:
    modules = Modules(cluster.store, declaration=record_module(Asked()) if has_code else None)
    return TestClient(make_app(modules, settings or GatewaySettings()))


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_query_answers_when_it_is_asked_over_http(client: Client) -> None:
    assert client.query(NAME, "total").invoke() == 15
    assert client.query(NAME, "sum of").invoke("a") == 9
    assert client.query(NAME, "all").invoke() == {"a": 9, "b": 2, "c": 4}
    assert client.query(NAME, "total").invoke_async().result(30) == 15
    assert tuple(client.query(NAME, "total").get_object_info()) == (NAME, "total", 4)


@pytest.mark.parametrize("value", [None, True, 2**62, 0.5, "ä", "#__S", b"\x00", [1, [2]], {"a": {"b": 1}}, {1, 2}])
def test_a_value_is_the_same_when_it_goes_to_a_query_and_back(client: Client, value: Any) -> None:
    assert client.query(NAME, "same").invoke(value) == value


def test_json_is_answered_when_json_is_asked(cluster: InProcessCluster) -> None:
    with http(cluster) as asked:
        assert asked.post(f"{AT}/sum%20of/invoke", json=["c"]).json() == 4
        assert asked.post(f"{AT}/same/invoke", json=["#__L9007199254740993"]).text == "9007199254740993"
        assert asked.get(f"{AT}/sum%20of").json() == {
            "module_name": NAME, "name": "sum of", "inputs": ["*name"], "result": "*sum", "num_partitions": 4,
        }  # fmt: skip
        summary = asked.get("/api/v1/modules/Asked").json()
        assert {"name": "total", "inputs": [], "result": "*sum"} in summary["queries"]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_an_error_is_the_librarys_when_a_query_fails_over_http(client: Client) -> None:
    with pytest.raises(UnknownName, match="no query nothing"):
        client.query(NAME, "nothing")
    with pytest.raises(BadInput, match=r"takes 1 argument \(\*name\), not 2"):
        client.query(NAME, "sum of").invoke("a", "b")
    with pytest.raises(UserCodeError, match=r"each\(DIV\) at .* raised ZeroDivisionError"):
        client.query(NAME, "inverse").invoke(0)
    with pytest.raises(NotOneValue, match="gave 2 results"):
        client.query(NAME, "each").invoke([1, 2])
    with pytest.raises(BudgetExceeded, match="makes more than 1,000,000 rows"):
        client.query(NAME, "numbers").invoke(10**15)
    with pytest.raises(BadInput, match="gave what cannot be sent"):
        client.query(NAME, "strange").invoke()
    with pytest.raises(BadInput, match="no data"):
        client.query(NAME, "same").invoke(Strange())


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("nothing", "[]", 404, "UnknownName"), ("total", "{}", 400, "BadInput"), ("total", "x", 400, "BadInput"),
        ("total", "[1]", 422, "BadInput"), ("inverse", "[0]", 422, "UserCodeFailed"),
        ("ended", '["exit"]', 422, "UserCodeFailed"), ("ended", '["panic"]', 422, "UserCodeFailed"),
        ("each", "[[]]", 422, "NotOneValue"), ("numbers", "[10000000]", 422, "BudgetExceeded"),
        ("same", '["#__x"]', 422, "BadPath"), ("strange", "[]", 422, "BadInput"),
    ],
)  # fmt: skip
def test_the_status_says_who_must_act_when_a_query_fails(
    cluster: InProcessCluster, query: str, body: str, status: int, code: str
) -> None:
    with http(cluster) as asked:
        found = asked.post(f"{AT}/{query}/invoke", content=body, headers={"content-type": "application/json"})

    assert (found.status_code, found.json()["error"]["code"]) == (status, code)


def test_the_code_is_asked_for_when_a_gateway_has_none_or_another_version(cluster: InProcessCluster) -> None:
    class Other(Asked):
        def module_name(self) -> str:
            return NAME

        def define(self, setup: Any, topologies: Any) -> None:
            setup.declare_depot("*amounts", Depot.hash_by(Ops.FIRST))
            mb = topologies.microbatch("mb")
            mb.pstate("$$sums", PState.map_schema(str, object))
            of = topologies.query("sum of", "*name").out("*sum").select("$$sums", Path.key("*name")).out("*sum")
            of.origin_partition()
            topologies.query("same", "*a", "*b").out("*b").each(Ops.PLUS, "*a", 1).out("*c").origin_partition()

    with http(cluster, has_code=False) as asked:
        found = asked.post(f"{AT}/total/invoke", json=[])
        assert (found.status_code, found.json()["error"]["code"]) == (422, "NeedsCode")
        assert "--entry MODULE:CLASS" in found.json()["error"]["message"]
        assert asked.get(f"{AT}/total").status_code == 200
    with served(Modules(cluster.store, declaration=record_module(Other()))) as server, Client(server.url) as client:
        with pytest.raises(NeedsCode, match=r"the PState \$\$sums otherwise"):
            client.query(NAME, "sum of").invoke("a")
        with pytest.raises(NeedsCode, match="the query same otherwise"):
            client.query(NAME, "same").invoke(1)


def test_a_role_decides_when_a_token_asks_a_query(cluster: InProcessCluster) -> None:
    tokens = Tokens(token="all")
    with http(cluster, GatewaySettings(tokens=tokens)) as asked:
        assert asked.post(f"{AT}/total/invoke", json=[]).status_code == 401
        assert asked.post(f"{AT}/total/invoke", json=[], headers={"authorization": "Bearer all"}).status_code == 200


def test_a_query_is_refused_when_as_many_run_as_the_gateway_takes(cluster: InProcessCluster) -> None:
    RELEASES["busy"] = threading.Event()
    with http(cluster, GatewaySettings(queries_max=1)) as asked:
        first = threading.Thread(target=asked.post, args=(f"{AT}/slow/invoke",), kwargs={"json": ["busy"]})
        first.start()
        assert BEGAN.wait(30)
        found = asked.post(f"{AT}/total/invoke", json=[])
        RELEASES["busy"].set()
        first.join()
        assert (found.status_code, found.json()["error"]["code"]) == (503, "Busy")
        assert asked.post(f"{AT}/total/invoke", json=[]).status_code == 200


def test_a_query_ends_when_the_time_of_its_request_is_over(cluster: InProcessCluster) -> None:
    with http(cluster, GatewaySettings(seconds_max=0.000001)) as asked:
        assert asked.post(f"{AT}/numbers/invoke", json=[900_000]).status_code in (422, 504)


def test_queries_are_counted_when_they_are_answered(cluster: InProcessCluster) -> None:
    with http(cluster) as asked:
        asked.post(f"{AT}/total/invoke", json=[])
        asked.post(f"{AT}/nothing/invoke", json=[])
        text = asked.get("/metrics").text

    assert 'tidemill_gateway_queries_total{module="Asked",query="total"} 1.0' in text
    assert "nothing" not in text


def test_a_gateway_wants_the_modules_image_when_the_module_has_queries(cluster: InProcessCluster) -> None:
    assert needs_code(cluster._client(NAME).definition())


# --- command line ----------------------------------------------------------------------------------------------------


@pytest.fixture
def entry(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "asked_code.py").write_text("from test_gateway_queries import Asked\n")
    monkeypatch.chdir(tmp_path)
    return "asked_code:Asked"


def run(*args: str) -> Any:
    return CliRunner().invoke(app, list(args))


def test_a_command_answers_when_it_has_the_code(cluster: InProcessCluster, entry: str) -> None:
    store = ("--store", cluster.store_url)

    assert run("query", NAME, "sum of", '["a"]', "--module", entry, *store).stdout.strip() == "9"
    assert json.loads(run("query", entry, "all", "--json", *store).stdout) == {"a": 9, "b": 2, "c": 4}
    shown = run("query", entry, "same", '[[{"x": 1, "y": "b"}, {"x": 2}]]', *store).stdout
    assert [line.split("│")[1:3] for line in shown.splitlines() if "1" in line or "2" in line]
    assert "key" in run("query", entry, "all", *store).stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("total",), "--module MODULE:CLASS"), (("total", "{}"), "a JSON list"), (("total", "x"), "are not JSON"),
        (("nothing",), "has no query nothing"),
    ],
)  # fmt: skip
def test_a_command_says_what_to_do_when_it_cannot_ask(
    cluster: InProcessCluster, args: tuple[str, ...], text: str
) -> None:
    done = run("query", NAME, *args, "--store", cluster.store_url)

    assert done.exit_code == EXIT_REFUSED
    assert text in " ".join(done.output.split())


def test_queries_are_described_when_a_module_is(entry: str) -> None:
    described = json.loads(run("describe", entry, "--json", "--plan").stdout)

    assert {"name": "sum of", "inputs": ["*name"], "result": "*sum"} in described["queries"]
    assert "total" in {segment["topology"] for segment in described["plan"]}
    assert "sum of" in run("describe", entry).output


def test_handles_are_alike_when_they_are_of_a_cluster_or_of_a_gateway() -> None:
    answers = []
    for way in ("process", "http"):
        with launched(way, Asked(), LaunchConfig(2, 1)) as found:
            found.cluster_depot(NAME, "*amounts").append_many([["x", 5], ["y", 6]])
            found.wait_until_processed(NAME)
            answers.append([found.cluster_query(NAME, "total").invoke(), found.cluster_query(NAME, "all").invoke()])

    assert answers[0] == answers[1] == [11, {"x": 5, "y": 6}]
