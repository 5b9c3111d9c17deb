"""What an update deletes can come back for a while: a rollback finds its depots, PStates and progress again.

An update takes objects out of the definition and lists them as *retired*. A rollback is an update of the definition
with those of them put back that the rollback declares; they keep their ids, so their data is what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemill.definition.stored import (
    Retirement,
    StoredDefinition,
    StoredDepot,
    StoredPState,
    StoredSource,
    StoredTopology,
)
from tidemill.language.dataflow import ModuleDeclaration, TopologyDeclaration
from tidemill.values.errors import Fault


def without_retired(old: StoredDefinition) -> StoredDefinition:
    """The definition once its deletions took effect: nothing of what it deleted can come back."""
    folders = (gone.folder(old.module) for gone in old.retired)
    garbage = dict.fromkeys((*old.garbage, *(folder for folder in folders if folder is not None)))
    return replace(old, retired=(), garbage=tuple(garbage))


def brought_back(old: StoredDefinition, declaration: ModuleDeclaration) -> StoredDefinition:
    """The definition in which retired objects that are declared were never deleted.

    Of several that had one name it is the first that was deleted: what the newest stable revision knew.
    """
    declared = {topology.name: topology for topology in declaration.topologies}
    back = old
    for kind in (StoredDepot, StoredTopology, StoredPState, StoredSource):
        for gone in sorted(back.retired, key=lambda gone: gone.by):
            if isinstance(gone.item, kind):
                back = _with(back, gone, declaration, declared)
    return back


def _with(
    back: StoredDefinition, gone: Retirement, declaration: ModuleDeclaration, declared: dict[str, TopologyDeclaration]
) -> StoredDefinition:
    """With one retired object put back; the same if it is not wanted, or another one has its name."""
    item = gone.item
    left = tuple(other for other in back.retired if other is not gone)
    if isinstance(item, StoredDepot):
        is_wanted = item.name not in back.depots and any(depot.name == item.name for depot in declaration.depots)
        return replace(back, depots={**back.depots, item.name: item}, retired=left) if is_wanted else back
    if isinstance(item, StoredTopology):
        is_wanted = item.name not in back.topologies and item.name in declared
        return _with_whole(back, gone.by, item, declared[item.name], left) if is_wanted else back
    owner = next((topology for topology in back.topologies.values() if topology.id == gone.topology), None)
    if owner is None or owner.name not in declared:
        return back
    found = _with_part(owner, item, declared[owner.name])
    return back if found is owner else replace(back, topologies={**back.topologies, owner.name: found}, retired=left)


def _with_whole(
    back: StoredDefinition, by: int, item: StoredTopology, wanted: TopologyDeclaration, left: tuple[Retirement, ...]
) -> StoredDefinition:
    """A topology comes back with those of its PStates that are declared; the others stay retired."""
    names = {pstate.name for pstate in wanted.pstates}
    kept = {name: pstate for name, pstate in item.pstates.items() if name in names}
    others = tuple(Retirement(by, p, item.id) for name, p in item.pstates.items() if name not in names)
    topologies = {**back.topologies, item.name: replace(item, pstates=kept)}
    return replace(back, topologies=topologies, retired=(*left, *others))


def _with_part(owner: StoredTopology, item: StoredPState | StoredSource, wanted: TopologyDeclaration) -> StoredTopology:
    if isinstance(item, StoredPState):
        is_wanted = item.name not in owner.pstates and any(pstate.name == item.name for pstate in wanted.pstates)
        return replace(owner, pstates={**owner.pstates, item.name: item}) if is_wanted else owner
    is_wanted = all(source.source_id != item.source_id for source in owner.sources) and any(
        (source.source_id, source.depot) == (item.source_id, item.depot) for source in wanted.sources
    )
    return replace(owner, sources=(*owner.sources, item)) if is_wanted else owner


def retirements(old: StoredDefinition, new: StoredDefinition) -> tuple[Retirement, ...]:
    """What of `old` is retired under `new`: what was already, and what `new` does not have.

    A source that was declared again is another one: the progress of the old one is given up.
    """
    found = [*old.retired, *_gone(old, new)]
    living = {(topology.id, source.source_id) for topology in new.topologies.values() for source in topology.sources}
    return tuple(gone for gone in found if (gone.topology, gone.name) not in living)


def _gone(old: StoredDefinition, new: StoredDefinition) -> Iterator[Retirement]:
    for name, depot in old.depots.items():
        if name not in new.depots:
            yield Retirement(new.number, depot)
    for name, topology in old.topologies.items():
        if name not in new.topologies:
            yield Retirement(new.number, topology)
            continue
        now = new.topologies[name]
        parts: list[StoredPState | StoredSource] = [
            pstate for pstate in topology.pstates.values() if pstate.name not in now.pstates
        ]
        sources = {(source.source_id, source.depot) for source in now.sources}
        parts += [source for source in topology.sources if (source.source_id, source.depot) not in sources]
        yield from (Retirement(new.number, item, topology.id) for item in parts)


# --- what a rollback can not bring back ------------------------------------------------------------------------------


def rollback_faults(old: StoredDefinition, back: StoredDefinition, declaration: ModuleDeclaration) -> Iterator[Fault]:
    """A rollback goes on with the data of all that it declares, or it is none.

    `old` is the definition that it follows; `back` the same with what can come back.
    """
    declared = [*(depot.name for depot in declaration.depots)]
    for topology in declaration.topologies:
        declared += [topology.name, *(pstate.name for pstate in topology.pstates)]
    there, retired = _names(back), {gone.name: gone.by for gone in back.retired if _has_data(gone)}
    last = _deletions_of(old)
    for name in declared:
        if name not in there:
            why = f"was deleted by definition {last[name]}" if name in last else "is not in the running module"
            yield Fault(name, f"{why}, and nothing of it is kept: it would start empty.", _NOT_KEPT)
        elif name in retired:
            yield Fault(name, f"was deleted by definition {retired[name]} and made anew after it.", _MADE_ANEW)


_NOT_KEPT = "What a revision deletes is kept until that revision is stable."
_MADE_ANEW = "Mend the new code: going back would mix what both hold."


def _has_data(gone: Retirement) -> bool:
    return not isinstance(gone.item, StoredSource)


def _deletions_of(old: StoredDefinition) -> dict[str, int]:
    """Names of what is retired, those of a topology's PStates included, by the definition that deleted them."""
    found: dict[str, int] = {}
    for gone in old.retired:
        if _has_data(gone):
            found[gone.name] = gone.by
        if isinstance(gone.item, StoredTopology):
            found |= dict.fromkeys(gone.item.pstates, gone.by)
    return found


def _names(definition: StoredDefinition) -> set[str]:
    pstates = (name for topology in definition.topologies.values() for name in topology.pstates)
    return {*definition.depots, *definition.topologies, *pstates}
