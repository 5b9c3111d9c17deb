"""Task graphs over depots of modules that are updated meanwhile: no record comes wrong, or silently not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graph_executors import Pass

from tidemill import (
    BadInput,
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    TaskGraph,
    UpdateOptions,
)
from tidemill.graphs import run
from tidemill.graphs.inputs import depot_input
from tidemill.graphs.waves import Waves
from tidemill.values.errors import Deleted


def module(declare: Callable[[Any], object]) -> Module:
    class Visits(Module):
        def define(self, setup: Any, topologies: Any) -> None:
            declare(setup)
            setup.declare_depot("*out", Depot.random())

    return Visits()


def even(record: Any) -> Any:
    return Depot.TOMBSTONE if record["at"] % 2 else record


PLAIN = module(lambda setup: setup.declare_depot("*in", Depot.random()))
MIGRATED = module(lambda setup: setup.declare_depot("*in", Depot.random()).migration("even", even))
WITHOUT = module(lambda setup: None)
TICKS = module(lambda setup: setup.declare_tick_depot("*in", 1000))
DELETED = UpdateOptions(deleted=("*in",))


def updated_while_it_waits(store: Path, *updates: tuple[Module, UpdateOptions]) -> None:
    """An endless graph has read all when its module is updated, and then something is appended."""
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(PLAIN, LaunchConfig(1, 1))
        cluster.cluster_depot("Visits", "*in").append_many([{"at": n} for n in range(10)])
        graph = TaskGraph(store, id="visits", checkpoint_waves=1)
        visits = graph.new_input_depot("Visits", "*in", 1, endless=True)
        graph.new_output_depot({0: visits}, "Visits", "*out", 1)
        left, looks = list(updates), [0]

        def look(waves: Waves) -> None:
            if not waves.is_idle or waves.staged_rows:
                return
            while left:
                cluster.update_module(*left.pop(0))
                if not left and updates[-1][0] is not WITHOUT:
                    cluster.cluster_depot("Visits", "*in").append({"at": 11})
            looks[0] += 1
            if looks[0] == 20:
                graph.stop()

        graph.observe(look)
        try:
            graph.run()
        finally:
            out = cluster.cluster_depot("Visits", "*out")
            end = out.get_partition_info(0).end_offset
            assert [row["at"] for row in out.read(0, 0, end)] == list(range(10))


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(run, "IDLE_SECONDS", (0.001, 0.001))


def test_an_endless_graph_fails_when_its_depot_is_deleted(tmp_path: Path) -> None:
    with pytest.raises(Deleted, match="was deleted"):
        updated_while_it_waits(tmp_path, (WITHOUT, DELETED))


def test_an_endless_graph_fails_when_another_depot_gets_the_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(Deleted, match="was deleted"):
        updated_while_it_waits(tmp_path, (WITHOUT, DELETED), (PLAIN, UpdateOptions()))


def test_an_endless_graph_fails_when_its_depot_gets_a_migration(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="migration 'even'"):
        updated_while_it_waits(tmp_path, (MIGRATED, UpdateOptions()))


@pytest.mark.parametrize(("declared", "message"), [(MIGRATED, "migration 'even'"), (TICKS, "keeps no records")])
def test_a_graph_is_refused_when_its_depot_has_records_that_it_cannot_read(
    tmp_path: Path, declared: Module, message: str
) -> None:
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(declared, LaunchConfig(1, 1))
        graph = TaskGraph(tmp_path, id="visits")
        visits = graph.new_input_depot("Visits", "*in", 1)
        graph.new_blocking_node({0: visits}, Pass(), 1)
        with pytest.raises(DefinitionError, match=message):
            graph.run()


def copying(store: Path, endless: bool) -> TaskGraph:
    graph = TaskGraph(store, id="visits", checkpoint_waves=1)
    visits = graph.new_input_depot("Visits", "*in", 1, endless=endless)
    graph.new_output_depot({0: visits}, "Visits", "*out", 1)
    return graph


def offsets_out(cluster: InProcessCluster) -> list[int]:
    out = cluster.cluster_depot("Visits", "*out")
    return [row["at"] for row in out.read(0, 0, out.get_partition_info(0).end_offset)]


@pytest.mark.parametrize("endless", [True, False])
def test_a_graph_that_is_started_again_fails_when_another_depot_has_the_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: bool
) -> None:
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 4)
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(PLAIN, LaunchConfig(1, 1))
        cluster.cluster_depot("Visits", "*in").append_many([{"at": n} for n in range(10)])
        graph = copying(tmp_path, endless)
        graph.observe(lambda waves: graph.stop())
        graph.run()
        cluster.update_module(WITHOUT, DELETED)
        cluster.update_module(PLAIN, UpdateOptions())
        cluster.cluster_depot("Visits", "*in").append_many([{"at": 100 + n} for n in range(20)])

        with pytest.raises(Deleted, match="was deleted"):
            copying(tmp_path, endless).run()
        assert offsets_out(cluster) == list(range(len(offsets_out(cluster))))


def test_a_graph_that_is_started_again_reads_up_to_where_the_depot_ended_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depot_input, "BATCH_RECORDS", 4)
    with InProcessCluster.create(store=tmp_path) as cluster:
        cluster.launch_module(PLAIN, LaunchConfig(1, 1))
        cluster.cluster_depot("Visits", "*in").append_many([{"at": n} for n in range(10)])
        graph = copying(tmp_path, endless=False)
        graph.observe(lambda waves: graph.stop())
        graph.run()
        cluster.cluster_depot("Visits", "*in").append_many([{"at": 10 + n} for n in range(20)])

        copying(tmp_path, endless=False).run()
        assert offsets_out(cluster) == list(range(10))
