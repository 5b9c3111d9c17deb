"""Who leads a topology, as far as its lease tells."""

from __future__ import annotations

import threading
from typing import Final

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock
from tidemill.store.lease import TTL_MILLIS, LeaderNotes, StoreLease, lease_for
from tidemill.store.local import LocalStore
from tidemill.store.objects import ObjectStore

_LOOK_MS: Final = 200.0


def topology_lease(store: ObjectStore, prefix: str, clock: Clock) -> StoreLease:
    """The right to lead the topology below `prefix`."""
    return lease_for(store, f"{prefix}/lease", lambda: int(clock.monotonic_ms()))


class LeaderWatch:
    """Watches who leads a topology, by looking only; a dead leader shows for one lease time at most."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str, clock: Clock) -> None:
        self._lease = topology_lease(store, definition.topology_prefix(topology), clock)

    def leader(self) -> str:
        """The process that leads; "" is none."""
        return self._lease.peek()

    @property
    def notes(self) -> LeaderNotes:
        """What the leader says of itself that the last look found."""
        return self._lease.notes

    @property
    def lost(self) -> str:
        """The process that led and went without a word, as far as the last look tells; "" is none."""
        return self._lease.lost


def leader_of(store: ObjectStore, definition: StoredDefinition, topology: str, clock: Clock) -> str:
    """Who leads a topology for certain, and how that shows; "" is nobody.

    A heartbeat must be seen to go on, for one of a dead process stays: this waits for as long as a lease lasts.
    """
    watch, never = LeaderWatch(store, definition, topology, clock), threading.Event()
    end = clock.monotonic_ms() + TTL_MILLIS + 10 * _LOOK_MS
    while leader := watch.leader():
        if clock.monotonic_ms() > end or isinstance(store, LocalStore):
            return leader
        clock.wait(never, _LOOK_MS)
    return ""


def has_leader(store: ObjectStore, definition: StoredDefinition, clock: Clock) -> bool:
    """Whether any topology of the module has a live leader, in this process or another."""
    return any(LeaderWatch(store, definition, name, clock).leader() for name in definition.topologies)
