"""What a module's definition looks like in a store: its declared objects, each with an id that is never used again.

A definition is a revision with a number. Paths in the store carry ids, so an object that was deleted and added again
finds nothing of its old self. Bodies of functions are not stored: equality here is equality of what was declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemill.definition.ownership import BY_HAND, Owner
from tidemill.language.dataflow import DepotPartitioner, Migration, StartFrom
from tidemill.language.options import find_option
from tidemill.values.call_checks import checked_name
from tidemill.values.errors import OptionError, UnknownName
from tidemill.values.stored import Stored

if TYPE_CHECKING:
    from tidemill.language.schema import Schema
else:
    Schema = Any
    """A union of dataclasses, which `msgspec` does not tell apart: `stored_json` does."""


@dataclass(frozen=True)
class StoredDepot(Stored):
    """`operation` names the built-in operation of a `hash_by`, `fields` its fields: clients without the module's code
    can apply both. `schema` is what each record must fit when it is appended; None: any data. `migration` is the ID of
    the function that records are read through, if there is one.
    """

    name: str
    id: str
    partitioner: DepotPartitioner
    is_global: bool = False
    tick_millis: int | None = None
    operation: str | None = None
    fields: tuple[str, ...] = ()
    schema: Schema | None = None
    migration: str = ""

    @property
    def has_log(self) -> bool:
        """Whether its records are in the store: not those of a tick depot, nor of an external one or a sink."""
        return self.tick_millis is None and self.partitioner not in ("external", "sink")

    @property
    def takes_appends(self) -> bool:
        """Whether topologies append to it: all with records in the store, and sinks."""
        return self.has_log or self.partitioner == "sink"

    @property
    def partitioning(self) -> str:
        """How it is partitioned, as far as the store knows: bodies of functions are not stored."""
        by = ", ".join(map(repr, self.fields)) or self.operation or ("a function" if self.needs_code else "")
        return f"{self.partitioner}({by})" if by else self.partitioner

    @property
    def needs_code(self) -> bool:
        """Whether appending needs a function of the module: partitioners that are not built in."""
        if self.is_global or self.partitioner not in ("hash_by", "custom"):
            return False
        return self.operation is None and not self.fields


@dataclass(frozen=True)
class StoredMigration(Stored):
    """A migration that values at `location` had, of the schema `before` it; the code may declare it no more."""

    location: tuple[str, ...]
    id: str
    before: Schema
    is_declared: bool = True


@dataclass(frozen=True)
class StoredPState(Stored):
    """`initial_value` is what readers see before any write; a PState with a key partitioner needs the module's code.

    `migrations` are all that its values ever had, oldest first (`definition.migration_steps`).
    """

    name: str
    id: str
    schema: Schema
    is_global: bool = False
    is_private: bool = False
    initial_value: Any = None
    has_key_partitioner: bool = False
    migrations: tuple[StoredMigration, ...] = ()

    @property
    def declared_migrations(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Location and ID of those that the code declares, as `by_location`."""
        return by_location(made for made in self.migrations if made.is_declared)

    @property
    def migrated_locations(self) -> frozenset[tuple[str, ...]]:
        """Where its values ever had a migration."""
        return frozenset(made.location for made in self.migrations)


@dataclass(frozen=True)
class StoredSource(Stored):
    """`start_from` counts only where the topology meets the source for the first time.

    `since` is the definition that added it to a topology that was there before, else 0: progress that an entry of an
    older definition holds under this name is that of a source that went.
    """

    source_id: str
    depot: str
    start_from: StartFrom = StartFrom()
    since: int = field(default=0, compare=False)


@dataclass(frozen=True)
class StoredTopology:
    """A topology with the PStates that it owns and its sources; `id` is never used again."""

    name: str
    id: str
    pstates: Mapping[str, StoredPState]
    sources: tuple[StoredSource, ...]


@dataclass(frozen=True)
class StoredQuery(Stored):
    """A query topology as its callers see it; its steps are in the module's code alone."""

    name: str
    inputs: tuple[str, ...]
    result: str


if TYPE_CHECKING:
    MirroredItem = StoredDepot | StoredPState | StoredQuery
else:
    MirroredItem = Any  # as Schema


@dataclass(frozen=True)
class StoredMirror(Stored):
    """An object of another module as it was when this definition was written, and its name here.

    `store` is the URL of the other module's store, empty for this one's own, `store_id` the id of that copy of it, or
    empty, too. `tasks` are those of the other module, `topology` is the id with its name of the topology of a PState,
    `reads` are the PStates that a query reads: name -> (id, topology).
    """

    name: str
    module: str
    tasks: int
    item: MirroredItem
    store: str = ""
    store_id: str = ""
    topology: str = ""
    reads: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Where the objects of a depot are, or those of the topology that writes a PState; of a query the module's."""
        if isinstance(self.item, StoredDepot):
            return depot_folder(self.module, self.item)
        return f"{self.module}/topologies/{self.topology}" if self.topology else self.module

    @property
    def place(self) -> str:
        """The folder with its store, as pins of what is read of it name it."""
        return self._placed(self.folder)

    @property
    def places(self) -> dict[str, str]:
        """The folders of the topologies that are read, by their places."""
        topologies = {self.topology, *(topology for _, topology in self.reads.values())} - {""}
        folders = (f"{self.module}/topologies/{topology}" for topology in sorted(topologies))
        return {self._placed(folder): folder for folder in folders}

    @property
    def placed_reads(self) -> dict[str, tuple[str, str]]:
        """`reads` with places."""
        folders = {name: (id_, f"{self.module}/topologies/{at}") for name, (id_, at) in self.reads.items()}
        return {name: (id_, self._placed(folder)) for name, (id_, folder) in folders.items()}

    def _placed(self, folder: str) -> str:
        return f"{folder}@{self.store}" if self.store else folder

    @property
    def partitions(self) -> int:
        """How many partitions the object has."""
        return 1 if not isinstance(self.item, StoredQuery) and self.item.is_global else self.tasks

    def __str__(self) -> str:
        of = f"'{self.item.name}' of module '{self.module}'"
        return f"{of} in {self.store}" if self.store else of


if TYPE_CHECKING:
    RetiredItem = StoredDepot | StoredPState | StoredSource | StoredTopology
else:
    RetiredItem = Any  # as Schema


@dataclass(frozen=True)
class Retirement(Stored):
    """An object that definition `by` does not have any more, as it was: all that is needed to open it again.

    `topology` is the id of the topology to which a PState or a source belonged.
    """

    by: int
    item: RetiredItem
    topology: str = ""

    @property
    def name(self) -> str:
        """The name of the depot or PState, or the ID of the source."""
        return self.item.source_id if isinstance(self.item, StoredSource) else self.item.name

    def folder(self, module: str) -> str | None:
        """Where its objects live; None where it has no folder of its own."""
        if isinstance(self.item, StoredDepot):
            return depot_folder(module, self.item) if self.item.has_log else None
        return topology_folder(module, self.item) if isinstance(self.item, StoredTopology) else None


@dataclass(frozen=True)
class StoredDefinition(Stored):
    """One revision of a module. `options` are those that the code sets; they hold from the launch of the module on.

    `revision` is that of the Module on Kubernetes that wrote it, 0 elsewhere. `retired` is what this definition and
    those before it deleted and a rollback can still bring back (`leader.deletions` says until when); `garbage` are
    folders of what nothing brings back, and whose objects may still be there. Only `owner` may write the next one.
    `former` are depots of other modules that an older one mirrored: what was appended to them is still published.
    `by` is who wrote it, for people; empty where that is not known.
    """

    module: str
    tasks: int
    threads: int
    depots: Mapping[str, StoredDepot]
    topologies: Mapping[str, StoredTopology]
    number: int = 0
    nonce: str = ""
    written_ms: int = 0
    is_destroyed: bool = False
    options: tuple[tuple[str, str, str, Any], ...] = field(default=(), compare=False)
    revision: int = field(default=0, compare=False)
    retired: tuple[Retirement, ...] = ()
    garbage: tuple[str, ...] = ()
    owner: Owner = BY_HAND
    queries: Mapping[str, StoredQuery] = field(default_factory=dict)
    mirrors: Mapping[str, StoredMirror] = field(default_factory=dict)
    former: tuple[StoredMirror, ...] = ()
    by: str = field(default="", compare=False)

    @property
    def options_prefix(self) -> str:
        """The folder of the log of the module's dynamic options."""
        return f"{self.module}/options"

    def depot(self, name: str) -> StoredDepot:
        """The depot of this name. Raises UnknownName, which lists the depots."""
        self._check_own("depot", name)
        if name not in self.depots:
            raise UnknownName(f"module {self.module} has no depot {name}; it has {_names(self.depots)}", name=name)
        return self.depots[name]

    def _check_own(self, kind: str, name: str) -> None:
        checked_name(kind, name)
        if name in self.mirrors:
            text = f"{name} of module {self.module} is a mirror of {self.mirrors[name]}: ask that module for it"
            raise UnknownName(text, name=name)

    def source_depot(self, name: str) -> StoredDepot:
        """The depot that a source reads: the module's own, or another one's. Raises UnknownName."""
        mirror = self.mirrors.get(name)
        return mirror.item if mirror is not None and isinstance(mirror.item, StoredDepot) else self.depot(name)

    @property
    def read_depots(self) -> list[str]:
        """The names of its depots, and those by which it knows depots of other modules."""
        return [*self.depots, *(name for name, mirror in self.mirrors.items() if isinstance(mirror.item, StoredDepot))]

    def store_of(self, name: str) -> str:
        """The URL of the store of a depot; empty for the module's own."""
        return self.mirrors[name].store if name in self.mirrors else ""

    def topology(self, name: str) -> StoredTopology:
        """The topology of this name. Raises UnknownName, which lists the topologies."""
        checked_name("topology", name)
        if name not in self.topologies:
            raise UnknownName(
                f"module {self.module} has no topology {name}; it has {_names(self.topologies)}", name=name
            )
        return self.topologies[name]

    def query(self, name: str) -> StoredQuery:
        """The query of this name. Raises UnknownName, which lists the queries."""
        checked_name("query", name)
        if name not in self.queries:
            raise UnknownName(f"module {self.module} has no query {name}; it has {_names(self.queries)}", name=name)
        return self.queries[name]

    def optioned(self, name: str) -> str:
        """The name of a topology or a query, which have options alike. Raises UnknownName, which lists topologies."""
        return name if checked_name("topology", name) in self.queries else self.topology(name).name

    def optioned_depot(self, name: str, options: Iterable[str] = ()) -> str:
        """The name of a depot that may have these options here: an own one, or one of another module, of which this
        module decides how it reads it, and the other one what is kept. Raises UnknownName, OptionError.
        """
        self.source_depot(name)
        owned = [option for option in options if name in self.mirrors and find_option(option).is_of_owner]
        if owned:
            mirror = self.mirrors[name]
            text = (
                f"{owned[0]} says what {name} keeps, which is a mirror of {mirror}: only module {mirror.module} sets it"
            )
            raise OptionError(text, option=owned[0])
        return name

    def pstate(self, name: str) -> tuple[StoredTopology, StoredPState]:
        """The PState of this name and the topology that owns it. Raises UnknownName, which lists the PStates."""
        self._check_own("PState", name)
        for topology in self.topologies.values():
            if name in topology.pstates:
                return topology, topology.pstates[name]
        names = [pstate for topology in self.topologies.values() for pstate in topology.pstates]
        raise UnknownName(f"module {self.module} has no PState {name}; it has {_names(names)}", name=name)

    def depot_prefix(self, name: str) -> str:
        """Where the objects of a depot live, in the store that `store_of` names."""
        return self.mirrors[name].folder if name in self.mirrors else depot_folder(self.module, self.depot(name))

    def depot_identity(self, name: str) -> str:
        """What progress names a depot by: its name with its id, and of another store the id of that copy of it."""
        mirror, folder = self.mirrors.get(name), self.depot_prefix(name).rpartition("/")[2]
        return f"{folder}@{mirror.store_id}" if mirror is not None and mirror.store_id else folder

    def topology_prefix(self, name: str) -> str:
        """Where the topology's objects live."""
        return topology_folder(self.module, self.topology(name))

    def partitions(self, depot: str) -> int:
        """How many partitions the depot has in the store: one a task, one in all if it is global, none if it ticks or
        is an external one.
        """
        if depot in self.mirrors:
            return self.mirrors[depot].partitions
        declared = self.depot(depot)
        if not declared.has_log:
            return 0
        return 1 if declared.is_global else self.tasks

    def is_equal_to(self, other: StoredDefinition) -> bool:
        """Whether both declare the same: names, schemas, partitioners, sources, tasks. Ids and numbers do not count."""
        return self.tasks == other.tasks and _shape(self) == _shape(other)


def by_location(migrations: Iterable[StoredMigration | Migration]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Location and ID of each, those of one location oldest first: between locations the code has another order than
    the updates that brought them.
    """
    return tuple(sorted(((made.location, made.id) for made in migrations), key=lambda made: made[0]))


def plain_name(name: str) -> str:
    """The name of a depot or PState without its sigil, as paths carry it."""
    return name.lstrip("*$")


def depot_folder(module: str, depot: StoredDepot) -> str:
    """Where a depot's objects live."""
    return f"{module}/depots/{plain_name(depot.name)}-{depot.id}"


def topology_folder(module: str, topology: StoredTopology) -> str:
    """Where a topology's objects live."""
    return f"{module}/topologies/{topology.name}-{topology.id}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _shape(definition: StoredDefinition) -> Any:
    depots = {name: replace(depot, id="") for name, depot in definition.depots.items()}
    topologies = {
        name: ({p.name: _declared(p) for p in topology.pstates.values()}, frozenset(topology.sources))
        for name, topology in definition.topologies.items()
    }
    return depots, topologies, dict(definition.queries), {name: _seen(m) for name, m in definition.mirrors.items()}


def _seen(mirror: StoredMirror) -> StoredMirror:
    """What of a mirror an equal one has, too: its records' schema says what may be appended, and may widen."""
    item = replace(mirror.item, schema=None) if isinstance(mirror.item, StoredDepot) else mirror.item
    return replace(mirror, item=item)


def _declared(pstate: StoredPState) -> Any:
    return replace(pstate, id="", migrations=()), pstate.declared_migrations
