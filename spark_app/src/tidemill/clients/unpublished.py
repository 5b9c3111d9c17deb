"""Which appends of committed microbatches are not in their depots yet, as the store tells it.

An entry lists appends until a later one leaves them out, though they may be published long since: the depots know.
"""

from __future__ import annotations

from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.depot.producers import producer_of
from tidemill.journal.entries import Entry
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import Deleted


def unpublished(store: ObjectStore, definition: StoredDefinition, topology: str, entry: Entry) -> int:
    """How many appends of this entry readers of the depots do not see yet; those to deleted depots do not count.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    depots = {
        definition.depot_prefix(name).rpartition("/")[2]: name
        for name, depot in definition.depots.items()
        if depot.has_log
    }
    producer = producer_of(definition.topology_prefix(topology))
    count = 0
    for folder in {each.depot for each in entry.appends} & depots.keys():
        name = depots[folder]
        last = _last(DepotLog(store, definition.depot_prefix(name), definition.partitions(name)), producer)
        count += sum(each.depot == folder and each.sequence > last for each in entry.appends)
    return count


def _last(depot: DepotLog, producer: str) -> float:
    """The number of the producer's last append; of a depot that is gone nothing is waited for."""
    try:
        found = depot.last_of(producer)
    except Deleted:
        return float("inf")
    return found.sequence if found is not None else -1
