"""Publishing staged appends: each becomes one idempotent append of the topology to its depot (invariant S8).

Any leader of the topology may do it at any time, also one that does not know yet that it is none any more: what the log
committed is the same for all of them, its sequences rise from microbatch to microbatch, and a depot takes each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from tidemill.clients.depot_target import reopen
from tidemill.depot.append_identity import Producer
from tidemill.depot.commit import SegmentBatch
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import producer_of
from tidemill.depot.rows import PartitionedRows, merge
from tidemill.depot.segment import Segment
from tidemill.journal.entries import AppendIdentity, StagedAppend
from tidemill.journal.snapshot import Part
from tidemill.leader import events
from tidemill.leader.topology_store import TopologyStore
from tidemill.store.objects import NotFound
from tidemill.values.errors import (
    BadInput,
    CorruptState,
    Deleted,
    DepotClosed,
    OutcomeUnknown,
    RetryableError,
    SequenceUnknown,
    invariant,
    reading_object,
)

GROUP_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appends to one depot that wait together become one segment up to this size."""


def publish(
    topology_store: TopologyStore,
    start: events.PublishAppends,
    is_stopped: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda prefix: None,
) -> events.AppendsPublished:
    """Append all of them, depot by depot; one that does not answer stops no other. `tell` hears of each depot's prefix.

    Raises:
        CorruptState: what was staged cannot be read, or another history of this topology appended to the depot.
    """
    settled: set[AppendIdentity] = set()
    troubles: list[str] = []
    for depot in dict.fromkeys(each.depot for each in start.appends):
        appends = [each for each in start.appends if each.depot == depot]
        try:
            for there in _publish_to(topology_store, depot, appends):
                settled.update(each.identity for each in there)
                tell(topology_store.target(depot).files.prefix)
                if is_stopped():
                    break
        except (RetryableError, OutcomeUnknown, DepotClosed, NotFound) as error:
            troubles.append(f"to {depot}: {error}")
        except Deleted:
            settled.update(each.identity for each in appends)
    return events.AppendsPublished(start.token, frozenset(settled), "; ".join(troubles))


def _publish_to(
    topology_store: TopologyStore, depot: str, appends: Sequence[StagedAppend]
) -> Iterator[Sequence[StagedAppend]]:
    """What is in the depot after each step."""
    log, name = topology_store.target(depot), producer_of(topology_store.prefix)
    there = _count_there(log, name, appends)
    if there:
        yield appends[:there]
    for group in _groups(appends[there:]):
        _append(topology_store, log, name, group)
        yield group


def _count_there(log: DepotLog, name: str, appends: Sequence[StagedAppend]) -> int:
    """How many of them were published before, by whomever."""
    last = log.last_of(name)
    if last is None:
        return 0
    for each in appends:
        if each.sequence == last.sequence and each.digest != last.digest:
            raise _other_history(log, each)
    return sum(each.sequence <= last.sequence for each in appends)


def _groups(appends: Sequence[StagedAppend]) -> Iterator[list[StagedAppend]]:
    group: list[StagedAppend] = []
    size = 0
    for each in appends:
        bytes_each = sum(part.bytes for part in each.parts)
        if group and size + bytes_each > GROUP_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(each)
        size += bytes_each
    if group:
        yield group


def _append(topology_store: TopologyStore, log: DepotLog, name: str, group: Sequence[StagedAppend]) -> None:
    """One segment of these appends; those that somebody else published meanwhile are left out of it."""
    batches = [SegmentBatch(_rows(topology_store, each), Producer(name, each.sequence, each.digest)) for each in group]
    try:
        found = log.append_group(batches)
    except DepotClosed:
        reopen(log)
        found = log.append_group(batches)
    for each, at in zip(group, found, strict=True):
        if isinstance(at, BadInput):
            if not isinstance(at, SequenceUnknown):  # of one below the last it need not be known which it was
                raise _other_history(log, each)
        elif at:
            count = sum(end - start for _, start, end in at)
            invariant(count == each.records, "S8: an append has all its records", wanted=each.records, found=count)


def _other_history(log: DepotLog, append: StagedAppend) -> CorruptState:
    text = f"{log.files.prefix} holds other records of microbatch {append.microbatch_id} than the topology committed."
    return CorruptState(f"{text} Was one of them put back by hand? Run `tidemill check`.", prefix=log.files.prefix)


def _rows(topology_store: TopologyStore, append: StagedAppend) -> PartitionedRows:
    return merge([_rows_of(topology_store, part) for part in append.parts])


def _rows_of(topology_store: TopologyStore, part: Part) -> PartitionedRows:
    content = topology_store.read_part(part.name)
    with reading_object(part.name):
        part.check(content)
    segment = Segment(pa.py_buffer(content))
    held = segment.header.held()
    counts = tuple(zip(held.partition.tolist(), (held.end - held.start).tolist(), strict=True))
    return PartitionedRows(segment.rows(0, segment.header.records), counts)
