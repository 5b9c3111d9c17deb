"""In which levels a PState lies, and when its topology was compacted last: how much a select has to merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemill.journal.entries import Entry
from tidemill.journal.snapshot import Level
from tidemill.pstate.snapshot_reader import SnapshotReader


@dataclass(frozen=True)
class PStateLevel:
    """One level that holds rows of a PState: of the microbatches `first` to `last`, with about how many bytes of the
    store they take. A run was compacted; one that is a base holds no deletions any more.
    """

    kind: Literal["delta", "run"]
    first: int
    last: int
    is_base: bool
    rows: int
    bytes: int


@dataclass(frozen=True)
class PStateLevels:
    """The levels of a PState as of `entry`, oldest first. `compacted` is the entry with the newest compaction of its
    topology, 0 before any, at `compacted_ms`, None where the log was trimmed; `compacting` counts those under way.
    """

    entry: int
    levels: tuple[PStateLevel, ...]
    compacted: int
    compacted_ms: int | None
    compacting: int


def pstate_levels(
    reader: SnapshotReader, pstate: str, number: int, entry: Entry | None, compaction: Entry | None
) -> PStateLevels:
    """What a snapshot says of a PState; `entry` is the one that it is of, `compaction` the one that `entry` names."""
    levels = (_level(reader, pstate, level) for level in reader.snapshot.levels)
    return PStateLevels(
        number,
        tuple(level for level in levels if level.rows),
        0 if entry is None else entry.compacted,
        None if compaction is None else compaction.written_ms,
        0 if entry is None else len(entry.pending),
    )


def _level(reader: SnapshotReader, pstate: str, level: Level) -> PStateLevel:
    rows = [(part, reader.rows_in(pstate, part)) for part in level.parts]
    size = sum(part.bytes * mine / max(1, sum(part.rows.values())) for part, mine in rows)
    return PStateLevel(level.kind, level.first, level.last, level.is_base, sum(mine for _, mine in rows), round(size))
