"""Results in a real bucket: all of them or none is seen, wherever the process that writes them is killed."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from graph_executors import Killed

from tidemill import OutputCSVExecutor, OutputParquetExecutor, PublishExecutor, TaskGraph
from tidemill.graphs.executors import bucket_outputs
from tidemill.graphs.multisets import difference
from tidemill.store.s3 import S3ObjectStore
from tidemill.store.urls import connect
from tidemill.values.errors import BadInput, UserCodeError

pytestmark = pytest.mark.s3

ROWS = pl.DataFrame({"k": range(40), "t": [None if n % 7 == 0 else f'a "{n}",\n' for n in range(40)]})


def folder_of(s3_url: str, name: str) -> str:
    place, query = s3_url.split("?")
    return f"{place}/{name}?{query}"


def seen(folder: str) -> dict[str, bytes]:
    """What readers find in a folder: names that begin with a dot or an underscore are left out."""
    store = connect(folder)
    keys = [key for key in store.list("") if not any(part.startswith((".", "_")) for part in key.split("/"))]
    return {key: store.get(key) for key in keys}


def rows_of(content: bytes, is_csv: bool) -> pl.DataFrame:
    return pl.read_csv(io.BytesIO(content)) if is_csv else pl.read_parquet(io.BytesIO(content))


def writing(store: Any, folder: str, is_csv: bool, run: str = "one") -> Any:
    graph = TaskGraph(store, id=f"write-{run}")
    source = graph.new_input_frames([ROWS.head(15), ROWS.slice(15)], 2)
    output = OutputCSVExecutor(folder) if is_csv else OutputParquetExecutor(folder)
    files = graph.new_non_blocking_node({0: source}, output, 2, {0: "k"})
    graph.new_blocking_node({0: files}, PublishExecutor(folder, run), 1, {0: None})
    return graph


class Counted:
    """A file in a bucket whose writes and whose end are counted with those of the store."""

    def __init__(self, killer: BucketKiller, file: Any) -> None:
        self.killer, self.file = killer, file

    def write(self, content: bytes) -> None:
        self.killer.call(self.file.write, content)

    def close(self) -> None:
        self.killer.call(self.file.close)


class BucketKiller:
    """Kills at one write into a bucket, before or after it; from then on nothing is written."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self.at, self.after, self.calls = at, after, 0
        for verb in ("create", "delete"):
            real = getattr(S3ObjectStore, verb)
            patch.setattr(S3ObjectStore, verb, lambda store, *given, real=real: self.call(real, store, *given))
        writer = S3ObjectStore.writer
        patch.setattr(S3ObjectStore, "writer", lambda store, *given: Counted(self, writer(store, *given)))

    def call(self, real: Any, *given: Any) -> None:
        self.calls += 1
        if self.calls < self.at or (self.calls == self.at and self.after):
            real(*given)
        if self.calls >= self.at:
            raise Killed


@pytest.mark.parametrize(("is_csv", "after"), [(False, False), (False, True), (True, False)])
def test_all_rows_or_none_are_seen_when_a_run_is_killed_at_any_write(
    tmp_path: Path, s3_url: str, is_csv: bool, after: bool
) -> None:
    points = halves = 0
    for at in range(1, 100):
        store, folder = tmp_path / f"{at}-{after}", folder_of(s3_url, f"{at}-{after}/out")
        with pytest.MonkeyPatch.context() as patch:
            killer = BucketKiller(patch, at, after)
            with suppress(Killed):
                writing(store, folder, is_csv).run()
        if killer.calls < at:
            break
        points += 1
        found = seen(folder)
        halves += not found
        assert all(difference(rows_of(content, is_csv), ROWS) == "" for content in found.values())
        assert len(found) <= 1
        writing(store, folder, is_csv).run()
        (content,) = seen(folder).values()
        assert difference(rows_of(content, is_csv), ROWS) == ""
    assert points > 5
    assert 3 < halves < points


def test_a_frame_is_written_into_a_bucket_and_read_from_there(tmp_path: Path, s3_url: str) -> None:
    graph = TaskGraph(tmp_path, parallelism=2)
    frame = graph.from_frames([ROWS.head(11), ROWS.slice(11)]).sort("k", descending=True)
    csv, parquet = (folder_of(s3_url, name) for name in ("csv", "parquet"))

    (file,) = frame.write_csv(csv, separator="|")
    (other,) = frame.write_parquet(parquet)

    place = s3_url.split("?")[0]
    assert file.startswith(f"{place}/csv/part-00000-")
    assert file.endswith(".csv")
    assert other.startswith(f"{place}/parquet/part-00000-")
    bucket = connect(s3_url)
    written = pl.read_csv(bucket.get(file.removeprefix(f"{place}/")), separator="|")
    assert written.equals(ROWS.sort("k", descending=True))
    assert not [key for key in bucket.list("") if "unpublished" in key]
    again = graph.read_parquet("parquet", bucket=s3_url).collect()
    assert difference(again, ROWS) == ""
    with pytest.raises(BadInput, match="is there already"):
        frame.write_csv(csv)
    with pytest.raises(UserCodeError, match="is there already"):
        writing(tmp_path, parquet, False, "two").run()
    assert len(seen(parquet)) == 1


def test_a_folder_is_empty_when_no_row_comes(tmp_path: Path, s3_url: str) -> None:
    folder = folder_of(s3_url, "none")
    assert TaskGraph(tmp_path).from_frames(ROWS).filter(pl.col("k") < 0).write_csv(folder) == []
    assert seen(folder) == {}


def test_a_bucket_without_a_folder_is_refused(tmp_path: Path, minio_url: str) -> None:
    with pytest.raises(BadInput, match="names no folder"):
        TaskGraph(tmp_path).from_frames(ROWS).write_parquet(minio_url)


def test_nothing_is_seen_when_an_upload_of_several_parts_is_left(
    tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_outputs, "PART_BYTES", 5 << 20)
    big = pl.DataFrame({"n": range(1_500_000)})
    folder = folder_of(s3_url, "big")

    def write(run: str) -> None:
        graph = TaskGraph(tmp_path, id=f"big-{run}")
        output = OutputCSVExecutor(folder, header=False, file_bytes=1)
        files = graph.new_non_blocking_node(
            {0: graph.new_input_frames([*big.iter_slices(500_000)], 1)}, output, 1, {0: None}
        )
        graph.new_blocking_node({0: files}, PublishExecutor(folder, "big"), 1, {0: None})
        graph.run()

    with monkeypatch.context() as patch, pytest.raises(Killed):
        BucketKiller(patch, 7, after=False)  # three staged, the claim, two of three written
        write("first")
    assert seen(folder) == {}
    write("second")
    (content,) = seen(folder).values()
    assert len(content) > 10 << 20
    found = pl.read_csv(io.BytesIO(content), has_header=False).to_series()
    assert found.sort().to_list() == big["n"].to_list()
