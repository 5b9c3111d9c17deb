"""What tests of deleted depots share: a client's clock that stands still, and what a depot of `Shop` holds."""

from __future__ import annotations

from tidemill.definition.definition import StoredDefinition
from tidemill.depot.log import DepotLog
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.store.objects import ObjectStore
from tidemill.values import columns
from tidemill.values.offsets import OffsetRanges


class Still(SystemClock):
    """Time does not pass, so a client never looks at the definition because of it."""

    def monotonic_ms(self) -> float:
        return 0.0


def newest(store: ObjectStore) -> StoredDefinition:
    found = DefinitionLog(store, "Shop").newest()
    assert found is not None
    return found


def records(store: ObjectStore, depot: str = "*returns", definition: StoredDefinition | None = None) -> list[str]:
    """All records of a depot, by a client that has just come."""
    definition = definition or newest(store)
    log = DepotLog(store, definition.depot_prefix(depot), definition.partitions(depot))
    log.follow()
    ranges = list(zip(log.starts(), log.ends(), strict=True))
    return sorted(columns.to_values(log.read_rows(OffsetRanges.of(ranges))[0]))
