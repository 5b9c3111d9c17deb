"""Plans that leaders keep in the store: seen without the code, of the newest leader, and never in anybody's way."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from waiting import eventually

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module
from tidemill.api.declaration import record_module
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.leader import kept_plans
from tidemill.leader.check import check_module
from tidemill.leader.kept_plans import keep_plan, kept_picture
from tidemill.plan.check.module import checked
from tidemill.plan.compile.topology import compile_alone
from tidemill.plan.picture import picture
from tidemill.plan.program import Program
from tidemill.store.objects import ObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.numbers import Epoch


class Counter(Module):
    """Counts words, by one more step in each version."""

    def __init__(self, *steps: Any) -> None:
        self._steps = steps

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.random())
        mb = topologies.microbatch("count")
        mb.pstate("$$n", int).global_().initial_value(0)
        rows = mb.source("*words").out("*batch").explode_microbatch("*batch").out("*word")
        for step in self._steps:
            rows = rows.each(step, "*word").out("*word")
        rows.global_partition().agg("$$n", Agg.count())


def first(word: str) -> str:
    return word


def second(word: str) -> str:
    return word


def program(*steps: Any) -> Program:
    return compile_alone(checked(record_module(Counter(*steps))))["count"]


def keys(store: ObjectStore) -> list[str]:
    return sorted(key for key in store.list("") if "/plans/" in key)


def texts(svg: str) -> set[str]:
    return {text for element in ElementTree.fromstring(svg).iter() if (text := element.text)}


def test_a_gateway_without_code_draws_the_plan_of_the_newest_leader(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=str(tmp_path)) as cluster:
        cluster.launch_module(Counter(first), LaunchConfig(1, 1))
        with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:

            def shown() -> set[str]:
                answer = http.get("/api/v1/modules/Counter/topologies/count/plan")
                return texts(answer.text) if answer.status_code == 200 else set()

            eventually(lambda: "each(first)" in shown())
            assert "each(second)" not in shown()
            cluster.update_module(Counter(first, second))
            eventually(lambda: {"each(first)", "each(second)"} <= shown())
        assert check_module(cluster.store, "Counter") == []
        cluster.destroy_module("Counter")
        assert keys(cluster.store) == []


def test_a_plan_is_kept_once_when_leaders_change() -> None:
    store = MemoryStore()
    for epoch in (1, 2, 3):
        keep_plan(store, "m/topologies/t", Epoch(epoch), program(first))
    assert [key[-7:] for key in keys(store)] == ["01.json"]
    assert kept_picture(store, "m/topologies/t") == picture(program(first))


def test_old_plans_go_when_there_are_newer_ones() -> None:
    store = MemoryStore()
    for epoch in range(1, 7):
        keep_plan(store, "m/topologies/t", Epoch(epoch), program(*[first] * epoch))
    assert [key[-7:] for key in keys(store)] == ["05.json", "06.json"]
    assert kept_picture(store, "m/topologies/t") == picture(program(*[first] * 6))


def test_a_plan_is_passed_over_when_it_is_damaged() -> None:
    store = MemoryStore()
    keep_plan(store, "m/topologies/t", Epoch(1), program(first))
    store.create("m/topologies/t/plans/00000000000000000002.json", b'{"key": "elsewhere"}')
    assert kept_picture(store, "m/topologies/t") == picture(program(first))
    assert kept_picture(store, "m/topologies/other") is None


@pytest.mark.parametrize(
    ("kept", "changed"), [(b'"source":"0"', b'"source":"none"'), (b'"target":"1"', b'"target":"none"'),
                          (b'"id":"1"', b'"id":"0"')],
)  # fmt: skip
def test_a_plan_is_passed_over_when_its_arrows_lead_nowhere(kept: bytes, changed: bytes) -> None:
    """Whoever asked for its picture got an internal error."""
    store = MemoryStore()
    keep_plan(store, "m/topologies/t", Epoch(1), program(first))
    (key,) = keys(store)
    assert kept in store.objects[key]
    store.objects[key] = store.objects[key].replace(kept, changed)
    assert kept_picture(store, "m/topologies/t") is None


def test_a_plan_is_not_kept_when_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "PLAN_BYTES_MAX", 1_000)
    store = MemoryStore()
    keep_plan(store, "m/topologies/t", Epoch(1), program(first))
    assert keys(store) == []
