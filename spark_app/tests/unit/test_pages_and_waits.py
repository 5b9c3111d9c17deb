"""Whole PStates page by page, many keys at once, and waits: in the process, and through a gateway."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest
from gateways import WAYS, launched
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tidemill import (
    Agg,
    BadInput,
    BadPath,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.clients.barrier import barriers_from
from tidemill.clients.pages import Cursor, pages
from tidemill.gateway import depots
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.definition_log import DefinitionLog
from tidemill.values.errors import MicrobatchFails, StoreUnavailable

KEYS = [f"k{n:03}" for n in range(250)] + ["*star", "$$sigil", "#__S", ""]


class Pairs(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*pairs", Depot.hash_by(Ops.FIRST))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$pages", PState.map_schema(str, PState.map_schema(str, int).subindexed()))
        mb.pstate("$$total", PState.map_schema(str, int)).global_()
        mb.pstate("$$plain", int)
        (
            mb.source("*pairs").out("*m")
            .explode_microbatch("*m").out("*pair")
            .each(Ops.EXPAND, "*pair").out("*k", "*page")
            .each(lambda page: page + "", "*page").out("*copy")
            .compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))
            .compound_agg("$$pages", CompoundAgg.map("*k", CompoundAgg.map("*copy", Agg.count())))
            .agg("$$plain", Agg.count())
            .global_partition()
            .compound_agg("$$total", CompoundAgg.map("*k", Agg.count()))
        )  # fmt: skip


@pytest.fixture(scope="module", params=WAYS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    with launched(request.param, Pairs(), LaunchConfig(8, 2)) as cluster:
        cluster.cluster_depot("Pairs", "*pairs").append_many([[key, page] for key in KEYS for page in ("a", "b")])
        waiter = getattr(cluster, "client", cluster)
        waiter.wait_until_processed("Pairs")
        yield cluster


@pytest.mark.parametrize("size", [1, 7, 31, 254, 10_000])
def test_every_key_is_there_once_when_a_walk_ends(cluster: Any, size: int) -> None:
    found = list(cluster.cluster_pstate("Pairs", "$$counts").scan(page_size=size))

    assert sorted(found) == sorted([key, 2] for key in KEYS)


def test_values_below_each_key_are_read_when_a_page_has_a_path(cluster: Any) -> None:
    handle = cluster.cluster_pstate("Pairs", "$$pages")

    assert sorted(handle.scan(Path.map_keys(), page_size=100)) == sorted([key, ["a", "b"]] for key in KEYS)
    with pytest.raises(BadPath, match="give a path below the key"):
        handle.page()


def test_one_partition_is_walked_when_the_pstate_is_global(cluster: Any) -> None:
    assert list(cluster.cluster_pstate("Pairs", "$$total").scan(page_size=100)) == [[key, 2] for key in sorted(KEYS)]


def test_all_pages_are_of_one_entry_when_microbatches_go_on(cluster: Any) -> None:
    handle = cluster.cluster_pstate("Pairs", "$$counts")
    first = handle.page(10)
    cluster.cluster_depot("Pairs", "*pairs").append(["later", "a"])
    getattr(cluster, "client", cluster).wait_until_processed("Pairs", "mb")
    rest = list(pages(lambda after: handle.page(50, after=after or first.after)))

    assert "later" not in [key for key, _ in first.items + rest]
    assert len(first.items + rest) == len(handle.page(10_000).items) - 1
    assert handle.select_one(Path.key("later")) == 1


def test_a_page_is_refused_when_it_cannot_be(cluster: Any) -> None:
    handle = cluster.cluster_pstate("Pairs", "$$counts")
    for limit in (0, -1, 10_001, True, "7"):
        with pytest.raises(BadInput):
            handle.page(limit)
    for after in ("x", "", "gKo=", "x" * 200_000):
        with pytest.raises(BadInput):
            handle.page(after=after)
    with pytest.raises(BadPath, match="no map"):
        cluster.cluster_pstate("Pairs", "$$plain").page()


def test_many_keys_are_read_as_of_one_entry_when_asked_for_at_once(cluster: Any) -> None:
    handle = cluster.cluster_pstate("Pairs", "$$counts")

    assert handle.select_many([Path.key("k001"), Path.key("nobody"), Path.must("nobody")]) == [[2], [None], []]
    assert handle.select_many([]) == []
    with pytest.raises(BadPath):
        handle.select_many([Path.key("k001"), Path.map_keys()])


@given(st.integers(0, 2**60), st.integers(0, 2**20), st.lists(st.one_of(st.text(), st.integers(-9, 9)), max_size=1))
@settings(max_examples=50)
def test_a_cursor_is_read_as_it_was_written_when_it_comes_back(entry: int, task: int, keys: list[Any]) -> None:
    cursor = Cursor(entry, task, tuple(keys))

    assert Cursor.of(cursor.text()) == cursor


def _post(url: str, body: Any) -> Any:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def _barrier(*topologies: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(topologies)).decode()


@pytest.mark.parametrize(
    "barrier",
    [_barrier(["mb", {}], ["mb", {}]), _barrier([["mb"], {}]), _barrier([{"mb": 1}, {}]),
     _barrier(["mb", {"*pairs": 7}]), _barrier(["mb", {"*pairs": ["a"]}]), _barrier(["mb", {"*pairs": [1] * 9}]),
     _barrier("mb"), "x", "\u00e9"],
)  # fmt: skip
def test_a_barrier_is_refused_when_it_is_none_or_names_a_topology_twice(cluster: Any, barrier: str) -> None:
    definition = DefinitionLog(cluster.store, "Pairs").newest()
    assert definition is not None
    with pytest.raises(BadInput, match="the text of an earlier answer"):
        barriers_from(definition, barrier)


def test_others_are_served_when_as_many_requests_wait_as_may() -> None:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Pairs(), LaunchConfig(2, 1))
        with TestClient(make_app(Modules(cluster.store), GatewaySettings(waiting_max=1))) as http:
            waiting, url = http.app.state.gateway.waiting, "/api/v1/modules/Pairs"  # type: ignore[attr-defined]
            waiting.take(1, 0)
            refused = http.post(f"{url}/wait", json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "Busy")
            told = http.post(f"{url}/depots/pairs/append?wait=processed", json={"record": ["x", "a"]}).json()
            assert (told["appended"], told["processed"]) == (1, False)
            assert told["message"].startswith("The records are appended.") and "Nothing" not in told["message"]
            assert http.post(f"{url}/pstates/counts/select", json={"path": ["x"]}).status_code == 200
            waiting.give_back(1, 0)
            for _ in range(2):  # a place is given back, however a wait ends
                assert http.post(f"{url}/wait", json={}).json()["processed"] is True


def test_an_append_that_is_done_names_no_store_when_nobody_knows_whether_it_is_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("s3://hidden/prefix/modules/Pairs does not answer")

    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Pairs(), LaunchConfig(2, 1))
        monkeypatch.setattr(depots, "barrier_of", away)
        with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
            asked = http.post("/api/v1/modules/Pairs/depots/pairs/append?wait=processed", json={"record": ["x", "a"]})
    told = asked.json()
    assert (told["appended"], told["processed"]) == (1, False)
    assert "hidden" not in told["message"] and "StoreUnavailable" in told["message"]


def test_an_append_is_answered_when_it_is_processed_or_when_its_time_is_over() -> None:
    with launched("http", Pairs(), LaunchConfig(2, 1)) as cluster:
        url = f"{cluster.client._connection.url}/api/v1/modules/Pairs"
        append = f"{url}/depots/pairs/append?wait=processed"
        assert _post(append, {"record": ["x", "a"]})["processed"] is True
        assert _post(f"{url}/pstates/counts/selectOne", {"path": ["x"]}) == 1

        cluster.pause_microbatch_topology("Pairs", "mb")
        cluster.cluster_depot("Pairs", "*pairs").append(["x", "b"])
        late = _post(f"{url}/wait", {"timeoutMs": 50})
        assert late["processed"] is False
        assert "it is paused" in late["message"]
        cluster.resume_microbatch_topology("Pairs", "mb")
        assert _post(f"{url}/wait", {"barrier": late["barrier"]})["processed"] is True
        with pytest.raises(TimeoutError, match="has not processed"):
            cluster.pause_microbatch_topology("Pairs", "mb")
            cluster.cluster_depot("Pairs", "*pairs").append(["x", "b"])
            cluster.client.wait_until_processed("Pairs", "mb", timeout_seconds=0.05)
        cluster.resume_microbatch_topology("Pairs", "mb")

        bad = _post(append, {"record": ["x", 7]})
        assert (bad["appended"], bad["processed"]) == (1, False)
        assert "fails on each attempt" in bad["message"]
        with pytest.raises(MicrobatchFails, match="fails on each attempt"):
            cluster.client.wait_until_processed("Pairs")
