"""What one group commit writes: pure, from the newest header and the batches that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.model.columns import Column
from tidemill.model.errors import invariant
from tidemill.store import depot_producers
from tidemill.store.depot_producers import Producers
from tidemill.store.depot_rows import PartitionedRows, merge
from tidemill.store.depot_segment import Entry, Header, LastSequence, Offsets, Produced

Producer = tuple[str, int]
"""(id, sequence) of an idempotent append; sequences of a producer rise."""


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
    producers: Producers,
    starts: tuple[int, ...] | None = None,
) -> Commit:
    """The next segment; a batch whose sequence is not above its producer's last one is not appended again.

    Raises:
        Missing: `newest` is not the newest any more.
    """
    number, time = newest.number + 1, max(now_millis, newest.time)
    ends = list(newest.ends)
    fresh: list[PartitionedRows] = []
    placed: dict[Producer, Produced] = {}
    latest: dict[str, LastSequence] = {}
    offsets: list[Offsets] = []
    for batch in batches:
        last = None
        if batch.producer is not None:
            name, sequence = batch.producer
            last = latest.get(name) or producers.last(newest, name, time)
            if last is not None and sequence <= last.sequence:
                earlier = placed.get(batch.producer)
                offsets.append(earlier.offsets if earlier else producers.find(newest, name, sequence))
                continue
        offsets.append(_place(batch.rows, ends))
        fresh.append(batch.rows)
        if batch.producer is not None:
            placed[batch.producer] = Produced(*batch.producer, offsets[-1], last.segment if last else 0)
            latest[name] = LastSequence(sequence, number, time)
    produced = tuple(placed.values())
    if not any(rows.counts for rows in fresh) and not produced and starts is None:
        return Commit(None, [], offsets)
    rows = merge(fresh) if fresh else PartitionedRows([], ())
    entry = Entry(number, nonce, time, tuple(ends))
    is_whole = sum(ends) - sum(newest.ends) == sum(count for held in fresh for _, count in held.counts)
    invariant(is_whole, "S6: a segment holds each record that is acknowledged", number=number)
    is_full = starts is not None or _carries_table(newest, produced)
    header = Header(
        entries=(entry,),
        first_ends=newest.ends,
        starts=newest.starts if starts is None else starts,
        produced=produced,
        table_at=number if is_full else newest.table_at,
        sequences=producers.after(newest, produced, time) if is_full else {},
    )
    return Commit(header, rows.column, offsets)


def _carries_table(newest: Header, produced: Sequence[Produced]) -> bool:
    """Every so often, and where it is small; retention, which records `starts`, always writes it."""
    small = depot_producers.SMALL_TABLE
    is_small = newest.is_full and len(newest.sequences) <= small
    if is_small and len(newest.sequences.keys() | {append.producer for append in produced}) <= small:
        return True
    return newest.number + 1 - newest.table_at >= depot_producers.TABLE_EVERY


def _place(rows: PartitionedRows, ends: list[int]) -> Offsets:
    """Give the records their offsets; moves `ends`."""
    placed = []
    for partition, count in rows.counts:
        placed.append((partition, ends[partition], ends[partition] + count))
        ends[partition] += count
    return tuple(placed)
