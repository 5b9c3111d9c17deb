"""How each entry of the commit log follows from the one before: pure functions, one a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidemill.engine.work import AttemptOutcome, DeltaPart
from tidemill.journal.entries import (
    SEGMENTS_MAX,
    Attempt,
    Committed,
    Entry,
    Failure,
    Kind,
    PendingCompaction,
    Poison,
    SourceProgress,
    StagedAppend,
    append_member,
    part_member,
)
from tidemill.journal.snapshot import Level, Part, Snapshot
from tidemill.leader.events import FoundPoison, StartsResolved, TopologySpec
from tidemill.leader.ranges import advance, skipped_records
from tidemill.values.errors import invariant
from tidemill.values.numbers import Epoch, MicrobatchId, after
from tidemill.values.offsets import OffsetRanges

INLINE_PREFIX = "log/"

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What a microbatch appends to a depot becomes several segments beyond this, for the leader holds one in memory."""


@dataclass(frozen=True)
class Author:
    """Who writes an entry and when: its nonce, the wall clock, the writer's name."""

    nonce: str
    now_ms: int
    owner: str


def follow(entry: Entry, kind: Kind, author: Author) -> Entry:
    """The entry that says the same; times never go back, so that a log can be searched by time."""
    written_ms = max(author.now_ms, entry.written_ms)
    return replace(entry, kind=kind, nonce=author.nonce, written_ms=written_ms, owner=author.owner)


def empty_entry() -> Entry:
    """What holds before the first claim."""
    return Entry("claim", "", Epoch(0), 0, 0)


def new_sources(spec: TopologySpec, entry: Entry | None) -> tuple[str, ...]:
    """Sources that the topology has not met yet, or not since they came again, or whose depot is another one now;
    ticks have no start.
    """
    known = _known_sources(entry, spec) if entry is not None else {}
    return tuple(s.source_id for s in spec.sources if s.tick_millis is None and s.source_id not in known)


def claim(entry: Entry | None, spec: TopologySpec, starts: StartsResolved, author: Author) -> Entry:
    """A new leader: epoch + 1, its definition, sources added and dropped; the attempt under way stays."""
    before = entry if entry is not None else empty_entry()
    progress = dict(_kept_progress(before, spec))
    for source in spec.sources:
        if source.source_id in starts.offsets:
            offsets = starts.offsets[source.source_id]
            progress[source.source_id] = SourceProgress(source.depot, offsets, offsets)
    ticks = {
        source.source_id: before.ticks.get(source.source_id, author.now_ms)
        for source in spec.sources
        if source.tick_millis is not None
    }
    return replace(
        follow(before, "claim", author),
        epoch=after(before.epoch),
        definition=spec.definition,
        progress=progress,
        ticks=ticks,
        attempt=_kept_attempt(before, spec, progress),
        failure=before.failure if before.attempt is not None else None,
        pending=_kept_pending(before, spec),
        appends=_kept_appends(before, spec),
    )


def _kept_pending(entry: Entry, spec: TopologySpec) -> tuple[PendingCompaction, ...]:
    """What was compacted in pieces goes on where it stopped, unless an update came in between: its code may give other
    values.
    """
    return tuple(p for p in entry.pending if p.is_cut and entry.definition == spec.definition)


def _kept_appends(entry: Entry, spec: TopologySpec) -> tuple[StagedAppend, ...]:
    """What was appended to a depot that is gone for good goes nowhere."""
    known = spec.retired_depots.union(spec.depots.values())
    return tuple(append for append in entry.appends if append.depot in known)


def _kept_progress(entry: Entry, spec: TopologySpec) -> Mapping[str, SourceProgress]:
    """A source that went keeps its place while a rollback may bring it back."""
    retired = {name: p for name, p in entry.progress.items() if name in spec.retired}
    return {**retired, **_known_sources(entry, spec)}


def _known_sources(entry: Entry, spec: TopologySpec) -> dict[str, SourceProgress]:
    """The progress of the sources that the topology goes on with."""
    known = {source.source_id: source.depot for source in spec.sources if source.since <= entry.definition}
    return {name: p for name, p in entry.progress.items() if known.get(name) == p.depot}


def _kept_attempt(entry: Entry, spec: TopologySpec, progress: Mapping[str, SourceProgress]) -> Attempt | None:
    """A removed source is dropped from the attempt under way, an added one joins with the next ID."""
    attempt = entry.attempt
    if attempt is None:
        return None
    known = _known_sources(entry, spec)
    kept = {name for name in attempt.ranges if name in known and progress.get(name) == known[name]}
    ticking = {source.source_id for source in spec.sources if source.tick_millis is not None}
    return replace(
        attempt,
        ranges={name: ranges for name, ranges in attempt.ranges.items() if name in kept},
        poisons=tuple(poison for poison in attempt.poisons if poison.source_id in kept),
        ticks={name: at for name, at in attempt.ticks.items() if name in ticking},
        reads={name: number for name, number in attempt.reads.items() if name in spec.reads},
        reached={name: mark for name, mark in attempt.reached.items() if name in kept},
    )


def begin(entry: Entry, attempt: Attempt, failure: Failure | None, author: Author) -> Entry:
    """An attempt is about to start; its predecessor's failure is kept where people can read it."""
    before = entry.attempt
    invariant(attempt.microbatch_id == entry.last_id + 1, "S2: an attempt starts from the state before its ID")
    if before is not None:
        is_same = _fixed(before) == _fixed(attempt)
        invariant(is_same, "S2: a retry reads the same records", before=before, attempt=attempt)
        is_kept = attempt.poisons[: len(before.poisons)] == before.poisons
        invariant(is_kept, "S2: what is in quarantine stays there", before=before, attempt=attempt)
        invariant(attempt.version > before.version, "S2: versions rise", before=before, attempt=attempt)
    places = {(poison.source_id, poison.partition, poison.offset) for poison in attempt.poisons}
    invariant(len(places) == len(attempt.poisons), "S8: a record goes to the quarantine once", attempt=attempt)
    return replace(follow(entry, "begin", author), attempt=attempt, failure=failure)


def _fixed(attempt: Attempt) -> tuple[Any, ...]:
    """What all versions of a microbatch ID have in common."""
    return attempt.microbatch_id, attempt.ranges, attempt.reached


def with_poison(attempt: Attempt, number: int, found: FoundPoison) -> tuple[Attempt, dict[str, bytes]]:
    """The attempt without one more record, for the entry `number`; and that entry's inline parts."""
    part, inline = found.poison.part, {}
    if found.content is not None:
        member = append_member(0)
        part, inline = replace(part, name=f"{entry_name(number)}#{member}"), {member: found.content}
    return replace(attempt, poisons=(*attempt.poisons, replace(found.poison, part=part))), inline


@dataclass(frozen=True)
class Finished:
    """A finished attempt, and when it started and ended (monotonic milliseconds)."""

    attempt: Attempt
    outcome: AttemptOutcome
    metrics: Mapping[str, float]


def commit(
    entry: Entry, number: int, finished: Finished, author: Author, depots: Mapping[str, str]
) -> tuple[Entry, dict[str, bytes]]:
    """The entry `number`, which makes an attempt's changes the state that everybody sees; and its inline parts.

    `depots` are those that it may append to, by name: each as its name with its id.
    """
    attempt = finished.attempt
    _check_commit(entry, number, attempt)
    changed, inline_deltas = _placed(number, attempt, finished.outcome.deltas, part_member)
    level = Level("delta", attempt.microbatch_id, attempt.microbatch_id, changed)
    staged, inline_appends = _placed(number, attempt, finished.outcome.appends, append_member)
    poisons = [poison.part for poison in attempt.poisons if poison.source_id in finished.outcome.exploded]
    progress, records = advance(entry.progress, attempt, finished.outcome.exploded)
    done = Committed(attempt.microbatch_id, attempt.version, number, records, dict(finished.metrics))
    levels = (*entry.snapshot.levels, level) if level.parts else entry.snapshot.levels
    composed = replace(
        follow(entry, "commit", author),
        progress=progress,
        ticks={**entry.ticks, **attempt.ticks},
        attempt=None,
        committed=(done, *entry.committed[:1]),
        processed=entry.processed + records,
        skipped=entry.skipped + skipped_records(entry.progress, attempt, finished.outcome.exploded),
        snapshot=Snapshot(levels),
        previous=entry.snapshot,
        failure=None,
        appends=(*entry.appends, *_appends(attempt.microbatch_id, [*staged, *poisons], depots)),
        quarantined=entry.quarantined + len(poisons),
    )
    return composed, {**inline_deltas, **inline_appends}


def _check_commit(entry: Entry, number: int, attempt: Attempt) -> None:
    """What is committed is the attempt that the log knows, or one that read nothing."""
    invariant(attempt.microbatch_id == entry.last_id + 1, "S4: IDs are committed one after the other", entry=number)
    begun = entry.attempt
    is_known = attempt.records == 0 if begun is None else _identity(begun) == _identity(attempt)
    invariant(is_known, "S2: what is committed was begun", begun=begun, attempt=attempt)
    last = max((level.last for level in entry.snapshot.levels), default=0)
    invariant(last < attempt.microbatch_id, "S7: a snapshot holds committed IDs only", last=last, attempt=attempt)


def _identity(attempt: Attempt) -> tuple[int, Mapping[str, OffsetRanges], tuple[Poison, ...]]:
    return attempt.version, attempt.ranges, attempt.poisons


def _is_of(part: Part, attempt: Attempt) -> bool:
    """Whether an object's name says that this very attempt wrote it."""
    numbers = part.name.rpartition("/")[2].split("-")[:2]
    return [int(number) for number in numbers if number.isdigit()] == [attempt.microbatch_id, attempt.version]


def _placed(
    number: int, attempt: Attempt, written: Sequence[DeltaPart], member_name: Callable[[int], str]
) -> tuple[tuple[Part, ...], dict[str, bytes]]:
    """What the attempt's threads wrote; small parts ride in the entry, whose key becomes part of their names."""
    named: list[Part] = []
    inline: dict[str, bytes] = {}
    for delta in written:
        part = delta.part
        if delta.content is not None:
            member = member_name(len(inline))
            inline[member] = delta.content
            part = replace(part, name=f"{entry_name(number)}#{member}")
        else:
            invariant(_is_of(part, attempt), "S3: a commit names what its attempt wrote", part=part.name)
        named.append(part)
    return tuple(named), inline


def _appends(microbatch_id: MicrobatchId, staged: Sequence[Part], depots: Mapping[str, str]) -> list[StagedAppend]:
    """The parts of each depot in their order, as appends of at most `SEGMENT_BYTES_MAX` each."""
    by_depot: dict[str, list[list[Part]]] = {}
    for part in staged:
        (name,) = part.rows
        groups = by_depot.setdefault(depots[name], [[]])
        if groups[-1] and sum(held.bytes for held in groups[-1]) + part.bytes > SEGMENT_BYTES_MAX:
            groups.append([])
        groups[-1].append(part)
    for depot, groups in by_depot.items():
        invariant(len(groups) <= SEGMENTS_MAX, "S8: sequences of microbatches are apart", depot=depot)
    return [
        StagedAppend(microbatch_id, depot, microbatch_id * SEGMENTS_MAX + index, tuple(parts))
        for depot, groups in by_depot.items()
        for index, parts in enumerate(groups)
    ]


def entry_name(number: int) -> str:
    """The key of an entry below the topology's prefix."""
    return f"{INLINE_PREFIX}{number:020d}.zip"


def with_run(entry: Entry, number: int, pending: PendingCompaction, run: Level) -> Entry:
    """The state with adjacent levels replaced by the run that a compaction made of them; nobody sees a difference."""
    invariant(all(p.name for p in run.parts), "S3: an entry names objects that were written")
    return replace(
        entry,
        snapshot=entry.snapshot.with_run(run),
        pending=tuple(p for p in entry.pending if p.first != pending.first),
        compacted=number,
    )
