"""Reading a snapshot: by several threads at once, and within the bound of what the process holds of parts."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tidemill import Ops, Path, PState
from tidemill.journal.snapshot import Level, Snapshot, TaskSet
from tidemill.language.dataflow import Const
from tidemill.paths.compiled import compile_path
from tidemill.pstate import snapshot_reader
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.pstate.thread_state import ThreadState
from tidemill.tables.container import Container
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.part_memory import PartMemory, weight
from tidemill.tables.parts import PartLoader
from tidemill.tables.view import SnapshotView
from tidemill.values.absent import ABSENT

TASKS = 16
INFOS = {
    "$$p": PStateInfo("$$p", "7", PState.map_schema(int, int).schema),
    "$$sized": PStateInfo("$$sized", "8", PState.map_schema(int, PState.map_schema(int, int).subindexed()).schema),
    "$$any": PStateInfo("$$any", "9", PState.map_schema(int, object).schema),
    "$$record": PStateInfo("$$record", "10", PState.map_schema(int, PState.fixed_keys_schema("a", int)).schema),
}


class Blobs:
    """A snapshot of one level with a part a task: {task: 10 * task}, {task: {0: 0}} and {0: [task], 1: "x" * 1000}."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.reads: list[str] = []
        parts = []
        for task in range(TASKS):
            view = SnapshotView(Snapshot(), TaskSet(TASKS, task), PartLoader(self.read))
            state = ThreadState(INFOS, view)
            state.root("$$p", task).put(task, 10 * task)
            state.root("$$sized", task).get(task).put(0, 0)
            state.root("$$any", task).put(0, [task])
            state.root("$$any", task).put(1, "x" * 1000)
            state.root("$$record", task).put(0, {"a": task})
            finished = state.finish()
            assert finished is not None
            self.held[f"deltas/{task}.zip"] = finished[0]
            parts.append(dataclasses.replace(finished[1], name=f"deltas/{task}.zip"))
        self.snapshot = Snapshot((Level("delta", 1, 1, tuple(parts)),))

    def read(self, name: str) -> bytes:
        self.reads.append(name)
        return self.held[name]

    def weight(self) -> int:
        return weight(PartLoader(self.read).load(next(self.snapshot.parts())))


@pytest.fixture(scope="module")
def built() -> Blobs:
    return Blobs()


@pytest.fixture
def blobs(built: Blobs) -> Blobs:
    built.reads.clear()
    return built


@pytest.fixture
def no_gc() -> Iterator[None]:
    """What is let go of is free at once: files stay mapped until then."""
    gc.disable()
    yield
    gc.enable()


def reader_of(blobs: Blobs, memory: PartMemory) -> SnapshotReader:
    return SnapshotReader(INFOS, blobs.snapshot, PartLoader(blobs.read, memory=memory))


def select(reader: SnapshotReader, task: int, path: Path, pstate: str = "$$p") -> list[Any]:
    compiled = compile_path(path.path, INFOS[pstate].schema, "select")
    values = [argument.value for argument in compiled.arguments if isinstance(argument, Const)]
    return compiled.select(reader.root(pstate, task), values)


def test_each_part_is_read_once_when_it_stays_in_memory(blobs: Blobs) -> None:
    reader = reader_of(blobs, PartMemory())
    for _ in range(3):
        assert [select(reader, task, Path.key(task)) for task in range(TASKS)] == [[10 * t] for t in range(TASKS)]
        assert [select(reader, task, Path.key(TASKS)) for task in range(TASKS)] == [[None]] * TASKS
    assert sorted(blobs.reads) == sorted(blobs.held)


def test_only_what_the_memory_holds_is_alive_when_readers_have_read_more(blobs: Blobs, no_gc: None) -> None:
    memory = PartMemory(4 * blobs.weight())
    readers = [reader_of(blobs, memory) for _ in range(3)]
    opened: list[weakref.ref[Any]] = []
    for reader in readers:
        for task in range(TASKS):
            assert select(reader, task, Path.key(task)) == [10 * task]
            assert select(reader, task, Path.key(task).view(Ops.SIZE), "$$sized") == [1]
            newest = next(reversed(memory._held.values()))
            opened += map(weakref.ref, newest.opened.values())
    assert len(memory) == 4 and len(opened) == 3 * TASKS * 3
    assert sum(table() is not None for table in opened) == 4 * 3


def test_a_size_is_looked_up_when_a_path_asks_for_it(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(blobs, PartMemory())
    monkeypatch.delattr(TaskReader, "scan")
    assert select(reader, 3, Path.key(3).view(Ops.SIZE), "$$sized") == [1]
    state = ThreadState(INFOS, SnapshotView(blobs.snapshot, TaskSet(1, 0), PartLoader(blobs.read)))
    compiled = compile_path(Path.key(3).view(Ops.SIZE).path, INFOS["$$sized"].schema, "select")
    assert compiled.select(state.root("$$sized", 3), [3]) == [1]


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys of the rows that were merged from levels."""
    keys: list[Any] = []
    get = TaskReader.get

    def counted(self: TaskReader, of: Any) -> Any:
        keys.append(of)
        return get(self, of)

    monkeypatch.setattr(TaskReader, "get", counted)
    return keys


def test_a_row_is_merged_once_when_it_is_asked_for_again(blobs: Blobs, merged: list[Any]) -> None:
    reader = reader_of(blobs, PartMemory())
    for _ in range(3):
        assert select(reader, 3, Path.key(3)) == [30]
        assert select(reader, 3, Path.key(4)) == [None]
        assert select(reader, 3, Path.key(3).view(Ops.SIZE), "$$sized") == [1]
    assert merged == [(3,), (4,), (3,)]


def test_a_row_is_read_anew_when_it_is_large_or_a_caller_could_change_it(blobs: Blobs, merged: list[Any]) -> None:
    reader = reader_of(blobs, PartMemory())
    for _ in range(2):
        (found,) = select(reader, 3, Path.key(0), "$$any")
        assert found == [3]
        found.append("spoiled")
        assert select(reader, 3, Path.key(1), "$$any") == ["x" * 1000]
    assert len(merged) == 4 and not reader._found


def test_a_record_stays_as_it_was_when_a_caller_changes_the_one_that_it_got(blobs: Blobs) -> None:
    reader = reader_of(blobs, PartMemory())
    for _ in range(2):
        (found,) = select(reader, 3, Path.key(0), "$$record")
        assert found == {"a": 3} and select(reader, 3, Path.key(0, "a"), "$$record") == [3]
        found["a"] = "spoiled"
    assert list(reader._found.values()) == [{"a": 3}]


def test_rows_that_are_remembered_are_bounded(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reader, "FOUND_MAX", 5)
    reader = reader_of(blobs, PartMemory())
    for key in range(40):
        assert select(reader, 3, Path.key(key)) == [30 if key == 3 else None]
        assert 1 <= len(reader._found) <= 5
    reader.forget()
    assert not reader._found


def test_a_reader_that_nobody_uses_is_free_at_once(blobs: Blobs, no_gc: None) -> None:
    memory = PartMemory()
    reader = reader_of(blobs, memory)
    assert select(reader, 3, Path.key(3).view(Ops.SIZE), "$$sized") == [1]
    unused = weakref.ref(reader)
    del reader
    assert unused() is None and len(memory._users) == 0


def test_what_is_dropped_while_a_partition_is_opened_is_not_kept(blobs: Blobs) -> None:
    memory = PartMemory()
    reader = reader_of(blobs, memory)
    loader = reader._loader
    table = loader.table

    def dropped_meanwhile(*args: Any) -> Any:
        found = table(*args)
        memory.retain(loader._owner, ())
        return found

    loader.table = dropped_meanwhile  # type: ignore[method-assign]
    assert reader.root("$$p", 3).get(3) == 30
    assert reader._roots == {} and len(memory) == 0


def test_partitions_that_stay_open_are_bounded(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reader, "OPEN_MAX", 5)
    reader = reader_of(blobs, PartMemory())
    for task in [*range(TASKS), *range(TASKS)]:
        assert select(reader, task, Path.key(task)) == [10 * task]
        assert 1 <= len(reader._roots) <= 5
    assert len(blobs.reads) == TASKS


def test_one_select_waits_for_no_other(blobs: Blobs) -> None:
    reader = reader_of(blobs, PartMemory())
    is_inside, may_go_on = threading.Event(), threading.Event()

    def slow(value: int) -> bool:
        is_inside.set()
        assert may_go_on.wait(60)
        return value == 30

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(select, reader, 3, Path.map_vals().filter_pred(slow))
        assert is_inside.wait(60)
        assert select(reader, 3, Path.key(3)) == [30]
        may_go_on.set()
        assert waiting.result(60) == [30]


def test_a_part_is_decoded_once_when_several_threads_miss_it_together(blobs: Blobs) -> None:
    starts = threading.Barrier(4)
    loader = PartLoader(blobs.read)
    part = next(blobs.snapshot.parts())

    def load(_: int) -> Container:
        starts.wait(60)
        return loader.load(part)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(load, range(4)))
    assert blobs.reads == [part.name] and all(one is found[0] for one in found)
    assert not loader._missing


def test_a_part_can_be_loaded_after_a_read_that_failed(blobs: Blobs) -> None:
    part = next(blobs.snapshot.parts())
    content = blobs.held.pop(part.name)
    loader = PartLoader(blobs.read)
    with pytest.raises(KeyError):
        loader.load(part)
    blobs.held[part.name] = content
    assert loader.load(part).meta and not loader._missing


def test_many_threads_read_what_is_there_while_parts_come_and_go(blobs: Blobs) -> None:
    reader = reader_of(blobs, PartMemory(2 * blobs.weight()))

    def read(first: int) -> list[Any]:
        return [select(reader, task % TASKS, Path.key(task % TASKS))[0] for task in range(first, first + 4 * TASKS)]

    with ThreadPoolExecutor(4) as pool:
        for first, found in enumerate(pool.map(read, range(8))):
            assert found == [10 * (task % TASKS) for task in range(first, first + 4 * TASKS)]


def test_a_committed_node_cannot_be_written(blobs: Blobs) -> None:
    root = reader_of(blobs, PartMemory()).root("$$p", 3)
    for write in (lambda: root.put(3, 1), lambda: root.delete(3), root.clear):
        with pytest.raises(NotImplementedError):
            write()
    assert root.get(3) == 30


@pytest.mark.parametrize(("kind", "key", "others"), [(int, 1, [True, 1.0]), (bool, True, [1, 1.0])])
def test_a_key_that_only_looks_alike_is_absent_in_an_attempt_too(kind: Any, key: Any, others: list[Any]) -> None:
    info = PStateInfo("$$p", "7", PState.map_schema(kind, int).schema)
    root = ThreadState({"$$p": info}, SnapshotView(Snapshot(), TaskSet(1, 0), PartLoader(bytes))).root("$$p", 0)
    root.put(key, 5)
    assert root.get(key) == 5
    assert [root.get(other) for other in others] == [ABSENT] * len(others)
