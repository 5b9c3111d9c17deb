"""A Dataset for each window that has ended, so that a graph without end has results that are whole.

The Dataset of a window is below the node's own: `<dataset>/<window>`, where the window is its column's value as text.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import Any, ClassVar

import polars as pl

from tidemill.graphs.columns import stacked
from tidemill.graphs.dataset import FOLDER, Dataset, DatasetObject, DatasetRecord, write_object
from tidemill.graphs.nodes import WINDOWS, DatasetSink
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, UnknownName
from tidemill.values.ids import nonce


class WindowedDataset(Dataset):
    """The Datasets of a node's windows, and itself all of them together: those that have ended up to now.

    `key` is the column that tells windows apart, as `window_start`. The executor gives all rows of a window in one
    step, and windows in rising order, as `TumblingWindowExecutor` and `HoppingWindowExecutor` do. Where the node has
    several channels, a window is there when each of them has ended this one or a later one.
    """

    KIND: ClassVar[str] = WINDOWS

    def windows(self) -> list[Dataset]:
        """The Datasets of the windows, the first window first."""
        folder, end = f"{FOLDER}/{self.id}/", "/dataset.json"
        names = [
            key.removeprefix(folder).removesuffix(end) for key in self._objects.list(folder[:-1]) if key.endswith(end)
        ]
        return [Dataset(self.store, f"{self.id}/{name}") for name in sorted(names, key=_order)]

    def window(self, value: Any) -> Dataset:
        """The Dataset of one window, by the value of its column; it has no record before the window has ended."""
        return Dataset(self.store, window_id(self.id, value))

    @property
    def record(self) -> DatasetRecord:
        """What the store says of all windows together; asked anew each time, since windows come.

        Raises:
            UnknownName: none has ended.
        """
        records = [each.record for each in self.windows()]
        if not records:
            raise UnknownName(f"No window of {self.id} in {self.store} has ended yet.", dataset=self.id)
        objects = [each for record in records for each in record.objects]
        return replace(records[-1], id=self.id, kind=self.KIND, objects=objects)


class WindowWriter:
    """Writes the windows that a channel ends, each as an object of its own. `pending` is the newest of them."""

    def __init__(self, store: ObjectStore, sink: DatasetSink, channel: int) -> None:
        self._store = store
        self._sink = sink
        self._channel = channel
        self.pending: Any = None

    def write(self, frames: list[pl.DataFrame]) -> tuple[tuple[Any, DatasetObject], ...]:
        """The windows in these batches, which are all their rows, in rising order.

        Raises:
            BadInput: a window has ended before, or a row has none.
        """
        with_rows = [frame for frame in frames if frame.height]
        if not with_rows:
            return ()
        (column,) = self._sink.key
        rows = stacked(with_rows)
        if column not in rows.columns:
            raise BadInput(f"The key {column} of {self._sink.dataset} is no column of its batches.")
        parts = rows.partition_by(column, as_dict=True)
        if (None,) in parts:
            raise BadInput(f"A row for {self._sink.dataset} has no {column}, so it belongs to no window.")
        return tuple(self._created(value, part) for (value,), part in sorted(parts.items()))

    def _created(self, value: Any, rows: pl.DataFrame) -> tuple[Any, DatasetObject]:
        if self.pending is not None and value <= self.pending:
            text = f"The window {value} of {self._sink.dataset} comes when the channel has ended {self.pending}."
            advice = "An executor whose windows are kept as Datasets gives each once and whole, in rising order."
            raise BadInput(f"{text} {advice}")
        self.pending = value
        key = f"{FOLDER}/{window_id(self._sink.dataset, value)}/{self._channel:05d}-{nonce()}.parquet"
        return value, write_object(self._store, key, rows, self._channel)


def window_id(dataset: str, value: Any) -> str:
    """The ID of a window's Dataset. Raises BadInput for a value that is no whole number, date or time."""
    if isinstance(value, datetime):
        text = value.strftime("%Y%m%dT%H%M%S") + (f".{value.microsecond:06d}" if value.microsecond else "")
    elif isinstance(value, date):
        text = value.strftime("%Y%m%d")
    elif isinstance(value, int) and not isinstance(value, bool):
        text = str(value)
    else:
        raise BadInput(f"A window is told by a whole number, a date or a time with a date, not by {value!r}.")
    return f"{dataset}/{text}"


def _order(name: str) -> tuple[int, str]:
    """Whole numbers by their size, dates and times by their text."""
    return (0, name) if "T" in name else (int(name), "")
