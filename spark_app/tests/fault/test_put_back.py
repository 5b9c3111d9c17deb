"""A store that is put back in place while processes use it, and one whose definition is lost."""

from __future__ import annotations

import shutil
from pathlib import Path as Folder
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemill import Agg, CompoundAgg, Depot, InProcessCluster, LaunchConfig, Module, Ops, Path, PState
from tidemill.api.declaration import record_module
from tidemill.cli.main import app
from tidemill.cluster.launch import update
from tidemill.journal.clock import SystemClock
from tidemill.leader.check import check_module
from tidemill.store.urls import connect
from tidemill.values.errors import CorruptState, Fenced, StoreRestored


class Counted(Module):
    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*words", Depot.hash_by(Ops.IDENTITY))
        mb = topologies.microbatch("mb")
        mb.pstate("$$counts", PState.map_schema(str, int))
        (mb.source("*words").out("*microbatch").explode_microbatch("*microbatch").out("*word")
           .compound_agg("$$counts", CompoundAgg.map("*word", Agg.count())))  # fmt: skip


def append(cluster: InProcessCluster, count: int) -> None:
    for _ in range(count):
        cluster.cluster_depot("Counted", "*words").append("a")


def put_back(copy: Folder, folder: Folder) -> None:
    """What `rm -r` and `cp -r` do, under living processes."""
    for path in sorted(folder.glob("Counted/**/*")):
        if path.is_file() and path.name != "leader.lock" and not (copy / path.relative_to(folder)).exists():
            path.unlink()


def test_nobody_writes_behind_a_hole_when_a_copy_is_put_back_under_living_processes(tmp_path: Folder) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    with InProcessCluster.create("local", store=folder.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        append(cluster, 10)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 10)
        shutil.copytree(folder, copy)
        append(cluster, 10)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 20)
        put_back(copy, folder)
        with pytest.raises(StoreRestored, match="older copy"):
            append(cluster, 1)
    assert check_module(connect(folder.as_uri()), "Counted") == []
    with InProcessCluster.create("local", store=folder.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        append(cluster, 5)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 15)
        assert cluster.cluster_pstate("Counted", "$$counts").select_one(Path.key("a")) == 15


def test_runner_stops_when_an_older_copy_of_its_log_is_put_back(tmp_path: Folder) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    with InProcessCluster.create("local", store=folder.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        append(cluster, 1)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 1)
        shutil.copytree(folder / "Counted" / "topologies", copy / "Counted" / "topologies")
        append(cluster, 1)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 2)
        for path in (folder / "Counted").glob("topologies/*/log/*.zip"):
            if not (copy / path.relative_to(folder)).exists():
                path.unlink()
        append(cluster, 1)
        runner = cluster._running["Counted"].topologies["mb"]
        runner.wait_for(lambda state: state.is_over, 30)
        assert isinstance(runner.state.error, StoreRestored)
    assert check_module(connect(folder.as_uri()), "Counted") == []


@pytest.fixture
def orphaned(tmp_path: Folder) -> Folder:
    """A store that lost its definition."""
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        append(cluster, 1)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 1)
    shutil.rmtree(tmp_path / "Counted" / "definition")
    return tmp_path


def test_module_is_not_begun_anew_when_its_definition_is_lost(orphaned: Folder) -> None:
    with (
        InProcessCluster.create("local", store=orphaned.as_uri()) as cluster,
        pytest.raises(CorruptState, match="no definition: it was lost"),
    ):
        cluster.launch_module(Counted(), LaunchConfig(1, 1))


def test_check_names_the_module_when_its_definition_is_lost(orphaned: Folder) -> None:
    found = CliRunner().invoke(app, ["check", "--store", str(orphaned)])
    assert found.exit_code == 4
    assert "Counted: S6 definition: There is data of module Counted" in found.output


def test_check_says_so_when_the_newest_definitions_are_lost(tmp_path: Folder) -> None:
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        cluster.update_module(Counted())
        append(cluster, 1)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 1)
    max((tmp_path / "Counted" / "definition").glob("*.json")).unlink()
    texts = [str(finding) for finding in check_module(connect(tmp_path.as_uri()), "Counted")]
    assert any("definitions are lost" in text for text in texts), texts


@pytest.mark.parametrize("folder", ["kept", "gone"])
def test_each_command_says_so_when_a_definition_is_lost(tmp_path: Folder, folder: str) -> None:
    """A bucket has no folders; of a folder the empty one may be left."""
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        append(cluster, 1)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 1)
    for path in (tmp_path / "Counted" / "definition").glob("*.json"):
        path.unlink()
    if folder == "gone":
        shutil.rmtree(tmp_path / "Counted" / "definition")
    commands = [
        ["check"], ["check", "Counted"], ["status", "Counted"], ["select", "Counted", "counts", '["all"]'],
        ["append", "Counted", "words", "-"], ["destroy", "Counted"], ["destroy", "Counted", "--yes"],
    ]  # fmt: skip
    for command in commands:
        found = CliRunner().invoke(app, [*command, "--store", str(tmp_path)])
        assert found.exit_code == 4, (command, found.output)
        assert "no definition: it was lost" in found.output.replace("\n", " "), (command, found.output)


def test_update_is_refused_when_the_newest_definition_is_lost(tmp_path: Folder) -> None:
    """What the lost one had added would get new ids, and begin anew."""
    with InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster:
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
        cluster.update_module(Counted())
        append(cluster, 1)
        cluster.wait_for_microbatch_processed_count("Counted", "mb", 1)
    newest = max((tmp_path / "Counted" / "definition").glob("*.json"))
    newest.unlink()
    store = connect(tmp_path.as_uri())
    with pytest.raises(CorruptState, match=r"mb was claimed with definition 2 .* is 1: definitions are lost\. Restore"):
        update(store, record_module(Counted()), (), SystemClock())
    assert not newest.exists()
    with (
        InProcessCluster.create("local", store=tmp_path.as_uri()) as cluster,
        pytest.raises(Fenced, match=r"mb superseded: .*definition 2"),
    ):
        cluster.launch_module(Counted(), LaunchConfig(1, 1))
