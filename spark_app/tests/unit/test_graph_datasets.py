"""Datasets: what blocking nodes leave in the store, read by this process, by others and by other programs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from graph_executors import Count, First, Pass

from tidemill import Dataset, KVDataset, RangeDataset, TaskGraph
from tidemill.graphs import dataset
from tidemill.graphs.dataset import list_datasets
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, CorruptState, UnknownName

ROWS = pl.DataFrame(
    {"k": [n % 7 if n % 11 else None for n in range(200)], "v": range(200), "t": [f"t{n % 5}" for n in range(200)]}
)


def made(
    store: Any, kind: type[Dataset] = Dataset, key: Any = (), channels: int = 3, frame: pl.DataFrame = ROWS
) -> Any:
    graph = TaskGraph(store)
    source = graph.new_input_frames([frame.slice(0, 90), frame.slice(90)], 2)
    out = graph.new_blocking_node({0: source}, Pass(), channels, {0: "v"}, kind=kind, key=key)
    graph.run()
    return out


def test_a_dataset_is_read_in_many_ways_when_its_graph_has_run(store_url: str) -> None:
    out = made(store_url)
    again = pickle.loads(pickle.dumps(Dataset(store_url, out.id)))

    assert out.num_rows == again.num_rows == 200
    assert len(out) == len(list(out)) == 3  # small batches of a channel are one object
    assert out.schema == ROWS.schema
    assert again.to_polars().sort("v").equals(ROWS)
    assert out.to_arrow().num_rows == 200
    assert [frame["v"][0] % 3 for frame in out] == [0, 1, 2]
    assert sum(frame.height for frame in out.channel(1)) == 67


def test_other_programs_read_its_files_when_the_store_is_a_folder(tmp_path: Path) -> None:
    files = made(tmp_path / "store").files()

    assert pl.scan_parquet(files).select(pl.col("v").sum()).collect().item() == sum(range(200))
    assert duckdb.sql(f"select sum(v) from read_parquet({files!r})").fetchall() == [(sum(range(200)),)]


@pytest.mark.s3
def test_files_are_named_as_urls_when_the_store_is_a_bucket(s3_url: str) -> None:
    files = made(s3_url).files()
    assert all(file.startswith(s3_url.partition("?")[0] + "/_tidemill/datasets/") for file in files)


@pytest.mark.parametrize("key", ["k", "t", ["t", "k"]])
def test_one_partition_is_read_when_a_key_is_asked_for(tmp_path: Path, key: Any) -> None:
    out = made(tmp_path, KVDataset, key)
    columns = [key] if isinstance(key, str) else key
    absent = tuple({"k": 99, "t": "none"}[column] for column in columns)
    for values in [*ROWS.select(columns).unique().rows(), absent]:
        expected = ROWS
        for column, value in zip(columns, values, strict=True):
            expected = expected.filter(pl.col(column).eq_missing(pl.lit(value, dtype=ROWS.schema[column])))
        found = out.get(values if len(values) > 1 else values[0])
        assert found.sort("v").equals(expected)
    assert {each.partition for each in out.record.objects} <= {0, 1, 2}


def test_a_key_is_refused_when_it_does_not_fit(tmp_path: Path) -> None:
    out = made(tmp_path, KVDataset, "k")
    with pytest.raises(BadInput, match="1 values, not 2"):
        out.get((1, 2))
    with pytest.raises(BadInput, match="is no key of"):
        out.get("text")


def test_rows_of_a_range_come_in_order_when_they_are_asked_for(tmp_path: Path) -> None:
    out = made(tmp_path, RangeDataset, "v")

    assert out.range(20, 30)["v"].to_list() == list(range(20, 30))
    assert out.range(None, 3)["v"].to_list() == [0, 1, 2]
    assert out.range(198, None)["v"].to_list() == [198, 199]
    assert out.range(500, 600).height == 0
    assert out.range(500, 600).schema == ROWS.schema


def test_columns_are_known_when_there_is_no_row(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    source = graph.new_input_frames(ROWS, 1)
    none = graph.new_blocking_node({0: source}, Empty(), 2, {0: "v"})
    nothing = graph.new_blocking_node({0: source}, Silent(), 2, {0: "v"})
    graph.run()

    assert (none.num_rows, none.schema, list(none), none.to_polars().columns) == (0, ROWS.schema, [], ["k", "v", "t"])
    assert (nothing.num_rows, len(nothing.schema), nothing.to_polars().height) == (0, 0, 0)


class Empty(Pass):
    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
        return batch.clear()


class Silent(Pass):
    def execute(self, batch: pl.DataFrame, stream_id: int, channel: int) -> Any:
        return None


def test_a_second_graph_reads_what_the_first_made_when_that_is_gone(tmp_path: Path) -> None:
    out = made(tmp_path)
    graph = TaskGraph(tmp_path)
    stream = graph.new_input_from_dataset(out, {"localhost": 4})
    first = graph.new_input_from_dataset(Dataset(str(tmp_path), out.id), 1)
    counted = graph.new_blocking_node({0: stream}, None, Count("t"), {"localhost": 4}, {0: "t"})
    limited = graph.new_blocking_node({0: first}, First(7), 1, {0: None})
    graph.initialize()
    graph.run()

    assert sorted(counted.to_polars().rows()) == [(f"t{n}", 40) for n in range(5)]
    assert limited.num_rows == 7


def test_datasets_are_listed_and_deleted_when_a_store_has_some(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path, KVDataset, "k")
    store = open_store(str(tmp_path))

    assert first.num_rows == 200
    assert {record.id for record in list_datasets(store)} == {first.id, second.id}
    assert delete_dataset(store, first.id) == 3
    assert [record.kind for record in list_datasets(store)] == ["kv"]
    with pytest.raises(UnknownName):
        Dataset(str(tmp_path), first.id).to_polars()
    with pytest.raises(UnknownName):
        delete_dataset(store, first.id)
    with pytest.raises(CorruptState, match="cannot be read"):
        first.to_polars()  # it was known before it was deleted


def test_a_range_that_was_deleted_is_said_to_be_gone_when_it_was_known_before(tmp_path: Path) -> None:
    out = made(tmp_path, RangeDataset, "v")
    assert out.num_rows == 200
    delete_dataset(open_store(str(tmp_path)), out.id)

    with pytest.raises(CorruptState, match="cannot be read"):
        out.range(20, 30)


def test_one_partition_is_read_for_a_key_when_the_columns_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = made(tmp_path, KVDataset, "k")
    asked: list[str] = []
    monkeypatch.setattr(
        dataset, "read_object", lambda store, key, real=dataset.read_object: [asked.append(key), real(store, key)][1]
    )
    out.get(1)
    asked.clear()
    found = out.get(2)

    partitions = {each.key: each.partition for each in out.record.objects}
    assert found["k"].unique().to_list() == [2]
    assert len({partitions[key] for key in asked}) == 1 and len(asked) == len(set(asked))


def test_a_class_of_the_user_is_given_when_a_node_names_it(tmp_path: Path) -> None:
    class Matrix(Dataset):
        def block(self, number: int) -> pl.DataFrame:
            return next(self.channel(number))

    out = made(tmp_path, Matrix)
    assert out.block(2)["v"].to_list()[:2] == [2, 5]
