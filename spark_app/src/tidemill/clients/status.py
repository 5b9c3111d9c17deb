"""What `status` and `log` show of a topology, read from its commit log alone: any process can, running or not.

Nothing is stored for people only: durations ride in the entries of commits, and a failure rides in the entry that
begins the next attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.clients.standing import met_sources
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Committed, Entry, Failure
from tidemill.journal.options_log import OptionsLog
from tidemill.store.objects import ObjectStore


@dataclass(frozen=True)
class TopologyStatus:
    """A topology as its log tells it; `lag` counts records of its depots that are not processed yet, if it is known."""

    topology: str
    entry: int
    kind: str
    epoch: int
    definition: int
    microbatch_id: int
    version: int
    under_way: tuple[int, int] | None
    processed: int
    skipped: int
    rows_per_second: float
    metrics: dict[str, float]
    is_paused: bool
    is_pause_seen: bool
    failure: Failure | None
    progress: dict[str, tuple[int, ...]]
    levels: int
    state_bytes: int
    state_rows: int
    written_ms: int
    owner: str

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it with `--json`."""
        return {**vars(self), "failure": vars(self.failure) if self.failure else None}


def topology_status(store: ObjectStore, definition: StoredDefinition, topology: str) -> TopologyStatus | None:
    """How a topology stands; None before its first claim."""
    head = CommitLog(store, definition.topology_prefix(topology)).head()
    if head is None:
        return None
    number, entry = head
    paused = OptionsLog(store, definition.module).read().paused.get(topology)
    parts = list(entry.snapshot.parts())
    met = met_sources(definition, topology, entry)
    newest = entry.committed[0] if entry.committed else None
    return TopologyStatus(
        topology=topology,
        entry=number,
        kind=entry.kind,
        epoch=entry.epoch,
        definition=entry.definition,
        microbatch_id=entry.last_id,
        version=entry.last_version,
        under_way=(entry.attempt.microbatch_id, entry.attempt.version) if entry.attempt else None,
        processed=entry.processed,
        skipped=entry.skipped,
        rows_per_second=rows_per_second(newest) if newest else 0.0,
        metrics=dict(newest.metrics) if newest else {},
        is_paused=paused is not None,
        is_pause_seen=paused is not None and entry.paused_seen >= paused,
        failure=entry.failure,
        progress={source: progress.offsets for source, progress in met.items()},
        levels=len(entry.snapshot.levels),
        state_bytes=sum(part.bytes for part in parts),
        state_rows=sum(sum(part.rows.values()) for part in parts),
        written_ms=entry.written_ms,
        owner=entry.owner,
    )


def rows_per_second(committed: Committed) -> float:
    """Records a second from the begin of a microbatch to its commit, as far as its phases are known."""
    milliseconds = sum(committed.metrics.get(name, 0.0) for name in ("prime_ms", "process_ms", "commit_ms"))
    return round(1000 * committed.records / milliseconds, 1) if milliseconds else 0.0


def topology_history(
    store: ObjectStore, definition: StoredDefinition, topology: str, limit: int = 20
) -> list[dict[str, Any]]:
    """What the newest entries of the commit log say, oldest first: claims, attempts, commits and failures."""
    entries = CommitLog(store, definition.topology_prefix(topology)).tail(limit + 1)
    commits = {c.entry: c for _, entry in entries for c in reversed(entry.committed)}
    return [_line(number, entry, commits) for number, entry in entries[-limit:]]


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
        line |= {"rows_per_second": rows_per_second(done), "metrics": dict(done.metrics)}
    if entry.skipped:
        line["skipped"] = entry.skipped
    if entry.attempt is not None:
        begun = entry.attempt
        line["begun"] = {"microbatch_id": begun.microbatch_id, "version": begun.version, "records": begun.records}
    return line
