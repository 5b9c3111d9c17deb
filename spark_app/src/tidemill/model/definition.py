"""What a module's definition looks like in a store: its declared objects, each with an id that is never used again.

A definition is a revision with a number. Paths in the store carry ids, so an object that was deleted and added again
finds nothing of its old self. Bodies of functions are not stored: equality here is equality of what was declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidemill.model import packing
from tidemill.model import schema as schemas
from tidemill.model.dataflow import (
    DepotDeclaration,
    DepotPartitioner,
    ModuleDeclaration,
    PStateDeclaration,
    SourceDeclaration,
    StartFrom,
    StartFromKind,
    TopologyDeclaration,
)
from tidemill.model.errors import DefinitionError, Fault, NewerFormat, UnknownName
from tidemill.model.ids import Ids
from tidemill.model.schema import Schema

FORMAT: Final = 1


@dataclass(frozen=True)
class StoredDepot:
    """`operation` names the built-in operation of a `hash_by`, which clients without the module's code can apply."""

    name: str
    id: str
    partitioner: DepotPartitioner
    is_global: bool = False
    tick_millis: int | None = None
    operation: str | None = None


@dataclass(frozen=True)
class StoredPState:
    """`initial_value` is what readers see before any write; a PState with a key partitioner needs the module's code."""

    name: str
    id: str
    schema: Schema
    is_global: bool = False
    is_private: bool = False
    initial_value: Any = None
    has_key_partitioner: bool = False


@dataclass(frozen=True)
class StoredSource:
    """`start_from` counts only where the topology meets the source for the first time."""

    source_id: str
    depot: str
    start_from: StartFrom = StartFrom()


@dataclass(frozen=True)
class StoredTopology:
    name: str
    id: str
    pstates: Mapping[str, StoredPState]
    sources: tuple[StoredSource, ...]


@dataclass(frozen=True)
class StoredDefinition:
    """One revision of a module. `options` are those that the code sets; they hold from the launch of the module on.

    `revision` is that of the Module on Kubernetes that wrote it, 0 elsewhere.
    """

    module: str
    tasks: int
    threads: int
    depots: Mapping[str, StoredDepot]
    topologies: Mapping[str, StoredTopology]
    number: int = 0
    format_level: int = FORMAT
    nonce: str = ""
    written_ms: int = 0
    is_destroyed: bool = False
    options: tuple[tuple[str, str, str, Any], ...] = field(default=(), compare=False)
    revision: int = field(default=0, compare=False)

    @property
    def options_prefix(self) -> str:
        return f"{self.module}/options"

    def depot(self, name: str) -> StoredDepot:
        if name not in self.depots:
            raise UnknownName(f"module {self.module} has no depot {name}; it has {_names(self.depots)}", name=name)
        return self.depots[name]

    def topology(self, name: str) -> StoredTopology:
        if name not in self.topologies:
            raise UnknownName(
                f"module {self.module} has no topology {name}; it has {_names(self.topologies)}", name=name
            )
        return self.topologies[name]

    def pstate(self, name: str) -> tuple[StoredTopology, StoredPState]:
        """The PState of this name and the topology that owns it."""
        for topology in self.topologies.values():
            if name in topology.pstates:
                return topology, topology.pstates[name]
        names = [pstate for topology in self.topologies.values() for pstate in topology.pstates]
        raise UnknownName(f"module {self.module} has no PState {name}; it has {_names(names)}", name=name)

    def depot_prefix(self, name: str) -> str:
        """Where the depot's objects live."""
        return f"{self.module}/depots/{plain_name(name)}-{self.depot(name).id}"

    def topology_prefix(self, name: str) -> str:
        """Where the topology's objects live."""
        return f"{self.module}/topologies/{name}-{self.topology(name).id}"

    def partitions(self, depot: str) -> int:
        """How many partitions the depot has: one a task, one in all if it is global, none if it ticks."""
        declared = self.depot(depot)
        if declared.tick_millis is not None:
            return 0
        return 1 if declared.is_global else self.tasks

    def is_equal_to(self, other: StoredDefinition) -> bool:
        """Whether both declare the same: names, schemas, partitioners, sources, tasks. Ids and numbers do not count."""
        return self.tasks == other.tasks and _shape(self) == _shape(other)


def plain_name(name: str) -> str:
    """The name of a depot or PState without its sigil, as paths carry it."""
    return name.lstrip("*$")


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _shape(definition: StoredDefinition) -> Any:
    depots = {name: replace(depot, id="") for name, depot in definition.depots.items()}
    topologies = {
        name: ({p.name: replace(p, id="") for p in topology.pstates.values()}, frozenset(topology.sources))
        for name, topology in definition.topologies.items()
    }
    return depots, topologies


# --- from what was declared ------------------------------------------------------------------------------------------


def launch(declaration: ModuleDeclaration, tasks: int, threads: int, ids: Ids) -> StoredDefinition:
    """The first revision of a module: every object gets an id.

    Raises:
        DefinitionError: tasks or threads are not powers of two, or there are more threads than tasks.
    """
    _check_size(tasks, threads)
    return StoredDefinition(
        module=declaration.name,
        tasks=tasks,
        threads=threads,
        depots={depot.name: _depot(depot, None, ids) for depot in declaration.depots},
        topologies={topology.name: _topology(topology, None, ids) for topology in declaration.topologies},
        options=declaration.options,
    )


def update(
    old: StoredDefinition, declaration: ModuleDeclaration, objects_to_delete: Iterable[str], ids: Ids
) -> StoredDefinition:
    """The next revision: objects that stay keep their ids, new ones get new ids, tasks and threads carry over.

    Raises:
        DefinitionError: lists every rule that the update breaks.
    """
    new = replace(
        old,
        number=old.number + 1,
        is_destroyed=False,
        revision=0,
        depots={depot.name: _depot(depot, old.depots.get(depot.name), ids) for depot in declaration.depots},
        topologies={
            topology.name: _topology(topology, old.topologies.get(topology.name), ids)
            for topology in declaration.topologies
        },
        options=declaration.options,
    )
    faults = [*_deletion_faults(old, new, frozenset(objects_to_delete)), *_change_faults(old, new)]
    if faults:
        raise DefinitionError(faults, module=old.module)
    return new


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
    )


def _topology(declared: TopologyDeclaration, old: StoredTopology | None, ids: Ids) -> StoredTopology:
    known = old.pstates if old else {}
    return StoredTopology(
        declared.name,
        old.id if old else ids.new_id(),
        {pstate.name: _pstate(pstate, known.get(pstate.name), ids) for pstate in declared.pstates},
        tuple(_source(source) for source in declared.sources),
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
    )


def _source(declared: SourceDeclaration) -> StoredSource:
    return StoredSource(declared.source_id, declared.depot, declared.start_from)


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
        faults.append(Fault(name, f"is listed in objects_to_delete, but {why}.", "Take it off the list."))
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


def _depot_faults(was: StoredDepot, now: StoredDepot) -> list[Fault]:
    faults = []
    if (was.tick_millis is None) != (now.tick_millis is None):
        kinds = ("a tick depot", "a regular depot")
        before, after = kinds if was.tick_millis is not None else kinds[::-1]
        faults.append(Fault(was.name, f"changes from {before} to {after}.", "Declare a depot of another name."))
    if was.is_global != now.is_global:
        faults.append(_global_fault(was.name, was.is_global))
    return faults


def _pstate_faults(was: StoredPState, now: StoredPState) -> list[Fault]:
    faults = []
    if was.is_global != now.is_global:
        faults.append(_global_fault(was.name, was.is_global))
    if not is_widening(was.schema, now.schema):
        text = f"changes its schema from {schemas.to_text(was.schema)} to {schemas.to_text(now.schema)}."
        faults.append(Fault(was.name, text, "A schema may stay or widen (a leaf to object, fields added)."))
    return faults


def _global_fault(name: str, was_global: bool) -> Fault:
    before, after = ("global", "not global") if was_global else ("not global", "global")
    return Fault(name, f"changes from {before} to {after}.", "Declare an object of another name.")


def is_widening(old: Schema, new: Schema) -> bool:
    """Whether every value stored under `old` fits `new` as it is stored: equal, a leaf made `object`, or fields added.

    Keys may not change, because they place rows; nor may the kind of a structure or what is subindexed.
    """
    if isinstance(old, schemas.Leaf):
        return isinstance(new, schemas.Leaf) and new.type in (old.type, "object")
    if type(old) is not type(new):
        return isinstance(new, schemas.Leaf) and new.type == "object" and not schemas.has_indexed(old)
    if isinstance(old, schemas.MapSchema) and isinstance(new, schemas.MapSchema):
        return replace(old, value=new.value) == new and is_widening(old.value, new.value)
    if isinstance(old, schemas.ListSchema) and isinstance(new, schemas.ListSchema):
        return replace(old, element=new.element) == new and is_widening(old.element, new.element)
    if isinstance(old, schemas.FixedKeysSchema) and isinstance(new, schemas.FixedKeysSchema):
        fields = dict(new.fields)
        return all(name in fields and is_widening(field, fields[name]) for name, field in old.fields)
    return old == new


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json(definition: StoredDefinition) -> dict[str, Any]:
    """The definition as the store keeps it."""
    return {
        "format": FORMAT,
        "format_level": definition.format_level,
        "number": definition.number,
        "nonce": definition.nonce,
        "written_ms": definition.written_ms,
        "is_destroyed": definition.is_destroyed,
        "module": definition.module,
        "tasks": definition.tasks,
        "threads": definition.threads,
        "depots": [dict(vars(depot)) for depot in definition.depots.values()],
        "topologies": [_topology_json(topology) for topology in definition.topologies.values()],
        "options": [list(setting) for setting in definition.options],
        **({"revision": definition.revision} if definition.revision else {}),
    }


def _topology_json(topology: StoredTopology) -> dict[str, Any]:
    return {
        "name": topology.name,
        "id": topology.id,
        "pstates": [_pstate_json(pstate) for pstate in topology.pstates.values()],
        "sources": [[s.source_id, s.depot, s.start_from.kind, s.start_from.amount] for s in topology.sources],
    }


def _pstate_json(pstate: StoredPState) -> dict[str, Any]:
    initial = packing.pack(pstate.initial_value).hex()
    return {**vars(pstate), "schema": schemas.to_json(pstate.schema), "initial_value": initial}


def from_json(data: Mapping[str, Any]) -> StoredDefinition:
    """The inverse of `to_json`.

    Raises:
        NewerFormat: a newer Tidemill wrote it.
    """
    if data["format"] > FORMAT:
        raise NewerFormat(f"the definition has format {data['format']}, this Tidemill reads {FORMAT}; use a newer one")
    return StoredDefinition(
        module=data["module"],
        tasks=data["tasks"],
        threads=data["threads"],
        depots={depot["name"]: StoredDepot(**depot) for depot in data["depots"]},
        topologies={topology["name"]: _topology_from(topology) for topology in data["topologies"]},
        number=data["number"],
        format_level=data["format_level"],
        nonce=data["nonce"],
        written_ms=data["written_ms"],
        is_destroyed=data["is_destroyed"],
        options=tuple((scope, target, name, value) for scope, target, name, value in data["options"]),
        revision=data.get("revision", 0),
    )


def _topology_from(data: Mapping[str, Any]) -> StoredTopology:
    pstates = {pstate["name"]: _pstate_from(pstate) for pstate in data["pstates"]}
    sources = tuple(_source_from(*source) for source in data["sources"])
    return StoredTopology(data["name"], data["id"], pstates, sources)


def _pstate_from(data: Mapping[str, Any]) -> StoredPState:
    initial = packing.unpack(bytes.fromhex(data["initial_value"]))
    return StoredPState(**{**data, "schema": schemas.from_json(data["schema"]), "initial_value": initial})


def _source_from(source_id: str, depot: str, kind: StartFromKind, amount: int) -> StoredSource:
    return StoredSource(source_id, depot, StartFrom(kind, amount))
