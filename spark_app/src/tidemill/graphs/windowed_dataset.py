"""A Dataset for each window that has ended, so that a graph without end has results that are whole.

The Dataset of a window is below the node's own: `<dataset>/<window>`, where the window is its column's value as text; a
time with a zone is that time in UTC, since clocks are put back.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import polars as pl

from tidemill.graphs.columns import stacked
from tidemill.graphs.dataset import (
    DELETIONS,
    FOLDER,
    Dataset,
    DatasetObject,
    DatasetRecord,
    dataset_names,
    write_object,
)
from tidemill.graphs.nodes import WINDOWS, DatasetSink
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, UnknownName
from tidemill.values.ids import nonce

_WINDOW = "__tidemill_window"


class WindowedDataset(Dataset):
    """The Datasets of a node's windows, and itself all of them together: those that have ended up to now.

    `key` is the column that tells windows apart, as `window_start`. The executor gives all rows of a window in one
    step, and windows in rising order, as `TumblingWindowExecutor` and `HoppingWindowExecutor` do. Where the node has
    several channels, a window is there when each of them has ended this one or a later one. Where the executor has an
    `idle_after`, a channel that got no rows for so long follows the others, and all end where the inputs idle.
    """

    KIND: ClassVar[str] = WINDOWS

    def windows(self) -> list[Dataset]:
        """The Datasets of the windows, the first window first; those that are to be deleted are left out."""
        gone = {key.removeprefix(f"{DELETIONS}/") for key in self._objects.list(f"{DELETIONS}/{self.id}")}
        names = set(dataset_names(self._objects, self.id)) - gone
        return [Dataset(self.store, name) for name in sorted(names, key=_order)]

    def window(self, value: Any) -> Dataset:
        """The Dataset of one window, by the value of its column; it has no record before the window has ended."""
        return Dataset(self.store, window_id(self.id, value))

    def check(self) -> None:
        """Raises UnknownName where there is no window that can be read."""
        _ = self.record

    @property
    def record(self) -> DatasetRecord:
        """What the store says of all windows together; asked anew each time, since windows come.

        Raises:
            UnknownName: none has ended.
        """
        records = []
        for each in self.windows():
            with suppress(UnknownName):  # it goes just now
                records.append(each.record)
        if not records:
            raise UnknownName(f"No window of {self.id} in {self.store} has ended yet.", dataset=self.id)
        objects = [each for record in records for each in record.objects]
        return replace(records[-1], id=self.id, kind=self.KIND, objects=objects)


class WindowWriter:
    """Writes the windows that a channel ends, each as an object of its own. `pending` is the newest of them;
    `late_rows` are those that the last `write` left out.
    """

    def __init__(self, store: ObjectStore, sink: DatasetSink, channel: int) -> None:
        self._store = store
        self._sink = sink
        self._channel = channel
        self.pending: Any = None
        self.late_rows = 0

    def write(self, frames: list[pl.DataFrame], closed: Any = None) -> tuple[tuple[Any, DatasetObject], ...]:
        """The windows in these batches, which are all their rows, in rising order. Those up to `closed` came too late:
        an idle input ended them in all channels.

        Raises:
            BadInput: a window has ended before, or a row has none.
        """
        self.late_rows = 0
        with_rows = [frame for frame in frames if frame.height]
        if not with_rows:
            return ()
        (column,) = self._sink.key
        rows = stacked(with_rows)
        if column not in rows.columns:
            raise BadInput(f"The key {column} of {self._sink.dataset} is no column of its batches.")
        parts = rows.with_columns(_told_apart(rows[column])).partition_by(_WINDOW, as_dict=True, include_key=False)
        if (None,) in parts:
            raise BadInput(f"A row for {self._sink.dataset} has no {column}, so it belongs to no window.")
        if len(parts) < rows[column].n_unique():
            raise BadInput(f"Two windows of {self._sink.dataset} begin within the same microsecond.")
        on_time = sorted((value, part) for (value,), part in parts.items() if closed is None or value > closed)
        self.late_rows = rows.height - sum(part.height for _, part in on_time)
        return tuple(self._created(value, part) for value, part in on_time)

    def _created(self, value: Any, rows: pl.DataFrame) -> tuple[Any, DatasetObject]:
        if self.pending is not None and value <= self.pending:
            text = f"The window {value} of {self._sink.dataset} comes when the channel has ended {self.pending}."
            advice = "An executor whose windows are kept as Datasets gives each once and whole, in rising order."
            raise BadInput(f"{text} {advice}")
        self.pending = value
        key = f"{FOLDER}/{window_id(self._sink.dataset, value)}/{self._channel:05d}-{nonce()}.parquet"
        return value, write_object(self._store, key, rows, self._channel)


def _told_apart(windows: pl.Series) -> pl.Series:
    """What tells windows apart: times in UTC, since Python takes both hours for one where a clock is put back."""
    zone = windows.dtype.time_zone if isinstance(windows.dtype, pl.Datetime) else None
    return (windows if zone is None else windows.dt.convert_time_zone("UTC")).alias(_WINDOW)


def window_id(dataset: str, value: Any) -> str:
    """The ID of a window's Dataset. Raises BadInput for a value that is no whole number, date or time."""
    if isinstance(value, datetime):
        value = value if value.tzinfo is None else value.astimezone(UTC)
        text = value.strftime("%Y%m%dT%H%M%S") + (f".{value.microsecond:06d}" if value.microsecond else "")
    elif isinstance(value, date):
        text = value.strftime("%Y%m%d")
    elif isinstance(value, int) and not isinstance(value, bool):
        text = str(value)
    else:
        raise BadInput(f"A window is told by a whole number, a date or a time with a date, not by {value!r}.")
    return f"{dataset}/{text}"


def _order(dataset: str) -> tuple[int, str]:
    """Whole numbers by their size, dates and times by their text."""
    name = dataset.rpartition("/")[2]
    return (0, name) if "T" in name else (int(name), "")
