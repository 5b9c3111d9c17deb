"""What somebody who mirrors an object of a module notices when that module is updated."""

from __future__ import annotations

from typing import Literal

from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredPState, StoredQuery

Change = Literal["", "gone", "private", "schema", "records", "inputs"]


def items_of(definition: StoredDefinition) -> dict[str, StoredDepot | StoredPState | StoredQuery]:
    """What others may mirror, by what tells it from any other."""
    found: dict[str, StoredDepot | StoredPState | StoredQuery] = {d.id: d for d in definition.depots.values()}
    found |= {p.id: p for topology in definition.topologies.values() for p in topology.pstates.values()}
    return found | {f"query {name}": query for name, query in definition.queries.items()}


def change_of(
    was: StoredDepot | StoredPState | StoredQuery, now: StoredDepot | StoredPState | StoredQuery | None
) -> Change:
    """What a reader would notice of a change; empty for nothing."""
    if now is None:
        return "gone"
    if isinstance(was, StoredPState) and isinstance(now, StoredPState):
        if now.is_private and not was.is_private:
            return "private"
        return "" if (was.schema, was.migrations) == (now.schema, now.migrations) else "schema"
    if isinstance(was, StoredDepot) and isinstance(now, StoredDepot) and was.migration != now.migration:
        return "records"
    if isinstance(was, StoredQuery) and was != now:
        return "inputs"
    return ""
