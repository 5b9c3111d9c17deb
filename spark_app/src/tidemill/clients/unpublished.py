"""Which appends of committed microbatches are not in their depots yet, as the store tells it.

An entry lists appends until a later one leaves them out, though they may be published long since: the depots know. What
is for sinks in other systems counts as long as it is listed; the leader notes soon what it delivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.definition.definition import StoredDefinition, StoredDepot
from tidemill.depot.log import DepotLog
from tidemill.depot.producer_names import producer_of
from tidemill.journal.entries import QUARANTINE, Entry
from tidemill.journal.settlements import quarantine_prefix
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import store_at
from tidemill.values.errors import Deleted


def undelivered(definition: StoredDefinition, entry: Entry) -> int:
    """How many appends of this entry are not noted as delivered to their sinks; those to deleted sinks do not count."""
    sinks = {definition.depot_prefix(name) for name, depot in definition.depots.items() if depot.partitioner == "sink"}
    folders = {prefix.rpartition("/")[2] for prefix in sinks}
    return sum(each.depot in folders for each in entry.appends)


def unpublished(store: ObjectStore, definition: StoredDefinition, topology: str, entry: Entry) -> int:
    """How many appends of this entry readers of the depots do not see yet; those to deleted depots do not count, nor
    those to sinks.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    producer = producer_of(definition.topology_prefix(topology))
    depots = dict(_targets(store, definition))
    depots[QUARANTINE] = (store, quarantine_prefix(definition.topology_prefix(topology)), 1)
    count = 0
    for folder in {each.depot for each in entry.appends} & depots.keys():
        last = _last(DepotLog(*depots[folder]), producer)
        count += sum(each.depot == folder and each.sequence > last for each in entry.appends)
    return count


def _targets(store: ObjectStore, definition: StoredDefinition) -> Iterator[tuple[str, tuple[ObjectStore, str, int]]]:
    """The depots that a topology may append to, by name with id: where each is, and how many partitions it has."""
    for name, depot in definition.depots.items():
        if depot.has_log:
            prefix = definition.depot_prefix(name)
            yield prefix.rpartition("/")[2], (store, prefix, definition.partitions(name))
    for mirror in (*definition.former, *definition.mirrors.values()):
        if isinstance(mirror.item, StoredDepot):
            place = (store_at(store, mirror.store), mirror.folder, mirror.partitions)
            yield mirror.folder.rpartition("/")[2], place


def _last(depot: DepotLog, producer: str) -> float:
    """The number of the producer's last append; of a depot that is gone nothing is waited for."""
    try:
        found = depot.last_of(producer)
    except Deleted:
        return float("inf")
    return found.sequence if found is not None else -1
