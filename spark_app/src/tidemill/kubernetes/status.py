"""What a leading driver says of its topology in `Topology.status`, and in its metrics."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidemill.clients.status import TopologyStatus
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.entries import Failure
from tidemill.leader.report import RunnerState
from tidemill.values.numbers import Epoch

FAILURES_MAX: Final = 3
TEXT_MAX: Final = 500
RATE_OLD_MS: Final = 30_000
"""A topology that has waited so long since its last commit commits nothing a second."""

_QUIET: Final = ("Idle", "BackOff", "Paused")
_PHASES: Final = {
    "idle": "Idle", "prime": "Prime", "process": "Process", "commit": "Commit", "back-off": "BackOff",
    "paused": "Paused",
}  # fmt: skip


@dataclass(frozen=True)
class LeaderHistory:
    """What one leader saw so far. `claimed_ms` and `committed_ms` are wall times, 0: none."""

    epoch: Epoch = Epoch(0)
    claimed_ms: int = 0
    committed_ms: int = 0
    failures: tuple[Failure, ...] = ()

    def seen(self, state: RunnerState) -> LeaderHistory:
        """With what a newer state of the runner says."""
        entry, failure = state.entry, state.report.failure
        if entry is None:
            return self
        found = self
        if entry.kind == "claim" and entry.epoch != self.epoch:
            found = replace(found, epoch=entry.epoch, claimed_ms=entry.written_ms)
        if entry.kind == "commit":
            found = replace(found, committed_ms=entry.written_ms)
        if failure is not None and failure not in found.failures:
            found = replace(found, failures=(failure, *found.failures)[:FAILURES_MAX])
        return found


def resource_status(
    status: TopologyStatus,
    history: LeaderHistory,
    lag: Mapping[str, int] | None,
    *,
    now_ms: int,
    revision: int,
    leader: str,
    application: str,
    option_trouble: str = "",
) -> dict[str, Any]:
    """`Topology.status` as the leader writes it, in the names of the CRD; fields without a value are left out.

    `lag` counts by depot; None: what waits is not known now. The trouble of `status` is what is wrong with the store,
    `option_trouble` what is wrong with the options that resources ask for.
    """
    optional = {
        "sparkApplicationId": application,
        "storeTrouble": status.trouble[:TEXT_MAX],
        "optionTrouble": option_trouble[:TEXT_MAX],
        "lastCommitTime": time_text(history.committed_ms),
        "claimTime": time_text(history.claimed_ms),
    }
    if not status.entry:
        found = {"revision": revision, "leader": leader, "phase": "Claiming"}
        return found | ({"storeTrouble": optional["storeTrouble"]} if status.trouble else {})
    return {
        "revision": revision,
        "leader": leader,
        "epoch": status.epoch,
        "definition": status.definition,
        "microbatchId": status.microbatch_id,
        "version": status.version,
        "microbatch": status.microbatch,
        "phase": _phase(status),
        "processedCount": status.processed,
        "skippedCount": status.skipped,
        "quarantinedCount": status.quarantined,
        **({"inQuarantineCount": status.in_quarantine} if status.in_quarantine is not None else {}),
        "unpublishedCount": status.unpublished,
        **({"lag": dict(lag), "lagTotal": sum(lag.values())} if lag is not None else {}),
        "rowsPerSecond": _rate(status, history, now_ms),
        "commitsSinceClaim": status.commits_since_claim or 0,
        "failuresInRow": status.failures_in_row or 0,
        "failures": [_failure(failure) for failure in history.failures],
        **{name: value for name, value in optional.items() if value},
    }


def lag_by_depot(definition: StoredDefinition, topology: str, lag: Mapping[str, int]) -> dict[str, int]:
    """What waits, by depot where it was by source; of several sources of one depot the one that is furthest behind."""
    found: dict[str, int] = {}
    for source in definition.topology(topology).sources:
        if source.source_id in lag:
            found[source.depot] = max(found.get(source.depot, 0), lag[source.source_id])
    return found


def _rate(status: TopologyStatus, history: LeaderHistory, now_ms: int) -> float:
    """That of the last microbatch, for as long as it says something of now."""
    is_quiet = _phase(status) in _QUIET and now_ms - history.committed_ms > RATE_OLD_MS
    return 0.0 if status.trouble or is_quiet else status.rows_per_second


def _phase(status: TopologyStatus) -> str:
    """One word for what a runner does."""
    return _PHASES[status.phase] if status.phase is not None else str(status.role).capitalize()


def time_text(millis: int) -> str:
    """RFC 3339; empty for none."""
    if not millis:
        return ""
    return datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failure(failure: Failure) -> dict[str, Any]:
    """Without sample and trace: records may hold what a status must not show."""
    return {
        "code": failure.code,
        "message": failure.message[:TEXT_MAX],
        "step": failure.step,
        "microbatchId": failure.microbatch_id,
        "version": failure.version,
        "time": time_text(failure.at_ms),
    }
