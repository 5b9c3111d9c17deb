"""The log of a module: entries of its topologies, definitions and changes of options, merged by time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from test_gateway_access import Guarded

from tidemill import Depot, InProcessCluster, LaunchConfig, MicrobatchSourceOptions, Module
from tidemill.clients import module_history
from tidemill.clients.history import topology_history
from tidemill.clients.module_history import KINDS, LOGS_MAX, HistoryPlace, ModuleHistory
from tidemill.clients.quarantine import Quarantine
from tidemill.gateway import schemas, shared_answers
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.page import page_files
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog

AT = "/api/v1/modules/Two/log"


class Two(Module):
    """Two topologies, of which one raises for 13 until the options leave such records out."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*log", Depot.random())
        for name in ("one", "two"):
            mb = topologies.microbatch(name)
            (mb.source("*log", MicrobatchSourceOptions.start_from_beginning()).out("*microbatch")
               .explode_microbatch("*microbatch").out("*v").each(_checked, "*v").out("*w"))  # fmt: skip


def _checked(value: int) -> int:
    if value == 13:
        raise ValueError("no 13")
    return value


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster.create(engine="local") as cluster:
        cluster.launch_module(Two(), LaunchConfig(1, 1))
        options = OptionsLog(cluster.store, "Two", by="ann")
        options.set("topology", "one", "topology.on.record.error", "quarantine")
        options.set("topology", "two", "topology.on.record.error", "quarantine")
        for value in (1, 13, 2):
            cluster.cluster_depot("Two", "*log").append(value)
            cluster.wait_until_processed("Two")
        options.set("module", "", "store.collection.period.seconds", 3600)
        definition = DefinitionLog(cluster.store, "Two").newest()
        assert definition is not None
        Quarantine(cluster.store, lambda: definition, "one", by="ben").drop([0])
        cluster.update_module(Two())
        cluster.pause_microbatch_topology("Two", "one")
        cluster.pause_microbatch_topology("Two", "two")  # from now on nothing is written
        yield cluster


@pytest.fixture
def http(cluster: InProcessCluster) -> Iterator[TestClient]:
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:
        yield client


def pages(http: TestClient, **asked: Any) -> Iterator[list[dict[str, Any]]]:
    before: str | None = None
    while True:
        found = http.get(AT, params={**asked, **({} if before is None else {"before": before})}).json()
        yield found["lines"]
        before = found["before"]
        if before is None:
            return


def key(line: dict[str, Any]) -> tuple[str, str, int]:
    kind = line["kind"] if line["kind"] in ("option", "definition", "decision") else "entry"
    return kind, line.get("topology", ""), line.get("entry", line.get("number"))


def expected(cluster: InProcessCluster) -> set[tuple[str, str, int]]:
    """All that is stored, log by log."""
    definition = DefinitionLog(cluster.store, "Two").newest()
    assert definition is not None
    found = {("definition", "", number) for number in range(1, definition.number + 1)}
    found |= {("option", "", number) for number in range(1, OptionsLog(cluster.store, "Two").newest_number() + 1)}
    for topology in ("one", "two"):
        lines = topology_history(cluster.store, definition, topology, 10_000)
        found |= {("entry", topology, line["entry"]) for line in lines}
    found.add(("decision", "one", 1))
    return found


@pytest.mark.parametrize("limit", [1, 7, 200])
def test_each_entry_comes_once_and_newest_first_when_all_pages_are_read(
    cluster: InProcessCluster, http: TestClient, limit: int
) -> None:
    lines = [line for page in pages(http, limit=limit) for line in page]
    assert sorted(map(key, lines)) == sorted(expected(cluster))
    for one in ("one", "two", None):
        mine = [line for line in lines if line.get("topology") == one and line["kind"] != "decision"]
        numbers = [line.get("entry", line.get("number")) for line in mine]
        assert one is None or numbers == sorted(numbers, reverse=True)
    times = [line["written_ms"] for line in lines if "entry" in line]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_only_lines_that_fit_come_when_a_kind_is_asked_for(
    cluster: InProcessCluster, http: TestClient, kind: str
) -> None:
    everything = [line for page in pages(http) for line in page]
    fitting = [line for line in everything if line["kind"] == kind or (kind == "failure" and "failure" in line)]
    assert [line for page in pages(http, kind=kind, limit=2) for line in page] == fitting
    assert fitting or kind in ("compact", "note")


def test_only_lines_of_a_topology_come_when_it_is_asked_for(http: TestClient) -> None:
    lines = [line for page in pages(http, topology="one") for line in page]
    assert {line.get("topology", line.get("target")) for line in lines} == {"one"}
    assert [(line["by"], line["name"], line["value"]) for line in lines if line.get("action") == "set"] == [
        ("ann", "topology.on.record.error", "quarantine")
    ]


def test_who_set_what_and_why_it_failed_are_told_when_lines_are_read(http: TestClient) -> None:
    [option] = [line for line in next(pages(http, kind="option", limit=200)) if line["scope"] == "module"]
    assert (option["by"], option["action"], option["name"], option["value"]) == (
        "ann", "set", "store.collection.period.seconds", 3600,
    )  # fmt: skip
    assert option["written_ms"] > 0
    [decision] = next(pages(http, kind="decision"))
    told = [decision[name] for name in ("topology", "action", "records", "by")]
    assert (told, decision["written_ms"] > 0) == (["one", "drop", 1, "ben"], True)
    failure = next(pages(http, kind="failure"))[0]["failure"]
    assert "no 13" in failure["message"]
    launched = next(pages(http, kind="definition"))[-1]
    assert (launched["number"], launched["topologies"], launched["depots"]) == (1, 2, 1)


def test_an_answer_has_fewer_lines_and_goes_on_when_it_would_read_too_much(
    cluster: InProcessCluster, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "FRESH_MS", 0.0)
    monkeypatch.setattr(module_history, "READ_MAX", 3)
    read = list(pages(http, kind="claim"))
    assert all(len(page) <= 3 for page in read) and len(read) > 2
    claims = [line for page in read for line in page]
    assert {line["topology"] for line in claims} == {"one", "two"}
    monkeypatch.setattr(module_history, "LOGS_MAX", 1)
    assert {line["topology"] for page in pages(http, kind="claim") for line in page} == {"one"}


def test_entries_are_read_once_when_somebody_asks_again(cluster: InProcessCluster) -> None:
    history, definition = ModuleHistory(cluster.store, "Two"), DefinitionLog(cluster.store, "Two").newest()
    assert definition is not None
    first = history.read(definition, 50, HistoryPlace())
    before = dict(cluster.store.counts)
    assert history.read(definition, 50, HistoryPlace()) == first
    assert cluster.store.counts.get("get", 0) == before.get("get", 0)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"limit": 0}, 422), ({"limit": schemas.HISTORY_LINES_MAX + 1}, 422), ({"kind": "other"}, 422),
        ({"topology": "absent"}, 404), ({"before": "7"}, 422), ({"before": "{"}, 422), ({"other": 1}, 400),
        ({"before": json.dumps({"topologies": {"one": 0}})}, 422),
        ({"before": json.dumps({"options": 2**60})}, 422), ({"before": json.dumps({"topologies": {"one": "x"}})}, 422),
    ],
)  # fmt: skip
def test_a_log_is_refused_when_it_is_asked_for_wrongly(http: TestClient, asked: dict[str, Any], status: int) -> None:
    assert http.get(AT, params=asked).status_code == status


def ids(cluster: InProcessCluster) -> list[str]:
    definition = DefinitionLog(cluster.store, "Two").newest()
    assert definition is not None
    return [topology.id for topology in definition.topologies.values()]


def test_a_place_is_short_when_names_are_long(http: TestClient, cluster: InProcessCluster) -> None:
    """It is part of an address: with 64 topologies their names would not fit."""
    place = json.loads(http.get(AT, params={"limit": 1}).json()["before"])
    assert set(place["topologies"]) == set(ids(cluster))
    assert all(len(name) <= 32 for name in place["topologies"])


def test_lines_are_told_when_a_place_names_a_topology_that_is_gone(http: TestClient, cluster: InProcessCluster) -> None:
    told = dict.fromkeys(ids(cluster), 1)
    before = json.dumps({"topologies": {"gone": 5, **told}, "decisions": told, "definitions": 2, "options": 1})
    found = http.get(AT, params={"before": before}).json()
    assert [key(line) for line in found["lines"]] == [("definition", "", 1)]
    assert found["before"] is None


def test_all_lines_are_told_when_a_place_lies_beyond_logs_that_were_begun_anew(
    http: TestClient, cluster: InProcessCluster
) -> None:
    places = dict.fromkeys(ids(cluster), 10**6)
    beyond = json.dumps({"topologies": places, "decisions": places, "definitions": 10**6, "options": 10**6})
    asked = {"limit": 200}

    assert http.get(AT, params={**asked, "before": beyond}).json() == http.get(AT, params=asked).json()


def test_the_page_says_that_logs_are_left_out_when_there_are_more_than_are_merged() -> None:
    assert f"LOGS_MAX = {LOGS_MAX};" in page_files()["history.js"].content.decode()


def test_lines_keep_their_order_when_a_clock_was_behind_or_not_told(tmp_path: Path) -> None:
    with InProcessCluster.create(engine="local", store=str(tmp_path)) as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(1, 1))

        class Clock:
            def __init__(self, at: int) -> None:
                self.at = at

            def now_ms(self) -> int:
                return self.at

        for at, value in ((2_000, 60), (0, 61), (1_000, 62), (9_000, 63)):
            # The log asks it for the time only.
            log = OptionsLog(cluster.store, "Guarded", clock=Clock(at))  # type: ignore[arg-type]
            log.set("module", "", "store.collection.period.seconds", value)
        definition = DefinitionLog(cluster.store, "Guarded").newest()
        assert definition is not None
        lines, place = ModuleHistory(cluster.store, "Guarded").read(definition, 50, HistoryPlace(), "option")
        assert ([line["value"] for line in lines], place) == ([63, 62, 61, 60], None)
