"""Where a topology stands in its depots, as an entry of its log and a definition tell together."""

from __future__ import annotations

from tidemill.definition.definition import StoredDefinition
from tidemill.journal.entries import Entry, SourceProgress


def met_sources(definition: StoredDefinition, topology: str, entry: Entry | None) -> dict[str, SourceProgress]:
    """Source ID -> progress, of the sources that the topology has met.

    Until a leader with the newest definition claims, the entry may tell of a source of the same ID that went before
    this one came, or that reads another depot. Raises UnknownName.
    """
    if entry is None:
        return {}
    return {
        source.source_id: entry.progress[source.source_id]
        for source in definition.topology(topology).sources
        if source.source_id in entry.progress
        and source.since <= entry.definition
        and entry.progress[source.source_id].depot == definition.depot_prefix(source.depot).rpartition("/")[2]
    }
