"""Datasets and graphs that run are saved with their store, come back, and go on: results equal a clean run's."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Count, Killed, Pass, results
from typer.testing import CliRunner

from tidemill import Dataset, Depot, InProcessCluster, LaunchConfig, Module, Ops, StoreRestored, TaskGraph
from tidemill.cli.main import app
from tidemill.graphs import checkpoints, dataset_writer, run
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.graphs.run_log import RunLog, forget_run
from tidemill.graphs.saved_graphs import check_graphs, saved_parts
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.store.urls import connect, forget_stores, open_store
from tidemill.values.errors import CorruptState

FRAMES = [pl.DataFrame({"k": [n % 5 for n in range(30)], "v": range(30 * i, 30 * i + 30)}) for i in range(8)]


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 100)
    monkeypatch.setattr(dataset_writer, "OBJECT_ROWS", 30)


class Sink(Module):
    """A depot, and nothing that reads it."""

    def define(self, setup: Any, topologies: Any) -> None:
        setup.declare_depot("*out", Depot.hash_by(Ops.IDENTITY))


def job(store: Any, name: str = "job", with_depot: bool = False) -> tuple[TaskGraph, Dataset, Dataset]:
    graph = TaskGraph(store, id=name, checkpoint_waves=1)
    source = graph.new_input_frames(FRAMES, 2)
    counted = graph.new_blocking_node({0: source}, Count("k"), 2, {0: "k"})
    kept = graph.new_blocking_node({0: source}, Pass(), 2, {0: "v"})
    if with_depot:
        graph.new_output_depot({0: source}, "Sink", "*out", 1, {0: None})
    return graph, counted, kept


def told(*arguments: Any, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == code, done.output
    forget_stores()
    return json.loads(done.stdout)


def killed_at(graph: TaskGraph, wave: int) -> None:
    def die(waves: Any) -> None:
        if waves.wave == wave:
            raise Killed

    graph.observe(die)
    with pytest.raises(Killed):
        graph.run()


def test_datasets_and_a_killed_graph_come_back_with_a_backup(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "backups"
    graph, *clean = job(store, "clean")
    graph.run()
    expected = results(*clean)
    killed_at(job(store)[0], 5)

    made = told("backup", target, "--store", store)
    assert made["datasets"] == sorted(each.id for each in clean)
    shutil.rmtree(store)
    told("restore", target, "--store", store)

    assert results(*(Dataset(str(store), each.id) for each in clean)) == expected
    checked = told("check", "--store", store)
    assert (checked["datasets"], checked["findings"]) == (2, [])
    graph = TaskGraph.resume("job", store)
    graph.run()
    assert results(*graph.datasets().values()) == expected
    assert told("check", "--store", store)["datasets"] == 4


def test_only_new_objects_are_copied_when_a_store_is_saved_again(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "backups"
    job(store, "first")[0].run()
    first = told("backup", target, "--store", store)
    again = told("backup", target, "--store", store)
    job(store, "second")[0].run()
    second = told("backup", target, "--store", store)

    assert first["copied"]["objects"] == first["objects"] > 10
    assert again["copied"]["objects"] == 0
    assert second["copied"]["objects"] == second["objects"] - first["objects"]
    told("datasets", "delete", "first-1", "--yes", "--store", store)
    assert "first-1" not in told("backup", target, "--store", store, "--keep", 1)["datasets"]
    assert not list((target / "stores").rglob("first-1/*"))


def test_both_runs_are_saved_when_an_id_that_was_free_is_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = tmp_path / "store", tmp_path / "backups"
    expected, saved = [], []
    for begin in (0, 1000):
        frames = [pl.DataFrame({"k": [1] * 30, "v": range(begin, begin + 30)}), *FRAMES]
        monkeypatch.setattr(sys.modules[__name__], "FRAMES", frames)
        graph, *made = job(store)
        graph.run()
        expected.append(results(*made))
        saved += [told("backup", target, "--store", store)["id"] for _ in range(2)]
        for each in made:
            told("datasets", "delete", each.id, "--yes", "--store", store)
        assert forget_run(connect(str(store)), "job")
        told("backup", target, "--store", store)
    assert expected[0] != expected[1]

    for number, backup in enumerate(saved):
        copy = tmp_path / f"copy{number}"
        told("restore", target, "--store", copy, "--backup", backup)
        assert told("check", "--store", copy)["findings"] == []
        assert results(*(Dataset(str(copy), each.id) for each in made)) == expected[number // 2]
    told("backup", target, "--store", store, "--keep", 1)
    assert not [path for path in (target / "stores").rglob("*") if path.is_file() and "/job" in f"{path}"]


@pytest.mark.parametrize("was_saved", [False, True])
def test_a_whole_run_is_saved_when_its_id_is_given_again_meanwhile(tmp_path: Path, was_saved: bool) -> None:
    url, folder = str(tmp_path / "store"), BackupFolder(connect(str(tmp_path / "backups")))
    job(url)[0].run()
    store, left = connect(url), [1]
    if was_saved:
        BackupRun(store, folder, 1, lambda *_: None, saved_parts).take()

    def overtaken(store: Any) -> Any:
        for part in saved_parts(store):
            if part.log and left:
                left.clear()
                for each in ("job-1", "job-2"):
                    delete_dataset(store, each)
                forget_run(store, "job")
                killed_at(job(url)[0], 5)
            yield part

    backup = BackupRun(store, folder, 2, lambda *_: None, overtaken).take()
    copy = connect(str(tmp_path / "copy"))
    for key in backup.objects:
        copy.create(key, folder.get(backup, key))
    assert RunLog(copy, "job").newest() == RunLog(store, "job").newest()
    assert check_graphs(copy) == (0, [])


def test_a_graph_goes_on_from_each_backup_that_was_made_while_it_ran(tmp_path: Path) -> None:
    """Into a depot too: each row is there once, whichever backup the store goes on from."""
    store, target = tmp_path / "store", tmp_path / "backups"
    cluster = InProcessCluster.create("local", store=str(store))
    cluster.launch_module(Sink(), LaunchConfig(1, 1))
    graph, *clean = job(store, with_depot=True)
    saved: list[str] = []

    def save(waves: Any) -> None:
        if waves.wave == 1:
            return
        done = CliRunner().invoke(app, ["backup", str(target), "--store", str(store), "--json"])
        assert done.exit_code == 0, done.output
        saved.append(json.loads(done.stdout)["id"])

    graph.observe(save)
    graph.run()
    cluster.close()
    expected = results(*clean)
    rows = sorted(row for frame in FRAMES for row in frame.rows())
    assert len(saved) > 3

    for number, backup in enumerate(saved):
        copy = tmp_path / f"copy{number}"
        told("restore", target, "--store", copy, "--backup", backup)
        assert told("check", "--store", copy)["findings"] == []
        if not any("/program" in key for key in open_store(str(copy)).list("_tidemill/graphs/job")):
            continue
        graph = TaskGraph.resume("job", copy)
        graph.run()
        assert results(*graph.datasets().values()) == expected
        with InProcessCluster.create("local", store=str(copy)) as cluster:
            cluster.launch_module(Sink(), LaunchConfig(1, 1))
            depot = cluster.cluster_depot("Sink", "*out")
            found = depot.read(0, 0, depot.get_partition_info(0).end_offset)
        assert sorted((row["k"], row["v"]) for row in found) == rows


def test_a_graph_that_runs_stops_when_its_store_is_restored(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "backups"
    job(store, "kept")[0].run()
    told("backup", target, "--store", store)
    graph = job(store)[0]

    def restore(waves: Any) -> None:
        if waves.wave == 3:
            assert CliRunner().invoke(app, ["restore", str(target), "--store", str(store)]).exit_code == 1
            done = CliRunner().invoke(app, ["restore", str(target), "--store", str(store), "--replace"])
            assert done.exit_code == 0, done.output

    graph.observe(restore)
    with pytest.raises(StoreRestored):
        graph.run()
    forget_stores()
    assert [row["dataset"] for row in told("datasets", "list", "--store", store)] == ["kept-1", "kept-2"]
    assert [row["graph"] for row in told("graphs", "--store", store)] == ["kept"]


@pytest.mark.parametrize("spoiled", ["gone", "changed", "record", "checkpoint"])
def test_a_check_says_what_is_damaged(tmp_path: Path, spoiled: str) -> None:
    store = tmp_path / "store"
    graph, _, kept = job(store)
    graph.run()
    killed_at(job(store, "half")[0], 4)
    assert check_graphs(open_store(str(store))) == (2, [])
    folder = store / "_tidemill"
    file = folder / kept.record.objects[0].key.removeprefix("_tidemill/")
    if spoiled == "gone":
        file.unlink()
    elif spoiled == "changed":
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.chmod(0o644)
        file.write_bytes(bytes(content))
    elif spoiled == "record":
        record = file.with_name("dataset.json")
        record.chmod(0o644)
        record.write_bytes(record.read_bytes()[:-4])
    else:
        sorted((folder / "graphs" / "half" / "frames").iterdir())[0].unlink()

    (finding,) = told("check", "--store", store, code=4)["findings"]

    assert finding["module"] == ("half" if spoiled == "checkpoint" else kept.id)
    assert {
        "gone": "does not exist", "changed": "not what was written", "record": "cannot be read",
        "checkpoint": "does not exist",
    }[spoiled] in finding["text"]  # fmt: skip
    if spoiled == "changed":
        done = CliRunner().invoke(app, ["backup", str(tmp_path / "backups"), "--store", str(store)])
        assert done.exit_code == 4


@pytest.mark.parametrize("damage", ["swapped", "cut", "changed"])
@pytest.mark.parametrize("kind", ["frames/*", "checkpoints/*", "program-*"])
def test_a_graph_does_not_go_on_from_what_it_did_not_save(tmp_path: Path, kind: str, damage: str) -> None:
    for name in ("half", "other"):
        killed_at(job(tmp_path, name)[0], 4)
    assert check_graphs(open_store(str(tmp_path))) == (0, [])
    graphs = tmp_path / "_tidemill" / "graphs"
    spoiled, other = (sorted((graphs / name).glob(kind))[0] for name in ("half", "other"))
    content = bytearray(other.read_bytes() if damage == "swapped" else spoiled.read_bytes())
    if damage == "changed":
        content[-1] ^= 1
    spoiled.chmod(0o644)
    spoiled.write_bytes(bytes(content[:-1] if damage == "cut" else content))

    _, findings = check_graphs(open_store(str(tmp_path)))

    assert [(name, finding.invariant) for name, finding in findings] == [("half", "S3")]
    assert "not what was written" in findings[0][1].text
    with pytest.raises(CorruptState, match="not what was written"):
        TaskGraph.resume("half", tmp_path).run()
    TaskGraph.resume("other", tmp_path).run()


@pytest.mark.parametrize("at", [1, 3, 6, 10])
def test_no_row_is_lost_when_a_graph_ends_while_it_is_saved(tmp_path: Path, at: int) -> None:
    """Whichever object is being copied just then: what a saved run says it appended is in the saved depot."""
    store, target, copy = (str(tmp_path / name) for name in ("store", "backups", "copy"))
    with InProcessCluster.create("local", store=store) as cluster:
        cluster.launch_module(Sink(), LaunchConfig(1, 1))
    killed_at(job(store, with_depot=True)[0], 4)
    copied: list[str] = []

    def tell(key: str, so_far: Any) -> None:
        copied.append(key)
        if len(copied) == at:
            TaskGraph.resume("job", store).run()

    BackupRun(open_store(store), BackupFolder(connect(target)), 1_000, tell, saved_parts).take()
    told("restore", target, "--store", copy)
    if any("/program" in key for key in open_store(copy).list("_tidemill/graphs/job")):
        TaskGraph.resume("job", copy).run()

    with InProcessCluster.create("local", store=copy) as cluster:
        cluster.launch_module(Sink(), LaunchConfig(1, 1))
        depot = cluster.cluster_depot("Sink", "*out")
        found = depot.read(0, 0, depot.get_partition_info(0).end_offset)
    rows = sorted(row for frame in FRAMES for row in frame.rows())
    assert sorted((row["k"], row["v"]) for row in found) == rows
    assert told("datasets", "list", "--store", copy)[0]["rows"] == 5
