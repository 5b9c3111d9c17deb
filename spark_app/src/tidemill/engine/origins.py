"""From which record of a depot a failing row comes: found again by reading the microbatch, only when it has failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tidemill.depot.log import DepotLog
from tidemill.engine.resources import left_out_rows
from tidemill.engine.work import AttemptWork, SourceWork
from tidemill.plan.program import Explode
from tidemill.store.objects import NotFound
from tidemill.store.urls import open_store
from tidemill.values import columns
from tidemill.values.errors import BadInput, CorruptState, RetryableError, UserCodeError


def with_origin(work: AttemptWork, error: UserCodeError) -> UserCodeError:
    """The error, which names depot, partition and offset of its record if the row still holds it.

    Where it does not, the next attempt keeps the records of its rows (`plan.traced`).
    """
    row, error.row = error.row, None
    try:
        place = next(_origins(work, row or {}), None)
    except (
        BadInput,
        CorruptState,
        NotFound,
        RetryableError,
    ):  # the failure itself must be reported, whatever else is wrong
        place = None
    if place is None:
        return error
    source, partition, offset = place
    depot = source.depot or source.source_id
    said = str(error).rstrip()
    stop = "" if said.endswith((".", "!", "?", "…")) else "."
    text = f"{said}{stop} The record is at offset {offset} of partition {partition} of {depot}."
    located = UserCodeError(text, step=error.step, trace=error.trace, sample=error.sample, **error.context)
    located.context.update(depot=depot, source=source.source_id, partition=partition, offset=offset)
    return located


def _origins(work: AttemptWork, row: Mapping[str, Any]) -> Iterator[tuple[SourceWork, int, int]]:
    """The places of the records that the row holds, source by source."""
    for operator in work.program.operators:
        if not isinstance(operator, Explode) or not row.keys() & set(operator.outs):
            continue
        source = work.sources.get(operator.source_id)
        if source is not None and source.ranges and not source.is_external:
            yield from _places(work, source, row[operator.outs[0]])


def _places(work: AttemptWork, source: SourceWork, record: Any) -> Iterator[tuple[SourceWork, int, int]]:
    """Where a record stands in the microbatch; of several equal ones the first is as good as any."""
    log = DepotLog(open_store(source.store_url or work.store_url, probe=False), source.depot_prefix, len(source.ranges))
    column, partitions = log.read_rows(source.ranges, source.segments, source.fetch)
    wanted = repr(record)
    migrated = work.program.migrated.get(source.depot)
    gone = set(left_out_rows(source, partitions))
    for index, value in enumerate(columns.to_values(column)):
        if index in gone:
            continue
        if migrated is not None and migrated.migration.function is not None:
            try:
                value = migrated.migration.function.call(value)
            except BaseException:  # noqa: BLE001 - a record of another thread, whose failure is its own
                continue
        if value == record or repr(value) == wanted:
            partition = int(partitions[index])
            before = int(np.count_nonzero(partitions[:index] == partition))
            yield source, partition, source.ranges.starts[partition] + before
