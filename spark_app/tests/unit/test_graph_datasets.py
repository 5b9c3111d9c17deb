"""Datasets: what blocking nodes leave in the store, read by this process, by others and by other programs."""

from __future__ import annotations

import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from graph_executors import Count, First, Pass

from tidemill import Dataset, DefinitionError, KVDataset, RangeDataset, TaskGraph, WindowedDataset
from tidemill.graphs import dataset
from tidemill.graphs.dataset import RECORDS, DatasetRecord, list_datasets, record_key, write_object
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.journal.snapshot import checksum_of
from tidemill.store.local import LocalStore
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
    real = dataset.read_object
    monkeypatch.setattr(dataset, "read_object", lambda store, key, sum: [asked.append(key), real(store, key, sum)][1])
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


@pytest.mark.parametrize("kind", [Dataset, KVDataset])
def test_no_row_is_read_when_any_bit_of_an_object_is_another(tmp_path: Path, kind: Any) -> None:
    out = made(tmp_path, kind, ["v"] if kind is KVDataset else (), channels=1, frame=ROWS.head(100))
    (path,) = map(Path, out.files())
    content = path.read_bytes()
    path.chmod(0o600)
    for at in range(0, len(content), 37):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(CorruptState, match=path.name):
            out.get(7) if kind is KVDataset else out.to_polars()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    reading = TaskGraph(tmp_path)
    reading.new_blocking_node({0: reading.new_input_from_dataset(out, 1)}, Pass(), 1, {0: None})
    with pytest.raises(CorruptState, match="is not what was written there"):
        reading.run()
    path.write_bytes(content)
    reading.run()
    assert next(iter(reading.datasets().values())).num_rows == 100


def test_rows_of_a_range_are_refused_when_the_object_is_no_file_of_rows(tmp_path: Path) -> None:
    out = made(tmp_path, RangeDataset, "v", channels=1)
    (path,) = map(Path, out.files())
    content = path.read_bytes()
    path.chmod(0o600)
    for damaged in (b"", content[:-9], content[:200] + bytes(len(content) - 400) + content[-200:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptState, match=path.name):
            RangeDataset(str(tmp_path), out.id).range(3, 5)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_a_dataset_without_rows_has_columns_when_a_frame_made_it(tmp_path: Path, is_sorted: bool) -> None:
    graph = TaskGraph(tmp_path, parallelism=3)
    none = graph.from_frames(ROWS).filter(pl.col("v") < 0).with_columns(w=pl.col("v") / 2)
    out = (none.sort("v") if is_sorted else none).materialize()
    assert (out.schema, out.num_rows, list(out)) == (none.schema, 0, [])
    assert out.to_polars().schema == none.schema

    again = graph.read_dataset(Dataset(str(tmp_path), out.id))
    joined = graph.from_frames(ROWS).join(again, "v", how="left").collect()
    assert joined.schema == ROWS.join(none.schema.to_frame(), on="v", how="left").schema
    assert joined.height == ROWS.height


@pytest.mark.parametrize("kind", [Dataset, KVDataset, RangeDataset])
def test_a_dataset_without_rows_has_the_columns_that_its_node_names(tmp_path: Path, kind: Any) -> None:
    graph = TaskGraph(tmp_path)
    rows = graph.new_input_frames([ROWS.clear()], 1)
    out = graph.new_blocking_node(
        {0: rows}, Pass(), 3, {0: "k"}, kind=kind, key=() if kind is Dataset else "k", schema=dict(ROWS.schema)
    )
    graph.run()
    assert (out.schema, out.num_rows) == (ROWS.schema, 0)
    if isinstance(out, KVDataset):
        assert out.get(3).equals(ROWS.clear())
    if isinstance(out, RangeDataset):
        assert out.range(1, 3).equals(ROWS.clear())


def test_a_schema_of_windows_is_refused(tmp_path: Path) -> None:
    graph = TaskGraph(tmp_path)
    rows = graph.new_input_frames([ROWS], 1)
    graph.new_blocking_node({0: rows}, Pass(), 1, {0: None}, kind=WindowedDataset, key="k", schema=dict(ROWS.schema))
    with pytest.raises(DefinitionError, match="there is no schema="):
        graph.run()


@pytest.mark.parametrize("is_file", [True, False])
def test_damage_is_noticed_when_a_range_of_a_dataset_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    frames = [pl.DataFrame({"k": range(n, n + 5_000), "v": range(5_000)}) for n in (0, 10_000)]
    objects = [write_object(LocalStore(tmp_path), f"_tidemill/datasets/r/{n}.parquet", f) for n, f in enumerate(frames)]
    record = DatasetRecord("r", "range", "g", 0, 1, 0, objects, ["k"])
    LocalStore(tmp_path).create(record_key("r"), RECORDS.encode(record, record_key("r")))
    path = tmp_path / objects[1].key
    content = bytearray(path.read_bytes())
    at = len(content) // 3
    content[at : at + 8] = bytes(255 - each for each in content[at : at + 8])
    path.write_bytes(content)
    if not is_file:
        monkeypatch.setattr(LocalStore, "local_path", lambda store, key: None)
    dataset = RangeDataset(str(tmp_path), "r")

    with pytest.raises(CorruptState, match="not what was written"):
        dataset.range(10_100, 10_110)
    if is_file:
        assert dataset.range(100, 110)["k"].to_list() == list(range(100, 110))  # the other one is not read


def test_no_object_is_skipped_when_any_bit_of_its_footer_is_another(tmp_path: Path) -> None:
    out = kept(tmp_path, [pl.DataFrame({"k": [10, 20, 30]})], RangeDataset, channels=1)
    (path,) = map(Path, out.files())
    content, (skipped,) = path.read_bytes(), out.record.objects
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.chmod(0o600)
    for at in range(begin, len(content), 5):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(CorruptState, match="not what was written"):
            out.range(100, 200)

    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert (out.range(100, 200).height, skipped.rows) == (0, 3)  # the rows are of no concern to the range


def test_a_range_is_read_when_an_older_version_wrote_footers_without_checksums(tmp_path: Path) -> None:
    out = kept(tmp_path, [pl.DataFrame({"k": [10, 20, 30]})], RangeDataset, channels=1)
    (path,), (each,) = map(Path, out.files()), out.record.objects
    path.chmod(0o600)
    pl.DataFrame({"k": [10, 20, 30]}).write_parquet(path)
    older = replace(out.record, objects=[replace(each, checksum=checksum_of(path.read_bytes()))])
    out.__dict__["record"] = older

    assert out.range(15, 25)["k"].to_list() == [20]
    assert out.range(100, 200).schema == {"k": pl.Int64}


@pytest.mark.parametrize(
    ("keys", "low", "high"),
    [
        (pl.Series(["a", "b"], dtype=pl.Enum(["c", "b", "a"])), "b", "a"),
        (pl.Series([Decimal("1.10"), Decimal("0.90")], dtype=pl.Decimal(10, 2)), 1.1, None),
        (pl.Series(["a", "b"], dtype=pl.Categorical), "b", None),
    ],
)
def test_a_range_has_the_rows_of_polars_when_keys_are_in_an_order_of_their_own(
    tmp_path: Path, keys: pl.Series, low: Any, high: Any
) -> None:
    rows = keys.rename("k").to_frame()
    bounds = [pl.col("k") >= low, *([] if high is None else [pl.col("k") < high])]

    assert kept(tmp_path, [rows], RangeDataset, channels=1).range(low, high).equals(rows.filter(*bounds).sort("k"))
    assert rows.filter(*bounds).height == 1


def kept(store: Path, frames: list[pl.DataFrame], kind: Any, channels: int = 3) -> Any:
    """Frames as they are, in a Dataset by the column `k`."""
    graph = TaskGraph(store)
    rows = graph.new_input_frames(frames, 1)
    made = graph.new_blocking_node({0: rows}, Pass(), channels, {0: "k"}, kind=kind, key=() if kind is Dataset else "k")
    graph.run()
    return made


def test_a_key_has_all_its_rows_when_some_batches_have_whole_numbers_and_others_floats(tmp_path: Path) -> None:
    numbers = kept(tmp_path, [pl.DataFrame({"k": [1, 2, -3]}), pl.DataFrame({"k": [1.0, 2.5, -3.0, 2.0]})], KVDataset)

    assert {key: numbers.get(key).height for key in (1, 2, -3.0, 2.5, 7.5)} == {1: 2, 2: 2, -3.0: 2, 2.5: 1, 7.5: 0}


@pytest.mark.parametrize("keys", [[7, None, 8], ["x", None, "y"], [2.5, None, 2.0]])
def test_a_key_has_its_rows_when_the_first_batch_has_nulls_only(tmp_path: Path, keys: list[Any]) -> None:
    found = kept(tmp_path, [pl.DataFrame({"k": [None, None]}), pl.DataFrame({"k": keys})], KVDataset, 1)

    assert [found.get(key).height for key in keys] == [1, 3, 1]
    with pytest.raises(BadInput, match="is no key"):
        found.get(7 if keys[0] == "x" else "x")


@pytest.mark.parametrize("kind", [Dataset, KVDataset, RangeDataset])
def test_a_dataset_is_no_one_frame_when_its_batches_have_numbers_and_text(tmp_path: Path, kind: Any) -> None:
    mixed = kept(tmp_path, [pl.DataFrame({"k": [1, 10]}), pl.DataFrame({"k": ["1", "x"]})], kind, 1)

    with pytest.raises(BadInput, match="no one frame: column 'k' is Int64 and String"):
        mixed.to_polars()
    assert [batch["k"].to_list() for batch in mixed] == [[1, 10], ["1", "x"]]
