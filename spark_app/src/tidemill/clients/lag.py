"""How many records wait for a topology, from the store alone."""

from __future__ import annotations

from tidemill.clients.standing import met_sources
from tidemill.definition.definition import StoredDefinition
from tidemill.depot.end import DepotEnd
from tidemill.journal.entries import Entry
from tidemill.store.objects import ObjectStore


class LagReader:
    """Follows the depots of one topology; cheap to ask again and again."""

    def __init__(self, store: ObjectStore, definition: StoredDefinition, topology: str) -> None:
        self._definition, self._topology = definition, topology
        self._depots = {
            source.source_id: DepotEnd(
                store, definition.depot_prefix(source.depot), definition.partitions(source.depot)
            )
            for source in definition.topology(topology).sources
            if definition.depot(source.depot).tick_millis is None
        }

    def read(self, entry: Entry | None) -> dict[str, int]:
        """Source ID -> records appended that are not processed; a source the topology has not met yet is left out."""
        lags = {}
        met = met_sources(self._definition, self._topology, entry)
        for source_id, depot in self._depots.items():
            progress = met.get(source_id)
            if progress is not None:
                depot.follow()
                lags[source_id] = sum(depot.ends()) - sum(progress.offsets)
        return lags
