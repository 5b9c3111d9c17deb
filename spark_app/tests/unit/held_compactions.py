"""Compactions that a test holds back, so that rows wait for their migration as long as it wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tidemill import InProcessCluster
from tidemill.clients.status_reader import topology_status
from tidemill.leader.maintenance import Maintenance


def hold_compactions(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing is compacted until what this returns is called."""
    is_released = threading.Event()
    compaction = Maintenance._compaction

    def released(self: Maintenance, *work: Any) -> Any:
        return compaction(self, *work) if is_released.is_set() else []

    monkeypatch.setattr(Maintenance, "_compaction", released)
    return is_released.set


def waiting_rows(cluster: InProcessCluster, module: str, topology: str = "mb") -> list[int]:
    """How many rows wait for the newest migration of each place, as the status says."""
    status = topology_status(cluster.store, cluster._client(module).definition(), topology)
    return [migration.waiting for migration in status.migrations]
