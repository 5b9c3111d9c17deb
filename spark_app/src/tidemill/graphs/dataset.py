"""Datasets: what a blocking node leaves in the store, immutable, for other graphs and other processes.

A Dataset is Parquet objects below `_tidemill/datasets/<id>/` and `dataset.json`, which names them. It is created when
all objects are there: without it nobody sees any of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import polars as pl
import pyarrow as pa

from tidemill.cluster.stores import absolute_url
from tidemill.graphs.columns import in_order, stacked
from tidemill.graphs.partitions import places_of
from tidemill.graphs.sealed import not_written
from tidemill.graphs.sealed_footers import sealed_footer, with_sealed_footer
from tidemill.journal.snapshot import checksum_of
from tidemill.store.json_codec import JsonCodec
from tidemill.store.objects import RESERVED, NotFound, ObjectStore
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput, CorruptState, TidemillError, UnknownName
from tidemill.values.notebook import ROWS_MAX, ShownInNotebooks, table

FOLDER = f"{RESERVED}/datasets"
RECORD = "/dataset.json"
DELETIONS = f"{RESERVED}/dataset-deletions"
"""What is here is to be deleted, and nobody new may read it."""


@dataclass(frozen=True)
class DatasetObject:
    """One object: a batch that a channel of the node sent; `partition` of a KVDataset."""

    key: str
    channel: int
    rows: int
    bytes: int
    checksum: str
    partition: int = 0


@dataclass(frozen=True)
class DatasetRecord:
    """What `dataset.json` holds. `expires_ms`: from then on `tidemill datasets collect` deletes it; 0 is never. `wave`:
    where its run stood with the checkpoint behind which it is seen.
    """

    id: str
    kind: str
    graph: str
    node: int
    channels: int
    created_ms: int
    objects: list[DatasetObject] = field(default_factory=list)
    key_columns: list[str] = field(default_factory=list)
    partitions: int = 1
    expires_ms: int = 0
    wave: int = 0


RECORDS: JsonCodec[DatasetRecord] = JsonCodec(DatasetRecord)


def record_key(dataset: str) -> str:
    """Where the record of a Dataset is."""
    return f"{FOLDER}/{dataset}{RECORD}"


class Dataset(ShownInNotebooks):
    """Batches that a graph made. Before the graph has run, its Dataset is known by name only."""

    KIND: ClassVar[str] = "dataset"

    def __init__(self, store: str, dataset: str) -> None:
        """`store` is a store's URL or folder, `dataset` the ID that its graph gave it."""
        self.store = absolute_url(store)
        self.id = dataset

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r}, {self.id!r})"

    def _facts(self) -> dict[str, Any]:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.schema.items())
        return {"store": self.store, "id": self.id, "rows": self.num_rows, "batches": len(self), "columns": columns}

    def _repr_html_(self) -> str:
        """The facts, and the first rows of its first batch that has any."""
        facts = super()._repr_html_()
        try:
            filled = next((each for each in self.record.objects if each.rows), None)
            if filled is None:
                return facts
            head = next(read_slices(self._objects, filled.key, [(0, ROWS_MAX)], filled.checksum))
        except TidemillError:
            return facts  # which say why
        return facts + table("", head.columns, head.iter_rows(), rest=self.num_rows - head.height)

    @cached_property
    def record(self) -> DatasetRecord:
        """What the store says of it.

        Raises:
            UnknownName: its graph has not run to its end, or it was deleted.
        """
        return read_record(self._objects, self.id)

    def check(self) -> None:
        """Look at the store anew. Raises UnknownName where it cannot be read, or is to be deleted."""
        read_record(self._objects, self.id)

    @property
    def is_complete(self) -> bool:
        """Whether it can be read."""
        try:
            return bool(self.record)
        except UnknownName:
            return False

    @property
    def _objects(self) -> ObjectStore:
        return open_store(self.store, probe=False)

    @property
    def num_rows(self) -> int:
        """The rows of all its objects."""
        return sum(each.rows for each in self.record.objects)

    @cached_property
    def schema(self) -> pl.Schema:
        """Names and types of the columns; empty if the node never sent a batch."""
        objects = self.record.objects
        return next(read_slices(self._objects, objects[0].key, [(0, 0)])).schema if objects else pl.Schema()

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """Its batches with rows, by channel and in the order in which each channel sent them."""
        return (self._read(each) for each in self.record.objects if each.rows)

    def __bool__(self) -> bool:
        return True  # also where it is not known yet how many batches there are

    def __len__(self) -> int:
        """How many batches there are."""
        return sum(1 for each in self.record.objects if each.rows)

    def channel(self, number: int) -> Iterator[pl.DataFrame]:
        """The batches that one channel of the node sent."""
        return (self._read(each) for each in self.record.objects if each.channel == number and each.rows)

    def read_batch(self, number: int) -> pl.DataFrame:
        """The batch of an object, by its place in `record.objects`."""
        return self._read(self.record.objects[number])

    def read_object(self, key: str, checksum: str) -> pl.DataFrame:
        """The batch of an object, by its key, which stays where windows come and go; an empty checksum is unknown.

        Raises:
            CorruptState: it is gone, or not what was written.
        """
        return in_order(read_object(self._objects, key, checksum), self.schema.names())

    def to_polars(self) -> pl.DataFrame:
        """All rows as one frame. Raises BadInput where its batches have other columns than the first one."""
        return self._joined(self.record.objects)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return self.to_polars().to_arrow()

    def files(self) -> list[str]:
        """The Parquet files, as DuckDB, Polars and Spark open them: paths, or `s3://` URLs."""
        paths = [self._objects.local_path(each.key) for each in self.record.objects]
        if all(path is not None for path in paths):
            return [str(path) for path in paths]
        url = urlsplit(self._objects.url)
        folder = f"s3://{url.netloc}{url.path.rstrip('/')}"
        return [f"{folder}/{each.key}" for each in self.record.objects]

    def _read(self, each: DatasetObject) -> pl.DataFrame:
        """The rows of an object, in the order of columns that the first one has."""
        return self.read_object(each.key, each.checksum)

    def _joined(self, objects: Sequence[DatasetObject]) -> pl.DataFrame:
        return together([self._read(each) for each in objects])


class KVDataset(Dataset):
    """A Dataset in as many partitions as its node has channels, by a hash of its key."""

    KIND = "kv"

    def get(self, key: Any) -> pl.DataFrame:
        """The rows of a key (a tuple, if the key has several columns); reads one partition.

        Raises:
            BadInput: the key has another type than its column, or another number of values.
        """
        columns, values = self.record.key_columns, key if isinstance(key, tuple) else (key,)
        if len(values) != len(columns):
            raise BadInput(f"The key of {self.id} is ({', '.join(columns)}): {len(columns)} values, not {len(values)}.")
        schema = self.schema
        if not schema:
            return pl.DataFrame()
        try:
            asked = [_asked(name, value, schema[name]) for name, value in zip(columns, values, strict=True)]
        except (TypeError, pl.exceptions.PolarsError, OverflowError) as error:
            raise BadInput(f"{key!r} is no key of {self.id}: {error}") from error
        places = places_of(asked, self.record.partitions)
        found = [each for each in self.record.objects if each.partition in places]
        frame = self._joined(found) if found else pl.DataFrame(schema=schema)
        try:
            return frame.filter(*(pl.col(one.name).eq_missing(pl.lit(one[0], dtype=one.dtype)) for one in asked))
        except pl.exceptions.PolarsError as error:
            raise BadInput(f"{key!r} is no key of {self.id}: {error}") from error


def _asked(column: str, value: Any, kind: pl.DataType) -> pl.Series:
    """A key in the type of its column, which the first batch tells: it may have nulls only, or whole numbers alone."""
    if kind == pl.Null or (kind.is_integer() and isinstance(value, float)):
        return pl.Series(column, [value])
    return pl.Series(column, [value], dtype=kind)


class RangeDataset(Dataset):
    """A Dataset that is looked up by ranges of a column; its objects are skipped by their least and greatest value."""

    KIND = "range"

    def range(self, low: Any, high: Any) -> pl.DataFrame:
        """The rows whose key is in [low, high), in order of the key; None is no bound.

        Raises:
            CorruptState: an object that may have such rows is gone, or not what was written.
        """
        column = pl.col(self.record.key_columns[0])
        conditions = ([] if low is None else [column >= low]) + ([] if high is None else [column < high])
        found = together([self._within(each, conditions, low, high) for each in self.record.objects])
        return found.sort(self.record.key_columns) if found.width else found

    def _within(self, each: DatasetObject, conditions: list[pl.Expr], low: Any, high: Any) -> pl.DataFrame:
        source = _source(self._objects, each.key)
        if isinstance(source, Path) and not _may_have(source, self.record.key_columns[0], low, high):
            return _collected(pl.scan_parquet(source).head(0), each.key)
        # A part of the rows has no checksum, so all of them are read and compared, and then row groups are skipped.
        content = checked(self._objects, each.key, each.checksum, source if isinstance(source, bytes) else None)
        return _collected(pl.scan_parquet(content).filter(*conditions), each.key)


def _may_have(path: Path, column: str, low: Any, high: Any) -> bool:
    """Whether the least and greatest values of a file leave room for keys in [low, high); where in doubt they do: so
    does a footer that is not the one that was written, or that an older version wrote without a checksum.
    """
    try:
        found = sealed_footer(path)
        if found is None:
            return True
        columns = found.schema.to_arrow_schema()
        at = columns.names.index(column)
        if pa.types.is_dictionary(columns.types[at]):  # statistics are texts in their order, an Enum has one of its own
            return True
        groups = [found.row_group(number).column(at) for number in range(found.num_row_groups)]
        if any(each.path_in_schema != column or not each.statistics.has_min_max for each in groups):
            return True
        bounds = [(each.statistics.min, each.statistics.max) for each in groups]
        # Statistics leave NaN out; and Polars rounds where it compares a float with a decimal or a large number.
        return any(isinstance(each, float) for each in (low, high, *(least for least, _ in bounds))) or any(
            (low is None or greatest >= low) and (high is None or least < high) for least, greatest in bounds
        )
    except Exception:  # noqa: BLE001 - values that do not compare here may compare in Polars, which says what is wrong
        return True


def together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all; where there are none, the columns of the first. Raises BadInput: columns or kinds differ."""
    with_rows = [frame for frame in frames if frame.height] or frames[:1]
    names = {", ".join(sorted(frame.columns)): None for frame in with_rows}
    if len(names) > 1:
        raise BadInput(f"The batches of this Dataset are no one frame: their columns are {' and '.join(names)}.")
    try:
        return stacked(with_rows) if with_rows else pl.DataFrame()
    except pl.exceptions.SchemaError as error:
        text = f"The batches of this Dataset are no one frame: {error}. Iterate it to get each as it is."
        raise BadInput(text) from error


def read_record(store: ObjectStore, dataset: str) -> DatasetRecord:
    """The record of a Dataset. Raises UnknownName where there is none, or where it is to be deleted."""
    key = record_key(dataset)
    try:
        found = RECORDS.decode(store.get(key), key)
        if is_to_be_deleted(store, dataset):
            raise NotFound(f"{dataset} is to be deleted.")
        return found
    except NotFound as error:
        text = f"There is no Dataset {dataset} in {store.url}: its graph has not run to its end, or it was deleted."
        raise UnknownName(text, dataset=dataset) from error


def is_to_be_deleted(store: ObjectStore, dataset: str) -> bool:
    """Whether somebody said so."""
    return store.exists(f"{DELETIONS}/{dataset}")


def read_object(store: ObjectStore, key: str, checksum: str) -> pl.DataFrame:
    """The rows of an object; an empty checksum is unknown. Raises CorruptState: it is gone, or not what was written."""
    return _collected(pl.scan_parquet(checked(store, key, checksum)), key)


def checked(store: ObjectStore, key: str, checksum: str, found: bytes | None = None) -> bytes:
    """The bytes of an object, those that were `found` or fetched now. Raises CorruptState as `read_object`."""
    try:
        content = store.get(key) if found is None else found
    except NotFound as error:
        raise _unreadable(key, error) from error
    if checksum and checksum_of(content) != checksum:
        raise not_written(key)
    return content


def read_slices(
    store: ObjectStore, key: str, slices: Iterable[tuple[int, int | None]], checksum: str = ""
) -> Iterator[pl.DataFrame]:
    """For each (start, count) these rows of one object, which is fetched once and compared; of a file no more is read
    than that, so its checksum is not compared. Raises CorruptState: it is gone, or not what was written.
    """
    source = _source(store, key)
    if isinstance(source, bytes):
        source = checked(store, key, checksum, source)
    for start, count in slices:
        yield _collected(pl.scan_parquet(source).slice(start, count), key)


def _collected(rows: pl.LazyFrame, key: str) -> pl.DataFrame:
    try:
        return rows.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _unreadable(key, error) from error


def _source(store: ObjectStore, key: str) -> Path | bytes:
    """What Polars reads an object from: its file if there is one, else its bytes. Raises CorruptState if it is gone."""
    path = store.local_path(key)
    if path is not None and path.exists():
        return path
    try:
        return store.get(key)
    except NotFound as error:
        raise _unreadable(key, error) from error


def _unreadable(key: str, error: BaseException) -> CorruptState:
    return CorruptState(f"{key}: this object of a Dataset cannot be read: {error}", key=key)


def write_object(
    store: ObjectStore, key: str, frame: pl.DataFrame, channel: int = 0, partition: int = 0
) -> DatasetObject:
    """Create an object of a Dataset."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="lz4", statistics=True)
    # Not a view: a buffer with one cannot be closed, and Python tells of that where it ends.
    content = with_sealed_footer(buffer.getvalue())
    store.create(key, content)
    return DatasetObject(key, channel, frame.height, len(content), checksum_of(content), partition)


def dataset_names(store: ObjectStore, below: str = "") -> list[str]:
    """The IDs of all Datasets that have a record, or of those `below` another: of its windows."""
    folder = f"{FOLDER}/{below}".rstrip("/")
    return [key.removeprefix(f"{FOLDER}/").removesuffix(RECORD) for key in store.list(folder) if key.endswith(RECORD)]


def list_datasets(store: ObjectStore) -> list[DatasetRecord]:
    """The Datasets of a store that can be read, the oldest first."""
    found = []
    for name in dataset_names(store):
        with suppress(UnknownName):  # it goes just now
            found.append(read_record(store, name))
    return sorted(found, key=lambda record: (record.created_ms, record.id))
