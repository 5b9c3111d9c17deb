"""What a leading driver says of its topology in `Topology.status`, and in its metrics."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidemill.clients.status import rows_per_second
from tidemill.journal.entries import Entry, Failure
from tidemill.leader.runner import RunnerState

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
class Standing:
    """How a topology stands, as one leader saw it so far. `claimed_ms` and `committed_ms` are wall times, 0: none."""

    epoch: int = 0
    claimed_ms: int = 0
    committed_ms: int = 0
    failures: tuple[Failure, ...] = ()

    def seen(self, state: RunnerState) -> Standing:
        """With what a newer state of the runner says."""
        entry, failure = state.entry, state.told.failure
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


def status_of(
    state: RunnerState,
    standing: Standing,
    lag: Mapping[str, int] | None,
    *,
    trouble: str,
    now_ms: int,
    revision: int,
    leader: str,
    application: str,
) -> dict[str, Any]:
    """`Topology.status` as the leader writes it; fields without a value are left out.

    `lag` None: what waits is not known now. `trouble`: what is wrong with the store.
    """
    entry = state.entry
    if entry is None:
        found = {"revision": revision, "leader": leader, "phase": "Claiming"}
        return found | ({"storeTrouble": trouble[:TEXT_MAX]} if trouble else {})
    optional = {
        "sparkApplicationId": application,
        "storeTrouble": trouble[:TEXT_MAX],
        "lastCommitTime": time_text(standing.committed_ms),
        "claimTime": time_text(standing.claimed_ms),
    }
    return {
        "revision": revision,
        "leader": leader,
        "epoch": entry.epoch,
        "definition": entry.definition,
        "microbatchId": entry.last_id,
        "version": entry.last_version,
        "microbatch": f"{entry.last_id}/{entry.last_version}",
        "phase": phase_of(state),
        "processedCount": entry.processed,
        "skippedCount": entry.skipped,
        **({"lag": dict(lag), "lagTotal": sum(lag.values())} if lag is not None else {}),
        "rowsPerSecond": _rate(state, standing, trouble, now_ms),
        "commitsSinceClaim": commits_since_claim(state, entry),
        "failuresInRow": state.told.failures_in_row,
        "failures": [_failure(failure) for failure in standing.failures],
        **{name: value for name, value in optional.items() if value},
    }


def _rate(state: RunnerState, standing: Standing, trouble: str, now_ms: int) -> float:
    """That of the last microbatch, for as long as it says something of now."""
    entry = state.entry
    is_quiet = phase_of(state) in _QUIET and now_ms - standing.committed_ms > RATE_OLD_MS
    if entry is None or not entry.committed or trouble or is_quiet:
        return 0.0
    return rows_per_second(entry.committed[0])


def phase_of(state: RunnerState) -> str:
    """One word for what a runner does."""
    if state.role == "leader":
        return _PHASES[state.told.phase]
    return "Claiming" if state.role == "claiming" else str(state.role).capitalize()


def commits_since_claim(state: RunnerState, entry: Entry) -> int:
    """Microbatches that this leader committed."""
    return max(0, entry.last_id - state.claimed_id)


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
