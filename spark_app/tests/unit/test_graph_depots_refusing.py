"""Rows that an output depot refuses: they get into no checkpoint, so that a graph whose code was mended goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tidemill import (
    DefinitionError,
    Depot,
    InProcessCluster,
    LaunchConfig,
    Module,
    PState,
    RecordRefused,
    TaskGraph,
)
from tidemill.clients.depot import DepotHandle
from tidemill.graphs import run
from tidemill.graphs.depot_output import DepotOutput


class Guarded(Module):
    """`*named` takes texts only, or anything."""

    def __init__(self, takes_any: bool = False) -> None:
        super().__init__()
        self.takes_any = takes_any

    def define(self, setup: Any, topologies: Any) -> None:
        name = object if self.takes_any else str
        setup.declare_depot("*named", Depot.hash_by("name")).schema(PState.fixed_keys_schema("name", name, "n", int))
        setup.declare_depot("*own", Depot.disallow())
        setup.declare_depot("*coded", Depot.hash_by(lambda record: record["n"]))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    with InProcessCluster.create(store=tmp_path / "store") as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(4, 2))
    return str(tmp_path / "store")


def appended(store: str, takes_any: bool = False) -> list[int]:
    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(Guarded(takes_any), LaunchConfig(4, 2))
        depot = cluster.cluster_depot("Guarded", "*named")
        ends = [depot.get_partition_info(partition).end_offset for partition in range(4)]
        return sorted(row["n"] for partition, end in enumerate(ends) for row in depot.read(partition, 0, end))


def naming(store: str, name: Any, depot: str = "*named") -> TaskGraph:
    """A graph of rows with the numbers 0 to 5, each a batch, of which the fourth one has this name."""

    def named(batch: pl.DataFrame) -> pl.DataFrame:
        return batch.with_columns(name=pl.lit(name if 3 in batch["n"] else "x"))

    graph = TaskGraph(store, id="naming", checkpoint_waves=1)
    numbers = graph.new_input_frames([pl.DataFrame({"n": [n]}) for n in range(6)], 1, batch_func=named)
    graph.new_output_depot({0: numbers}, "Guarded", depot)
    return graph


def test_a_graph_goes_on_with_mended_code_when_a_depot_refused_a_row(store: str) -> None:
    with pytest.raises(RecordRefused, match=r"node 1 \(new_output_depot at .*, channel 0, .*schema of \*named"):
        naming(store, 7).run()
    assert appended(store) == [0, 1]  # what the checkpoint before it had

    naming(store, "mended").run()
    assert appended(store) == list(range(6))


def test_nothing_is_appended_when_another_row_of_the_checkpoint_is_refused(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 0)  # one checkpoint at the end
    with pytest.raises(RecordRefused):
        naming(store, 7).run()
    assert appended(store) == []


def test_a_graph_goes_on_when_an_update_let_a_depot_take_what_a_checkpoint_has(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as unchecked, pytest.raises(RecordRefused):
        unchecked.setattr(DepotHandle, "check", lambda *_: None)  # as older versions, and where the depot took it then
        naming(store, 7).run()
    closed: list[DepotOutput] = []
    with monkeypatch.context() as watched:
        watched.setattr(DepotOutput, "close", lambda output: closed.append(output))
        with pytest.raises(RecordRefused, match="update the depot's module so that it takes it"):
            TaskGraph.resume("naming", store).run()
    assert len(closed) == 1

    with InProcessCluster.create(store=store) as cluster:
        cluster.launch_module(Guarded(), LaunchConfig(4, 2))
        cluster.update_module(Guarded(takes_any=True))
    TaskGraph.resume("naming", store).run()
    assert appended(store, takes_any=True) == list(range(6))


@pytest.mark.parametrize(("depot", "reason"), [("*own", "clients cannot append"), ("*coded", "not loaded here")])
def test_a_graph_is_refused_before_it_runs_when_its_depot_takes_no_rows_of_it(
    store: str, depot: str, reason: str
) -> None:
    with pytest.raises(DefinitionError, match=reason):
        naming(store, "x", depot).initialize()
