"""What a client process knows of a module: its newest definition and, where its code is here, its functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tidemill.clients.hub import AppendHub
from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredTopology
from tidemill.definition.migration_steps import Known, known_migrations
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.definition_log import DefinitionLog, no_such_module
from tidemill.language.dataflow import DepotDeclaration, DepotMigration, Location, ModuleDeclaration, PStateDeclaration
from tidemill.language.objects import close_objects
from tidemill.store.objects import ObjectStore
from tidemill.values.call_checks import checked_name
from tidemill.values.errors import BadInput, TidemillError
from tidemill.values.names import is_folder_name

if TYPE_CHECKING:
    from tidemill.clients.proxies import ProxyHub
    from tidemill.clients.topology import TopologyReader
    from tidemill.depot.appender import DepotAppender

LOOK_MILLIS = 1_000
"""How old a client's idea of the definition may be on a store where a look costs a request."""


T = TypeVar("T")

_READERS = 4
"""Threads of a client for reads that nobody waits for yet."""


class ModuleClient:
    """The newest definition of one module; shared by all handles of a process, safe for several threads.

    `declare` puts the module's `code` beside it; without it, only what the stored definition says can be done.
    """

    def __init__(
        self,
        store: ObjectStore,
        module: str,
        hub: AppendHub | None = None,
        clock: Clock | None = None,
        gone: Callable[[], TidemillError] | None = None,
    ) -> None:
        """`gone` is what is raised where the module is gone, else an error that names those that are there."""
        if not is_folder_name(checked_name("module", module)):
            raise no_such_module(store, module)
        self.store = store
        self.module = module
        self.hub = hub or AppendHub()
        self.clock = clock or SystemClock()
        self._gone = gone or (lambda: no_such_module(store, module))
        self._log = DefinitionLog(store, module)
        self._lock = threading.Lock()
        self._known: StoredDefinition | None = None
        self._looked_at = float("-inf")
        self._is_closed = False
        self._threads: ThreadPoolExecutor | None = None
        self._pace = 0 if store.local_path(module) is not None else LOOK_MILLIS
        self._proxies: ProxyHub | None = None
        self._readers: dict[str, tuple[StoredTopology, TopologyReader, Known]] = {}
        self._appenders: dict[str, DepotAppender] = {}
        self.code: ModuleDeclaration | None = None
        self._depots: dict[str, DepotDeclaration] = {}
        self._pstates: dict[str, PStateDeclaration] = {}
        self._migrations: Known = {}
        self._depot_migrations: dict[tuple[str, str], DepotMigration] = {}

    def declare(self, declaration: ModuleDeclaration) -> None:
        """The module's code as it runs now in this process."""
        self.code = declaration
        self._depots = {depot.name: depot for depot in declaration.depots}
        self._pstates = {p.name: p for topology in declaration.topologies for p in topology.pstates}
        self._migrations = {**self._migrations, **known_migrations(declaration)}
        self._depot_migrations = {**self._depot_migrations, **_depot_migrations(declaration)}
        self.forget()

    def expect(self, declaration: ModuleDeclaration) -> None:
        """Code that an update is about to run: reads need its migrations from the moment that its definition stands."""
        self._migrations = {**known_migrations(declaration), **self._migrations}
        self._depot_migrations = {**_depot_migrations(declaration), **self._depot_migrations}

    def forget(self, known: StoredDefinition | None = None) -> None:
        """Look at the store at the next call, whatever the pace is; but not where `known` is replaced already."""
        with self._lock:
            if known is None or self._known is known:
                self._looked_at = float("-inf")

    def close(self) -> None:
        """Refuse every later call; appends are settled first, and the code's objects closed."""
        with self._lock:
            self._is_closed = True
            appenders = list(self._appenders.values())
            threads, self._threads = self._threads, None
            proxies, self._proxies = self._proxies, None
        if proxies is not None:
            proxies.close()
        for appender in appenders:
            appender.close()
        if threads is not None:
            threads.shutdown()
        if self.code is not None:
            close_objects(self.code.objects.values())

    def later(self, read: Callable[[], T]) -> Future[T]:
        """Read in a thread of this client's own; the future gives or raises what the read does.

        Raises:
            BadInput: the client is closed.
        """
        self.definition()
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix=f"tidemill-read-{self.module}")
            return self._threads.submit(read)

    def definition(self) -> StoredDefinition:
        """The newest definition.

        Raises:
            UnknownName: the store has no such module, or it was destroyed.
            BadInput: the client is closed.
        """
        if self._is_closed:
            raise BadInput(f"The cluster that this handle of {self.module} came from is closed; open a new one.")
        now = self.clock.monotonic_ms()
        with self._lock:
            if self._known is None or now - self._looked_at >= self._pace:
                self._known = self._log.newest()
                self._looked_at = now
            known = self._known
        if known is None or known.is_destroyed:
            raise self._gone()
        return known

    @property
    def proxies(self) -> ProxyHub:
        """What keeps the proxies of this process up to date. Raises: as `definition`."""
        self.definition()
        with self._lock:
            if self._proxies is None:
                from tidemill.clients.proxies import ProxyHub  # who only appends needs none of it

                self._proxies = ProxyHub(self.module, self._owner_of, self.clock)
            return self._proxies

    def _owner_of(self, pstate: str) -> tuple[StoredDefinition, TopologyReader]:
        definition = self.definition()
        topology, _ = definition.pstate(pstate)
        return definition, self.reader(definition, topology)

    def reader(self, definition: StoredDefinition, topology: StoredTopology) -> TopologyReader:
        """The reader of a topology's committed state, shared by the handles of this process."""
        with self._lock:
            known = self._readers.get(topology.name)
            if known is None or known[0] != topology or known[2] is not self._migrations:
                from tidemill.clients.topology import opened_reader  # who only appends needs none of it

                reader = opened_reader(self.store, definition, topology, self.clock, self._migrations)
                known = self._readers[topology.name] = (topology, reader, self._migrations)
            return known[1]

    def appender(self, prefix: str, partitions: int) -> DepotAppender:
        """The appender of a depot, shared so that what this process appends is committed together."""
        with self._lock:
            known = self._appenders.get(prefix)
            if known is None:
                from tidemill.depot.appender import opened_appender  # who only reads needs none of it

                known = self._appenders[prefix] = opened_appender(self.store, prefix, partitions, self.clock.now_ms)
            return known

    def discard(self, prefix: str) -> None:
        """Let go of the appender of a depot that was deleted."""
        with self._lock:
            self._appenders.pop(prefix, None)

    def depot_code(self, name: str) -> DepotDeclaration | None:
        """The depot as the module's class declares it; None if that class is not in this process, or declares none."""
        return self._depots.get(name)

    @property
    def migrations(self) -> Known:
        """The migrations of values that the code in this process declares."""
        return self._migrations

    def pstate_code(self, name: str) -> PStateDeclaration | None:
        """The PState as the module's class declares it; None if that class is not in this process, or declares none."""
        return self._pstates.get(name)

    def depot_migration(self, depot: StoredDepot) -> DepotMigration | None:
        """What the depot's records are read through; without a function where the module's code is not here."""
        if not depot.migration:
            return None
        found = self._depot_migrations.get((depot.name, depot.migration))
        return found or DepotMigration(depot.migration, None, Location())


def _depot_migrations(declaration: ModuleDeclaration) -> dict[tuple[str, str], DepotMigration]:
    return {(d.name, d.migration.id): d.migration for d in declaration.depots if d.migration is not None}
