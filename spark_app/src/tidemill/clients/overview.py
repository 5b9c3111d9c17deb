"""How a topology stands, for people and programs: what `tidemill status --json` and the gateway show."""

from __future__ import annotations

from typing import Any, Final

from tidemill.clients.lag import LagReader
from tidemill.clients.status import TopologyStatus, topology_status
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.leading import LeaderWatch
from tidemill.store.objects import ObjectStore

AHEAD_MS: Final = 60_000
"""Clocks of machines that are kept in time differ by less."""


def topology_overview(
    store: ObjectStore, definition: StoredDefinition, topology: str, clock: Clock | None = None
) -> dict[str, Any]:
    """A topology's state, progress, lag and leader as JSON-like data; read from the store alone.

    Raises:
        UnknownName: the module has no such topology.
    """
    clock = clock or SystemClock()
    lags = LagReader(store, definition, topology)
    found = topology_status(store, definition, topology)
    leader = LeaderWatch(store, definition, topology, clock).leader()
    head = CommitLog(store, definition.topology_prefix(topology)).head()
    waiting = lags.read(head[1] if head else None)
    shown: dict[str, Any] = {} if found is None else found.to_json()
    return {
        "module": definition.module,
        "tasks": definition.tasks,
        **shown,
        "topology": topology,
        "state": _state(found, bool(leader)),
        "is_running": bool(leader),
        "microbatch": f"{found.microbatch_id}/{found.version}" if found else "0/0",
        "under way": "{}/{}".format(*found.under_way) if found and found.under_way else None,
        "processed": found.processed if found else 0,
        "skipped": found.skipped if found else 0,
        "waiting": sum(waiting.values()),
        "lag": waiting,
        "rows/s": found.rows_per_second if found else 0.0,
        "leader": leader or None,
        "failure": shown.get("failure"),
        "clock_ahead_seconds": _ahead_seconds(head[1].written_ms - clock.now_ms() if head else 0),
    }


def _ahead_seconds(millis: int) -> int:
    """How far the newest entry is dated ahead of this clock; 0 for what clocks differ by anyway."""
    return millis // 1000 if millis >= AHEAD_MS else 0


def _state(found: TopologyStatus | None, led: bool) -> str:
    if not led:
        return "stopped, paused" if found is not None and found.is_paused else "stopped"
    if found is None:
        return "starting"
    if found.is_paused:
        return "paused" if found.is_pause_seen else "pausing"
    return "failing" if found.failure is not None else "running"
