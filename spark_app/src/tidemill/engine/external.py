"""Reading the range of a microbatch from a depot outside the store: all of it, or the attempt fails."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidemill.engine.work import AttemptWork, SourceWork
from tidemill.journal.snapshot import TaskSet
from tidemill.language.external import ExternalDepot
from tidemill.language.objects import DeclaredObject
from tidemill.values import columns as cols
from tidemill.values.columns import Column
from tidemill.values.data import check_data
from tidemill.values.errors import RecordsTrimmed, TidemillError, UserCodeError, message_of

Rows = tuple[Column, np.ndarray[Any, Any]]


def read_external(work: AttemptWork, source: SourceWork, tasks: TaskSet) -> Rows:
    """The records of an external source on these tasks, and the task of each: partition p is on task p % tasks.

    Raises:
        RecordsTrimmed: the other system does not have all of the range any more.
        UserCodeError: a method of the depot raised, or gave what is no data.
    """
    reader = _Ranges(work.program.objects[source.depot])
    filled = sorted((p % work.tasks, p) for p in source.ranges.filled() if p % work.tasks in tasks)
    values: list[Any] = []
    places: list[int] = []
    for task, partition in filled:
        for start, end in _spans(source, partition):
            values.extend(reader.records(partition, start, end))
        places.extend([task] * (len(values) - len(places)))
    return cols.from_values(values), np.array(places, dtype=np.int32)


def _spans(source: SourceWork, partition: int) -> Iterator[tuple[int, int]]:
    """The range of a partition in parts, without what is left out."""
    start, end = source.ranges.starts[partition], source.ranges.ends[partition]
    for offset in sorted(offset for p, offset in source.left_out if p == partition and start <= offset < end):
        if start < offset:
            yield start, offset
        start = offset + 1
    if start < end:
        yield start, end


class _Ranges:
    """The ranges of one external depot."""

    def __init__(self, declared: DeclaredObject) -> None:
        self._declared = declared

    def records(self, partition: int, start: int, end: int) -> Iterator[Any]:
        depot = self._declared()
        assert isinstance(depot, ExternalDepot)
        try:
            for record in depot.fetch_from(partition, start, end):
                check_data(record)
                yield record
        except Exception as error:
            self._check_kept(depot, partition, start, end)
            raise self._failed(f"fetch_from({partition}, {start}, {end})", error) from error
        # Only now: what went while it was read is missing, too.
        self._check_kept(depot, partition, start, end)

    def _check_kept(self, depot: ExternalDepot, partition: int, start: int, end: int) -> None:
        try:
            first = depot.start_offset(partition)
        except Exception as error:
            raise self._failed(f"start_offset({partition})", error) from error
        if first > start:
            text = (
                f"The external depot '{self._declared.name}' has lost records that are not processed: partition "
                f"{partition} begins at {first} now, and this microbatch reads [{start}, {end}). Nothing is skipped: "
                "put them back, or give the source a new MicrobatchSourceOptions.source_id and update the module: it "
                "then begins anew, where its start_from says."
            )
            raise RecordsTrimmed(text, depot=self._declared.name, partition=partition)

    def _failed(self, call: str, error: Exception) -> TidemillError:
        if isinstance(error, TidemillError) and not isinstance(error, ValueError):
            return error
        step = f"{call} of '{self._declared.name}', declared at {self._declared.at}"
        text = f"{step}, raised {type(error).__name__}: {message_of(error)}"
        # Of no record: the other system is away, or gives what is no data.
        return UserCodeError(text, step=step, trace="".join(traceback.format_exception(error)), is_general=True)
