"""What happened to a topology: the newest entries of its commit log, as `tidemill log` shows them."""

from __future__ import annotations

from typing import Any, Final

from tidemill.clients.status import rows_per_second
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Committed, Entry
from tidemill.journal.step_metrics import placement_of, told
from tidemill.store.objects import ObjectStore
from tidemill.values.offsets import OffsetRanges

RANGES_MAX: Final = 64
"""Of one source in one line: the others are counted in its records."""


def topology_history(
    store: ObjectStore, definition: StoredDefinition, topology: str, limit: int = 20
) -> list[dict[str, Any]]:
    """The newest entries of the commit log as lines, oldest first: claims, attempts, commits and failures."""
    return lines_of(CommitLog(store, definition.topology_prefix(topology)), limit)


def lines_of(log: CommitLog, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The last `limit` entries of a log, or of those before entry `before`, as lines; fewer where it is trimmed."""
    entries = log.tail(limit, before)
    commits = {c.entry: c for _, entry in entries for c in reversed(entry.committed)}
    return [_line(number, entry, commits) for number, entry in entries]


def _line(number: int, entry: Entry, commits: dict[int, Committed]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "entry": number,
        "kind": entry.kind,
        "epoch": entry.epoch,
        "definition": entry.definition,
        "written_ms": entry.written_ms,
        "owner": entry.owner,
        "failure": vars(entry.failure) if entry.failure else None,
    }
    if entry.kind == "commit":
        done = commits.get(number, entry.committed[0])
        line |= {"microbatch_id": done.microbatch_id, "version": done.version, "records": done.records}
        metrics, steps = told(done.metrics)
        line |= {"rows_per_second": rows_per_second(done), "metrics": metrics, "steps": steps}
        line["placement"] = placement_of(done.metrics)
    if entry.skipped:
        line["skipped"] = entry.skipped
    if entry.attempt is not None:
        begun = entry.attempt
        line["begun"] = {"microbatch_id": begun.microbatch_id, "version": begun.version, "records": begun.records}
        line["begun"]["ranges"] = {source: _shown(ranges) for source, ranges in begun.ranges.items()}
    return line


def _shown(ranges: OffsetRanges) -> list[list[int]]:
    """[partition, start, end] of the first partitions that have records."""
    return [[partition, ranges.starts[partition], ranges.ends[partition]] for partition in ranges.filled()[:RANGES_MAX]]
