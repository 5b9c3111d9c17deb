"""Decoded parts on disk: shared, always right, bounded, and never in the way."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import Leaf, MapSchema
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.tables import compaction
from tidemill.tables.column_files import TableFile, open_table
from tidemill.tables.container import TableRows, arrow_table, decode, encode
from tidemill.tables.part_cache import PartCache, default_folder
from tidemill.tables.parts import PartLoader
from tidemill.tables.run_writer import MEMORY_BYTES_MAX
from tidemill.tables.tables import Table, layout_of
from tidemill.tables.view import SnapshotView
from tidemill.values.errors import CorruptState

SCHEMA = MapSchema("int", Leaf("str"))
ALL = TaskSet(1, 0)


def a_run(count: int) -> bytes:
    """The run of a map of `count` keys on task 0."""
    state = ThreadState({"$$p": PStateInfo("$$p", "7", SCHEMA)}, SnapshotView(Snapshot(), ALL, PartLoader(dict)))
    for key in range(count):
        state.root("$$p", 0).put(key, f"value {key}")
    content, part = state.finish()  # type: ignore[misc]
    level = Level("delta", 1, 1, (dataclasses.replace(part, name="d"),))
    merged = compaction.merge(
        {"7": layout_of(SCHEMA)}, [level], ALL, PartLoader(lambda _: content), is_base=True, chunk_rows=100
    )
    assert merged is not None
    return bytes(merged[0])


class Store:
    """Objects that count how often they are read."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = {f"runs/{name}.zip": content for name, content in objects.items()}
        self.reads = 0

    def read(self, name: str) -> bytes:
        self.reads += 1
        return self.objects[name]

    def loader(self, folder: Path, scope: str = "store", bytes_max: int = 1 << 30) -> PartLoader:
        return PartLoader(self.read, PartCache(folder, scope, bytes_max), cached_bytes_min=1)


def part_of(content: bytes, name: str = "runs/a.zip") -> Part:
    return Part(name, ALL, {"7/0": 1}).sealed(content)


RUNS = {count: a_run(count) for count in (1, 10, 300)}


def values_of(loader: PartLoader, name: str = "runs/a.zip", count: int = 300) -> list[object]:
    snapshot = Snapshot((Level("run", 1, 1, (part_of(RUNS[count], name),), True),))
    state = ThreadState({"$$p": PStateInfo("$$p", "7", SCHEMA)}, SnapshotView(snapshot, ALL, loader))
    return [state.root("$$p", 0).get(key) for key in (0, 1, 9)]


EXPECTED = ["value 0", "value 1", "value 9"]


def test_a_run_is_read_once_when_many_processes_need_it(tmp_path: Path) -> None:
    store = Store(a=a_run(300))
    for _ in range(3):
        assert values_of(store.loader(tmp_path)) == EXPECTED
    assert store.reads == 1


def test_a_run_is_not_read_at_all_when_this_machine_wrote_it(tmp_path: Path) -> None:
    store = Store(a=a_run(300))
    store.loader(tmp_path).keep(part_of(RUNS[300]), RUNS[300])
    assert values_of(store.loader(tmp_path)) == EXPECTED
    assert store.reads == 0


def test_equal_names_of_other_stores_are_other_entries(tmp_path: Path) -> None:
    first, second = Store(a=a_run(10)), Store(a=a_run(1))
    assert values_of(first.loader(tmp_path, "one"), count=10) == EXPECTED
    assert len(second.loader(tmp_path, "two").load(part_of(RUNS[1])).tables["7", "0"]) == 1


def test_members_of_log_entries_are_not_kept_when_their_names_may_come_again(tmp_path: Path) -> None:
    store = Store()
    store.objects["log/1.zip#0"] = a_run(300)
    store.loader(tmp_path).load(part_of(RUNS[300], "log/1.zip#0"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damaged", ["0.columns", "meta.json"])
@pytest.mark.parametrize("content", [b"", b"half a fi", None])
def test_a_damaged_entry_is_made_again_when_it_is_found(tmp_path: Path, damaged: str, content: bytes | None) -> None:
    store = Store(a=a_run(300))
    values_of(store.loader(tmp_path))
    (entry,) = tmp_path.iterdir()
    if content is None:
        (entry / damaged).unlink()
    else:
        (entry / damaged).write_bytes(content)
    assert values_of(store.loader(tmp_path)) == EXPECTED
    assert values_of(store.loader(tmp_path)) == EXPECTED
    assert store.reads == 2


def test_the_oldest_entries_go_when_the_cache_is_full(tmp_path: Path) -> None:
    run = a_run(300)
    store = Store(a=run, b=run, c=run)
    for age, name in enumerate("abc"):
        values_of(store.loader(tmp_path, bytes_max=25_000), f"runs/{name}.zip")
        for entry in tmp_path.iterdir():
            if entry.stat().st_mtime > 1000:
                os.utime(entry, (age + 1, age + 1))
    sizes = [sum(file.stat().st_size for file in entry.iterdir()) for entry in tmp_path.iterdir()]
    assert 0 < sum(sizes) <= 25_000 < 3 * sizes[0]
    values_of(store.loader(tmp_path), "runs/c.zip")
    assert store.reads == 3


def test_what_a_dead_process_left_is_removed_when_others_fill_the_cache(tmp_path: Path) -> None:
    (tmp_path / "abc.1-2.tmp").mkdir(parents=True)
    os.utime(tmp_path / "abc.1-2.tmp", (1, 1))
    assert values_of(Store(a=a_run(300)).loader(tmp_path)) == EXPECTED
    assert [path.suffix for path in tmp_path.iterdir()] == [""]


def test_parts_are_read_when_the_cache_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = Store(a=a_run(300))
    assert values_of(store.loader(tmp_path / "file" / "below")) == EXPECTED


def test_a_corrupt_run_is_told_and_not_kept(tmp_path: Path) -> None:
    run = bytearray(a_run(300))
    run[len(run) // 2] ^= 1
    with pytest.raises(CorruptState, match=r"runs/a\.zip"):
        Store(a=bytes(run)).loader(tmp_path).load(part_of(RUNS[300]))
    assert list(tmp_path.iterdir()) == []


def test_a_large_mapped_delta_is_told_apart_by_its_size_and_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is not compared, as that would read all its pages."""
    monkeypatch.setattr("tidemill.tables.parts.CHECKED_BYTES_MAX", 10)
    names = ("deltas/1.zip", "deltas/2.zip")
    contents = [
        encode({("7", "0"): TableRows(Table("0", ()), pl.DataFrame({"task": [i]}))}, {}, f"M/t/{names[i]}")
        for i in (0, 1)
    ]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    loader = PartLoader(dict, None, local_path=lambda name: tmp_path / name, mapped_bytes_min=0)
    assert loader.load(Part(names[0], ALL).sealed(contents[0])).tables["7", "0"].num_rows == 1
    (tmp_path / names[0]).write_bytes(contents[1])
    with pytest.raises(CorruptState, match="changed their places"):
        PartLoader(dict, None, local_path=lambda name: tmp_path / name, mapped_bytes_min=0).load(
            Part(names[0], ALL).sealed(contents[0])
        )
    (tmp_path / names[0]).write_bytes(contents[1][:-1])
    with pytest.raises(CorruptState, match="were committed"):
        PartLoader(dict, None, local_path=lambda name: tmp_path / name, mapped_bytes_min=0).load(
            Part(names[0], ALL).sealed(contents[0])
        )


def test_a_mapped_part_stays_right_when_its_memory_is_released(tmp_path: Path) -> None:
    loader = Store(a=a_run(300)).loader(tmp_path)
    before = loader.load(part_of(RUNS[300])).tables["7", "0"].to_pylist()
    loader.release()
    assert loader.load(part_of(RUNS[300])).tables["7", "0"].to_pylist() == before


def test_the_users_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMILL_CACHE_DIR", str(tmp_path))
    assert default_folder() == tmp_path / "parts"
    monkeypatch.setenv("TIDEMILL_CACHE_DIR", "")
    assert default_folder() is None
    monkeypatch.delenv("TIDEMILL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_folder() == Path("/caches/tidemill/parts")


COLUMNS = {
    "numbers": (pl.Int64, st.integers(-(2**63), 2**63 - 1)),
    "small": (pl.Int8, st.integers(-128, 127)),
    "texts": (pl.String, st.text(max_size=9)),
    "bytes": (pl.Binary, st.binary(max_size=9)),
    "flags": (pl.Boolean, st.booleans()),
    "floats": (pl.Float64, st.floats(allow_nan=False)),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})


@given(st.lists(st.lists(ROWS, max_size=9), max_size=4), st.integers(0, 9))
def test_chunks_come_back_as_one_batch_when_they_were_appended(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[list[dict[str, object]]], spare: int
) -> None:
    path = tmp_path_factory.mktemp("columns") / "0.columns"
    dtypes = {name: dtype for name, (dtype, _) in COLUMNS.items()}
    frames = [pl.DataFrame(chunk, schema=dtypes) for chunk in chunks]
    whole = pl.concat([pl.DataFrame(schema=dtypes), *frames])
    file = TableFile(path, arrow_table(whole).schema, whole.height + spare)
    for frame in frames:
        file.append(arrow_table(frame))
        # a slice of a longer table: buffers do not begin with its rows
        file.append(arrow_table(pl.concat([frame, frame])).slice(0, 0))
    layout = json.loads(json.dumps(file.finish()))
    read = open_table(path.read_bytes(), layout)
    assert all(column.num_chunks == 1 for column in read.columns) or whole.height == 0
    assert pl.DataFrame(pl.from_arrow(read)).equals(whole)
    assert [found.name for found in path.parent.iterdir()] == ["0.columns"]


def test_slices_are_appended_as_their_own_rows_only(tmp_path: Path) -> None:
    table = arrow_table(
        pl.DataFrame({"a": ["x", None, "zz", "é"], "b": [True, False, None, True], "c": [1, None, 3, 4]})
    )
    file = TableFile(tmp_path / "0.columns", table.schema, 3)
    file.append(table.slice(2, 2))
    file.append(table.slice(1, 1))
    layout = file.finish()
    read = open_table((tmp_path / "0.columns").read_bytes(), layout)
    assert read.to_pylist() == [*table.to_pylist()[2:], table.to_pylist()[1]]


def test_a_large_run_is_a_file_and_equal_to_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = a_run(500)
    monkeypatch.setattr("tidemill.tables.run_writer.MEMORY_BYTES_MAX", 1_000)
    assert a_run(500) == small
    assert len(small) < MEMORY_BYTES_MAX
    assert decode(small).tables["7", "0"].num_rows == 500
