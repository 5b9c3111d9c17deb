"""Files of a graph that others rewrite, replace, or add to between its definition and its end."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import polars as pl
import pytest
from graph_executors import Killed, Pass

from tidemill import Dataset, TaskGraph
from tidemill.graphs.inputs import files
from tidemill.graphs.inputs.parquet_input import ParquetInput
from tidemill.store.urls import connect
from tidemill.values.errors import BadInput

ROWS = 3_000
OLD, NEW = pl.DataFrame({"k": [1] * ROWS}), pl.DataFrame({"k": [2] * ROWS})
NAMES = ["a.csv", "a.parquet"]


def write(path: Path, frame: pl.DataFrame) -> None:
    if path.suffix == ".parquet":
        frame.write_parquet(path, row_group_size=100)
    else:
        frame.write_csv(path, include_header=False)


def made(store: Path, bucket: Any, name: str) -> tuple[TaskGraph, Dataset]:
    graph = TaskGraph(store, id="nightly", checkpoint_waves=1)
    read = graph.new_input_csv if name.endswith(".csv") else graph.new_input_parquet
    return graph, graph.new_blocking_node({0: read(bucket, name, ["k"], 2, stride=500)}, Pass(), 1, {0: None})


def die_after_a_wave(graph: TaskGraph) -> None:
    waves = iter(range(1))

    def die(_waves: Any) -> None:
        if next(waves, None) is None:
            raise Killed

    graph.observe(die)
    with pytest.raises(Killed):
        graph.run()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_refused_when_a_file_was_replaced_by_one_of_its_size(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, OLD)
    graph, _ = made(tmp_path / "store", tmp_path, name)
    size = (tmp_path / name).stat().st_size
    write(tmp_path / name, NEW)

    assert (tmp_path / name).stat().st_size == size
    with pytest.raises(BadInput, match="another one than it was when the graph was defined"):
        graph.run()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_graph_does_not_go_on_when_a_file_was_replaced_since_it_died(
    tmp_path: Path, name: str, is_resumed: bool
) -> None:
    write(tmp_path / name, OLD)
    die_after_a_wave(made(tmp_path / "store", tmp_path, name)[0])
    write(tmp_path / name, NEW)

    again = (
        TaskGraph.resume("nightly", tmp_path / "store") if is_resumed else made(tmp_path / "store", tmp_path, name)[0]
    )
    with pytest.raises(BadInput, match=r"another one than (it was|this, or its files were others)"):
        again.run()


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_graph_goes_on_when_a_file_was_only_touched(tmp_path: Path, is_resumed: bool) -> None:
    write(tmp_path / "a.csv", OLD)
    graph, out = made(tmp_path / "store", tmp_path, "a.csv")
    die_after_a_wave(graph)
    (tmp_path / "b.csv").write_bytes((tmp_path / "a.csv").read_bytes())
    os.replace(tmp_path / "b.csv", tmp_path / "a.csv")

    again = (
        TaskGraph.resume("nightly", tmp_path / "store")
        if is_resumed
        else made(tmp_path / "store", tmp_path, "a.csv")[0]
    )
    again.run()
    assert out.num_rows == ROWS


def test_rows_behind_are_not_read_when_they_were_added_to_a_file(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", OLD)
    graph, out = made(tmp_path / "store", tmp_path, "a.csv")
    with open(tmp_path / "a.csv", "a") as file:
        file.write("9\n" * 100)

    graph.run()
    assert out.num_rows == ROWS and out.to_polars()["k"].unique().to_list() == [1]


@pytest.mark.s3
@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_refused_when_an_object_was_replaced_by_one_of_its_size(
    tmp_path: Path, s3_url: str, name: str
) -> None:
    write(tmp_path / name, OLD)
    write(tmp_path / f"new-{name}", NEW)
    bucket: Any = connect(s3_url)
    bucket.create(name, (tmp_path / name).read_bytes())
    graph, out = made(tmp_path / "store", s3_url, name)
    graph.run()
    assert out.num_rows == ROWS

    graph, _ = made(tmp_path / "other", s3_url, name)
    obstore.put(bucket._writes, bucket._prefix + name, (tmp_path / f"new-{name}").read_bytes())
    with pytest.raises(BadInput, match="another one than it was when the graph was defined"):
        graph.run()


def overwrite(path: Path, frame: pl.DataFrame) -> None:
    """Other bytes in the same file, with its time, as a copy that keeps times does."""
    before = path.stat()
    write(path.with_name(f"new-{path.name}"), frame)
    path.write_bytes(path.with_name(f"new-{path.name}").read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_refused_when_a_file_was_overwritten_and_has_the_time_it_had(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name, OLD)
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    graph, _ = made(tmp_path / "store", tmp_path, name)
    overwrite(tmp_path / name, NEW)
    with pytest.raises(BadInput, match="another one than it was when the graph was defined"):
        graph.run()


def test_a_file_is_another_one_when_the_clock_of_its_file_system_stood_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def coarse(file: int) -> Any:
        found = fstat(file)
        times = {"st_mtime_ns": found.st_mtime_ns // 10**9 * 10**9, "st_ctime_ns": found.st_ctime_ns // 10**9 * 10**9}
        return SimpleNamespace(st_dev=found.st_dev, st_ino=found.st_ino, st_size=found.st_size, **times)

    fstat = os.fstat
    write(tmp_path / "a.csv", OLD)
    monkeypatch.setattr(files.os, "fstat", coarse)
    (file,) = files.find_files(str(tmp_path), "a.csv")
    overwrite(tmp_path / "a.csv", NEW)
    with pytest.raises(BadInput, match="another one"):
        file.read(0, 10)


def test_rows_are_refused_when_their_file_is_overwritten_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.csv", OLD)
    (file,) = files.find_files(str(tmp_path), "a.csv")
    read = files._pread

    def overwriting(*arguments: int) -> bytes:
        if arguments[2] == file.size - 1:
            overwrite(tmp_path / "a.csv", NEW)
        return read(*arguments)

    monkeypatch.setattr(files, "_pread", overwriting)
    with pytest.raises(BadInput, match="another one"):
        file.read(1, file.size)


@pytest.mark.parametrize("batch_func", [None, lambda batch: batch.filter(pl.col("k") > 0)])
def test_rows_are_refused_when_their_parquet_file_is_replaced_before_they_are_made_values(
    tmp_path: Path, batch_func: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.parquet", OLD)
    read = ParquetInput.read

    def replacing(*arguments: Any) -> Any:
        found = read(*arguments)
        write(tmp_path / "a.parquet", NEW)
        return found

    monkeypatch.setattr(ParquetInput, "read", replacing)
    graph = TaskGraph(tmp_path / "store")
    source = graph.new_input_parquet(tmp_path, "a.parquet", parallelism=1, batch_func=batch_func)
    graph.new_blocking_node({0: source}, Pass(), 1, {0: None})
    with pytest.raises(BadInput, match="another one"):
        graph.run()
