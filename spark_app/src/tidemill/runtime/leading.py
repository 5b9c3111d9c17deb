"""Who leads a topology, as far as its lease tells."""

from __future__ import annotations

from tidemill.model.definition import StoredDefinition
from tidemill.runtime.clock import Clock
from tidemill.store.lease import LeaderLease, lease_for
from tidemill.store.objects import ObjectStore


def topology_lease(store: ObjectStore, prefix: str, clock: Clock) -> LeaderLease:
    """The right to lead the topology below `prefix`."""
    return lease_for(store, f"{prefix}/lease", lambda: int(clock.monotonic_ms()))


class LeaderWatch:
    """Watches who leads a topology, by looking only; a dead leader shows for one lease time at most."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str, clock: Clock) -> None:
        self._lease = topology_lease(store, definition.topology_prefix(topology), clock)

    def leader(self) -> str:
        """The process that leads; "" is none."""
        return self._lease.peek()


def has_leader(store: ObjectStore, definition: StoredDefinition, clock: Clock) -> bool:
    """Whether any topology of the module has a live leader, in this process or another."""
    return any(LeaderWatch(store, definition, name, clock).leader() for name in definition.topologies)
