"""Publishing staged appends: each becomes one idempotent append of the topology to its depot (invariant S8).

Any leader of the topology may do it at any time, also one that does not know yet that it is none any more: what the log
committed is the same for all of them, its sequences rise from microbatch to microbatch, and a depot takes each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from tidemill.clients.depot_target import reopen
from tidemill.depot.append_identity import Producer
from tidemill.depot.commit import SegmentBatch
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import producer_of
from tidemill.depot.rows import PartitionedRows, merge
from tidemill.journal.entries import AppendIdentity, StagedAppend
from tidemill.language.objects import DeclaredObject
from tidemill.leader import events
from tidemill.leader.delivery import deliver, rows_of
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
)
from tidemill.values.threads import in_thread

SINKS_AT_ONCE: Final = 8
"""So many threads deliver; each holds some thousand rows."""

GROUP_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appends to one depot that wait together become one segment up to this size."""


def publish(
    topology_store: TopologyStore,
    start: events.PublishAppends,
    is_stopped: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda prefix: None,
) -> events.AppendsPublished:
    """Append all of them: depot by depot, then to some sinks at once; one that does not answer stops no other. `tell`
    hears of each depot's prefix.

    Raises:
        CorruptState: what was staged cannot be read, or another history of this topology appended to the depot.
    """
    appends: dict[str, list[StagedAppend]] = {}
    for each in start.appends:
        appends.setdefault(each.depot, []).append(each)
    sinks = {depot: sink for depot in appends if (sink := topology_store.sink(depot)) is not None}
    outcomes = []
    for depot in [depot for depot in appends if depot not in sinks]:
        steps = _publish_to(topology_store, depot, appends[depot])
        published = partial(_tell, topology_store, depot, tell)
        outcomes.append(_outcome(depot, appends[depot], steps, is_stopped, published))
    for some in _some(list(sinks.items())):  # other systems may be slow
        under_way = [
            in_thread(
                "tidemill delivery",
                partial(_outcome, depot, appends[depot], deliver(topology_store, sink, appends[depot]), is_stopped),
            )
            for depot, sink in some
        ]
        outcomes += [each.result() for each in under_way]
    delivered = frozenset().union(*(there for there, _ in outcomes))
    return events.AppendsPublished(start.token, delivered, "; ".join(text for _, text in outcomes if text))


def _tell(topology_store: TopologyStore, depot: str, tell: Callable[[str], None]) -> None:
    tell(topology_store.target(depot).files.prefix)


def _some(sinks: list[tuple[str, DeclaredObject]]) -> Iterator[list[tuple[str, DeclaredObject]]]:
    for start in range(0, len(sinks), SINKS_AT_ONCE):
        yield sinks[start : start + SINKS_AT_ONCE]


def _outcome(
    depot: str,
    appends: Sequence[StagedAppend],
    steps: Iterator[Sequence[StagedAppend]],
    is_stopped: Callable[[], bool],
    tell: Callable[[], None] = lambda: None,
) -> tuple[frozenset[AppendIdentity], str]:
    """What is there when the steps are made or one of them fails, and what is wrong; `tell` is called after each."""
    delivered: set[AppendIdentity] = set()
    text = ""
    try:
        for there in steps:
            delivered.update(each.identity for each in there)
            tell()
            if is_stopped():
                break
    except (RetryableError, OutcomeUnknown, DepotClosed, NotFound) as error:
        text = f"to {depot}: {error}"
    except Deleted:
        delivered.update(each.identity for each in appends)
    return frozenset(delivered), text


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
    return merge([rows_of(topology_store, part) for part in append.parts])
