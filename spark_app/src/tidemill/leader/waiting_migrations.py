"""Which migrations of a module's PStates are not done, as its store shows it: an update may not let go of those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidemill.definition.migration_steps import Waiting
from tidemill.definition.stored import StoredDefinition, StoredPState, StoredTopology
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.language.migrations import Location, rows_location
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.tables.migration_progress import done_generations


def waiting_migrations(store: ObjectStore, definition: StoredDefinition) -> Waiting:
    """By PState and location how many migrations all rows went through, where some rows wait for more."""
    found: dict[str, dict[Location, int]] = {}
    for topology in definition.topologies.values():
        if any(pstate.declared_migrations for pstate in topology.pstates.values()):
            found |= _waiting(store, definition, topology)
    return found


def _waiting(
    store: ObjectStore, definition: StoredDefinition, topology: StoredTopology
) -> dict[str, dict[Location, int]]:
    """Until a leader of this definition has claimed, one of an older definition may write rows as they were then."""
    head = CommitLog(store, definition.topology_prefix(topology.name)).head()
    if head is None:
        return {}
    entry = head[1]
    found = done_generations(topology.pstates.values(), entry.snapshot)
    if entry.definition >= definition.number:
        return found
    known = _pstates_of(store, definition.module, entry.definition, topology.id)
    for pstate in topology.pstates.values():
        done, migrated = found.setdefault(pstate.name, {}), pstate.migrated_locations
        before = Counter(rows_location(made, migrated) for made in known.get(pstate.id, ()))
        for location in {rows_location(made, migrated) for made in migrated}:
            done[location] = min(done.get(location, before[location]), before[location])
    return found


def _pstates_of(store: ObjectStore, module: str, number: int, topology_id: str) -> dict[str, list[Location]]:
    """By the id of each PState of a topology the locations of its migrations, as an older definition has them."""
    try:
        old = DefinitionLog(store, module).read(number)
    except NotFound:
        return {}
    pstates: Iterable[StoredPState] = (
        pstate for found in old.topologies.values() if found.id == topology_id for pstate in found.pstates.values()
    )
    return {pstate.id: [made.location for made in pstate.migrations] for pstate in pstates}
