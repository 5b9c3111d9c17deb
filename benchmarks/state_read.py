"""A full read of a PState of counts and sums, as `tidemill export` reads it."""

from __future__ import annotations

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.snapshot import Snapshot
from tidemill.scans.export import export
from tidemill.store.objects import ObjectStore
from tidemill.tables.stored_parts import part_loader
from tidemill.tables.tables import layout_of
from tidemill.values.numbers import MicrobatchId


def definition_of(store: ObjectStore, module: str) -> StoredDefinition:
    """The newest definition of a module that was launched."""
    found = DefinitionLog(store, module).newest()
    if found is None:
        raise LookupError(f"There is no module {module} in {store.url}.")
    return found


def newest(store: ObjectStore, definition: StoredDefinition, topology: str) -> tuple[Snapshot, MicrobatchId]:
    """The newest committed snapshot of a topology, and its microbatch."""
    head = CommitLog(store, definition.topology_prefix(topology)).head()
    return (head[1].snapshot, head[1].last_id) if head else (Snapshot(), MicrobatchId(0))


def totals(store: ObjectStore, definition: StoredDefinition, topology: str, name: str) -> tuple[int, int, int]:
    """(keys, sum of counts, sum of sums) over the whole PState at its newest commit."""
    pstate = definition.topologies[topology].pstates[name]
    layout = layout_of(pstate.schema)
    loader = part_loader(store.url, definition.topology_prefix(topology))
    found = [0, 0, 0]
    for _, frame in export(pstate.id, layout, newest(store, definition, topology)[0], loader):
        found[0] += frame.height
        found[1] += int(frame["value.count"].sum())
        found[2] += int(frame["value.sum"].sum())
    return found[0], found[1], found[2]
