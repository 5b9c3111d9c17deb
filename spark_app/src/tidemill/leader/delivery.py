"""Delivering staged appends to sinks in other systems: all that a microbatch appended to a sink at once, oldest first.

As appends to depots (`leader.publisher`), any leader may do it at any time: a delivery is the same for all of them,
and a sink writes each once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from tidemill.depot.rows import PartitionedRows
from tidemill.depot.segment import Segment
from tidemill.journal.entries import StagedAppend
from tidemill.journal.snapshot import Part, checksum_of
from tidemill.language.external import Delivery, ExternalSink
from tidemill.language.objects import DeclaredObject
from tidemill.leader.topology_store import TopologyStore
from tidemill.values import columns
from tidemill.values.errors import ExternalUnavailable, TidemillError, message_of, reading_object

ROWS_MAX: Final = 10_000
"""A sink gets so many records at a time, for they are Python objects then."""


def deliver(
    topology_store: TopologyStore, declared: DeclaredObject, appends: Sequence[StagedAppend]
) -> Iterator[Sequence[StagedAppend]]:
    """What the sink has after each step.

    Raises:
        ExternalUnavailable: it does not take it; says why.
    """
    for _, group in groupby(appends, key=lambda each: each.microbatch_id):
        mine = list(group)
        try:
            sink = declared()
            assert isinstance(sink, ExternalSink)
            sink.deliver(_delivery(topology_store, mine))
        except Exception as error:
            said = str(error) if isinstance(error, TidemillError) else f"{type(error).__name__}: {message_of(error)}"
            text = f"'{declared.name}' does not take microbatch {mine[0].microbatch_id}: {said}"
            raise ExternalUnavailable(text) from error
        yield mine


def rows_of(topology_store: TopologyStore, part: Part) -> PartitionedRows:
    """The records of a staged part.

    Raises:
        NotFound: it was collected: it is delivered.
        CorruptState: its bytes are others.
    """
    content = topology_store.read_part(part.name)
    with reading_object(part.name):
        part.check(content)
    segment = Segment(pa.py_buffer(content))
    held = segment.header.held()
    counts = tuple(zip(held.partition.tolist(), (held.end - held.start).tolist(), strict=True))
    return PartitionedRows(segment.rows(0, segment.header.records), counts)


def _delivery(topology_store: TopologyStore, appends: Sequence[StagedAppend]) -> Delivery:
    def rows() -> Iterator[list[Any]]:
        for part in (part for append in appends for part in append.parts):
            column = rows_of(topology_store, part).column
            for start in range(0, columns.length(column), ROWS_MAX):
                yield columns.to_values(columns.slice_rows(column, start, ROWS_MAX))

    return Delivery(
        store=topology_store.store_id,
        module=topology_store.definition.module,
        topology=topology_store.prefix.rpartition("/")[2],
        sink=appends[0].depot,
        microbatch_id=appends[0].microbatch_id,
        digest=checksum_of(" ".join(append.digest for append in appends).encode()),
        count=sum(append.records for append in appends),
        rows=rows,
        restored_at=topology_store.restored_at,
    )
