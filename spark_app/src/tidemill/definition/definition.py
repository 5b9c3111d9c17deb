"""How a definition is made of what was declared, and what an update may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidemill.definition.migration_steps import Waiting, adapted, kept_migrations, migration_faults
from tidemill.definition.retirement import brought_back, retirements, rollback_faults, without_retired
from tidemill.definition.stored import (
    Retirement,
    StoredDefinition,
    StoredDepot,
    StoredMirror,
    StoredPState,
    StoredQuery,
    StoredSource,
    StoredTopology,
    plain_name,
)
from tidemill.language import schema as schemas
from tidemill.language.dataflow import (
    DepotDeclaration,
    ModuleDeclaration,
    PStateDeclaration,
    SourceDeclaration,
    TopologyDeclaration,
)
from tidemill.language.widening import advice, is_value_widening, is_widening
from tidemill.values.errors import DefinitionError, Fault
from tidemill.values.ids import Ids

__all__ = [
    "Retirement", "StoredDefinition", "StoredDepot", "StoredMirror", "StoredPState", "StoredQuery",
    "StoredSource", "StoredTopology",
    "launch", "plain_name", "update",
]  # fmt: skip


FORMER_MAX: Final = 64
"""So many depots of other modules are remembered that a module mirrored once."""

# --- from what was declared ------------------------------------------------------------------------------------------


def launch(
    declaration: ModuleDeclaration,
    tasks: int,
    threads: int,
    ids: Ids,
    mirrors: Mapping[str, StoredMirror] | None = None,
) -> StoredDefinition:
    """The first revision of a module: every object gets an id. `mirrors` are its objects of other modules, by name.

    Raises:
        DefinitionError: tasks or threads are not powers of two, or there are more threads than tasks.
    """
    _check_size(tasks, threads)
    return StoredDefinition(
        module=declaration.name,
        tasks=tasks,
        threads=threads,
        depots={depot.name: _depot(depot, None, ids) for depot in declaration.depots},
        topologies={topology.name: _topology(topology, None, ids, 1) for topology in declaration.topologies},
        options=declaration.options,
        queries=_queries(declaration),
        mirrors=dict(mirrors or {}),
    )


def update(
    old: StoredDefinition,
    declaration: ModuleDeclaration,
    objects_to_delete: Iterable[str],
    ids: Ids,
    *,
    restores: bool = False,
    are_deletions_done: bool = False,
    mirrors: Mapping[str, StoredMirror] | None = None,
    waiting: Waiting | None = None,
) -> StoredDefinition:
    """The next revision: objects that stay keep their ids, new ones get new ids, tasks and threads carry over.

    What it does not have any more is retired. With `restores`, for a rollback, what it declares and `old` has retired
    comes back as it was. `are_deletions_done`: those of `old` took effect, so there is nothing to bring back. `mirrors`
    are as for `launch`. `waiting` are the migrations of `old` that are not done.

    Raises:
        DefinitionError: lists every rule that the update breaks.
    """
    known = without_retired(old) if are_deletions_done else old
    back = brought_back(known, declaration) if restores else known
    new = replace(
        back,
        number=old.number + 1,
        is_destroyed=False,
        revision=0,
        depots={depot.name: _depot(depot, back.depots.get(depot.name), ids) for depot in declaration.depots},
        topologies={
            topology.name: _topology(topology, back.topologies.get(topology.name), ids, old.number + 1)
            for topology in declaration.topologies
        },
        options=declaration.options,
        queries=_queries(declaration),
        mirrors=dict(mirrors or {}),
        former=_former(old, dict(mirrors or {})),
    )
    faults = [*_deletion_faults(back, new, frozenset(objects_to_delete)), *_change_faults(back, new)]
    faults += _migration_faults(back, declaration, new, waiting or {})
    faults += rollback_faults(old, back, declaration) if restores else _unmigrated_faults(back, new)
    if faults:
        raise DefinitionError(faults, module=old.module)
    return replace(new, retired=retirements(back, new))


def _former(old: StoredDefinition, mirrors: Mapping[str, StoredMirror]) -> tuple[StoredMirror, ...]:
    """The depots that were mirrored and are not any more, each once, the newest last."""
    gone = [*old.former, *(mirror for mirror in old.mirrors.values() if isinstance(mirror.item, StoredDepot))]
    now = {mirror.place for mirror in mirrors.values()}
    found = {mirror.place: mirror for mirror in gone if mirror.place not in now}
    return tuple(found.values())[-FORMER_MAX:]


def _check_size(tasks: int, threads: int) -> None:
    faults = []
    for name, count in (("tasks", tasks), ("threads", threads)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1 or count & (count - 1):
            faults.append(Fault("LaunchConfig", f"{name} must be a power of two, not {count!r}."))
    if not faults and threads > tasks:
        faults.append(
            Fault("LaunchConfig", f"{threads} threads cannot share {tasks} tasks.", "Use as many or fewer threads.")
        )
    if faults:
        raise DefinitionError(faults)


def _depot(declared: DepotDeclaration, old: StoredDepot | None, ids: Ids) -> StoredDepot:
    function = declared.function
    return StoredDepot(
        name=declared.name,
        id=old.id if old else ids.new_id(),
        partitioner=declared.partitioner,
        is_global=declared.is_global,
        tick_millis=declared.tick_millis,
        operation=function.name if function is not None and function.kind == "builtin" else None,
        fields=declared.fields,
        schema=declared.schema,
        migration=declared.migration.id if declared.migration is not None else "",
    )


def _topology(declared: TopologyDeclaration, old: StoredTopology | None, ids: Ids, number: int) -> StoredTopology:
    pstates = old.pstates if old else {}
    sources = {(source.source_id, source.depot): source.since for source in old.sources} if old else {}
    since = number if old else 0
    return StoredTopology(
        declared.name,
        old.id if old else ids.new_id(),
        {pstate.name: _pstate(pstate, pstates.get(pstate.name), ids) for pstate in declared.pstates},
        tuple(_source(source, sources.get((source.source_id, source.depot), since)) for source in declared.sources),
    )


def _pstate(declared: PStateDeclaration, old: StoredPState | None, ids: Ids) -> StoredPState:
    return StoredPState(
        name=declared.name,
        id=old.id if old else ids.new_id(),
        schema=declared.schema,
        is_global=declared.is_global,
        is_private=declared.is_private,
        initial_value=declared.initial_value,
        has_key_partitioner=declared.key_partitioner is not None,
        migrations=kept_migrations(declared, old),
    )


def _queries(declaration: ModuleDeclaration) -> dict[str, StoredQuery]:
    return {query.name: StoredQuery(query.name, query.inputs, query.result) for query in declaration.queries}


def _source(declared: SourceDeclaration, since: int) -> StoredSource:
    return StoredSource(declared.source_id, declared.depot, declared.start_from, since)


# --- what an update may do -------------------------------------------------------------------------------------------


def _objects(definition: StoredDefinition) -> dict[str, StoredDepot | StoredPState]:
    found: dict[str, StoredDepot | StoredPState] = dict(definition.depots)
    for topology in definition.topologies.values():
        found.update(topology.pstates)
    return found


def _deletion_faults(old: StoredDefinition, new: StoredDefinition, listed: frozenset[str]) -> list[Fault]:
    """The list of objects to delete must name exactly the depots and PStates that are gone."""
    gone = _objects(old).keys() - _objects(new).keys()
    faults = [
        Fault(
            name,
            "is in the running module but not in the new one.",
            "List it in objects_to_delete, or declare it again.",
        )
        for name in sorted(gone - listed)
    ]
    for name in sorted(listed - gone):
        why = "is still declared" if name in _objects(new) else "is not in the running module"
        meant = sorted(gone & {f"*{name}", f"$${name}"})
        advice = f"Write it with its sigil: {' or '.join(meant)}." if meant else "Take it off the list."
        faults.append(Fault(name, f"is listed in objects_to_delete, but {why}.", advice))
    return faults


def _change_faults(old: StoredDefinition, new: StoredDefinition) -> list[Fault]:
    faults = []
    before = _objects(old)
    owners = {name: t.name for t in old.topologies.values() for name in t.pstates}
    for name, now in _objects(new).items():
        was = before.get(name)
        if isinstance(was, StoredDepot) and isinstance(now, StoredDepot):
            faults += _depot_faults(was, now)
        elif isinstance(was, StoredPState) and isinstance(now, StoredPState):
            faults += _pstate_faults(was, now)
            owner = new.pstate(name)[0].name
            if owners[name] != owner:
                faults.append(
                    Fault(name, f"moves from topology {owners[name]} to {owner}.", "A PState cannot change its owner.")
                )
    return faults


def _migration_faults(
    old: StoredDefinition, declaration: ModuleDeclaration, new: StoredDefinition, waiting: Waiting
) -> list[Fault]:
    before, after = _objects(old), _objects(new)
    faults: list[Fault] = []
    for declared in (pstate for topology in declaration.topologies for pstate in topology.pstates):
        was, now = before.get(declared.name), after.get(declared.name)
        if isinstance(was, StoredPState) and isinstance(now, StoredPState):
            faults += migration_faults(was, now, declared, waiting)
    return faults


def _unmigrated_faults(old: StoredDefinition, new: StoredDefinition) -> list[Fault]:
    """Records stay in a depot as they were appended: without its migration they are read so again."""
    text = "loses its migration '{}', so its records would be read as they were appended."
    advice = "Keep the migration, or declare a depot of another name."
    return [
        Fault(name, text.format(was.migration), advice)
        for name, was in old.depots.items()
        if was.migration and name in new.depots and not new.depots[name].migration
    ]


def _depot_faults(was: StoredDepot, now: StoredDepot) -> list[Fault]:
    faults = []
    if (was.tick_millis is None) != (now.tick_millis is None):
        kinds = ("a tick depot", "a regular depot")
        before, after = kinds if was.tick_millis is not None else kinds[::-1]
        faults.append(Fault(was.name, f"changes from {before} to {after}.", "Declare a depot of another name."))
    if was.is_global != now.is_global:
        faults.append(_global_fault(was.name, was.is_global))
    elif not was.is_global and not faults and was.partitioning != now.partitioning:
        text = f"changes its partitioner from {was.partitioning} to {now.partitioning}."
        faults.append(Fault(was.name, text, "Its records stay where they are: declare a depot of another name."))
    is_new = now.migration not in ("", was.migration)
    fits = now.schema is None or (was.schema is not None and is_value_widening(was.schema, now.schema))
    if now.schema is not None and now.has_log and not is_new and not fits:
        before = "none" if was.schema is None else schemas.to_text(was.schema)
        text = f"changes the schema of its records from {before} to {schemas.to_text(now.schema)}."
        advice_ = (
            "Records that are stored may not fit. A schema may stay, widen (a value becomes object, fields are added) "
        )
        faults.append(Fault(was.name, text, advice_ + "or go; else declare a depot of another name."))
    return faults


def _pstate_faults(was: StoredPState, now: StoredPState) -> list[Fault]:
    faults = []
    if was.is_global != now.is_global:
        faults.append(_global_fault(was.name, was.is_global))
    elif was.has_key_partitioner != now.has_key_partitioner:
        text = "gets a key partitioner." if now.has_key_partitioner else "loses its key partitioner."
        faults.append(Fault(was.name, text, "Its keys stay where they are: declare a PState of another name."))
    if not is_widening(adapted(was, now), now.schema):
        text = f"changes its schema from {schemas.to_text(was.schema)} to {schemas.to_text(now.schema)}."
        faults.append(Fault(was.name, text, advice(was.schema, now.schema)))
    return faults


def _global_fault(name: str, was_global: bool) -> Fault:
    before, after = ("global", "not global") if was_global else ("not global", "global")
    return Fault(name, f"changes from {before} to {after}.", "Declare an object of another name.")
