"""Sinks in other systems, here a folder: deliveries of committed microbatches, whole and in order, on each engine."""

from __future__ import annotations

import json
from pathlib import Path as Folder
from typing import Any

import pytest
from sink_modules import Selling, WithoutOrders
from waiting import eventually

from tidemill import (
    ExternalSink,
    InProcessCluster,
    LaunchConfig,
    MicrobatchFails,
    PState,
    RecordRefused,
    UpdateOptions,
)
from tidemill.clients.status import TopologyStatus
from tidemill.clients.status_reader import topology_status
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.language.external import Delivery
from tidemill.leader import delivery, transitions
from tidemill.leader.check import check_module


class FolderSink(ExternalSink):
    """Each delivery is a file. While there is a file `closed`, nothing is taken."""

    schema = PState.fixed_keys_schema("user", str, "amount", int, "total", int)

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def check(self, record: Any) -> None:
        if record.get("user") == "poison":
            raise ValueError("this user is poison")

    def deliver(self, delivery: Delivery) -> None:
        if (self.folder / "closed").exists():
            raise OSError("the folder is closed")
        file = self.folder / f"{delivery.microbatch_id:09d}.json"
        rows = [row for chunk in delivery.rows() for row in chunk]
        assert delivery.count == len(rows)
        if file.exists():
            assert json.loads(file.read_text()) == [delivery.digest, rows]
        file.write_text(json.dumps([delivery.digest, rows]))

    def deliveries(self) -> list[list[dict[str, Any]]]:
        return [json.loads(file.read_text())[1] for file in sorted(self.folder.glob("*.json"))]

    def rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.deliveries() for row in rows]


@pytest.fixture
def orders(tmp_path: Folder) -> FolderSink:
    return FolderSink(tmp_path / "orders")


@pytest.fixture
def module(orders: FolderSink, tmp_path: Folder) -> Selling:
    return Selling(orders, FolderSink(tmp_path / "totals"))


def append(cluster: InProcessCluster, *records: Any) -> None:
    cluster.cluster_depot("Selling", "*in").append_many(list(records))


def wait(cluster: InProcessCluster, count: int) -> None:
    cluster.wait_for_microbatch_processed_count("Selling", "mb", count, 60_000, fail_fast=False)


def told(cluster: InProcessCluster) -> TopologyStatus:
    """How the topology stands, as another process sees it."""
    definition = DefinitionLog(cluster.store, "Selling").newest()
    assert definition is not None
    return topology_status(cluster.store, definition, "mb")


def amounts(sink: FolderSink) -> list[int]:
    return sorted(row["amount"] for row in sink.rows())


def test_each_record_is_delivered_once_on_each_engine(
    module: Selling, orders: FolderSink, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "ROWS_MAX", 3)
    with InProcessCluster.create(engine=engine) as cluster:
        cluster.launch_module(module, LaunchConfig(4, 2))
        for first in (0, 20):
            append(cluster, *([f"u{n % 3}", n] for n in range(first, first + 20)))
            wait(cluster, first + 20)
        assert amounts(orders) == list(range(40))
        totals = module.totals
        assert isinstance(totals, FolderSink)
        newest = {row["user"]: row["total"] for row in totals.rows()}
        assert newest == {f"u{k}": sum(range(k, 40, 3)) for k in range(3)}
        definition = DefinitionLog(cluster.store, "Selling").newest()
        assert definition is not None and check_module(cluster.store, definition) == []


def test_a_microbatch_is_one_delivery_when_its_appends_are_many(
    module: Selling, orders: FolderSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "SEGMENT_BYTES_MAX", 1)
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module, LaunchConfig(4, 4))
        cluster.pause_microbatch_topology("Selling", "mb")
        append(cluster, *([f"u{n}", n] for n in range(20)))
        cluster.resume_microbatch_topology("Selling", "mb")
        wait(cluster, 20)
    assert [len(rows) for rows in orders.deliveries()] == [20]


def test_a_sink_that_is_slow_keeps_no_other_one_waiting(tmp_path: Folder) -> None:
    class Slow(FolderSink):
        def deliver(self, delivery: Delivery) -> None:
            eventually(lambda: len(totals.deliveries()) == delivery.microbatch_id, 60)
            super().deliver(delivery)

    slow, totals = Slow(tmp_path / "slow"), FolderSink(tmp_path / "totals")
    for module in (Selling(slow, totals), Selling(totals, slow)):
        with InProcessCluster.create("local") as cluster:
            cluster.launch_module(module, LaunchConfig(2, 1))
            append(cluster, ["a", 1])
            wait(cluster, 1)
        assert (len(slow.rows()), len(totals.rows())) == (1, 1)
        for sink in (slow, totals):
            for file in sink.folder.iterdir():
                file.unlink()


def test_nothing_is_lost_when_another_system_is_away_for_long(
    module: Selling, orders: FolderSink, tmp_path: Folder
) -> None:
    (orders.folder / "closed").touch()
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        append(cluster, ["a", 1], ["b", 2])
        runner = cluster._running["Selling"].topologies["mb"]
        eventually(
            lambda: (
                "'*orders' does not take microbatch 1: OSError: the folder is closed"
                in runner.state.report.publishing_trouble
            )
        )
        with pytest.raises(TimeoutError, match="its appends cannot be published: to .*orders"):
            cluster.wait_for_microbatch_processed_count("Selling", "mb", 2, 100)
        cluster._running.pop("Selling").kill()
    (orders.folder / "closed").unlink()
    with InProcessCluster.create("local", store=tmp_path / "store") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        wait(cluster, 2)
    assert amounts(orders) == [1, 2]


def test_a_record_that_its_sink_refuses_fails_where_it_is_appended(module: Selling, orders: FolderSink) -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        append(cluster, ["a", 1], ["poison", 2])
        with pytest.raises(MicrobatchFails, match=r"\*orders cannot take it: ValueError: this user is poison"):
            cluster.wait_for_microbatch_processed_count("Selling", "mb", 2, 60_000)
        OptionsLog(cluster.store, "Selling").set("topology", "mb", "topology.on.record.error", "quarantine")
        wait(cluster, 2)
        (held,) = cluster.quarantine("Selling", "mb").records()
        assert (held.record, amounts(orders)) == (["poison", 2], [1])


def test_a_record_that_does_not_fit_the_columns_fails_where_it_is_appended(module: Selling) -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        append(cluster, ["a", "ten"])
        with pytest.raises(MicrobatchFails, match=r"\['amount'\] is 'ten' \(str\), expected int.* schema of \*orders"):
            cluster.wait_for_microbatch_processed_count("Selling", "mb", 1, 60_000)


def leave_a_row_waiting(cluster: InProcessCluster, module: Selling, orders: FolderSink) -> None:
    """Run the module with a sink that takes nothing, until it has told so."""
    (orders.folder / "closed").touch()
    cluster.launch_module(module, LaunchConfig(2, 1))
    append(cluster, ["a", 1])
    runner = cluster._running["Selling"].topologies["mb"]
    eventually(lambda: runner.state.report.publishing_trouble)


def test_what_waits_for_a_deleted_sink_goes_with_it(module: Selling, orders: FolderSink) -> None:
    with InProcessCluster.create("local") as cluster:
        leave_a_row_waiting(cluster, module, orders)
        cluster.update_module(WithoutOrders(module.totals), UpdateOptions.objects_to_delete("*orders"))
        append(cluster, ["b", 2])
        wait(cluster, 2)
    assert orders.rows() == []


def test_an_update_may_change_the_columns_while_rows_wait(module: Selling, orders: FolderSink) -> None:
    with InProcessCluster.create("local") as cluster:
        leave_a_row_waiting(cluster, module, orders)
        changed = FolderSink(orders.folder)
        changed.schema = PState.fixed_keys_schema("user", str, "amount", float)
        cluster.update_module(Selling(changed, module.totals))
        (orders.folder / "closed").unlink()
        append(cluster, ["b", 2])
        wait(cluster, 2)
    assert amounts(orders) == [1, 2]


def test_nothing_is_sent_again_when_an_update_moves_a_sink(
    module: Selling, orders: FolderSink, tmp_path: Folder
) -> None:
    elsewhere = FolderSink(tmp_path / "elsewhere")
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        append(cluster, ["a", 1], ["b", 2])
        wait(cluster, 2)
        cluster.pause_microbatch_topology("Selling", "mb")
        eventually(lambda: told(cluster).unpublished == 0)
        cluster.update_module(Selling(elsewhere, module.totals))
        cluster.resume_microbatch_topology("Selling", "mb")
        append(cluster, ["c", 3])
        wait(cluster, 3)
    assert (amounts(orders), amounts(elsewhere)) == ([1, 2], [3])


def test_other_processes_see_what_waits_for_a_sink(module: Selling, orders: FolderSink) -> None:
    (orders.folder / "closed").touch()
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        append(cluster, ["a", 1], ["b", 2])
        cluster.wait_until_processed("Selling", timeout_millis=60_000)
        eventually(lambda: told(cluster).unpublished == 1)
        assert not told(cluster).is_idle
        (orders.folder / "closed").unlink()
        eventually(lambda: told(cluster).unpublished == 0, 60)
    assert amounts(orders) == [1, 2]


def test_clients_cannot_append_to_a_sink(module: Selling) -> None:
    with InProcessCluster.create("local") as cluster:
        cluster.launch_module(module, LaunchConfig(2, 1))
        with pytest.raises(RecordRefused, match=r"\*orders is outside the store"):
            cluster.cluster_depot("Selling", "*orders").append({"user": "a"})
