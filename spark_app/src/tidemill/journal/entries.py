"""Entries of a topology's commit log: each is a complete, small account of where the topology stands.

An entry is stored as a plain ZIP: `entry.json`, and small deltas beside it as members `part-<i>.zip`. Reading the
newest entry is enough to go on from there, to read every PState, and to know what may be deleted.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from tidemill.journal import snapshot as snapshots
from tidemill.journal.snapshot import Snapshot
from tidemill.values.errors import CorruptState, NewerFormat, check_place
from tidemill.values.offsets import OffsetRanges

FORMAT: Final = 1
ENTRY_MEMBER: Final = "entry.json"
ENTRY_BYTES_MAX: Final = 100_000

Kind = Literal["claim", "begin", "commit", "compact", "note"]


@dataclass(frozen=True)
class SourceProgress:
    """How far a source has come: `offsets[p]` is the next offset of partition p.

    `depot` is the depot's name with its id, so that a depot that was deleted and added again is met anew.
    `start_from` is where the topology began when it first met the depot.
    """

    depot: str
    offsets: tuple[int, ...]
    start_from: tuple[int, ...]


@dataclass(frozen=True)
class Attempt:
    """The attempt under way: fixed before it starts, the same for each retry of the microbatch ID (invariant S2).

    `ranges` are the records of each source; `ticks` maps each due tick source to its new tick time.
    `reads` names the entry of each other topology that it reads.
    """

    microbatch_id: int
    version: int
    ranges: Mapping[str, OffsetRanges] = field(default_factory=dict)
    ticks: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def records(self) -> int:
        return sum(ranges.records for ranges in self.ranges.values())


@dataclass(frozen=True)
class Committed:
    """One committed microbatch: which version of it, in which entry, and what it was like."""

    microbatch_id: int
    version: int
    entry: int
    records: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed; `trace` and `sample` are those of the user's function."""

    microbatch_id: int
    version: int
    phase: str
    code: str
    message: str
    at_ms: int
    step: str = ""
    trace: str = ""
    sample: str = ""


@dataclass(frozen=True)
class PendingCompaction:
    """A compaction under way. Its objects' names hold `microbatch_id`, which is above any ID committed at its
    registration.
    """

    microbatch_id: int
    first: int
    last: int
    epoch: int


@dataclass(frozen=True)
class Entry:
    """One entry. `committed` holds the last two committed microbatches, newest first; `snapshot` is the state at the
    newest of them, `previous` the state at the other one.

    `compacted` is the number of the newest entry in which a compaction's result entered (0: none), so that
    collection walks from change to change. `attempts` counts failures in a row; `appends` is the place of staged
    depot appends (none yet). `skipped` counts records that retention deleted before they were read.
    """

    kind: Kind
    nonce: str
    epoch: int
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
    appends: tuple[Any, ...] = ()
    compacted: int = 0
    paused_seen: int = 0
    failure: Failure | None = None
    owner: str = ""
    skipped: int = 0

    @property
    def last_id(self) -> int:
        """The newest committed microbatch ID, 0 before any."""
        return self.committed[0].microbatch_id if self.committed else 0

    @property
    def last_version(self) -> int:
        """The version that committed it, 0 before any."""
        return self.committed[0].version if self.committed else 0


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json(entry: Entry) -> dict[str, Any]:
    """The entry as JSON; `previous` is stored as the number of leading levels that it shares where it is no more than
    that.
    """
    data = {
        "format": FORMAT,
        "kind": entry.kind,
        "nonce": entry.nonce,
        "epoch": entry.epoch,
        "definition": entry.definition,
        "written_ms": entry.written_ms,
        "owner": entry.owner,
        "progress": {source: [p.depot, p.offsets, p.start_from] for source, p in entry.progress.items()},
        "ticks": dict(entry.ticks),
        "committed": [[c.microbatch_id, c.version, c.entry, c.records, dict(c.metrics)] for c in entry.committed],
        "processed": entry.processed,
        "snapshot": snapshots.to_json(entry.snapshot),
        "previous": _previous_json(entry),
        "pending": [[p.microbatch_id, p.first, p.last, p.epoch] for p in entry.pending],
        "appends": list(entry.appends),
        "compacted": entry.compacted,
        "paused_seen": entry.paused_seen,
    }
    if entry.skipped:
        data["skipped"] = entry.skipped
    if entry.attempt is not None:
        data["attempt"] = _attempt_json(entry.attempt)
    if entry.failure is not None:
        data["failure"] = dict(vars(entry.failure))
    return data


def _previous_json(entry: Entry) -> int | list[Any]:
    shared = len(entry.previous.levels)
    if entry.previous.levels == entry.snapshot.levels[:shared]:
        return shared
    return snapshots.to_json(entry.previous)


def _attempt_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "microbatch_id": attempt.microbatch_id,
        "version": attempt.version,
        "ranges": {source: [r.starts, r.ends] for source, r in attempt.ranges.items()},
        "ticks": dict(attempt.ticks),
        "reads": dict(attempt.reads),
    }


def from_json(data: Mapping[str, Any]) -> Entry:
    """The inverse of `to_json`.

    Raises:
        NewerFormat: a newer Tidemill wrote the entry.
    """
    if data["format"] > FORMAT:
        raise NewerFormat(
            f"an entry of the commit log has format {data['format']}, this Tidemill reads {FORMAT}; use a newer one"
        )
    snapshot = snapshots.from_json(data["snapshot"])
    previous = data["previous"]
    return Entry(
        kind=data["kind"],
        nonce=data["nonce"],
        epoch=data["epoch"],
        definition=data["definition"],
        written_ms=data["written_ms"],
        owner=data["owner"],
        progress={
            source: SourceProgress(depot, tuple(offsets), tuple(start_from))
            for source, (depot, offsets, start_from) in data["progress"].items()
        },
        ticks=data["ticks"],
        attempt=_attempt_from(data["attempt"]) if "attempt" in data else None,
        committed=tuple(Committed(*committed) for committed in data["committed"]),
        processed=data["processed"],
        snapshot=snapshot,
        previous=(Snapshot(snapshot.levels[:previous]) if isinstance(previous, int) else snapshots.from_json(previous)),
        pending=tuple(PendingCompaction(*pending) for pending in data["pending"]),
        appends=tuple(data["appends"]),
        compacted=data["compacted"],
        paused_seen=data["paused_seen"],
        failure=Failure(**data["failure"]) if "failure" in data else None,
        skipped=data.get("skipped", 0),
    )


def _attempt_from(data: Mapping[str, Any]) -> Attempt:
    return Attempt(
        data["microbatch_id"],
        data["version"],
        {source: OffsetRanges(tuple(starts), tuple(ends)) for source, (starts, ends) in data["ranges"].items()},
        data["ticks"],
        data["reads"],
    )


# --- the container ---------------------------------------------------------------------------------------------------


def to_bytes(entry: Entry, parts: Mapping[str, bytes] | None = None, key: str = "") -> bytes:
    """The entry with its small deltas as one ZIP; equal entries give equal bytes, so that a create can be repeated.

    `key` is where it will stand: it says so itself.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        text = msgspec.json.encode({"key": key, **to_json(entry)})
        for name, content in {ENTRY_MEMBER: text, **(parts or {})}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def from_bytes(content: bytes, key: str = "") -> Entry:
    """The entry in a container that was found at `key`.

    Raises:
        CorruptState: the bytes are no entry, or that of another place.
        NewerFormat: a newer Tidemill wrote it.
    """
    try:
        data = msgspec.json.decode(member(content, ENTRY_MEMBER))
        check_place(data["key"], key)
        return from_json(data)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"an entry of the commit log cannot be read: {error!r}") from error


def member(content: bytes, name: str) -> bytes:
    """One member of a container.

    Raises:
        CorruptState: the container is damaged or has no such member.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(content):
                raise CorruptState(f"a container's member {name} is compressed, as none that was written is")
            return archive.read(info)
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise CorruptState(f"a container has no readable member {name}: {error!r}") from error


def part_member(index: int) -> str:
    """The member that holds the small delta of this index."""
    return f"part-{index}.zip"
