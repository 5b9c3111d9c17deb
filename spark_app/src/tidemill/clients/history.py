"""What happened to a topology: the newest entries of its commit log, as `tidemill log` shows them."""

from __future__ import annotations

from typing import Any

from tidemill.clients.status import rows_per_second
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Committed, Entry
from tidemill.store.objects import ObjectStore


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
