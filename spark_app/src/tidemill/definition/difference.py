"""How two definitions of a module differ, in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.definition.stored import StoredDefinition, StoredDepot, StoredMirror, StoredPState, StoredTopology
from tidemill.language import schema as schemas
from tidemill.language.migrations import location_text


def difference(stored: StoredDefinition, wanted: StoredDefinition) -> str:
    """What the code has otherwise than the store."""
    if stored.tasks != wanted.tasks:
        return f"it has {stored.tasks} tasks, which never change, not {wanted.tasks}"
    return "; ".join(_changes(stored, wanted)) or "nothing that is known"


def _changes(stored: StoredDefinition, wanted: StoredDefinition) -> Iterator[str]:
    yield from _one_sided("depot", stored.depots, wanted.depots)
    yield from _one_sided("topology", stored.topologies, wanted.topologies)
    yield from _one_sided("PState", _pstates(stored), _pstates(wanted))
    yield from _one_sided("query", stored.queries, wanted.queries)
    yield from _one_sided("mirror", stored.mirrors, wanted.mirrors)
    for name, mirror in stored.mirrors.items():
        if name in wanted.mirrors:
            yield from _mirror_changes(mirror, wanted.mirrors[name])
    for name, query in stored.queries.items():
        if name in wanted.queries and query != wanted.queries[name]:
            yield f"query {name} has other inputs, or another result"
    for name, depot in stored.depots.items():
        if name in wanted.depots:
            yield from _told(f"depot {name}", _depot_facts(depot), _depot_facts(wanted.depots[name]))
    for name, (owner, pstate) in _pstates(stored).items():
        if name in _pstates(wanted):
            yield from _told(f"PState {name}", _pstate_facts(owner, pstate), _pstate_facts(*_pstates(wanted)[name]))
    for name, topology in stored.topologies.items():
        if name in wanted.topologies:
            yield from _source_changes(topology, wanted.topologies[name])


def _one_sided(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{kind} {name} is only in the store" for name in sorted(before.keys() - after.keys()))
    yield from (f"{kind} {name} is only in the code" for name in sorted(after.keys() - before.keys()))


def _mirror_changes(before: StoredMirror, after: StoredMirror) -> Iterator[str]:
    """An object may have changed in its own module, too: an update follows it."""
    if str(before) != str(after):
        yield f"{before.name} is a mirror of {before} in the store and of {after} in the code"
    elif (before.store_id, before.folder) != (after.store_id, after.folder):
        yield f"{before.name}, the mirror of {before}, was deleted and made anew there, or that store was restored"
    elif before.item != after.item:
        yield f"{before.name}, the mirror of {before}, was changed there"


def _told(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for fact, value in before.items():
        if after[fact] != value:
            yield f"{what} has {fact} {value} in the store and {after[fact]} in the code"


def _depot_facts(depot: StoredDepot) -> dict[str, str]:
    partitioning = depot.partitioning if depot.tick_millis is None else f"a tick each {depot.tick_millis} ms"
    return {
        "the partitioner": partitioning,
        "partitions:": "one" if depot.is_global else "one a task",
        "the schema": "none" if depot.schema is None else schemas.to_text(depot.schema),
        "the migration": depot.migration or "none",
    }


def _pstate_facts(topology: str, pstate: StoredPState) -> dict[str, str]:
    return {
        "the topology": topology,
        "the schema": schemas.to_text(pstate.schema),
        "partitions:": "one" if pstate.is_global else "one a task",
        "readers:": "the module only" if pstate.is_private else "everybody",
        "the initial value": repr(pstate.initial_value),
        "a key partitioner:": "yes" if pstate.has_key_partitioner else "no",
        "the migrations": ", ".join(f"{i} of {location_text(at)}" for at, i in pstate.declared_migrations) or "none",
    }


def _source_changes(before: StoredTopology, after: StoredTopology) -> Iterator[str]:
    old, new = ({source.source_id: source for source in topology.sources} for topology in (before, after))
    yield from _one_sided(f"in topology {before.name} the source", old, new)
    for name in old:
        if name in new and old[name] != new[name]:
            yield f"in topology {before.name} the source {name} reads another depot or starts elsewhere"


def _pstates(definition: StoredDefinition) -> dict[str, tuple[str, StoredPState]]:
    return {p.name: (t.name, p) for t in definition.topologies.values() for p in t.pstates.values()}
