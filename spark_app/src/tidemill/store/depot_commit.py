"""What one group commit writes: pure, from the newest header and the batches that wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemill.model.columns import Column
from tidemill.model.errors import invariant
from tidemill.store.depot_rows import PartitionedRows, merge
from tidemill.store.depot_segment import Entry, Header, LastSequence, Offsets, Produced, RowRange

Producer = tuple[str, int]
"""(id, sequence) of an idempotent append; sequences of a producer rise."""

TOPOLOGY_PREFIX = "topology/"
"""Producers whose id begins so never expire."""

KEY_PREFIX = "key/"
"""Producers whose id begins so are the idempotency keys of clients that come and go, often one for each append."""

KEYS_MAX = 4_096
"""How many of them a depot remembers, those used last: every segment's header carries them all."""

PRODUCER_MILLIS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Batch:
    rows: PartitionedRows
    producer: Producer | None = None


@dataclass(frozen=True)
class Commit:
    """`header` is None where all batches were appended before; `offsets` is one item a batch."""

    header: Header | None
    column: Column
    offsets: list[Offsets]


def plan_commit(
    newest: Header,
    batches: Sequence[Batch],
    now_millis: int,
    nonce: str,
    find_produced: Callable[[str, int], Offsets],
    starts: tuple[int, ...] | None = None,
) -> Commit:
    """The next segment; a batch whose sequence is not above its producer's last one is not appended again."""
    number, time = newest.number + 1, max(now_millis, newest.time)
    sequences = _living(newest, time)
    ends = list(newest.ends)
    fresh: list[PartitionedRows] = []
    produced: list[Produced] = []
    offsets: list[Offsets] = []
    for batch in batches:
        done = _done(batch, sequences, produced, find_produced)
        if done is not None:
            offsets.append(done)
            continue
        offsets.append(_place(batch.rows, ends))
        fresh.append(batch.rows)
        if batch.producer is not None:
            name, sequence = batch.producer
            before = sequences.pop(name, None)  # what was used last stands last
            produced.append(Produced(name, sequence, offsets[-1], before.segment if before else 0))
            sequences[name] = LastSequence(sequence, number, time)
    if not any(rows.counts for rows in fresh) and not produced and starts is None:
        return Commit(None, [], offsets)
    rows = merge(fresh) if fresh else PartitionedRows([], ())
    entry = Entry(number, nonce, time, tuple(ends))
    is_whole = sum(ends) - sum(newest.ends) == sum(count for held in fresh for _, count in held.counts)
    invariant(is_whole, "S6: a segment holds each record that is acknowledged", number=number)
    header = Header(
        entries=(entry,),
        first_ends=newest.ends,
        starts=newest.starts if starts is None else starts,
        rows=_row_ranges(rows, newest.ends),
        produced=tuple(produced),
        sequences=sequences,
    )
    return Commit(header, rows.column, offsets)


def _living(newest: Header, time: int) -> dict[str, LastSequence]:
    oldest = time - PRODUCER_MILLIS
    living = {n: s for n, s in newest.sequences.items() if s.time >= oldest or n.startswith(TOPOLOGY_PREFIX)}
    if len(living) > KEYS_MAX:
        for name in [name for name in living if name.startswith(KEY_PREFIX)][:-KEYS_MAX]:
            del living[name]
    return living


def _done(
    batch: Batch,
    sequences: dict[str, LastSequence],
    produced: Sequence[Produced],
    find_produced: Callable[[str, int], Offsets],
) -> Offsets | None:
    """The offsets of a batch that is in the log, or in this commit, already."""
    if batch.producer is None:
        return None
    name, sequence = batch.producer
    last = sequences.get(name)
    if last is None or sequence > last.sequence:
        return None
    for earlier in produced:
        if (earlier.producer, earlier.sequence) == (name, sequence):
            return earlier.offsets
    return find_produced(name, sequence)


def _place(rows: PartitionedRows, ends: list[int]) -> Offsets:
    """Give the records their offsets; moves `ends`."""
    placed = []
    for partition, count in rows.counts:
        placed.append((partition, ends[partition], ends[partition] + count))
        ends[partition] += count
    return tuple(placed)


def _row_ranges(rows: PartitionedRows, first_ends: Sequence[int]) -> tuple[RowRange, ...]:
    ranges, row = [], 0
    for partition, count in rows.counts:
        start = first_ends[partition]
        ranges.append(RowRange(partition, row, start, start + count))
        row += count
    return tuple(ranges)
