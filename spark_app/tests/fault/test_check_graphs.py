"""`tidemill check` looks into what runs of task graphs left: each thing that they rely on is damaged on purpose."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import polars as pl
import pytest
from graph_executors import Killed, Pass

from tidemill import Dataset, TaskGraph
from tidemill.graphs import checkpoints, dataset_writer, run
from tidemill.graphs.checkpoints import FrameStore
from tidemill.graphs.dataset import DatasetObject
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.graphs.named_objects import named_objects
from tidemill.graphs.run_log import FOLDER, RunEntry, RunLog, forget_run
from tidemill.graphs.saved_graphs import check_graphs, saved_parts
from tidemill.graphs.sealed import sealed
from tidemill.graphs.spark_channels import StoredPart, _StepObject
from tidemill.leader.backup import BackupRun
from tidemill.leader.backup_folder import BackupFolder
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import connect, open_store
from tidemill.testing.faulty_store import FaultPlan, FaultyObjectStore
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import CorruptState
from tidemill.values.ids import nonce

FRAMES = [pl.DataFrame({"v": range(30 * i, 30 * i + 30)}) for i in range(8)]


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 100)
    monkeypatch.setattr(dataset_writer, "OBJECT_ROWS", 30)


def die(*_: Any) -> None:
    raise Killed


def job(folder: Path) -> tuple[TaskGraph, Dataset]:
    graph = TaskGraph(folder, id="job", checkpoint_waves=1)
    return graph, graph.new_blocking_node({0: graph.new_input_frames(FRAMES, 1)}, Pass(), 2, {0: "v"})


def killed(folder: Path, at_wave: int = 5) -> ObjectStore:
    """The store of a run that was killed between two waves."""
    graph = job(folder)[0]
    graph.observe(lambda waves: die() if waves.wave == at_wave else None)
    with pytest.raises(Killed):
        graph.run()
    store = open_store(str(folder))
    assert check_graphs(store) == (0, [])
    return store


def killed_at_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The store of a run that was killed when all was done, and before anybody could see what it made."""
    with monkeypatch.context() as patch:
        patch.setattr(run, "publish", die)
        with pytest.raises(Killed):
            job(folder)[0].run()
    store = open_store(str(folder))
    assert check_graphs(store) == (0, [])
    return store


def texts(store: ObjectStore) -> list[str]:
    return [finding.text for _, finding in check_graphs(store)[1]]


def put(store: ObjectStore, key: str, content: bytes) -> None:
    store.delete(key)
    store.create(key, content)


def flipped(store: ObjectStore, key: str) -> None:
    content = bytearray(store.get(key))
    content[len(content) // 2] ^= 1
    put(store, key, bytes(content))


def lost(store: ObjectStore, key: str) -> None:
    store.delete(key)


def first(store: ObjectStore, below: str) -> str:
    return next(iter(store.list(below)))


# --- a run that goes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("damage", "text"), [(flipped, "not what was written"), (lost, "does not exist")])
def test_an_object_of_a_dataset_is_checked_when_only_a_checkpoint_names_it(
    tmp_path: Path, damage: Callable[[ObjectStore, str], None], text: str
) -> None:
    store = killed(tmp_path)
    key = first(store, "_tidemill/datasets/job-1")
    damage(store, key)

    (found,) = texts(store)

    assert key in found
    assert text in found


def test_a_backup_is_refused_when_an_object_that_a_checkpoint_names_was_changed(tmp_path: Path) -> None:
    store = killed(tmp_path / "store")
    flipped(store, first(store, "_tidemill/datasets/job-1"))
    folder = BackupFolder(connect(str(tmp_path / "backups")))

    with pytest.raises(CorruptState, match="not what was written"):
        BackupRun(store, folder, 1_000, lambda *_: None, saved_parts).take()


def test_a_backup_looks_again_when_a_run_ends_behind_its_first_look(tmp_path: Path) -> None:
    """It held the run without its program, and nothing of what the run had made."""
    store, ended = killed(tmp_path / "store"), list[str]()

    def end(verb: str, key: str) -> None:
        if verb == "exists" and "/program-" in key and not ended:
            ended.append(key)
            TaskGraph.resume("job", tmp_path / "store").run()

    folder = BackupFolder(connect(str(tmp_path / "backups")))
    backup = BackupRun(FaultyObjectStore(store, FaultPlan(end)), folder, 1_000, lambda *_: None, saved_parts).take()

    assert ended
    assert "_tidemill/datasets/job-1/dataset.json" in backup.objects


def test_a_run_is_at_fault_when_its_program_is_lost(tmp_path: Path) -> None:
    store = killed(tmp_path)
    program = next(key for key in store.list(f"{FOLDER}/job") if "/program-" in key)
    store.delete(program)

    assert texts(store) == [f"needs {program}, which does not exist"]


def test_a_run_is_at_fault_when_its_last_entry_is_lost(tmp_path: Path) -> None:
    job(tmp_path)[0].run()
    store = open_store(str(tmp_path))
    *_, last = (key for key in store.list(f"{FOLDER}/job/log") if key.endswith(".json"))
    store.delete(last)

    (found,) = texts(store)

    assert "/program-" in found
    assert "does not exist" in found


def test_a_run_is_at_fault_when_its_log_is_lost(tmp_path: Path) -> None:
    store = killed(tmp_path)
    for key in list(store.list(f"{FOLDER}/job/log")):
        store.delete(key)

    (found,) = texts(store)

    assert "no log: it was lost" in found


def test_an_older_entry_of_a_run_is_at_fault_when_it_cannot_be_read(tmp_path: Path) -> None:
    store = killed(tmp_path)
    key = first(store, f"{FOLDER}/job/log")
    put(store, key, store.get(key)[:-2])

    (found,) = texts(store)

    assert key in found


# --- a run that has ended --------------------------------------------------------------------------------------------


def test_what_waits_to_be_seen_is_at_fault_when_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = killed_at_its_end(tmp_path, monkeypatch)
    key = first(store, "_tidemill/datasets/job-1")
    flipped(store, key)

    assert texts(store) == [f"names {key}, which is not what was written"]


@pytest.mark.parametrize(
    "request_", [("exists", "/program-"), ("get", "/program-"), ("exists", "dataset.json"), ("get", ".parquet")]
)
def test_a_run_is_without_fault_when_it_is_done_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: tuple[str, str]
) -> None:
    """What it made is seen, and its program goes, without a further entry."""
    store, ended = killed_at_its_end(tmp_path, monkeypatch), list[str]()

    def end(verb: str, key: str) -> None:
        if verb == request_[0] and request_[1] in key and not ended:
            ended.append(key)
            TaskGraph.resume("job", tmp_path).run()

    assert texts(FaultyObjectStore(store, FaultPlan(end))) == []
    assert ended


def test_a_run_is_at_fault_when_the_record_of_its_dataset_is_lost(tmp_path: Path) -> None:
    graph, made = job(tmp_path)
    graph.run()
    store = open_store(str(tmp_path))
    assert check_graphs(store) == (1, [])
    store.delete(f"_tidemill/datasets/{made.id}/dataset.json")

    (found,) = texts(store)

    assert found == f"made the Dataset {made.id}, whose record does not exist, though objects of it do"


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_run_is_without_fault_when_its_dataset_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Before each request of who deletes it, also where the run was killed just behind its publication."""
    graph, made = job(tmp_path)
    with monkeypatch.context() as patch:
        if is_killed:
            patch.setattr(run.GraphRun, "_clean_dataset", die)
        with suppress(Killed):
            graph.run()
    store, looks = open_store(str(tmp_path)), list[list[str]]()

    plan = FaultPlan(before=lambda verb, key: looks.append(texts(store)))
    delete_dataset(FaultyObjectStore(store, plan), made.id)

    assert looks == [[]] * len(looks)
    assert len(looks) > 5
    assert texts(store) == []


# --- on Spark --------------------------------------------------------------------------------------------------------


def checkpointed(store: ObjectStore, state: Any, also: list[str]) -> None:
    """A run whose newest checkpoint is this state."""
    folder = f"{FOLDER}/job"
    program, key = f"{folder}/program-00000001-{nonce()}", f"{folder}/checkpoints/00000001-{nonce()}"
    store.create(program, sealed(program, b"a graph"))
    store.create(key, sealed(key, FrameStore(store, f"{folder}/frames").dump(state, also)[0]))
    RunLog(store, "job").append(RunEntry("checkpoint", nonce(), 1, wave=1, checkpoint=key, program=program))


def test_what_a_step_on_spark_left_is_at_fault_when_a_part_that_a_checkpoint_names_was_changed() -> None:
    store, key = MemoryStore(), f"{FOLDER}/job/scratch/x-1-2-0"
    made = _StepObject(key)
    sent, state = made.add(b"rows of a batch"), made.add(b"a state")
    store.create(key, b"rows of a batchA STATE")
    checkpointed(store, {"inbox": [sent], "state": state}, [key])

    assert texts(store) == [f"{key} is not what was written there: run `tidemill check`."]
    put(store, key, b"rows of a batcha state")
    assert texts(store) == []


class Code:
    """Whose pickle runs code; of this module, which is pickled by value."""

    def __init__(self) -> None:
        self.held = {"objects": [DatasetObject("c", 1, 2, 3, "d")]}

    def __reduce__(self) -> Any:
        return exec, ("raise AssertionError",), self.held, iter([1]), iter([(2, 3)])


@dataclass(frozen=True)
class Held:
    """Of a class that is pickled by value."""

    number: int
    parts: tuple[Any, ...]


def test_no_code_runs_when_it_is_looked_for_what_a_checkpoint_names(monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    part, mine = StoredPart("k", 0, 1, "s"), DatasetObject("e", 1, 2, 3, "c")
    state = {
        Held(1, (mine,)): Code(),
        "sets": {Held(2, (part,))},
        "rest": [np.arange(3), lambda: part, FRAMES[0], Held],
    }
    try:
        content, _ = FrameStore(MemoryStore(), "f").dump((deque([mine]), state), ["k"])
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])

    found = named_objects(content)

    assert {key: each for key, each in found.items() if "/" not in key} == {
        "c": [DatasetObject("c", 1, 2, 3, "d")], "e": [mine], "k": [part],
    }  # fmt: skip


def test_keys_are_known_when_a_state_is_pickled_in_a_way_that_only_its_class_understands() -> None:
    content, _ = FrameStore(MemoryStore(), "f").dump(DatasetObject("d", 1, 2, 3, "c"), ["k"])
    assert named_objects(content[:-1] + b"\x82\xfe.") == {"d": [DatasetObject("d", 1, 2, 3, "c")], "k": []}
    assert named_objects(b'["k"]\n') == {"k": []}


# --- runs that end and are forgotten meanwhile -----------------------------------------------------------------------


@pytest.mark.parametrize("is_again", [False, True])
def test_nothing_is_told_when_a_run_is_forgotten_while_it_is_checked(tmp_path: Path, is_again: bool) -> None:
    store, seen = killed(tmp_path), list[str]()

    def forget(verb: str, key: str) -> None:
        if verb == "get" and "/checkpoints/" in key and not seen:
            seen.append(key)
            job(tmp_path)[0].run()
            delete_dataset(store, "job-1")
            assert forget_run(store, "job")
            if is_again:
                killed(tmp_path, at_wave=3)

    assert texts(FaultyObjectStore(store, FaultPlan(before=forget))) == []
    assert seen


def test_nothing_is_told_when_what_waited_is_seen_and_deleted_while_it_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = killed_at_its_end(tmp_path, monkeypatch), list[str]()

    def delete(verb: str, key: str) -> None:
        if verb == "get" and key.endswith(".parquet") and not seen:
            seen.append(key)
            job(tmp_path)[0].run()
            delete_dataset(store, "job-1")

    assert texts(FaultyObjectStore(store, FaultPlan(before=delete))) == []
    assert seen
