"""Entries of a topology's commit log: each is a complete, small account of where the topology stands.

An entry is stored as a plain ZIP: `entry.json`, and small deltas beside it as members `part-<i>.zip`. Reading the
newest entry is enough to go on from there, to read every PState, and to know what may be deleted.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Final, Literal

from tidemill.depot.mark import SegmentMark
from tidemill.journal.snapshot import Part, Snapshot, checksum_of
from tidemill.store.archive import Archive
from tidemill.store.json_codec import JsonCodec
from tidemill.values.errors import reading_object
from tidemill.values.numbers import Epoch, MicrobatchId, Version
from tidemill.values.offsets import OffsetRanges
from tidemill.values.stored import Stored

ENTRY_MEMBER: Final = "entry.json"
ENTRY_BYTES_MAX: Final = 100_000

Kind = Literal["claim", "begin", "commit", "compact", "note"]


@dataclass(frozen=True)
class SourceProgress(Stored):
    """How far a source has come: `offsets[p]` is the next offset of partition p.

    `depot` is the depot's name with its id, so that a depot that was deleted and added again is met anew.
    `start_from` is where the topology began when it first met the depot.
    `reached` was the depot's newest segment when the source last had all records: a depot in which another one stands
    there has lost some (invariant S6). None before, and of a depot outside the store.
    """

    depot: str
    offsets: tuple[int, ...]
    start_from: tuple[int, ...]
    reached: SegmentMark | None = None


QUARANTINE: Final = "quarantine"
"""The depot of a topology for records that its code fails on, as its entries name it: a folder of the topology's."""


@dataclass(frozen=True)
class Poison(Stored):
    """A record at which the module's code raised; `part` is the one record of the quarantine that tells of it."""

    source_id: str
    partition: int
    offset: int
    part: Part


@dataclass(frozen=True)
class Attempt(Stored):
    """The attempt under way: fixed before it starts, the same for each retry of the microbatch ID (invariant S2).

    `ranges` are the records of each source; `ticks` maps each due tick source to its new tick time.
    `reads` names the entry of each other topology that it reads. `poisons` are the records of the ranges that it does
    not read: each version may add to them. `reached` are the newest segments of depots whose records it reads to the
    end, by source.
    """

    microbatch_id: MicrobatchId
    version: Version
    ranges: Mapping[str, OffsetRanges] = field(default_factory=dict)
    ticks: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)
    poisons: tuple[Poison, ...] = ()
    reached: Mapping[str, SegmentMark] = field(default_factory=dict)

    @cached_property
    def records(self) -> int:
        """How many records it takes from all sources; ticks do not count."""
        return sum(ranges.records for ranges in self.ranges.values())


@dataclass(frozen=True)
class Committed(Stored):
    """One committed microbatch: which version of it, in which entry, and what it was like."""

    microbatch_id: MicrobatchId
    version: Version
    entry: int
    records: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


def lag_of(source_id: str) -> str:
    """The name of the metric that says how many records a source outside the store had waiting at a commit."""
    return f"lag {source_id}"


@dataclass(frozen=True)
class Failure(Stored):
    """Why an attempt failed; `trace` and `sample` are those of the user's function."""

    microbatch_id: MicrobatchId
    version: Version
    phase: str
    code: str
    message: str
    at_ms: int
    step: str = ""
    trace: str = ""
    sample: str = ""


@dataclass(frozen=True)
class PendingCompaction(Stored):
    """A compaction under way. Its objects' names hold `microbatch_id`, which is above any ID committed at its
    registration.

    A long one goes piece by piece: the tasks are cut into `pieces` sets, of which the first `done` are merged into
    `parts` (a set without rows has none). Nobody reads these before all are done; the next leader goes on from them.
    """

    microbatch_id: MicrobatchId
    first: int
    last: int
    epoch: Epoch
    pieces: int = 1
    done: int = 0
    parts: tuple[Part, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether it is done piece by piece."""
        return self.pieces > 1


AppendIdentity = tuple[str, int]
"""(depot, sequence) of an append of a topology."""


@dataclass(frozen=True)
class StagedAppend(Stored):
    """One idempotent append of a committed microbatch to a depot; `parts` hold its records.

    `depot` is the depot's name with its id, `sequence` the append's number there: a microbatch has `SEGMENTS_MAX`.
    """

    microbatch_id: MicrobatchId
    depot: str
    sequence: int
    parts: tuple[Part, ...]

    @property
    def identity(self) -> AppendIdentity:
        """What no other append of the topology has."""
        return self.depot, self.sequence

    @cached_property
    def records(self) -> int:
        """How many records it appends."""
        return sum(sum(part.rows.values()) for part in self.parts)

    @cached_property
    def digest(self) -> str:
        """What tells it from another append of the same number: the checksums of its parts."""
        return checksum_of(" ".join(part.checksum for part in self.parts).encode())


SEGMENTS_MAX: Final = 1 << 16
"""Sequence = microbatch ID * this + the number of the append in the microbatch."""


@dataclass(frozen=True)
class Entry(Stored):
    """One entry. `committed` holds the last two committed microbatches, newest first; `snapshot` is the state at the
    newest of them, `previous` the state at the other one.

    `compacted` is the number of the newest entry in which a compaction's result entered (0: none), so that
    collection walks from change to change. `appends` are those of committed microbatches that are perhaps not published
    yet, oldest first (invariant S8). `skipped` counts records that retention deleted before they were read,
    `quarantined` those that committed microbatches put into the quarantine.
    `shared` counts the first levels of `snapshot` that are the first of `previous`, too, where only the others are
    written; 0 elsewhere.
    """

    kind: Kind
    nonce: str
    epoch: Epoch
    definition: int
    written_ms: int
    progress: Mapping[str, SourceProgress] = field(default_factory=dict)
    ticks: Mapping[str, int] = field(default_factory=dict)
    attempt: Attempt | None = None
    committed: tuple[Committed, ...] = ()
    processed: int = 0
    snapshot: Snapshot = Snapshot()
    previous: Snapshot = Snapshot()
    pending: tuple[PendingCompaction, ...] = ()
    appends: tuple[StagedAppend, ...] = ()
    compacted: int = 0
    paused_seen: int = 0
    failure: Failure | None = None
    owner: str = ""
    skipped: int = 0
    quarantined: int = 0
    shared: int = 0

    def named_parts(self) -> Iterator[Part]:
        """All parts that must be there while this is the newest entry: of both states, of appends, of the attempt, and
        of what is compacted in pieces.
        """
        yield from self.snapshot.parts()
        yield from self.previous.parts()
        for append in self.appends:
            yield from append.parts
        for poison in self.attempt.poisons if self.attempt is not None else ():
            yield poison.part
        for pending in self.pending:
            yield from pending.parts

    @property
    def last_id(self) -> MicrobatchId:
        """The newest committed microbatch ID, 0 before any."""
        return self.committed[0].microbatch_id if self.committed else MicrobatchId(0)

    @property
    def last_version(self) -> Version:
        """The version that committed it, 0 before any."""
        return self.committed[0].version if self.committed else Version(0)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _to_stored(entry: Entry) -> Entry:
    """Without the levels that `previous` shares with `snapshot`, which are most of them."""
    pairs = zip(entry.previous.levels, entry.snapshot.levels, strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return replace(entry, shared=shared, previous=Snapshot(entry.previous.levels[shared:]))


def _from_stored(entry: Entry) -> Entry:
    levels = entry.snapshot.levels[: entry.shared] + entry.previous.levels
    return replace(entry, shared=0, previous=Snapshot(levels))


_JSON: Final = JsonCodec(Entry, to_stored=_to_stored, from_stored=_from_stored)


# --- the container ---------------------------------------------------------------------------------------------------


def to_bytes(entry: Entry, parts: Mapping[str, bytes] | None = None, key: str = "") -> bytes:
    """The entry with its small deltas as one ZIP; equal entries give equal bytes, so that a create can be repeated.

    `key` is where it will stand: it says so itself.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {ENTRY_MEMBER: _JSON.encode(entry, key), **(parts or {})}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def from_bytes(content: bytes, key: str = "") -> Entry:
    """The entry in a container that was found at `key`.

    Raises:
        CorruptState: the bytes are no entry, or that of another place.
        NewerFormat: a newer Tidemill wrote it.
    """
    with reading_object(key):
        return _JSON.decode(member(content, ENTRY_MEMBER), key)


def read_nonce(content: bytes, key: str) -> str:
    """Who wrote the container to be the object `key`. Raises CorruptState, ValueError: it is none."""
    return _JSON.read_nonce(member(content, ENTRY_MEMBER), key)


def member(content: bytes, name: str) -> bytes:
    """One member of a container.

    Raises:
        CorruptState: the container is damaged or has no such member.
    """
    return Archive(content).read(name)


def append_member(index: int) -> str:
    """The member that holds the small staged append of this index."""
    return f"append-{index}.arrow"


def part_member(index: int) -> str:
    """The member that holds the small delta of this index."""
    return f"part-{index}.zip"
