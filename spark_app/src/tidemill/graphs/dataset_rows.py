"""Some rows of a Dataset, read from the objects that hold them and no more of those than needed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl

from tidemill.graphs.dataset import DatasetObject, DatasetRecord
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.values.errors import BadInput, CorruptState

OBJECT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of an object that is fetched to be looked at; in a folder it is read where it is."""

_DATA: Final = (bool, int, float, str, bytes, type(None))


def read_rows(
    store: ObjectStore, record: DatasetRecord, start: int, count: int, reserve: Callable[[int], None]
) -> pl.DataFrame:
    """The rows [start, start + count) of all, in the order of `record.objects`; `reserve` is told of bytes to fetch.

    Raises:
        BadInput: an object that must be fetched is larger than OBJECT_BYTES_MAX.
        CorruptState: an object is gone, as that of a Dataset that was deleted meanwhile, or damaged.
    """
    frames = [_part(store, each, at, rows, reserve) for each, at, rows in _parts(record, start, count)]
    if not frames:
        frames = [_part(store, each, 0, 0, reserve) for each in record.objects[:1]]
    return pl.concat(frames, how="vertical_relaxed") if frames else pl.DataFrame()


def _parts(record: DatasetRecord, start: int, count: int) -> Iterator[tuple[DatasetObject, int, int]]:
    """The objects that have some of the rows, where in each they begin, and how many."""
    before = 0
    for each in record.objects:
        at, end = max(start - before, 0), min(start + count - before, each.rows)
        if at < end:
            yield each, at, end - at
        before += each.rows


def _part(store: ObjectStore, each: DatasetObject, at: int, rows: int, reserve: Callable[[int], None]) -> pl.DataFrame:
    path = store.local_path(each.key)
    try:
        if path is not None and not path.exists():
            raise NotFound(f"There is no object {each.key}.")
        source: Any = path if path is not None else io.BytesIO(_fetched(store, each, reserve))
        return pl.scan_parquet(source).slice(at, rows).collect()
    except (NotFound, pl.exceptions.PolarsError, OSError) as error:
        raise CorruptState(f"{each.key}: this object of a Dataset cannot be read: {error}", key=each.key) from error


def _fetched(store: ObjectStore, each: DatasetObject, reserve: Callable[[int], None]) -> bytes:
    if each.bytes > OBJECT_BYTES_MAX:
        text = f"These rows are in an object of {each.bytes:,} bytes, and at most {OBJECT_BYTES_MAX:,} are fetched"
        raise BadInput(f"{text} to look at them: use `tidemill datasets export`.")
    reserve(each.bytes)
    return store.get(each.key)


def data_rows(frame: pl.DataFrame) -> list[list[Any]]:
    """The rows as lists of data values; what is none, as a date or a decimal, is its text."""
    return [[_data(value) for value in row] for row in frame.iter_rows()]


def _data(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_data(item) for item in value]
    return value if isinstance(value, _DATA) else str(value)
