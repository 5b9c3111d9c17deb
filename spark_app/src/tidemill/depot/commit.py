"""What one group commit writes: pure, from the newest header and the batches that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.depot import producers as depot_producers
from tidemill.depot.append_identity import Numbered, Producer, identified
from tidemill.depot.header import Gate, Header, LastSequence, Offsets, Produced, SegmentSummary
from tidemill.depot.producer_names import KEY_PREFIX
from tidemill.depot.producers import Producers
from tidemill.depot.rows import PartitionedRows, merge
from tidemill.values.columns import Column
from tidemill.values.errors import BadInput, DepotClosed, KeyReused, SequenceUnknown, invariant


@dataclass(frozen=True)
class SegmentBatch:
    """Records that one append brings, and the producer whose repeated appends count once; None has no identity."""

    rows: PartitionedRows
    producer: Numbered | Producer | None = None


@dataclass(frozen=True)
class Commit:
    """`header` is None where no batch is appended now; `offsets` is one item a batch: where it is, or its refusal."""

    header: Header | None
    column: Column
    offsets: list[Offsets | BadInput]


def plan_commit(
    newest: Header,
    batches: Sequence[SegmentBatch],
    now_millis: int,
    nonce: str,
    producers: Producers,
    starts: tuple[int, ...] | None = None,
    gate: Gate | None = None,
) -> Commit:
    """The next segment; a batch whose sequence is not above its producer's last one is appended already, or refused.

    `starts` and `gate` are what it is to say anew, where it is to say so.

    Raises:
        HeaderMissing: `newest` is not the newest any more.
        DepotClosed: the depot takes no records.
    """
    if batches and newest.gate.is_closed:
        text = f"Definition {newest.gate.definition} of the module deleted this depot; nothing was appended."
        raise DepotClosed(text, definition=newest.gate.definition)
    number, time = newest.number + 1, max(now_millis, newest.time)
    ends = list(newest.ends)
    fresh: list[PartitionedRows] = []
    placed: dict[Numbered, Produced] = {}
    latest: dict[str, LastSequence] = {}
    offsets: list[Offsets | BadInput] = []
    for batch in batches:
        last = None
        producer = batch.producer and identified(batch.producer, batch.rows.column)
        if producer is not None:
            last = latest.get(producer.name) or producers.last(newest, producer.name)
            if last is not None and producer.sequence <= last.sequence:
                offsets.append(_repeated(producer, last, placed, newest, producers))
                continue
        at = _place(batch.rows, ends)
        offsets.append(at)
        fresh.append(batch.rows)
        if producer is not None:
            name, sequence, digest = producer
            placed[name, sequence] = Produced(name, sequence, at, last.segment if last else 0, digest)
            latest[name] = LastSequence(sequence, number, digest)
    produced = tuple(placed.values())
    if not any(rows.counts for rows in fresh) and not produced and starts is None and gate is None:
        return Commit(None, [], offsets)
    rows = merge(fresh) if fresh else PartitionedRows([], ())
    entry = SegmentSummary(number, nonce, time, tuple(ends))
    is_whole = sum(ends) - sum(newest.ends) == sum(count for held in fresh for _, count in held.counts)
    invariant(is_whole, "S6: a segment holds each record that is acknowledged", number=number)
    is_full = starts is not None or _carries_table(newest, produced)
    header = Header(
        entries=(entry,),
        first_ends=newest.ends,
        starts=newest.starts if starts is None else starts,
        produced=produced,
        table_at=number if is_full else newest.table_at,
        sequences=producers.after(newest, produced) if is_full else {},
        gate=newest.gate if gate is None else gate,
    )
    return Commit(header, rows.column, offsets)


def _repeated(
    producer: Producer,
    last: LastSequence,
    placed: Mapping[Numbered, Produced],
    newest: Header,
    producers: Producers,
) -> Offsets | BadInput:
    """Where an append of a number that is not above the last one went; a refusal where that was not this append.

    Of the last one its digest is kept with the producer, whatever becomes of its segment; of those before it their
    segments say.
    """
    name, sequence, digest = producer
    known = placed.get((name, sequence)) or producers.find(newest, name, sequence)
    kept = last.digest if sequence == last.sequence else known and known.digest
    shown = name.removeprefix(KEY_PREFIX)
    if kept is None:
        text = f"The last append of '{shown}' has the number {last.sequence}; of number {sequence} nothing is known."
        return SequenceUnknown(f"{text} Nothing was appended; go on above the last.", last=last.sequence)
    if kept != digest:
        text = f"The append {sequence} of '{shown}' was another one, so nothing was appended."
        return KeyReused(f"{text} A name and a number belong to one append: does somebody else use this name?")
    return known.offsets if known is not None else ()


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
