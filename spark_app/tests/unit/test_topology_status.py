"""One record says how a topology stands, and all who show it show the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from gateways import served
from typer.testing import CliRunner

from tidemill import Agg, Depot, InProcessCluster, LaunchConfig, Module
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.client import Client
from tidemill.clients.status import State, TopologyStatus, entry_status
from tidemill.clients.status_reader import topology_status
from tidemill.definition import definition as definitions
from tidemill.gateway.modules import Modules
from tidemill.journal.entries import Attempt, Entry, Failure
from tidemill.kubernetes.probes import DriverHealth, DriverMetrics
from tidemill.kubernetes.status import LeaderHistory, lag_by_depot, resource_status
from tidemill.leader.report import RunnerReport, RunnerState
from tidemill.plan.check.module import checked
from tidemill.values.ids import Ids
from tidemill.values.offsets import OffsetRanges

HTTP = Path(__file__).parents[3] / "docs" / "reference" / "http.md"
FAILURE = Failure(2, 1, "process", "UserCodeFailed", "no", 5, "step", "trace", "sample")


class Shown(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*d", Depot.random())
        mb = topologies.microbatch("mb")
        mb.pstate("$$n", int).global_().initial_value(0)
        counted = mb.source("*d").out("*m").explode_microbatch("*m").out("*r")
        counted.global_partition().agg("$$n", Agg.count())


DEFINITION = definitions.launch(checked(record_module(Shown())), 2, 1, Ids(1))
UNDER_WAY = Attempt(2, 1, {"*d": OffsetRanges((0, 0), (1, 0))}, {}, {})


def entry(**more: Any) -> Entry:
    return Entry("begin", "nonce", 1, 1, 5, **more)


@pytest.mark.parametrize(
    ("head", "is_running", "pause", "state"),
    [
        (None, False, None, "stopped"),
        (None, True, None, "starting"),
        (entry(), False, None, "stopped"),
        (entry(), False, 3, "stopped, paused"),
        (entry(), True, None, "running"),
        (entry(failure=FAILURE), True, None, "failing"),
        (entry(failure=FAILURE), True, 3, "pausing"),
        (entry(paused_seen=2), True, 3, "pausing"),
        (entry(paused_seen=3), True, 3, "paused"),
    ],
)
def test_the_state_is_one_word_when_head_leader_and_pause_are_given(
    head: Entry | None, is_running: bool, pause: int | None, state: State
) -> None:
    found = entry_status(DEFINITION, "mb", (1, head) if head else None, is_running=is_running, pause=pause)

    assert (found.state, found.is_paused, found.is_running) == (state, pause is not None, is_running)
    assert found.is_pause_seen == (state == "paused")


@pytest.mark.parametrize(
    ("more", "is_idle"),
    [
        ({}, True),
        ({"phase": "idle"}, True),
        ({"phase": "process"}, False),
        ({"phase": "idle", "is_paused": True}, True),
        ({"entry": 0}, False),
        ({"lag": {"*d": 1}}, False),
        ({"lag": {"*d": 1}, "is_paused": True}, True),
        ({"lag": {"*d": 1}, "phase": "process", "is_paused": True}, False),
        ({"lag": {"*d": 1}, "phase": "paused"}, True),
        ({"under_way": (2, 1)}, False),
        ({"trouble": "503", "phase": "paused"}, False),
    ],
)
def test_a_topology_is_idle_when_nothing_will_happen_by_itself(more: dict[str, Any], is_idle: bool) -> None:
    assert TopologyStatus(**{"module": "M", "topology": "mb", "entry": 3, **more}).is_idle is is_idle


def test_a_status_comes_back_from_its_json_with_every_field() -> None:
    state = RunnerState(
        "leader", 7, entry(failure=FAILURE, attempt=UNDER_WAY), RunnerReport("back-off", FAILURE, 3, "503"), pause=3
    )
    found = state.status(DEFINITION, "mb")
    text = json.dumps(found.to_json())

    assert TopologyStatus.from_json({**json.loads(text), "added_later": 1}) == found
    assert (found.failure, found.under_way, found.phase, found.trouble) == (FAILURE, (2, 1), "back-off", "503")


def test_a_standby_shows_what_the_log_says_when_it_looks() -> None:
    found = RunnerState("standby", is_refused=True, pause=9).status(DEFINITION, "mb", (4, entry(paused_seen=2)), 2)

    assert (found.role, found.phase, found.entry, found.state) == ("standby", None, 4, "paused")


def test_the_page_on_http_names_each_field_once() -> None:
    page = HTTP.read_text().partition("### How a topology stands")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = [name for row in rows if row != "field" for name in re.findall(r"`(\w+)`", row)]

    assert sorted(named) == sorted([field.name for field in fields(TopologyStatus)] + ["waiting"])


# The same for everybody


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local", store=str(tmp_path_factory.mktemp("store"))) as cluster:
        cluster.launch_module(Shown(), LaunchConfig(2, 1))
        cluster.pause_microbatch_topology("Shown", "mb")
        cluster.cluster_depot("Shown", "*d").append_many([1, 2, 3])
        yield cluster


def test_everybody_shows_the_same_when_nothing_changes_meanwhile(cluster: InProcessCluster) -> None:
    store, definition = cluster.store, cluster._client("Shown").definition()
    wanted = topology_status(store, definition, "mb")
    depot = cluster.cluster_depot("Shown", "*d")
    by_partition = tuple(depot.get_partition_info(one).end_offset for one in range(2))
    shell = CliRunner().invoke(app, ["status", "--store", store.url, "--json"])
    with served(Modules(store)) as server, Client(server.url) as client:
        over_http = client.status("Shown", "mb")
    runner = cluster._running["Shown"].topologies["mb"].status()

    assert (wanted.state, wanted.waiting, wanted.lag) == ("paused", 3, {"*d": 3})
    assert json.loads(shell.stdout) == [json.loads(json.dumps(wanted.to_json()))]
    assert over_http == wanted
    assert runner.phase == "paused"
    assert (wanted.lag_by_partition, wanted.start_from) == ({"*d": by_partition}, {"*d": (0, 0)})
    told_by_runner = {"lag", "lag_by_partition", "role", "phase", "failures_in_row", "commits_since_claim"}
    told_by_lease = {"engine", "spark_ui", "standbys"}
    same = [field.name for field in fields(wanted) if field.name not in told_by_runner | told_by_lease]
    assert {name: getattr(runner, name) for name in same} == {name: getattr(wanted, name) for name in same}


def test_a_driver_shows_the_record_when_it_reports(cluster: InProcessCluster) -> None:
    definition, runner = cluster._client("Shown").definition(), cluster._running["Shown"].topologies["mb"]
    status = runner.status()
    lag = lag_by_depot(definition, "mb", {"*d": 3})
    resource = resource_status(status, LeaderHistory(), lag, now_ms=0, revision=1, leader="pod", application="")
    text = (
        DriverMetrics(DriverHealth(state="leader", status=runner.status, lag=lag), {"topology": "mb"}).text().decode()
    )

    assert (resource["phase"], resource["lagTotal"], resource["epoch"]) == ("Paused", 3, status.epoch)
    assert 'tidemill_phase{phase="paused",topology="mb"} 1.0' in text
    assert 'tidemill_lag_records{depot="*d",topology="mb"} 3.0' in text
    assert f'tidemill_epoch{{topology="mb"}} {float(status.epoch)}' in text


@pytest.mark.parametrize("waiting", [None, 2])
def test_a_driver_counts_the_records_in_quarantine_when_it_is_asked(
    cluster: InProcessCluster, waiting: int | None
) -> None:
    status = replace(cluster._running["Shown"].topologies["mb"].status(), quarantined=7, in_quarantine=waiting)
    text = DriverMetrics(DriverHealth(state="leader", status=lambda: status), {"topology": "mb"}).text().decode()

    assert 'tidemill_quarantined_records_total{topology="mb"} 7.0' in text
    assert ('tidemill_in_quarantine{topology="mb"} 2.0' in text) is (waiting == 2)
