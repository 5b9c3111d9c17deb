"""`QueryHandle`: calls of a query topology, each on one committed state of each topology that it reads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from tidemill.clients.module import ModuleClient
from tidemill.clients.topology import Reading, TopologyReader, reader_at
from tidemill.definition.definition import StoredDefinition
from tidemill.definition.migration_steps import with_steps
from tidemill.definition.mirrors import bound, check_copies
from tidemill.definition.stored import by_location
from tidemill.engine.queries import Queries, QueryPlace
from tidemill.engine.query_budget import QueryBounds
from tidemill.engine.resources import infos
from tidemill.engine.work import Pinned
from tidemill.journal.mirrored_objects import MirroredObjects
from tidemill.journal.options_log import OptionsLog
from tidemill.journal.snapshot import Snapshot
from tidemill.language.dataflow import ModuleDeclaration, PStateDeclaration, QueryEngine
from tidemill.language.options import resolve_all
from tidemill.plan.compile.topology import called_queries, compile_queries, mirrored_queries, with_calls
from tidemill.plan.program import MirroredQuery, Program, PStatePlan
from tidemill.pstate.committed import CommittedState
from tidemill.queries.on_engine import EngineCall, OpenRunner
from tidemill.store.objects import NotFound
from tidemill.store.urls import store_at
from tidemill.values.errors import BadInput, Busy, Deleted, MirrorBroken, NeedsCode, SchemaOutdated, SnapshotExpired
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.object_info import ObjectInfo

AT_ONCE_MAX: Final = 32
"""Queries that run in a process at once; others wait for a place until their time is over."""

OPTIONS_MILLIS: Final = 1_000
"""How old a handle's idea of the options may be."""

_TRIES: Final = 4
_places = threading.BoundedSemaphore(AT_ONCE_MAX)


@dataclass(frozen=True)
class _Resolved:
    """A query as one definition has it: all queries of its module compiled, and who owns what each PState is.

    `shipped` is the query with all that it calls if its steps run on Spark, else None.
    """

    definition: StoredDefinition
    code: ModuleDeclaration
    inputs: tuple[str, ...]
    programs: Mapping[str, Program]
    readers: Mapping[str, TopologyReader]
    owners: Mapping[str, str]
    mirrored: Mapping[str, MirroredQuery]
    mirrors: MirroredObjects
    shipped: Program | None


class QueryHandle(ShownInNotebooks):
    """One query of one module; safe for several threads, and still good after `update_module`.

    A call sees every commit that was durable before it, and of each topology one commit from its first step to its
    last, also in the queries that it calls.
    """

    def __init__(
        self,
        module: ModuleClient,
        name: str,
        engine: QueryEngine | None = None,
        open_runner: OpenRunner | None = None,
    ) -> None:
        """`engine` is where it runs instead of where its module says; `open_runner` opens Spark, for a process that may
        run there. Others refuse what is to run there: whoever has no Spark does not scan everything itself.
        """
        self._module = module
        self.name = name
        self._engine, self._open_runner = engine, open_runner
        self._options_log = OptionsLog(module.store, module.module)
        self._lock = threading.Lock()
        self._resolved: _Resolved | None = None
        self._options: tuple[float, Mapping[str, Any]] = (float("-inf"), {})
        self._resolve()

    def __repr__(self) -> str:
        return f"QueryHandle({self._module.module!r}, {self.name!r})"

    def _facts(self) -> dict[str, Any]:
        resolved = self._resolve()
        inputs = ", ".join(resolved.inputs) or "none"
        return {"module": resolved.definition.module, "query": self.name, "inputs": inputs}

    def invoke(self, *args: Any) -> Any:
        """The result of the query for these arguments.

        Raises:
            UnknownName: the module or the query is gone.
            NeedsCode: the module's code is not in this process, or is that of another version.
            BadInput: there are more or fewer arguments than inputs, or it is to run on Spark, and there is none here.
            UserCodeError: a function of the module raised.
            NotOneValue: it gave no result, or several.
            BudgetExceeded: it takes more time, rows, bytes or depth than its options allow.
            Busy: as many queries as may run at once in a process.
            SnapshotExpired: it takes longer than what it reads is kept.
            MirrorBroken: an update of another module took away what it mirrors of it, or changed it.
        """
        return self.invoke_within(float("inf"), args)

    def invoke_async(self, *args: Any) -> Future[Any]:
        """`invoke` without waiting; the future gives or raises what `invoke` does."""
        return self._module.later(lambda: self.invoke(*args))

    def invoke_within(self, seconds: float, args: tuple[Any, ...] | list[Any]) -> Any:
        """As `invoke`, within so many seconds, or less where the option `topology.query.timeout.millis` says so."""
        try:
            return self._invoke(seconds, args)
        except (SchemaOutdated, Deleted, MirrorBroken):  # an update, or a new life of the module, came in between
            self._module.forget()
            return self._invoke(seconds, args)

    def get_object_info(self) -> ObjectInfo:
        """Whose the query is, its name and the number of tasks that it runs on."""
        definition = self._resolve().definition
        return ObjectInfo(definition.module, self.name, definition.tasks)

    # --- one call ---

    def _invoke(self, seconds: float, args: tuple[Any, ...] | list[Any]) -> Any:
        deadline = time.monotonic() + seconds
        resolved = self._resolve()
        if len(args) != len(resolved.inputs):
            wanted = f"{len(resolved.inputs)} argument{'' if len(resolved.inputs) == 1 else 's'}"
            inputs = f" ({', '.join(resolved.inputs)})" if resolved.inputs else ""
            raise BadInput(f"The query '{self.name}' takes {wanted}{inputs}, not {len(args)}.")
        if resolved.shipped is not None and self._open_runner is None:
            text = f"The query '{self.name}' is to run on Spark, and this process has none."
            raise BadInput(f"{text} {_WITHOUT_SPARK}", name=self.name)
        options = self._current_options()
        bounds = QueryBounds.of(options, seconds)
        with _place(bounds.seconds, self.name):
            for left in reversed(range(_TRIES)):
                try:
                    return self._answer(resolved, options, deadline - time.monotonic(), args)
                except NotFound as error:
                    if left == 0:
                        text = f"The query '{self.name}' took longer than what it reads is kept."
                        raise SnapshotExpired(f"{text} See store.snapshot.retention.seconds.") from error
                    for reader in resolved.readers.values():
                        reader.forget()
        raise AssertionError("unreachable")

    def _answer(
        self, resolved: _Resolved, options: Mapping[str, Any], seconds: float, args: tuple[Any, ...] | list[Any]
    ) -> Any:
        """One run, from the newest state of each topology."""
        definition = resolved.definition
        place = QueryPlace(definition.module, definition.tasks, resolved.programs, options, resolved.mirrored)
        readings = self._readings(resolved)
        seed, now = int.from_bytes(os.urandom(6)), self._module.clock.now_ms()
        if resolved.shipped is not None and self._open_runner is not None:
            reads = _pinned(resolved, readings)
            call = EngineCall(resolved.shipped, place, self._module.store.url, definition.threads, reads)
            return call.answer(self._open_runner(), args, seconds, seed, now)
        states = {name: CommittedState(reading.reader) for name, reading in readings.items()}
        pstates = {name: states[owner] for name, owner in resolved.owners.items()}

        def of_mirrored(query: MirroredQuery) -> dict[str, CommittedState]:
            return {name: states[_key(query, at)] for name, at in query.places.items()}

        queries = Queries(place, lambda: pstates, seconds_max=seconds, open_mirrored=of_mirrored)
        try:
            return queries.call(self.name, args, seed, now)
        finally:
            queries.close()

    def _readings(self, resolved: _Resolved) -> dict[str, Reading]:
        """The newest state of each topology. Mirrors are asked for after it: what they say holds for what was found,
        and says more than that a topology of another module is gone.
        """
        borrowed = {*resolved.owners, *resolved.mirrored} & resolved.definition.mirrors.keys()
        try:
            return {name: reader.newest(0) for name, reader in resolved.readers.items()}
        finally:
            if borrowed and (text := resolved.mirrors.broken(borrowed)):
                raise MirrorBroken(f"The query '{self.name}' reads another module. {text}")

    def _current_options(self) -> Mapping[str, Any]:
        now = self._module.clock.monotonic_ms()
        with self._lock:
            at, options = self._options
            if now - at >= OPTIONS_MILLIS:
                options = resolve_all("topology", self._options_log.read().values, self.name)
                self._options = (now, options)
            return options

    # --- what it is now ---

    def _resolve(self) -> _Resolved:
        definition, code = self._module.definition(), self._module.code
        stored = definition.query(self.name)
        with self._lock:
            known = self._resolved
            if known is not None and known.definition is definition and known.code is code:
                return known
            if code is None:
                raise NeedsCode(_without_code(definition.module, self.name), name=self.name)
            ids = {p.name: p.id for topology in definition.topologies.values() for p in topology.pstates.values()}
            whole = bound(with_steps(code, definition), definition.mirrors)
            programs = compile_queries(whole, ids)
            if self.name not in programs or programs[self.name].inputs != stored.inputs:
                raise _other_version(definition, f"the query {self.name}")
            owners = _owners(definition, code, self.name, programs)
            program = programs[self.name]
            others = called_queries(program, programs)
            called = [program, *others.values()]
            mirrored = mirrored_queries(whole, called)
            check_copies(definition.mirrors.values())
            plans = {name: plan for program in called for name, plan in program.others.items()}
            readers = {name: self._reader(definition, name, owners, plans) for name in owners.values()}
            for query in mirrored.values():
                for place in query.places.values():
                    readers[_key(query, place)] = self._reader(definition, place, query.places, query.plans)
            shipped = with_calls(program, others, mirrored) if self._is_on_spark(code) else None
            mirrors = MirroredObjects(self._module.store, definition)
            self._resolved = _Resolved(
                definition, code, stored.inputs, programs, readers, owners, mirrored, mirrors, shipped
            )
            return self._resolved

    def _is_on_spark(self, code: ModuleDeclaration) -> bool:
        declared = next(query.engine for query in code.queries if query.name == self.name)
        return (self._engine or declared) == "spark"

    def _reader(
        self, definition: StoredDefinition, owner: str, owners: Mapping[str, str], plans: Mapping[str, PStatePlan]
    ) -> TopologyReader:
        """The reader of a topology of the module by its name, or by its place of one of another module."""
        if owner in definition.topologies:
            return self._module.reader(definition, definition.topology(owner))
        names = {name: plans[name] for name, at in owners.items() if at == owner}
        place = _place_of(definition, owner)
        store = store_at(self._module.store, place.store_url)
        return reader_at(store, place.prefix, infos(names), self._module.clock)


def _key(query: MirroredQuery, place: str) -> str:
    """The key of the reader of a topology that a query of another module reads."""
    return f"{query.query} {place}"


def _pinned(resolved: _Resolved, readings: Mapping[str, Reading]) -> dict[str, Pinned]:
    """What was read of each topology, by its name or place: an attempt knows no other key."""
    keys = {name: name for name in resolved.owners.values()}
    keys |= {place: _key(query, place) for query in resolved.mirrored.values() for place in query.places.values()}
    return {
        name: replace(_place_of(resolved.definition, name), snapshot=readings[key].snapshot)
        for name, key in keys.items()
    }


def _place_of(definition: StoredDefinition, owner: str) -> Pinned:
    """Where a topology is that `owner` names, as in `_reader`; nothing of it is pinned yet."""
    if owner in definition.topologies:
        return Pinned(definition.topology_prefix(owner), Snapshot())
    mirror = next(mirror for mirror in definition.mirrors.values() if owner in mirror.places)
    return Pinned(mirror.places[owner], Snapshot(), mirror.store)


_WITHOUT_SPARK: Final = (
    "Ask `tidemill query`, or the cluster that runs the module; or ask for the engine local, which runs it here, "
    'within the bounds of queries (HTTP: ?engine=local; tidemill.client: query(module, name, engine="local")).'
)


def _without_code(module: str, query: str) -> str:
    return (
        f"The query '{query}' runs in the process of whoever asks, and the code of {module} is not loaded here: ask a "
        "gateway or a command that has it (gateway: --entry MODULE:CLASS; command line: --module MODULE:CLASS)."
    )


def _other_version(definition: StoredDefinition, what: str) -> NeedsCode:
    text = f"The code of {definition.module} that is loaded here has {what} otherwise than the module that runs"
    return NeedsCode(f"{text}: load the version that runs (it is definition {definition.number}).")


def _owners(
    definition: StoredDefinition, code: ModuleDeclaration, query: str, programs: Mapping[str, Program]
) -> dict[str, str]:
    """The PStates that a query reads, and those that it calls, with their topologies.

    Raises:
        NeedsCode: the code declares one of them otherwise than the definition.
    """
    declared = {p.name: p for topology in code.topologies for p in topology.pstates}
    mirrored = {mirror.name for mirror in code.mirrors}
    owners: dict[str, str] = {}
    for program in (programs[query], *called_queries(programs[query], programs).values()):
        for name, owner in program.reads.items():
            if name not in mirrored and not _is_as_stored(definition, owner, declared[name]):
                raise _other_version(definition, f"the PState {name}")
            owners[name] = owner
    return owners


def _is_as_stored(definition: StoredDefinition, owner: str, declared: PStateDeclaration) -> bool:
    topology = definition.topologies.get(owner)
    stored = None if topology is None else topology.pstates.get(declared.name)
    return (
        stored is not None
        and stored.schema == declared.schema
        and stored.is_global == declared.is_global
        and stored.initial_value == declared.initial_value
        and stored.declared_migrations == by_location(declared.migrations)
    )


@contextmanager
def _place(seconds: float, query: str) -> Iterator[None]:
    if not _places.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
        text = f"{AT_ONCE_MAX} queries run in this process, and none ended in time for '{query}'. Nothing was done."
        raise Busy(text)
    try:
        yield
    finally:
        _places.release()
