"""A batch of rows on its way through the operators of a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import polars as pl

from tidemill.values import columns as cols
from tidemill.values.columns import Column

Tasks = Union[pl.Series, int]
"""The task of each row: an Int32 series, or one number for all rows."""

ORDER = "~"
"""Columns whose name begins so hold the order in which rows came to a place where their ways parted."""


@dataclass(frozen=True)
class Frame:
    """`rows` rows: on which task each one is, and a column for each variable."""

    rows: int
    task: Tasks
    columns: dict[str, Column]

    def with_columns(self, added: dict[str, Column]) -> Frame:
        """With these columns added, each of `rows` values; one of the same name is replaced."""
        return Frame(self.rows, self.task, {**self.columns, **added})

    def keep_columns(self, names: Iterable[str]) -> Frame:
        """Without the columns that nobody reads any more; columns of order stay."""
        wanted = set(names)
        if all(name in wanted or name[0] == ORDER for name in self.columns):
            return self
        kept = {name: column for name, column in self.columns.items() if name in wanted or name[0] == ORDER}
        return Frame(self.rows, self.task, kept)

    def filter(self, mask: pl.Series) -> Frame:
        """The rows where `mask`, a Boolean series of `rows` values, is true."""
        task = self.task if isinstance(self.task, int) else self.task.filter(mask)
        columns = {name: cols.filter_rows(column, mask) for name, column in self.columns.items()}
        return Frame(int(mask.sum()), task, columns)

    def gather(self, indices: np.ndarray[Any, Any]) -> Frame:
        """The rows at these indices, in this order; an index may come more than once."""
        task = self.task if isinstance(self.task, int) else self.task[indices]
        columns = {name: cols.gather_rows(column, indices) for name, column in self.columns.items()}
        return Frame(len(indices), task, columns)

    def slice(self, start: int, count: int) -> Frame:
        """`count` rows from `start` on; both must lie inside the frame."""
        task = self.task if isinstance(self.task, int) else self.task.slice(start, count)
        columns = {name: cols.slice_rows(column, start, count) for name, column in self.columns.items()}
        return Frame(count, task, columns)

    def tasks(self) -> pl.Series:
        """The task of each row as a series."""
        if isinstance(self.task, int):
            return pl.Series("", [self.task], dtype=pl.Int32).new_from_index(0, self.rows)
        return self.task


def concat(frames: Sequence[Frame]) -> Frame:
    """One frame after the other, with the columns that all of them have."""
    if len(frames) == 1:
        return frames[0]
    first = frames[0]
    names = [name for name in first.columns if all(name in frame.columns for frame in frames[1:])]
    columns = {name: cols.concat([frame.columns[name] for frame in frames]) for name in names}
    return Frame(sum(frame.rows for frame in frames), concat_tasks(frames), columns)


def concat_tasks(frames: Sequence[Frame]) -> Tasks:
    """The tasks of all frames' rows, one frame after the other: one number where all rows are on one task."""
    task = frames[0].task
    if isinstance(task, int) and all(isinstance(frame.task, int) and frame.task == task for frame in frames):
        return task
    return pl.concat([frame.tasks() for frame in frames], rechunk=True)


def in_order(frame: Frame) -> Frame:
    """The rows sorted by their order columns, stable; frames that met keep the order from before their ways parted."""
    keys = [order_key(column) for name, column in frame.columns.items() if name[0] == ORDER]
    if not keys or frame.rows < 2:
        return frame
    if len(keys) == 1 and bool(np.all(keys[0][1:] >= keys[0][:-1])):
        return frame
    return frame.gather(np.lexsort(keys[::-1]))


def order_key(column: Column) -> np.ndarray[Any, Any]:
    """An order column as an array, to sort by."""
    assert isinstance(column, pl.Series)
    return column.to_numpy()


def numbered(frame: Frame, name: str) -> Frame:
    """With a column that says which row came first."""
    return frame.with_columns({name: pl.int_range(frame.rows, dtype=pl.Int64, eager=True)})
