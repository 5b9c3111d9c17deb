"""`InProcessCluster`: modules run in this process, as a production cluster runs them, on a store of their own."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path as Folder
from types import TracebackType
from typing import Any, Literal, NamedTuple

from tidemill.api.declaration import record_module
from tidemill.api.launch import LaunchConfig, UpdateOptions
from tidemill.api.module import Module
from tidemill.clients.barrier import ProcessedWatch
from tidemill.clients.depot import DepotHandle
from tidemill.clients.hub import AppendHub
from tidemill.clients.module import ModuleClient
from tidemill.clients.pstate import PStateHandle
from tidemill.clients.quarantine import Quarantine
from tidemill.clients.status import TopologyStatus, met_sources
from tidemill.cluster.engines import check_engine, engine_name, open_engine
from tidemill.cluster.launch import (
    RunningModule,
    check_by_hand,
    check_mirrored,
    definition_for_launch,
    destroy,
    existing,
    finish_deletions,
    follow,
)
from tidemill.cluster.progress import ProgressReader, ended_text, wait_text
from tidemill.cluster.stores import absolute_url
from tidemill.definition.definition import StoredDefinition
from tidemill.engine.work import AttemptRunner
from tidemill.journal.clock import SystemClock
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.failures import Repetition, fails
from tidemill.journal.leadership import LeaderWatch
from tidemill.journal.options_log import OptionsLog
from tidemill.language.dataflow import ModuleDeclaration, QueryEngine
from tidemill.leader.runner import TopologyRunner
from tidemill.plan.check.module import checked
from tidemill.queries.handle import QueryHandle
from tidemill.store.urls import open_store
from tidemill.values.call_checks import checked_name, checked_time
from tidemill.values.data import has_utf8
from tidemill.values.errors import BadInput, ModuleExists, RetryableError, StoreRefused, UnknownName
from tidemill.values.names import is_folder_name
from tidemill.values.notebook import ShownInNotebooks

_LOOK_MILLIS = 5.0
_CLOSED = "This cluster is closed."


class MicrobatchParams(NamedTuple):
    """How far a source has come in one partition: offsets below `end_offset` are processed."""

    start_offset: int
    end_offset: int


class InProcessCluster(ShownInNotebooks):
    """Launches modules and gives handles to their depots and PStates; use it in a `with` statement.

    Everything is as on a real cluster: the same commit log, the same recovery. A store that was given stays when
    the cluster closes, and a later one goes on from it.

    Raises:
        BadInput: from each call: the cluster is closed.
        StoreUnavailable: from each call that asks the store: it does not answer. Waits go on instead.
    """

    def __init__(self, store_url: str, engine: AttemptRunner, folder: tempfile.TemporaryDirectory[str] | None) -> None:
        self.store_url = store_url
        self.store = open_store(store_url)
        self.hub = AppendHub()
        self._engine = engine
        self._folder = folder
        self._clock = SystemClock()
        self._lock = threading.RLock()
        self._running: dict[str, RunningModule] = {}
        self._clients: dict[str, ModuleClient] = {}
        self._former: list[ModuleClient] = []
        self._readers: dict[str, ProgressReader] = {}
        self._is_closed = False

    @classmethod
    def create(
        cls, engine: Literal["local", "spark"] | None = None, store: str | os.PathLike[str] | None = None
    ) -> InProcessCluster:
        """A cluster on a store, a temporary one if none is given; TIDEMILL_ENGINE overrides the default engine `local`.

        Raises:
            BadInput: there is no such engine; or Spark or its Java is not installed, or does not start.
            StoreRefused: the store cannot be used.
            NewerFormat: a newer Tidemill wrote it.
        """
        name = engine_name(engine)
        if store is not None and not (isinstance(store, os.PathLike) or (isinstance(store, str) and has_utf8(store))):
            raise StoreRefused(f"store= is a folder or a URL such as s3://bucket/prefix, not {store!r}.")
        folder = tempfile.TemporaryDirectory(prefix="tidemill-") if store is None else None
        url = Folder(folder.name).as_uri() if folder is not None else absolute_url(os.fspath(store or ""))
        try:
            return cls(url, open_engine(name), folder)
        except BaseException:
            if folder is not None:
                folder.cleanup()
            raise

    def __repr__(self) -> str:
        return f"InProcessCluster(store={self.store_url!r})"

    def _facts(self) -> dict[str, Any]:
        names = ", ".join(sorted(self._running)) or "none"
        return {"store": self.store_url, "runs": "nothing: it is closed" if self._is_closed else names}

    def __enter__(self) -> InProcessCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all modules within one phase; what is durable stays, but for a temporary store."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            running, self._running = list(self._running.values()), {}
            clients = [*self._clients.values(), *self._former]
        for module in running:
            module.close()
        for client in clients:
            client.close()
        self._engine.close()
        if self._folder is not None:
            self._folder.cleanup()

    # --- modules -----------------------------------------------------------------------------------------------------

    def launch_module(self, module: Module | type[Module], config: LaunchConfig) -> None:
        """Run a module; returns when each topology is claimed and knows where it starts.

        On a store that has the module already, an equal definition and task count resumes: depots, PStates with their
        schemas, sources and queries are what it compares. The code of functions and aggregators may differ, since a
        module whose code was mended goes on so; what is stored is not computed again. Where another process leads the
        module, this one stands by.

        Raises:
            DefinitionError: lists all faults of the module; or the store has another definition: use update_module.
            ModuleExists: the module runs here already, or elsewhere with another definition.
            OwnedByAnother: a Kubernetes Module runs it.
            TimeoutError: a topology was not claimed in time.
        """
        declaration = checked(record_module(module))
        with self._lock:
            self._check_open()
            if declaration.name in self._running:
                raise ModuleExists(f"Module '{declaration.name}' runs in this cluster already; use update_module.")
            definition = definition_for_launch(self.store, declaration, config, self._clock)
            self._run(declaration, definition)

    def update_module(self, module: Module | type[Module], options: UpdateOptions | None = None) -> None:
        """Go on with a new version of a module: state, progress, options and handles carry over.

        Raises:
            DefinitionError: lists everything that the new version may not change, and all faults of the module.
            UnknownName: the store has no module of this name.
            OwnedByAnother: a Kubernetes Module runs it.
        """
        if options is not None and not isinstance(options, UpdateOptions):
            raise BadInput(
                f"options= is an UpdateOptions, such as UpdateOptions.objects_to_delete(…), not {options!r}."
            )
        declaration = checked(record_module(module))
        with self._lock:
            self._check_open()
            running = self._running.get(declaration.name)
            threads = None if running is None else running.definition.threads
            deleted = () if options is None else options.deleted
            breaks = options is not None and options.breaks_mirrors
            self._client(declaration.name).expect(declaration)
            definition = follow(self.store, declaration, deleted, self._clock, threads, breaks_mirrors=breaks)
            self._client(declaration.name).declare(declaration)  # queries find their objects open all the time
            if running is not None:
                running.close()
                del self._running[declaration.name]
            self._run(declaration, definition)
            finish_deletions(self.store, definition, self._clock)

    def destroy_module(self, name: str, *, breaks_mirrors: bool = False) -> None:
        """Stop a module here and delete its data. `breaks_mirrors`: although other modules mirror its objects.

        Raises:
            DefinitionError: other modules mirror its objects; says which.
            UnknownName: the store has no module of this name.
            OwnedByAnother: a Kubernetes Module runs it.
            ModuleExists: another process leads it; here it is stopped.
        """
        with self._lock:
            self._check_open()
            stored = existing(self.store, DefinitionLog(self.store, _possible(name)), name)
            check_by_hand(self.store, stored)
            if not breaks_mirrors:
                check_mirrored(self.store, stored, None, self._clock)
            running = self._running.pop(name, None)
            if running is not None:
                running.close()
            destroy(self.store, name, clock=self._clock, breaks_mirrors=breaks_mirrors)
            client = self._clients.pop(name, None)
            if client is not None:
                self._former.append(client)  # its handles go on to tell that the module is gone

    def get_deployed_module_names(self) -> list[str]:
        """The modules that run in this cluster, sorted."""
        with self._lock:
            return sorted(self._running)

    def _run(self, declaration: ModuleDeclaration, definition: StoredDefinition) -> None:
        running = RunningModule(
            self.store, declaration, definition, self._engine, hub=self.hub, clock=self._clock, stands_by_again=True
        )
        running.start()
        self._running[declaration.name] = running
        self._client(declaration.name).declare(declaration)

    # --- handles -----------------------------------------------------------------------------------------------------

    def cluster_depot(self, module: str, name: str) -> DepotHandle:
        """A handle to append to a depot and to read it.

        Raises:
            UnknownName: the store has no such module, or the module no such depot.
        """
        return DepotHandle(self._client(module), name)

    def cluster_pstate(self, module: str, name: str) -> PStateHandle:
        """A handle to read a PState.

        Raises:
            UnknownName: the store has no such module, or the module no such PState.
            NotSelectable: the PState is private.
        """
        return PStateHandle(self._client(module), name)

    def cluster_query(self, module: str, name: str, engine: QueryEngine | None = None) -> QueryHandle:
        """A handle to call a query of a module that runs in this cluster. `engine` is where it runs, instead of where
        the module says.

        Raises:
            BadInput: there is no such engine.
            UnknownName: the store has no such module, or the module no such query.
            NeedsCode: the module does not run in this cluster, so its code is not here.
        """
        if engine is not None:
            check_engine(engine)
        return QueryHandle(self._client(module), name, engine, partial(open_engine, "spark"))

    def quarantine(self, module: str, topology: str) -> Quarantine:
        """The records that a topology left out because its code raised at them, to look at, to retry and to drop.

        Raises:
            UnknownName: there is no such module or topology.
        """
        client = self._client(module)
        return Quarantine(self.store, client.definition, topology, self._clock, self.hub.notify)

    def _client(self, module: str) -> ModuleClient:
        with self._lock:
            self._check_open()
            client = self._clients.get(_possible(module))
            if client is None:
                client = self._clients[module] = ModuleClient(self.store, module, self.hub, self._clock)
            return client

    # --- topologies --------------------------------------------------------------------------------------------------

    def pause_microbatch_topology(self, module: str, topology: str, timeout_millis: int = 60_000) -> None:
        """Pause a topology; returns when the microbatch that was running is done, or failed: such a one is tried again
        when the pause ends. The pause survives restarts.

        Raises:
            UnknownName: there is no such module or topology.
            TimeoutError: the running microbatch did not finish in time; the pause holds from its end.
        """
        checked_time("timeout_millis", timeout_millis)  # a mistake must come before the pause
        definition = self._topology(module, topology)
        number = OptionsLog(self.store, module).pause(topology)
        self.hub.notify(definition.options_prefix)
        # Without a live leader nothing runs, which counts as paused.
        watch = LeaderWatch(self.store, definition, topology, self._clock)
        self._wait(
            module,
            topology,
            timeout_millis,
            lambda now: now.paused_seen >= number or not watch.leader(),
            "its running microbatch to end",
        )

    def resume_microbatch_topology(self, module: str, topology: str) -> None:
        """Let a paused topology go on.

        Raises:
            UnknownName: there is no such module or topology.
        """
        definition = self._topology(module, topology)
        OptionsLog(self.store, module).resume(topology)
        self.hub.notify(definition.options_prefix)

    def wait_for_microbatch_processed_count(
        self, module: str, topology: str, count: int, timeout_millis: int = 30_000, *, fail_fast: bool = True
    ) -> None:
        """Return when the topology has processed and committed at least `count` records since it was first launched,
        and what it appended to depots can be read there.

        `fail_fast=False` goes on waiting where a microbatch fails in the same way again and again.

        Raises:
            BadInput: `count` is no whole number.
            UnknownName: there is no such module or topology.
            MicrobatchFails: the same microbatch failed in the same way three times; says how.
            TimeoutError: says how far it came, and why its last attempt failed if it did; at once where an error ended
                its runner, and nobody else leads.
        """
        if isinstance(count, bool) or not isinstance(count, int):
            raise BadInput(f"A count of records is a whole number, not {count!r}.")
        wanted = f"{count} processed records"

        def is_reached(now: TopologyStatus) -> bool:
            return now.processed >= count and not now.unpublished

        self._wait(module, topology, timeout_millis, is_reached, wanted, fail_fast)

    def wait_until_processed(self, module: str, topology: str | None = None, timeout_millis: int = 30_000) -> None:
        """Return when all records that are appended by now are processed and committed: a select then sees them.

        `topology`: for this one; for each of the module's if it is left out.

        Raises:
            UnknownName: there is no such module or topology.
            TimeoutError: says how many records wait; at once where an error ended a runner, and nobody else leads.
            UserCodeError: the module's code fails on each attempt.
        """
        definition = self._client(module).definition()
        watch = ProcessedWatch.of_all(self.store, definition, topology)

        def check_runner(topology: str) -> None:
            if (ended := self._end_of_runner(module, topology)) is not None:
                raise TimeoutError(f"{topology} does not go on; {ended_text(ended)}") from ended

        watch.wait(checked_time("timeout_millis", timeout_millis) / 1000, self._clock, check_runner)

    def microbatch_state(self, module: str, topology: str) -> tuple[int, int]:
        """(last committed microbatch ID, the version that committed it); (0, 0) before any. Raises UnknownName."""
        found = self._progress(self._topology(module, topology), topology)
        return found.microbatch_id, found.version

    def get_microbatch_depot_info(
        self, module: str, topology: str
    ) -> dict[str, dict[str, dict[int, MicrobatchParams]]]:
        """depot -> source ID -> partition -> how far the topology has come there. Raises UnknownName."""
        definition = self._topology(module, topology)
        reader, runner = self._reader(definition, topology)
        head = reader.head(runner)
        met = met_sources(definition, topology, head[1] if head is not None else None)
        info: dict[str, dict[str, dict[int, MicrobatchParams]]] = {}
        for source in definition.topology(topology).sources:
            progress = met.get(source.source_id)
            offsets = () if progress is None else zip(progress.start_from, progress.offsets, strict=True)
            partitions = {p: MicrobatchParams(start, end) for p, (start, end) in enumerate(offsets)}
            info.setdefault(source.depot, {})[source.source_id] = partitions
        return info

    def _wait(
        self,
        module: str,
        topology: str,
        timeout_millis: float,
        is_reached: Callable[[TopologyStatus], bool],
        wanted: str,
        fails_fast: bool = False,
    ) -> None:
        deadline = self._clock.monotonic_ms() + checked_time("timeout_millis", timeout_millis)
        pause = threading.Event()
        found, repetition = TopologyStatus(module=module, topology=topology), Repetition()
        while True:
            self._check_open()
            try:
                found = self._progress(self._topology(module, topology), topology)
            except RetryableError as error:
                found = replace(found, trouble=str(error))
            if is_reached(found):
                return
            left = deadline - self._clock.monotonic_ms()
            if fails_fast and found.failure is not None and repetition.sees(found.failure):
                text = wait_text(wanted, timeout_millis - left, found)
                raise fails(found.failure, f"{text.rstrip()}\nIt fails in the same way each time.")
            ended = self._end_of_runner(module, topology) if fails_fast else None
            if left <= 0 or ended is not None:
                raise TimeoutError(wait_text(wanted, timeout_millis - max(0.0, left), found)) from ended
            self._clock.wait(pause, min(_LOOK_MILLIS, left))

    def _end_of_runner(self, module: str, topology: str) -> BaseException | None:
        """What ended the topology's runner in this cluster; None where it goes on, or somebody else leads meanwhile."""
        running, runner = self._running.get(module), self._runner(module, topology)
        if running is None or runner is None or runner.state.error is None:
            return None
        try:
            leader = LeaderWatch(self.store, running.definition, topology, self._clock).leader()
        except RetryableError:
            return None
        return None if leader else runner.state.error

    def _progress(self, definition: StoredDefinition, topology: str) -> TopologyStatus:
        reader, runner = self._reader(definition, topology)
        return reader.read(definition, topology, runner)

    def _reader(self, definition: StoredDefinition, topology: str) -> tuple[ProgressReader, TopologyRunner | None]:
        prefix = definition.topology_prefix(topology)
        reader = self._readers.get(prefix)
        if reader is None:
            reader = self._readers[prefix] = ProgressReader(self.store, prefix)
        return reader, self._runner(definition.module, topology)

    def _runner(self, module: str, topology: str) -> TopologyRunner | None:
        running = self._running.get(module)
        return None if running is None else running.topologies.get(topology)

    def _topology(self, module: str, topology: str) -> StoredDefinition:
        definition = self._client(module).definition()
        definition.topology(topology)
        return definition

    def _check_open(self) -> None:
        if self._is_closed:
            raise BadInput(_CLOSED)


def _possible(module: str) -> str:
    """A name that a module may have. Raises UnknownName."""
    if not is_folder_name(checked_name("module", module)):
        raise UnknownName(f"There is no module {module!r}.", name=module)
    return module
