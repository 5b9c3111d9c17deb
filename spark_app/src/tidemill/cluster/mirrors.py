"""Finding in their stores what a module declares of other modules, before it is launched or updated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredMirror, StoredPState, StoredQuery
from tidemill.definition.mirrors import bound, depot_migration
from tidemill.journal.definition_log import DefinitionLog, no_such_module
from tidemill.language.dataflow import MirrorDeclaration, ModuleDeclaration
from tidemill.plan.check.module import check, checked
from tidemill.plan.compile.topology import queries_from
from tidemill.plan.program import Operator
from tidemill.store.objects import ObjectStore
from tidemill.store.urls import open_store, store_id
from tidemill.values.errors import DefinitionError, Fault, StoreRefused, UnknownName
from tidemill.values.suggestions import nearest


def found_mirrors(store: ObjectStore, declaration: ModuleDeclaration) -> dict[str, StoredMirror]:
    """What the stores have of each mirror of a module, by its name. The whole declaration is checked against it.

    Raises:
        DefinitionError: a module or an object is not there, or cannot be used as it is; with its place in the code.
        StoreUnavailable: one of the stores does not answer.
    """
    found: dict[str, StoredMirror] = {}
    faults: list[Fault] = []
    for mirror in declaration.mirrors:
        try:
            found[mirror.name] = _found(store, declaration, mirror)
        except (UnknownName, StoreRefused) as error:
            text = f"'{mirror.name}' mirrors what is not there: {str(error).rstrip('.')}."
            faults.append(Fault(str(mirror.at), text, "Launch that module first, or correct the name."))
        except _Unfit as error:
            faults.append(Fault(str(mirror.at), str(error), error.advice))
    if faults:
        raise DefinitionError(faults, module=declaration.name)
    checked(bound(declaration, found))
    return found


class _Unfit(Exception):
    def __init__(self, text: str, advice: str) -> None:
        super().__init__(text)
        self.advice = advice


def _found(store: ObjectStore, declaration: ModuleDeclaration, mirror: MirrorDeclaration) -> StoredMirror:
    other = open_store(mirror.store) if mirror.store else store
    if mirror.module == declaration.name and (not mirror.store or store_id(other) == store_id(store)):
        text = f"'{mirror.name}' mirrors '{mirror.object}' of this very module."
        raise _Unfit(text, f"Name '{mirror.object}' itself.")
    definition = DefinitionLog(other, mirror.module).newest()
    if definition is None or definition.is_destroyed:
        raise no_such_module(other, mirror.module)
    if mirror.object in definition.mirrors:
        text = f"'{mirror.object}' of module '{mirror.module}' is itself a mirror, of "
        raise _Unfit(f"{text}{definition.mirrors[mirror.object]}.", "Mirror that object.")
    item, topology = _object(definition, mirror)
    return StoredMirror(
        mirror.name, mirror.module, definition.tasks, item, mirror.store, store_id(other) if mirror.store else "",
        topology, _query_reads(definition, mirror, item) if isinstance(item, StoredQuery) else {},
    )  # fmt: skip


def _query_reads(
    definition: StoredDefinition, mirror: MirrorDeclaration, stored: StoredQuery
) -> dict[str, tuple[str, str]]:
    """The PStates that a query reads, with their ids and topologies. Its code is that of the module that runs."""
    code, place = mirror.code, f"'{mirror.object}' of module '{mirror.module}'"
    if code is None:
        text = f"The query {place} is code of that module, and runs in the processes of this one."
        raise _Unfit(text, f"Give the class of {mirror.module} in the place of its name.")
    if check(code):
        raise _Unfit(f"The class of {mirror.module} that is given here is faulty.", str(check(code)[0]))
    other = f"The class of {mirror.module} that is given here has {{}} otherwise than the module that runs."
    advice = "Give the version that runs, or update that module first."
    if not any(query.name == stored.name and query.inputs == stored.inputs for query in code.queries):
        raise _Unfit(other.format(f"the query '{stored.name}'"), advice)
    called = queries_from(code, stored.name, {})
    borrowed = {each.name for each in code.mirrors} & {
        name for program in called.values() for op in program.operators for name in _names(op)
    }
    if borrowed:
        text = f"The query {place} uses '{min(borrowed)}', which that module mirrors itself."
        raise _Unfit(text, "Mirror a query that reads PStates of its own module only.")
    used = [name for program in called.values() for name in program.objects]
    if used:
        text = f"The query {place} uses '{min(used)}', an object that the processes of that module open."
        raise _Unfit(text, "Mirror a query that uses none.")
    found = {}
    for program in called.values():
        for name in program.reads:
            topology, pstate = definition.pstate(name) if _has_pstate(definition, name) else (None, None)
            if topology is None or pstate is None or pstate.schema != program.others[name].schema:
                raise _Unfit(other.format(f"the PState '{name}'"), advice)
            if pstate.migrations:
                text = f"The query {place} reads '{name}', which has migrations."
                raise _Unfit(text, "Mirror the PState, or a query that reads others.")
            found[name] = (pstate.id, f"{topology.name}-{topology.id}")
    return found


def _names(operator: Operator) -> Iterator[str]:
    yield from (getattr(operator, field, None) or "" for field in ("pstate", "query", "target"))


def _has_pstate(definition: StoredDefinition, name: str) -> bool:
    return any(name in topology.pstates for topology in definition.topologies.values())


def _object(
    definition: StoredDefinition, mirror: MirrorDeclaration
) -> tuple[StoredDepot | StoredPState | StoredQuery, str]:
    """The object, and of a PState the folder of its topology."""
    name = mirror.object
    if mirror.kind == "depot":
        depot = definition.depots.get(name) or _missing(definition, "depot", name, definition.depots)
        if depot.tick_millis is not None:
            text = f"'{name}' of module '{definition.module}' is a tick depot, which holds nothing to read."
            raise _Unfit(text, "Declare one here: setup.declare_tick_depot(…).")
        if not depot.has_log:
            text = f"'{name}' of module '{definition.module}' is an external depot, whose records are in no store."
            raise _Unfit(text, "Declare the object here, too: setup.declare_object(…).")
        _check_migration(definition, depot, mirror)
        return depot, ""
    if mirror.kind == "query":
        query = definition.queries.get(name) or _missing(definition, "query", name, definition.queries)
        return query, ""
    names = [pstate for topology in definition.topologies.values() for pstate in topology.pstates]
    if name not in names:
        _missing(definition, "PState", name, names)
    topology, found = definition.pstate(name)
    if found.is_private:
        text = f"'{name}' of module '{definition.module}' is private: only that module reads it."
        raise _Unfit(text, "Remove make_private() there, or mirror another PState.")
    if found.has_key_partitioner and mirror.code is None:
        text = f"'{name}' of module '{definition.module}' has a key partitioner, which is code of that module."
        raise _Unfit(text, f"Give the class of {definition.module} in the place of its name.")
    return found, f"{topology.name}-{topology.id}"


def _check_migration(definition: StoredDefinition, depot: StoredDepot, mirror: MirrorDeclaration) -> None:
    """All records of a depot with a migration are read through its function, for good."""
    made = depot_migration(mirror, depot)
    if made is None or made.function is not None:
        return
    text = f"The records of '{depot.name}' of module '{definition.module}' go through the migration '{depot.migration}'"
    if mirror.code is None:
        raise _Unfit(
            f"{text}, which is code of that module.", f"Give the class of {definition.module} in the place of its name."
        )
    text = f"{text}, which the class of {definition.module} that is given here does not have."
    raise _Unfit(text, "Give the version that runs, or update that module first.")


def _missing(definition: StoredDefinition, kind: str, name: str, known: Iterable[str]) -> StoredDepot:
    there = sorted(known)
    meant = nearest(name, there)
    hint = f"; did you mean {meant}?" if meant else f"; it has {', '.join(there) or 'none'}"
    raise UnknownName(f"module {definition.module} has no {kind} {name}{hint}", name=name)
