"""Reading how a topology stands from the store alone: any process can, whether the topology runs or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from tidemill.clients.source_ends import SourceEnd
from tidemill.clients.status import TopologyStatus, entry_status, met_sources
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.entries import Entry, lag_of
from tidemill.journal.leadership import LeaderWatch
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.settlements import SettlementLog
from tidemill.store.lease import LeaderNotes
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import Deleted, RetryableError, StoreRefused, TidemillError

AHEAD_MS: Final = 60_000
"""Clocks of machines that are kept in time differ by less."""


class LagReader:
    """Follows the depots of one topology; cheap to ask again and again."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str) -> None:
        self._definition, self._topology = definition, topology
        self._depots = {
            source.source_id: SourceEnd(store, definition, source.depot)
            for source in definition.topology(topology).sources
            if definition.source_depot(source.depot).has_log
        }
        self._externals = [
            source.source_id
            for source in definition.topology(topology).sources
            if definition.source_depot(source.depot).partitioner == "external"
        ]

    def read(self, entry: Entry | None) -> dict[str, int]:
        """Source ID -> records appended that are not processed; a source the topology has not met yet is left out.

        Of what is outside the store: as it was at the last commit.
        """
        return self._sums(entry, self.by_partition(entry))

    def by_partition(self, entry: Entry | None) -> dict[str, tuple[int, ...]]:
        """The same of each partition, in their order, without sources outside the store."""
        met = met_sources(self._definition, self._topology, entry)
        return {
            source_id: tuple(
                end - offset for end, offset in zip_longest(depot.ends(), met[source_id].offsets, fillvalue=0)
            )
            for source_id, depot in self._depots.items()
            if source_id in met
        }

    def told(self, found: TopologyStatus, entry: Entry | None) -> TopologyStatus:
        """The status with what waits."""
        waits = self.by_partition(entry)
        return replace(found, lag=self._sums(entry, waits), lag_by_partition=waits)

    def _sums(self, entry: Entry | None, waits: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        metrics = entry.committed[0].metrics if entry is not None and entry.committed else {}
        outside = {name: int(metrics[lag_of(name)]) for name in self._externals if lag_of(name) in metrics}
        return {**outside, **{name: sum(each) for name, each in waits.items()}}


TextOf = Callable[[TidemillError], str]
"""The text of an error for whoever looks; not everybody may read the names of stores."""


class StatusReader:
    """Follows one topology; cheap to ask again and again, by one thread at a time."""

    def __init__(
        self, store: ObjectStore, definition: StoredDefinition, topology: str, clock: Clock | None = None
    ) -> None:
        """Raises UnknownName: the module has no such topology."""
        self._store, self._definition, self._topology = store, definition, topology
        self._clock = clock or SystemClock()
        self._lags = LagReader(store, definition, topology)
        self._leader = LeaderWatch(store, definition, topology, self._clock)
        self.log = CommitLog(store, definition.topology_prefix(topology))
        self._options = OptionsLog(store, definition.module)
        self._settlements = SettlementLog(store, definition.topology_prefix(topology))

    def read(self, tell_mirrors: TextOf | None = None) -> TopologyStatus:
        """How the topology stands now. A mirrored depot that is gone, or whose store does not answer, is its trouble,
        as `tell_mirrors` tells it; what waits is not known then. None: it is raised.

        Raises:
            Deleted: a depot that the topology mirrors is gone.
            StoreUnavailable: a store does not answer.
        """
        leader = self._leader.leader()
        notes = self._leader.notes if leader else LeaderNotes()
        head = self.log.head()
        pause = self._options.read().paused.get(self._topology)
        found = entry_status(self._definition, self._topology, head, is_running=bool(leader), pause=pause)
        ahead_ms = found.written_ms - self._clock.now_ms() if head else 0
        found = replace(
            found,
            leader=leader or None,
            lost=self._leader.lost,
            standbys=notes.standbys,
            engine=notes.engine,
            spark_ui=notes.spark_ui,
            in_quarantine=self._undecided(found.quarantined),
            clock_ahead_seconds=ahead_ms // 1000 if ahead_ms >= AHEAD_MS else 0,
        )
        try:
            return self._with_depots(found, head[1] if head else None)
        except (Deleted, RetryableError, StoreRefused) as error:
            if tell_mirrors is None or not self._definition.mirrors:
                raise
            return replace(found, trouble=tell_mirrors(error))

    def _with_depots(self, found: TopologyStatus, entry: Entry | None) -> TopologyStatus:
        waits = unpublished_in(self._store, self._definition, self._topology, entry) if entry is not None else 0
        return replace(self._lags.told(found, entry), unpublished=waits)

    def _undecided(self, quarantined: int) -> int:
        """How many quarantined records nobody decided on; where there was never one, the store is not asked."""
        return quarantined - self._settlements.newest().count if quarantined else 0


def topology_status(
    store: ObjectStore,
    definition: StoredDefinition,
    topology: str,
    clock: Clock | None = None,
    tell_mirrors: TextOf = str,
) -> TopologyStatus:
    """How a topology stands; what is wrong with a depot of another module is its trouble, as `tell_mirrors` tells it.

    Raises:
        UnknownName: the module has no such topology.
        StoreUnavailable: the store does not answer.
    """
    return StatusReader(store, definition, topology, clock).read(tell_mirrors)


def unpublished_in(
    store: ObjectStore, definition: StoredDefinition, topology: str, entry: Entry, *, with_sinks: bool = True
) -> int:
    """How many appends of an entry are not in their depots yet, nor, as far as is noted, in their sinks.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    if not entry.appends:
        return 0
    # They load what reads columns, which most topologies do without.
    from tidemill.clients.unpublished import undelivered, unpublished

    count = unpublished(store, definition, topology, entry)
    return count + undelivered(definition, entry) if with_sinks else count
