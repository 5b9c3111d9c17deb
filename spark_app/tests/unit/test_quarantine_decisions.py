"""Looking at a quarantine and deciding on it: in process, through a gateway, on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path as Folder
from typing import Any

import pytest
from gateways import served
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tidemill import (
    Agg,
    CompoundAgg,
    Depot,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    Ops,
    Path,
    PState,
)
from tidemill.cli.main import app
from tidemill.client import Client
from tidemill.clients import quarantine as quarantines
from tidemill.clients.quarantine import Quarantine
from tidemill.clients.quarantined import PAGE_RECORDS
from tidemill.clients.status_reader import topology_status
from tidemill.depot.log import DepotLog
from tidemill.gateway import formats
from tidemill.gateway.access import OPERATE, READ, role_of
from tidemill.gateway.app import make_app
from tidemill.gateway.modules import Modules
from tidemill.gateway.settings import GatewaySettings
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.settlements import SettlementLog
from tidemill.leader.check import check_module
from tidemill.leader.collection import collect
from tidemill.leader.topology_store import TopologyStore
from tidemill.values.errors import BadInput, StoreUnavailable, UnknownName

NAME, TOPOLOGY = "Strict", "mb"
AT = f"/api/v1/modules/{NAME}/topologies/{TOPOLOGY}"
FIXED: set[int] = set()


def liked(record: int) -> int:
    if record < 0 and record not in FIXED:
        raise ValueError(f"{record} is below zero")
    return record


class Strict(Module):
    def module_name(self) -> str:
        return NAME

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*numbers", Depot.hash_by(Ops.IDENTITY))
        setup.declare_tick_depot("*tick", 50)
        setup.set_launch_module_dynamic_option("topology.on.record.error", "quarantine")
        mb = topologies.microbatch(TOPOLOGY)
        mb.pstate("$$counts", PState.map_schema(int, int))
        rows = mb.source("*numbers").out("*microbatch").explode_microbatch("*microbatch").out("*n")
        rows = rows.each(liked, "*n").out("*k").hash_partition("*k")
        rows.compound_agg("$$counts", CompoundAgg.map("*k", Agg.count()))
        self.more(mb)

    def more(self, mb: Any) -> None:
        """Other sources."""


@pytest.fixture
def store(tmp_path: Folder) -> str:
    FIXED.clear()
    return tmp_path.as_uri()


@pytest.fixture
def cluster(store: str) -> Iterator[InProcessCluster]:
    with InProcessCluster.create("local", store) as opened:
        opened.launch_module(Strict(), LaunchConfig(2, 1))
        append(opened, 3, [1, -1, 2])
        append(opened, 6, [-2, 3, -3])
        yield opened


def append(cluster: InProcessCluster, count: int, records: list[int]) -> None:
    cluster.cluster_depot(NAME, "*numbers").append_many(records)
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, count)


def counts(cluster: InProcessCluster, *keys: int) -> list[Any]:
    handle = cluster.cluster_pstate(NAME, "$$counts")
    return [handle.select_one(Path.key(key)) for key in keys]


def held(found: Quarantine) -> list[int]:
    return sorted(each.record for each in found.records())


def number_of(found: Quarantine, record: int) -> int:
    return next(each.number for each in found.records() if each.record == record)


def test_record_tells_where_it_stood_and_why_it_failed(cluster: InProcessCluster) -> None:
    first = cluster.quarantine(NAME, TOPOLOGY).records()[0]
    assert (first.record, first.depot, first.source, first.version, first.definition) == (
        -1,
        "*numbers",
        "*numbers",
        1,
        1,
    )
    assert first.start_offset <= first.offset < first.end_offset
    depot = cluster.cluster_depot(NAME, "*numbers")
    assert depot.read(first.partition, first.offset, first.offset + 1) == [-1]
    assert "ValueError: -1 is below zero" in first.message and "in liked" in first.trace
    assert "During handling" not in first.trace
    assert first.step.startswith("each(liked) at ") and first.sample == "*n=-1"
    assert counts(cluster, 1, 2, 3, -1) == [1, 1, 1, None]


def test_record_counts_when_the_code_is_mended_and_it_is_retried(cluster: InProcessCluster) -> None:
    found = cluster.quarantine(NAME, TOPOLOGY)
    FIXED.add(-1)
    assert found.retry([number_of(found, -1)]) == 1
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 7)
    assert (counts(cluster, -1), held(found)) == ([1], [-3, -2])


def test_record_comes_back_under_another_number_when_it_fails_again(cluster: InProcessCluster) -> None:
    found = cluster.quarantine(NAME, TOPOLOGY)
    before = number_of(found, -1)
    found.retry([before])
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 7)
    assert number_of(found, -1) > before


def test_all_go_when_no_number_is_named(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantines, "DECIDED_MAX", 2)
    found = cluster.quarantine(NAME, TOPOLOGY)
    assert (found.count, found.drop(), found.count, found.drop(), found.retry()) == (3, 3, 0, 0, 0)
    with pytest.raises(BadInput, match="at most 2 records"):
        found.drop([1, 2, 3])


def test_number_is_unknown_when_it_was_decided_on_or_never_was(cluster: InProcessCluster) -> None:
    found = cluster.quarantine(NAME, TOPOLOGY)
    found.drop([0])
    for number in (0, 3, -1):
        for call in (found.record, lambda at: found.retry([at]), lambda at: found.drop([at])):
            with pytest.raises(UnknownName, match=f"has no record {number} in quarantine"):
                call(number)
    with pytest.raises(UnknownName):
        cluster.quarantine(NAME, "nothing")


def test_retry_is_finished_by_the_next_one_when_it_was_cut_off(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    FIXED.update((-1, -2))
    found = cluster.quarantine(NAME, TOPOLOGY)
    first, second = number_of(found, -1), number_of(found, -2)

    def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(DepotLog, "append", away)
        with pytest.raises(StoreUnavailable):
            found.retry([first])
    assert counts(cluster, -1) == [None]
    for _ in range(2):
        cluster.quarantine(NAME, TOPOLOGY).finish()
    assert cluster.quarantine(NAME, TOPOLOGY).retry([second]) == 1
    found.finish()
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 8)
    assert counts(cluster, -1, -2) == [1, 1]
    assert check_module(cluster.store, NAME) == []


def test_order_is_that_of_the_retry_when_records_came_meanwhile(cluster: InProcessCluster) -> None:
    found = cluster.quarantine(NAME, TOPOLOGY)
    record = found.record(number_of(found, -1))
    depot = cluster.cluster_depot(NAME, "*numbers")
    end = depot.get_partition_info(record.partition).end_offset
    found.retry([record.number])
    assert depot.read(record.partition, end, end + 1) == [-1]


def test_status_counts_what_went_there_and_what_waits(cluster: InProcessCluster) -> None:
    definition = cluster._client(NAME).definition()
    found = topology_status(cluster.store, definition, TOPOLOGY)
    assert (found.processed, found.quarantined, found.in_quarantine) == (6, 3, 3)
    cluster.quarantine(NAME, TOPOLOGY).drop([1])
    found = topology_status(cluster.store, definition, TOPOLOGY)
    assert (found.quarantined, found.in_quarantine) == (3, 2)
    assert cluster._running[NAME].topologies[TOPOLOGY].status().quarantined == 3


def test_microbatch_waits_when_the_quarantine_is_full(cluster: InProcessCluster) -> None:
    OptionsLog(cluster.store, NAME).set("module", "", "topology.quarantine.max.records", 3)
    cluster.cluster_depot(NAME, "*numbers").append_many([-4, 4])
    runner = cluster._running[NAME].topologies[TOPOLOGY]
    failure = runner.wait_for(lambda now: now.report.failure is not None, 20).report.failure
    assert failure is not None and "topology.quarantine.max.records is 3" in failure.message
    cluster.quarantine(NAME, TOPOLOGY).drop([0])
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 8, fail_fast=False)
    assert counts(cluster, 4) == [1]


def test_settled_records_are_deleted_when_nobody_can_want_them(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = cluster._running[NAME].topologies[TOPOLOGY]
    topology_store: TopologyStore = runner._topology_store
    quarantine = topology_store.opened_depot("quarantine")
    collect(topology_store, 0)
    assert quarantine.starts() == (0,)
    found = cluster.quarantine(NAME, TOPOLOGY)
    found.drop([0, 1])
    collect(topology_store, 0)
    quarantine.follow()
    assert quarantine.starts() == (0,), "the newest decision can be finished again"
    found.drop([2])
    collect(topology_store, 0)
    quarantine.follow()
    assert quarantine.starts() == (2,)
    append(cluster, 7, [-7])
    assert (held(found), found.records()[0].number) == ([-7], 3)
    assert check_module(cluster.store, NAME) == []


def test_tick_is_tried_again_when_it_fails_without_a_record(store: str) -> None:
    class Ticking(Strict):
        def more(self, mb: Any) -> None:
            ticks = mb.source("*tick").out("*due").explode_microbatch("*due")
            ticks.each(liked, -9).out("*never")

    with InProcessCluster.create("local", store) as cluster:
        cluster.launch_module(Ticking(), LaunchConfig(2, 1))
        cluster.cluster_depot(NAME, "*numbers").append_many([1])
        runner = cluster._running[NAME].topologies[TOPOLOGY]
        failure = runner.wait_for(lambda now: now.report.failure is not None, 20).report.failure
        assert failure is not None and "No record goes to the quarantine" in failure.message
        FIXED.add(-9)
        cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 1, fail_fast=False)
        assert cluster.quarantine(NAME, TOPOLOGY).count == 0


def test_each_source_leaves_the_record_out_when_two_read_the_depot(store: str) -> None:
    class Twice(Strict):
        def more(self, mb: Any) -> None:
            rows = mb.source("*numbers", MicrobatchSourceOptions.source_id("second")).out("*again")
            rows = rows.explode_microbatch("*again").out("*m").each(liked, "*m").out("*l").hash_partition("*l")
            rows.compound_agg("$$counts", CompoundAgg.map("*l", Agg.count()))

    with InProcessCluster.create("local", store) as cluster:
        cluster.launch_module(Twice(), LaunchConfig(2, 1))
        append(cluster, 4, [1, -1])
        assert counts(cluster, 1, -1) == [2, None]
        found = cluster.quarantine(NAME, TOPOLOGY)
        assert held(found) == [-1, -1] and len({each.source for each in found.records()}) == 2


# --- the command line ------------------------------------------------------------------------------------------------


def told(*words: str, store: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["quarantine", *words, "--store", store, "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if done.stdout else json.loads(done.stderr)["error"]


def test_commands_show_and_decide(cluster: InProcessCluster, store: str) -> None:
    listed = told("list", NAME, TOPOLOGY, store=store)
    assert sorted(each["record"] for each in listed) == [-3, -2, -1]
    assert told("list", NAME, TOPOLOGY, "--limit", "1", "--after", "0", store=store) == listed[1:2]
    assert told("show", NAME, TOPOLOGY, "0", store=store) == listed[0]
    assert told("drop", NAME, TOPOLOGY, "0", store=store) == {"dropped": 1}
    assert told("show", NAME, TOPOLOGY, "0", store=store, code=1)["code"] == "UnknownName"
    assert "Name the records" in told("drop", NAME, TOPOLOGY, store=store, code=1)["message"]
    assert "Name the records" in told("retry", NAME, TOPOLOGY, "1", "--all", store=store, code=1)["message"]
    FIXED.update((-1, -2, -3))
    assert told("retry", NAME, TOPOLOGY, "--all", store=store) == {"retried": 2}
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 8)
    assert sum(count or 0 for count in counts(cluster, -1, -2, -3)) == 2


def test_people_read_tables(cluster: InProcessCluster, store: str) -> None:
    listed = CliRunner().invoke(app, ["quarantine", "list", NAME, TOPOLOGY, "--store", store])
    assert listed.exit_code == 0 and "*numbers" in listed.stdout and "each(liked)" in listed.stdout
    shown = CliRunner().invoke(app, ["quarantine", "show", NAME, TOPOLOGY, "0", "--store", store])
    assert shown.exit_code == 0 and "Traceback" in shown.stdout and "-1 is below zero" in shown.stdout
    stands = CliRunner().invoke(app, ["status", NAME, "--store", store])
    assert f"3 records in quarantine: tidemill quarantine list {NAME} {TOPOLOGY}" in " ".join(stands.stdout.split())


# --- the gateway -----------------------------------------------------------------------------------------------------


def test_a_quarantine_is_read_and_decided_on_within_limits(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:

        def asked(verb: str, **given: Any) -> tuple[int, Any]:
            answer = client.post(f"{AT}/quarantine/{verb}", json=given)
            return answer.status_code, answer.json() if answer.status_code == 200 else answer.json()["error"]["message"]

        assert [asked("page", limit=limit)[0] for limit in (PAGE_RECORDS, PAGE_RECORDS + 1)] == [200, 400]
        for verb in ("retry", "drop"):
            numbers = list(range(quarantines.DECIDED_MAX + 1))
            assert [asked(verb, numbers=numbers[:-1])[0], asked(verb, numbers=numbers)[0]] == [404, 400]
        monkeypatch.setattr(quarantines, "RETRIED_BYTES_MAX", 1)
        status, text = asked("retry", numbers=[0, 1])
        assert (status, "retry fewer at once" in text) == (422, True)
        monkeypatch.setattr(formats, "_FIRST_VALUES", 1)
        size = len(client.post(f"{AT}/quarantine/page", json={}).content)
        read: list[int] = []
        records = Quarantine.records
        monkeypatch.setattr(
            Quarantine, "records", lambda self, limit, after: (read.append(limit), records(self, limit, after))[1]
        )
        monkeypatch.setattr(formats, "ANSWER_BYTES_MAX", size + 100)
        status, page = asked("page")
        assert (status, sorted(each["record"] for each in page)) == (200, [-3, -2, -1])
        assert read[0] == 1 and len(read) > 1
        monkeypatch.setattr(formats, "ANSWER_BYTES_MAX", size - 100)
        assert asked("page")[0] == 422
        assert asked("page", limit=1)[0] == 200


def test_all_are_retried_once_when_they_go_in_several_steps_and_come_back(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantines, "RETRIED_BYTES_MAX", 1)
    found = cluster.quarantine(NAME, TOPOLOGY)
    settle = Quarantine._settle

    def settled(self: Quarantine, action: Any, choose: Any) -> int:
        made = settle(self, action, choose)
        cluster.wait_until_processed(NAME)  # what was retried is in the quarantine again
        return made

    monkeypatch.setattr(Quarantine, "_settle", settled)
    assert found.retry() == 3
    assert held(found) == [-3, -2, -1]
    assert [each.number for each in found.records()] == [3, 4, 5]
    assert check_module(cluster.store, NAME) == []


def test_gateway_shows_and_decides_as_its_roles_say(cluster: InProcessCluster) -> None:
    assert [role_of("POST", f"{AT}/quarantine/{verb}") for verb in ("page", "retry", "drop")] == [
        READ,
        OPERATE,
        OPERATE,
    ]
    with TestClient(make_app(Modules(cluster.store), GatewaySettings())) as client:
        page = client.post(f"{AT}/quarantine/page", json={}).json()
        assert sorted(each["record"] for each in page) == [-3, -2, -1]
        assert client.post(f"{AT}/quarantine/page", json={"after": 0, "limit": 1}).json() == page[1:2]
        assert client.post(f"{AT}/quarantine/drop", json={"numbers": [0]}).json() == {"dropped": 1}
        assert client.post(f"{AT}/quarantine/drop", json={"numbers": [0]}).status_code == 404
        assert client.post(f"{AT}/quarantine/drop", json={"numbers": [-1]}).status_code == 400
        assert client.post(f"{AT}/quarantine/page", json={"limit": 101}).status_code == 400
        status = client.get(AT).json()
        assert (status["quarantined"], status["in_quarantine"]) == (3, 2)
        text = client.get("/metrics").text
        assert f'tidemill_topology_quarantined_records_total{{module="{NAME}",topology="{TOPOLOGY}"}} 3.0' in text
        assert f'tidemill_topology_in_quarantine{{module="{NAME}",topology="{TOPOLOGY}"}} 2.0' in text
        FIXED.update((-1, -2, -3))
        assert client.post(f"{AT}/quarantine/retry", json={}).json() == {"retried": 2}
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 8)
    assert (
        SettlementLog(cluster.store, cluster._client(NAME).definition().topology_prefix(TOPOLOGY)).newest().count == 3
    )


def test_client_shows_and_decides_through_a_gateway(cluster: InProcessCluster) -> None:
    here = cluster.quarantine(NAME, TOPOLOGY)
    with served(Modules(cluster.store)) as server, Client(server.url) as client:
        there = client.quarantine(NAME, TOPOLOGY)
        assert there.count == 3
        assert there.records() == here.records()
        assert there.records(1, after=0) == here.records(1, after=0)
        assert there.record(2) == here.record(2)
        assert there.drop([0]) == 1
        for number in (0, 9, -1):
            with pytest.raises(UnknownName, match=f"no record {number} in quarantine"):
                there.record(number)
        for call in (there.drop, there.retry):
            with pytest.raises(UnknownName, match="no record 0 in quarantine"):
                call([0])
            with pytest.raises(BadInput):
                call(list(range(101)))
        with pytest.raises(BadInput, match="limit"):
            there.records(101)
        with pytest.raises(UnknownName):
            client.quarantine(NAME, "nothing")
        FIXED.update((-1, -2, -3))
        assert (there.retry(), there.retry(), there.drop(), there.count) == (2, 0, 0, 0)
    cluster.wait_for_microbatch_processed_count(NAME, TOPOLOGY, 8)
    assert sum(count or 0 for count in counts(cluster, -1, -2, -3)) == 2
