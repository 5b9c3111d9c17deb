"""Depots outside the store: read exactly once, again the same after failures, and never past records that are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as Folder
from typing import Any

import pytest
from lines_depot import START, Lines, LinesDepot

from tidemill import (
    DefinitionError,
    InProcessCluster,
    LaunchConfig,
    MicrobatchSourceOptions,
    Module,
    OffsetAgo,
    Path,
    PState,
    RecordRefused,
    UpdateOptions,
)
from tidemill.clients.status_reader import topology_status
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.options_log import OptionsLog
from tidemill.leader.check import check_module
from tidemill.values.errors import CorruptState, MicrobatchFails

SOURCE = MicrobatchSourceOptions


@pytest.fixture
def depot(tmp_path: Folder) -> LinesDepot:
    """A log with three partitions of ten records."""
    folder = tmp_path / "log"
    folder.mkdir()
    made = LinesDepot(folder)
    for partition in range(3):
        made.append(partition, *([f"k{number % 4}", 100 * partition + number] for number in range(10)))
    return made


@contextmanager
def running(module: Any, store: Folder | None = None, tasks: int = 4) -> Iterator[InProcessCluster]:
    with InProcessCluster.create(store=store, engine="local") as cluster:
        cluster.launch_module(module, LaunchConfig(tasks, 1))
        yield cluster


def wait(cluster: InProcessCluster, count: int) -> None:
    cluster.wait_for_microbatch_processed_count("Lines", "mb", count, 60_000)


def tables(cluster: InProcessCluster) -> tuple[dict[str, int], dict[str, int]]:
    def table(name: str) -> dict[str, int]:
        handle = cluster.cluster_pstate("Lines", name)
        found = {f"k{key}": handle.select_one(Path.key(f"k{key}")) for key in range(4)}
        return {key: value for key, value in found.items() if value is not None}

    return table("$$counts"), table("$$sums")


def expected(depot: LinesDepot) -> tuple[dict[str, int], dict[str, int]]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for partition in range(len(list(depot.folder.glob("*.jsonl")))):
        for key, number in depot.fetch_from(partition, 0, depot.end_offset(partition)):
            counts[key] += 1
            sums[key] += number
    return dict(counts), dict(sums)


def status(cluster: InProcessCluster) -> Any:
    definition = DefinitionLog(cluster.store, "Lines").newest()
    assert definition is not None
    return topology_status(cluster.store, definition, "mb", SystemClock())


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_each_record_counts_once_when_partitions_are_more_or_fewer_than_tasks(depot: LinesDepot, tasks: int) -> None:
    with running(Lines(depot), tasks=tasks) as cluster:
        OptionsLog(cluster.store, "Lines").set("depot", "*lines", "depot.microbatch.max.records", 3)
        wait(cluster, 30)
        depot.append(1, ["k0", 7])
        wait(cluster, 31)
        assert tables(cluster) == expected(depot)
        definition = DefinitionLog(cluster.store, "Lines").newest()
        assert definition is not None and check_module(cluster.store, definition) == []


def test_the_same_comes_out_on_each_engine(depot: LinesDepot, engine: Any) -> None:
    with InProcessCluster.create(engine=engine) as cluster:
        cluster.launch_module(Lines(depot), LaunchConfig(4, 2))
        wait(cluster, 30)
        assert tables(cluster) == expected(depot)


def test_new_partitions_are_read_from_their_beginning(depot: LinesDepot) -> None:
    with running(Lines(depot, SOURCE.create())) as cluster:
        depot.append(3, ["k1", 5], ["k2", 6])
        wait(cluster, 2)
        depot.append(0, ["k1", 1])
        depot.append(4, ["k1", 1])
        wait(cluster, 4)
        assert tables(cluster) == ({"k1": 3, "k2": 1}, {"k1": 7, "k2": 6})
        info = cluster.get_microbatch_depot_info("Lines", "mb")["*lines"]["*lines"]
        assert [tuple(info[p]) for p in range(5)] == [(10, 11), (10, 10), (10, 10), (0, 2), (0, 1)]


@pytest.mark.parametrize(
    ("source", "offsets"),
    [
        (SOURCE.create(), (10, 10, 10)),
        (START, (0, 2, 0)),
        (SOURCE.start_from_offset_after_timestamp(105), (10, 6, 0)),
        (SOURCE.start_from_offset_ago(4, OffsetAgo.RECORDS), (6, 6, 6)),
        (SOURCE.start_from_offset_ago(40, OffsetAgo.RECORDS), (0, 2, 0)),
        (SOURCE.start_from_offset_ago(1, OffsetAgo.DAYS), (10, 10, 10)),
    ],
)
def test_a_source_begins_where_its_option_says(depot: LinesDepot, source: Any, offsets: tuple[int, ...]) -> None:
    depot.trim(1, 2)
    with running(Lines(depot, source)) as cluster:
        wait(cluster, sum(10 - offset for offset in offsets))
        info = cluster.get_microbatch_depot_info("Lines", "mb")["*lines"]["*lines"]
        assert tuple(info[p][0] for p in range(3)) == offsets


def test_a_retry_reads_the_same_ranges_when_the_log_has_grown(depot: LinesDepot, tmp_path: Folder) -> None:
    brake = tmp_path / "brake"
    brake.touch()
    with running(Lines(depot, brake=brake), tmp_path / "store") as cluster:
        with pytest.raises(MicrobatchFails, match="not yet"):
            wait(cluster, 30)
        depot.append(0, ["k0", 1], ["k1", 1])
        tries = len(depot.fetched())
        with pytest.raises(MicrobatchFails):
            wait(cluster, 30)
        assert len(depot.fetched()) > tries
    assert set(depot.fetched()) == {(p, 0, 10) for p in range(3)}
    brake.unlink()
    with running(Lines(depot), tmp_path / "store") as cluster:  # another process finishes what was begun
        wait(cluster, 32)
        assert set(depot.fetched()) - {(0, 10, 11), (0, 11, 12), (0, 10, 12)} == {(p, 0, 10) for p in range(3)}
        assert tables(cluster) == expected(depot)


def test_processing_stops_when_records_of_the_range_are_gone_and_goes_on_when_they_are_back(depot: LinesDepot) -> None:
    with running(Lines(depot, SOURCE.create())) as cluster:
        cluster.pause_microbatch_topology("Lines", "mb")
        depot.append(1, ["k0", 1], ["k0", 2], ["k0", 3])
        depot.trim(1, 12)
        cluster.resume_microbatch_topology("Lines", "mb")
        with pytest.raises(MicrobatchFails, match=r"partition 1 begins at 12 now, .* reads \[10, 13\)"):
            wait(cluster, 3)
        found = status(cluster)
        assert found.failure.code == "RecordsTrimmed" and "source_id" in found.failure.message
        assert found.processed == 0 and found.skipped == 0
        depot.trim(1, 10)
        cluster.wait_for_microbatch_processed_count("Lines", "mb", 3, 60_000, fail_fast=False)
        assert tables(cluster) == ({"k0": 3}, {"k0": 6})


def test_a_new_source_id_begins_anew_when_records_are_gone(depot: LinesDepot) -> None:
    with running(Lines(depot, SOURCE.create())) as cluster:
        cluster.pause_microbatch_topology("Lines", "mb")
        depot.append(1, ["k0", 1], ["k0", 2], ["k0", 3])
        depot.trim(1, 12)
        cluster.resume_microbatch_topology("Lines", "mb")
        with pytest.raises(MicrobatchFails):
            wait(cluster, 1)
        cluster.update_module(Lines(depot, SOURCE.start_from_offset_ago(1, OffsetAgo.RECORDS).source_id("again")))
        cluster.wait_for_microbatch_processed_count("Lines", "mb", 3, 60_000, fail_fast=False)
        assert tables(cluster)[0] == {"k0": 1, "k1": 2}


def test_the_runner_stops_when_the_log_ends_before_what_was_processed(depot: LinesDepot) -> None:
    with running(Lines(depot)) as cluster:
        wait(cluster, 30)
        (depot.folder / "2.jsonl").write_text("")
        runner = cluster._running["Lines"].topologies["mb"]
        state = runner.wait_for(lambda now: now.is_over, 60)
        assert isinstance(state.error, CorruptState)
        assert "source_id and update the module" in str(state.error)


def test_a_log_that_does_not_answer_is_waited_for_and_named(depot: LinesDepot) -> None:
    with running(Lines(depot)) as cluster:
        wait(cluster, 30)
        (depot.folder / "down").touch()
        depot.append(0, ["k0", 1])
        runner = cluster._running["Lines"].topologies["mb"]
        state = runner.wait_for(lambda now: bool(now.report.store_trouble), 60)
        assert "external depot '*lines' does not answer: ConnectionError: nobody is there" in state.report.store_trouble
        (depot.folder / "down").unlink()
        wait(cluster, 31)
        assert tables(cluster) == expected(depot)


def test_status_tells_what_waits_outside(depot: LinesDepot) -> None:
    with running(Lines(depot)) as cluster:
        OptionsLog(cluster.store, "Lines").set("topology", "mb", "topology.microbatch.force.delay.millis", 3_600_000)
        OptionsLog(cluster.store, "Lines").set("depot", "*lines", "depot.microbatch.max.records", 4)
        wait(cluster, 12)
        processed = status(cluster).processed
        assert status(cluster).lag == {"*lines": 30 - processed}


class Broken(LinesDepot):
    def fetch_from(self, partition: int, start: int, end: int) -> Any:
        raise KeyError("topic")


class NoData(LinesDepot):
    def fetch_from(self, partition: int, start: int, end: int) -> Any:
        return [object()] * (end - start)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Broken, r"fetch_from\(0, 0, 10\) of '\*lines', declared at .*lines_depot.py:\d+, raised KeyError: 'topic'"),
        (NoData, r"fetch_from\(0, 0, 10\) of '\*lines', .* raised RecordRefused"),
    ],
)
def test_the_microbatch_fails_with_the_place_when_the_depot_raises(depot: LinesDepot, kind: Any, text: str) -> None:
    with running(Lines(kind(depot.folder))) as cluster, pytest.raises(MicrobatchFails, match=text):
        wait(cluster, 30)


def test_clients_are_refused_and_barriers_leave_it_out(depot: LinesDepot) -> None:
    with running(Lines(depot)) as cluster:
        with pytest.raises(RecordRefused, match="outside the store"):
            cluster.cluster_depot("Lines", "*lines").append(["k0", 1])
        cluster.wait_until_processed("Lines", timeout_millis=60_000)


class Nothing(Module):
    """What is left when the log outside was given up."""

    def module_name(self) -> str:
        return "Lines"

    def define(self, setup: Any, topologies: Any) -> None:
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        mb.pstate("$$sums", PState.map_schema(str, int))


def test_an_update_can_take_it_away_and_bring_it_back(depot: LinesDepot, tmp_path: Folder) -> None:
    with running(Lines(depot), tmp_path / "store") as cluster:
        wait(cluster, 30)
        with pytest.raises(DefinitionError, match="objects_to_delete"):
            cluster.update_module(Nothing())
        cluster.update_module(Nothing(), UpdateOptions.objects_to_delete("*lines"))
        depot.append(0, ["k0", 1])
        cluster.update_module(Lines(depot, SOURCE.start_from_offset_ago(1, OffsetAgo.RECORDS)))
        wait(cluster, 33)
        definition = DefinitionLog(cluster.store, "Lines").newest()
        assert definition is not None and check_module(cluster.store, definition) == []
        cluster.destroy_module("Lines")
