"""What the gateway tells of a depot: what is stored, how fast it grows, and what is kept for whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from test_gateway_access import Guarded
from waiting import eventually

from tidemill import Agg, CompoundAgg, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Module, PState
from tidemill.clients.module import ModuleClient
from tidemill.depot.log import DepotLog, system_millis
from tidemill.depot.retention import RollingLimits, roll
from tidemill.gateway import depot_facts, shared_answers
from tidemill.gateway.app import make_app
from tidemill.gateway.depot_facts import DepotFacts
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.gateway.tokens import Tokens
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.values.columns import from_values

AT = "/api/v1/modules/Guarded/depots/log/facts"


class Counter(Module):
    """Reads the depot of another module."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.cluster_depot("*log", "Guarded", "*log")
        mb = topologies.microbatch("mb")
        mb.pstate("$$all", PState.map_schema(object, int))
        (mb.source("*log", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
           .explode_microbatch("*microbatch").out("*v").hash_partition("*v")
           .compound_agg("$$all", CompoundAgg.map("*v", Agg.count())))  # fmt: skip


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request looks for itself."""
    monkeypatch.setattr(shared_answers, "FRESH_MS", 0.0)


@pytest.fixture
def cluster(store_url: str) -> Iterator[InProcessCluster]:
    """On a folder and on MinIO, where sizes are asked for in another way."""
    with InProcessCluster.create(engine="local", store=store_url) as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(2, 1))
        yield cluster


def facts(cluster: InProcessCluster) -> dict[str, Any]:
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
        found: dict[str, Any] = http.get(AT).json()
        return found


def opened(cluster: InProcessCluster, *times: int) -> DepotLog:
    """The depot for a writer at these times."""
    definition = DefinitionLog(cluster.store, "Guarded").newest()
    assert definition is not None
    prefix = definition.depot_prefix("*log")
    return DepotLog(cluster.store, prefix, 2, iter(times).__next__) if times else DepotLog(cluster.store, prefix, 2)


def test_nothing_is_told_of_segments_when_a_depot_is_empty(cluster: InProcessCluster) -> None:
    found = facts(cluster)
    assert (found["module_name"], found["name"], found["num_partitions"]) == ("Guarded", "*log", 2)
    assert found["offsets"] == [[0, 0], [0, 0]]
    assert (found["segments"], found["objects"], found["bytes"], found["first_ms"]) == (0, 0, 0, None)
    assert found["rates"] == {"60": 0, "600": 0}
    assert found["retention"] == {"records_max": None, "excess": 0.25, "remote_seconds": 604_800}


def test_segments_bytes_and_rates_are_told_when_records_were_appended_at_different_times(
    cluster: InProcessCluster,
) -> None:
    now = system_millis()
    log = opened(cluster, now - 3_600_000, now - 300_000, now - 1_000)
    for partition, count in ((0, 1), (1, 30), (0, 60)):
        log.append([(partition, from_values(list(range(count)), True))])
    found = facts(cluster)
    assert found["offsets"] == [[0, 61], [0, 30]]
    assert (found["segments"], found["objects"]) == (3, 3)
    assert (found["first_ms"], found["newest_ms"]) == (now - 3_600_000, now - 1_000)
    assert found["rates"] == {"60": 1.0, "600": 0.15}
    assert found["bytes"] == sum(len(cluster.store.get(log.files.log.key(number))) for number in (1, 2, 3))


def test_all_segments_are_told_when_some_are_rolled_into_one(cluster: InProcessCluster) -> None:
    log = opened(cluster)
    for number in range(6):
        log.append([(0, from_values([number], True))])
    rolled = roll(log, RollingLimits(segments_min=2))
    found = facts(cluster)
    assert rolled == 4
    assert (found["segments"], found["objects"]) == (6, 3)
    assert found["bytes"] > 0 and found["first_ms"] > 0


def test_bytes_are_not_told_yet_when_more_objects_are_there_than_one_look_asks_for(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depot_facts, "SIZES_MAX", 2)
    log = opened(cluster)
    for number in range(3):
        log.append([(0, from_values([number], True))])
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
        assert http.get(AT).json()["bytes"] is None
        assert http.get(AT).json()["bytes"] > 0
        monkeypatch.setattr(depot_facts, "SIZED_OBJECTS_MAX", 2)
        assert http.get(AT).json()["bytes"] is None


def test_records_are_kept_for_a_reader_when_it_is_slower_than_retention(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Guarded", "*log").append_many([1] * 5)
    cluster.wait_until_processed("Guarded")
    OptionsLog(cluster.store, "Guarded").set("depot", "*log", "depot.max.entries.per.partition", 2)
    cluster.pause_microbatch_topology("Guarded", "mb")
    opened(cluster).append([(0, from_values(list(range(10)), True)), (1, from_values([1], True))])
    found = facts(cluster)
    [reader] = found["readers"]
    assert found["retention"]["records_max"] == 2
    assert (reader["module"], reader["topology"], reader["source"]) == ("Guarded", "mb", "*log")
    assert (sum(reader["offsets"]), reader["waiting"]) == (5, 11)
    assert reader["held_back"] == 8  # of ten new ones in partition 0 retention would keep two; of the one in 1, it


def test_a_module_that_mirrors_a_depot_is_told_by_name_when_the_token_may_see_it(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.launch_module(Counter(), LaunchConfig(1, 1))
    cluster.cluster_depot("Guarded", "*log").append_many([1, 2])
    cluster.wait_until_processed("Counter")
    (tmp_path / "tokens").write_text("all\none read Guarded\n")
    settings = GatewaySettings(tokens=Tokens(file=tmp_path / "tokens"))
    marks = list(cluster.store.list("Guarded/readers"))
    with TestClient(make_app(Modules(cluster.store), settings)) as http:

        def readers(token: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = http.get(AT, headers={"authorization": f"Bearer {token}"}).json()["readers"]
            return found

        own, other = readers("all")
        assert (own["topology"], other["module"], other["topology"], other["waiting"]) == ("mb", "Counter", None, 0)
        assert [one["module"] for one in readers("one")] == ["Guarded", None]
        with monkeypatch.context() as patch:
            patch.setattr(depot_facts, "KEPT_READERS_MAX", 0)
            assert readers("all") == []
    cluster.destroy_module("Counter")
    assert len(facts(cluster)["readers"]) == 1
    assert list(cluster.store.list("Guarded/readers")) == marks  # a look deletes nothing


def test_a_module_that_mirrors_a_depot_is_told_once_when_it_was_updated(cluster: InProcessCluster) -> None:
    cluster.launch_module(Counter(), LaunchConfig(1, 1))
    cluster.update_module(Counter())
    cluster.cluster_depot("Guarded", "*log").append(1)
    cluster.wait_until_processed("Counter")
    assert len(list(cluster.store.list("Guarded/readers"))) == 2
    [_, other] = facts(cluster)["readers"]
    assert (other["module"], sum(other["offsets"]), other["waiting"]) == ("Counter", 1, 0)


def test_no_other_module_is_named_when_a_gateway_serves_one(cluster: InProcessCluster) -> None:
    cluster.launch_module(Counter(), LaunchConfig(1, 1))
    with TestClient(make_app(Modules(cluster.store, only="Guarded"), GatewaySettings())) as http:
        assert [one["module"] for one in http.get(AT).json()["readers"]] == ["Guarded", None]
        assert http.get(AT, params={"x": 1}).json()["error"]["message"] == "There is no query parameter 'x' here."


def test_nothing_waits_when_a_reader_is_past_the_end_that_was_looked_at(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = DepotFacts._own

    def overtaken(self: DepotFacts, *given: Any) -> Any:
        cluster.cluster_depot("Guarded", "*log").append_many([1, 2])
        cluster.wait_until_processed("Guarded")
        return own(self, *given)

    monkeypatch.setattr(DepotFacts, "_own", overtaken)
    [reader] = facts(cluster)["readers"]
    assert (sum(reader["offsets"]), reader["waiting"]) == (2, 0)


def test_sizes_are_told_when_another_thread_puts_others_in_their_place(cluster: InProcessCluster) -> None:
    told = DepotFacts(ModuleClient(cluster.store, "Guarded"), "*log")

    class Replaced(dict[str, int]):
        def __contains__(self, key: object) -> bool:
            told._sizes = {}
            return super().__contains__(key)

    told._sizes = Replaced(one=1, two=2)
    assert told._bytes(["one", "two"]) == 3


def test_a_depot_is_looked_at_anew_when_its_module_was_destroyed_and_launched_again(cluster: InProcessCluster) -> None:
    cluster.cluster_depot("Guarded", "*log").append_many([1, 2])
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as http:
        assert sum(end for _, end in http.get(AT).json()["offsets"]) == 2
        cluster.destroy_module("Guarded")
        eventually(lambda: http.get(AT).status_code == 404)  # in a bucket a definition is looked at once a second
        cluster.launch_module(Guarded(), LaunchConfig(2, 1))
        eventually(lambda: http.get(AT).json().get("offsets") == [[0, 0], [0, 0]])


def test_what_a_module_mirrors_is_named_when_the_token_may_see_its_module(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    cluster.launch_module(Counter(), LaunchConfig(1, 1))
    (tmp_path / "tokens").write_text("all\none read Counter\n")
    settings = GatewaySettings(tokens=Tokens(file=tmp_path / "tokens"))
    with TestClient(make_app(Modules(cluster.store), settings)) as http:
        for token, module in (("all", "Guarded"), ("one", None)):
            found = http.get("/api/v1/modules/Counter", headers={"authorization": f"Bearer {token}"}).json()
            assert found["mirrors"] == [{"name": "*log", "kind": "depot", "module": module, "object": "*log"}]
