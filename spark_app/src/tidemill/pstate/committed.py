"""Committed state under the steps of a query: few rows one by one, many by columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import polars as pl

from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.pstate.thread_state import ThreadState
from tidemill.values.columns import Column

COLUMN_ROWS_MIN: Final = 64
"""From so many rows on, keys are looked up together."""


class CommittedState:
    """The PStates of one topology at one commit, on all tasks; used by one thread, its reader by several."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader

    def root(self, pstate: str, task: int) -> Any:
        """The root node of one task's partition."""
        return self._reader.root(pstate, task)

    def prefers_columns(self, rows: int) -> bool:
        """Whether so many keys are better looked up together than one after the other."""
        return rows >= COLUMN_ROWS_MIN

    def get_points(self, pstate: str, tasks: pl.Series | int, keys: Sequence[Column]) -> Column:
        """As `ThreadState.get_points`."""
        return self._columns.get_points(pstate, tasks, keys)

    def prefetch(self, pstate: str, tasks: pl.Series | int, keys: Column) -> None:
        """Nothing: rows that are read stay with the reader, for all queries of this commit."""

    def close(self) -> None:
        """Let go of what was opened for columns."""
        if "_columns" in vars(self):
            self._columns.close()

    @cached_property
    def _columns(self) -> ThreadState:
        return ThreadState(self._reader.infos, self._reader.view())
