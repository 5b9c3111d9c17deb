"""Some rows of a Dataset, read from the objects that hold them and no more of those than needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tidemill.graphs.dataset import DatasetObject, DatasetRecord, read_slices, together
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput

OBJECT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of an object that is fetched to be looked at; in a folder it is read where it is."""

FIRST_ROWS: Final = 16
"""So many rows are read at first, so that large ones are noticed before many are."""

_DATA: Final = (bool, int, float, str, bytes, type(None))


@dataclass
class Room:
    """Bytes in memory that the rows of one answer may take."""

    bytes_max: int
    rows: int = 0
    bytes: int = 0

    def next_rows(self) -> int:
        """How many rows may be read now: they fit even if they are twice as large as those before."""
        left = self.bytes_max - self.bytes
        return max(1, left * self.rows // (2 * max(1, self.bytes))) if self.rows else FIRST_ROWS

    def take(self, frame: pl.DataFrame) -> None:
        """Count rows that were read. Raises BadInput: they take more than they may."""
        self.rows += frame.height
        self.bytes += int(frame.estimated_size())
        if self.bytes > self.bytes_max:
            raise BadInput(f"These rows take more than {self.bytes_max:,} bytes; read fewer at once.")


def read_rows(
    store: ObjectStore, record: DatasetRecord, start: int, count: int, reserve: Callable[[int], None], room: Room
) -> pl.DataFrame:
    """The rows [start, start + count) of all, in the order of `record.objects`; `reserve` is told of bytes to fetch.

    Raises:
        BadInput: there is no `room` for the rows, an object that must be fetched is larger than OBJECT_BYTES_MAX, or
            objects have other columns.
        CorruptState: an object is gone, as that of a Dataset that was deleted meanwhile, or damaged.
    """
    parts = list(_parts(record, start, count)) or [(each, 0, 0) for each in record.objects[:1]]
    return together([frame for each, at, rows in parts for frame in _part(store, each, at, rows, reserve, room)])


def _parts(record: DatasetRecord, start: int, count: int) -> Iterator[tuple[DatasetObject, int, int]]:
    """The objects that have some of the rows, where in each they begin, and how many."""
    before = 0
    for each in record.objects:
        at, end = max(start - before, 0), min(start + count - before, each.rows)
        if at < end:
            yield each, at, end - at
        before += each.rows


def _part(
    store: ObjectStore, each: DatasetObject, at: int, rows: int, reserve: Callable[[int], None], room: Room
) -> Iterator[pl.DataFrame]:
    """Rows of an object, in several frames; no rows are one frame with its columns."""
    if store.local_path(each.key) is None:
        _check_fetched(each)
        reserve(each.bytes)
    for frame in read_slices(store, each.key, _slices(at, rows, room), each.checksum):
        room.take(frame)
        yield frame


def _slices(at: int, rows: int, room: Room) -> Iterator[tuple[int, int]]:
    end = at + rows
    while True:
        count = min(room.next_rows(), end - at)
        yield at, count
        at += count
        if at >= end:
            return


def _check_fetched(each: DatasetObject) -> None:
    if each.bytes > OBJECT_BYTES_MAX:
        text = f"These rows are in an object of {each.bytes:,} bytes, and at most {OBJECT_BYTES_MAX:,} are fetched"
        raise BadInput(f"{text} to look at them: use `tidemill datasets export`.")


def data_rows(frame: pl.DataFrame) -> list[list[Any]]:
    """The rows as lists of data values; what is none, as a date or a decimal, is its text."""
    return [[_data(value) for value in row] for row in frame.iter_rows()]


def _data(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_data(item) for item in value]
    return value if isinstance(value, _DATA) else str(value)
