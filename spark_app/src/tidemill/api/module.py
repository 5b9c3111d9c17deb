"""`Module`, and what its `define` is given: `Setup` and `Topologies`."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from tidemill.api.arguments import (
    Constant,
    arity_faults,
    name_of,
    to_migration_id,
    to_name,
    to_plain_function,
    to_var,
)
from tidemill.api.depots import to_partitioning
from tidemill.api.locations import caller_location
from tidemill.api.mirrors import recorded_mirror
from tidemill.api.query import QueryChain
from tidemill.api.schemas import Schema, to_schema
from tidemill.api.topology import MicrobatchTopology
from tidemill.language import dataflow
from tidemill.language.dataflow import Location
from tidemill.language.external import ExternalDepot, ExternalSink
from tidemill.language.objects import DeclaredObject, TaskGlobalObject
from tidemill.values.errors import Fault
from tidemill.values.suggestions import SuggestingInstances


class Module:
    """The unit of deployment; a subclass says in `define` which depots, topologies and PStates it has."""

    def define(self, setup: Setup, topologies: Topologies) -> None:
        """Declare everything; called once each time the module is started.

        Raises:
            NotImplementedError: the subclass has no `define`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no define(self, setup, topologies).")

    def module_name(self) -> str:
        """The module's name: the name of its class, unless a subclass says otherwise."""
        return type(self).__name__

    def _repr_html_(self) -> str:
        """What it declares, and the plan of each topology, for notebooks; or its mistakes."""
        # A name, not an import: what is recorded knows nothing of plans, until somebody wants to see one.
        shown: str = importlib.import_module("tidemill.plan.shown").module_html(self)
        return shown


OtherModule = str | Module | type[Module]
"""The name of a module, or its class."""

StorePlace = str | os.PathLike[str] | None
"""The URL or the folder of a store; None is the module's own."""


class DepotBuilder(SuggestingInstances):
    """What follows `setup.declare_depot(…)`: options of the depot just declared."""

    def __init__(self, declaration: dataflow.DepotDeclaration, faults: list[Fault]) -> None:
        self.declaration = declaration
        self._faults = faults

    def __repr__(self) -> str:
        return f"<depot {self.declaration.name}>"

    def global_(self) -> DepotBuilder:
        """One partition, on task 0."""
        self.declaration = replace(self.declaration, is_global=True)
        return self

    def schema(self, schema: type[Any] | Schema) -> DepotBuilder:
        """What each record must be when it is appended: a schema of PState, such as
        `PState.fixed_keys_schema("user", str, "amount", int)`, or a plain type. Others are refused, with their place.
        """
        self.declaration = replace(self.declaration, schema=to_schema(schema, caller_location(), self._faults))
        return self

    def migration(self, migration_id: str, function: Callable[[Any], Any]) -> DepotBuilder:
        """Each record is read as `function(record)`, from the update on; `Depot.TOMBSTONE` takes it away. Records that
        are appended later pass through it, too: the function leaves those as they are.
        """
        at = caller_location()
        known = to_migration_id(migration_id, '.migration("with-currency", add_currency)', at, self._faults)
        if self.declaration.migration is not None:
            before = self.declaration.migration.at
            text = f"The depot '{self.declaration.name}' has two migrations; the first at {before}."
            self._faults.append(Fault(str(at), text, "Make one function of both."))
        if not self.declaration.has_log:
            text = f"The depot '{self.declaration.name}' has no records in the store to migrate."
            self._faults.append(Fault(str(at), text, "Remove the migration."))
        recorded = to_plain_function(function, 1, at, self._faults)
        migration = dataflow.DepotMigration(known, recorded, at)
        self.declaration = replace(self.declaration, migration=migration)
        return self


class Setup(SuggestingInstances):
    """Declares what belongs to the module and not to one topology: depots and the first values of options.

    Nothing here raises: mistakes are collected, and DefinitionError lists all of them when the module is launched.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.options: list[tuple[str, str, str, Any]] = []
        self.option_locations: list[Location] = []
        self.mirrors: list[dataflow.MirrorDeclaration] = []
        self.objects: list[DeclaredObject] = []
        self._depots: list[DepotBuilder] = []

    def __repr__(self) -> str:
        return f"<Setup: {', '.join(depot.declaration.name for depot in self._depots) or 'no depot'}>"

    def declare_depot(self, name: str, partitioning: Any) -> DepotBuilder:
        """Declare a depot, whose name begins with `*`, and how its records are partitioned (see `Depot`)."""
        at = caller_location()
        chosen = to_partitioning(partitioning, at, self.faults)
        recorded_name = to_name(name, "*", "depot", at, self.faults)
        return self._declare(
            dataflow.DepotDeclaration(recorded_name, chosen.kind, at, chosen.function, fields=chosen.fields)
        )

    def declare_tick_depot(self, name: str, period_millis: int) -> None:
        """Declare a depot that ticks at most once in `period_millis` ms, on task 0; nobody can append to it."""
        at = caller_location()
        recorded_name = to_name(name, "*", "depot", at, self.faults)
        if isinstance(period_millis, bool) or not isinstance(period_millis, int) or period_millis < 1:
            text = (
                f"The period of the tick depot '{name}' is a number of milliseconds from 1 on, not {period_millis!r}."
            )
            self.faults.append(Fault(str(at), text, "Correct it."))
            period_millis = 1
        tick = dataflow.DepotDeclaration(recorded_name, "disallow", at, is_global=True, tick_millis=period_millis)
        self._declare(tick)

    def _declare(self, declaration: dataflow.DepotDeclaration) -> DepotBuilder:
        builder = DepotBuilder(declaration, self.faults)
        self._depots.append(builder)
        return builder

    def depots(self) -> tuple[dataflow.DepotDeclaration, ...]:
        """What was declared so far."""
        return tuple(builder.declaration for builder in self._depots)

    def set_launch_module_dynamic_option(self, option: str, value: Any) -> None:
        """The value of a dynamic option for the whole module, until somebody edits it."""
        self._option("module", "", option, value)

    def set_launch_topology_dynamic_option(self, topology: str, option: str, value: Any) -> None:
        """The value of a dynamic option for one topology, until somebody edits it."""
        self._option("topology", topology, option, value)

    def set_launch_depot_dynamic_option(self, depot: str, option: str, value: Any) -> None:
        """The value of a dynamic option for one depot, until somebody edits it."""
        self._option("depot", depot, option, value)

    def set_launch_pstate_dynamic_option(self, pstate: str, option: str, value: Any) -> None:
        """The value of a dynamic option for one PState, until somebody edits it."""
        self._option("pstate", pstate, option, value)

    def _option(self, scope: str, name: str, option: str, value: Any) -> None:
        self.options.append((scope, name, option, value))
        self.option_locations.append(caller_location())

    def declare_object(self, name: str, value: Any) -> None:
        """Declare an object, whose name begins with `*` and stands for it as a variable does, wherever an argument may
        stand.

        `value` is sent to each process as it is; or it is a function without arguments, which each process that needs
        the object calls once. A `TaskGlobalObject` is opened by its `prepare_for_task`; it and what a function made are
        closed with the module. An `ExternalDepot` may be the depot of a source, too; an `ExternalSink` takes appends.
        """
        at = caller_location()
        recorded_name = to_name(name, "*", "declared object", at, self.faults)
        is_constant = isinstance(value, Constant)
        value = value.value if is_constant else value
        is_factory = callable(value) and not is_constant and not isinstance(value, TaskGlobalObject)
        if is_factory:
            self.faults.extend(_factory_faults(recorded_name, value, at))
        elif isinstance(value, TaskGlobalObject):
            self.faults.extend(_opening_faults(value, at))
        self.objects.append(DeclaredObject(recorded_name, value, at, is_factory))
        if isinstance(value, ExternalDepot):
            self._declare(dataflow.DepotDeclaration(recorded_name, "external", at))
        if isinstance(value, ExternalSink):
            schema = None if value.schema is None else to_schema(value.schema, at, self.faults)
            self._declare(dataflow.DepotDeclaration(recorded_name, "sink", at, schema=schema))

    def cluster_depot(self, name: str, module: OtherModule, depot: str, *, store: StorePlace = None) -> None:
        """Call a depot of another module `name` here: topologies read it as a source, and append to it.

        `module` is that module's name or class, `store` the URL of its store where that is not this module's own.
        """
        self._mirror("depot", name, module, depot, store)

    def cluster_pstate(self, name: str, module: OtherModule, pstate: str, *, store: StorePlace = None) -> None:
        """Call a PState of another module `name` here: topologies read what is committed of it. As `cluster_depot`."""
        self._mirror("pstate", name, module, pstate, store)

    def cluster_query(self, name: str, module: OtherModule, query: str, *, store: StorePlace = None) -> None:
        """Call a query of another module `name` here, for `invoke_query`. It runs in the processes of this module, so
        `module` is its class. As `cluster_depot`.
        """
        self._mirror("query", name, module, query, store)

    def _mirror(self, kind: dataflow.MirrorKind, name: Any, module: Any, object_name: Any, store: Any) -> None:
        self.mirrors.append(recorded_mirror(kind, name, module, object_name, store, caller_location(), self.faults))


def _factory_faults(name: str, factory: Any, at: Location) -> list[Fault]:
    if inspect.iscoroutinefunction(factory) or inspect.isgeneratorfunction(factory):
        text = f"'{name_of(factory)}' gives a coroutine or a generator, and not the object '{name}'."
        return [Fault(str(at), text, "Pass a plain function that returns the object.")]
    if arity_faults(dataflow.Function(name_of(factory), "function", factory), 0, at):
        text = f"'{name_of(factory)}', which makes the object '{name}', needs arguments."
        return [Fault(str(at), text, "Pass lambda: f(…); to use the function itself as the object, Constant(f).")]
    return []


def _opening_faults(value: TaskGlobalObject, at: Location) -> list[Fault]:
    """What opens an object takes the context alone; Rama, which has an object a task, gives the task as well."""
    kind = type(value).__name__
    if not arity_faults(dataflow.Function(kind, "function", value.prepare_for_task), 1, at):
        return []
    text = f"{kind}.prepare_for_task does not take one argument, the context."
    return [Fault(str(at), text, "Write def prepare_for_task(self, context): there is one object a process.")]


class Topologies(SuggestingInstances):
    """Declares topologies; mistakes are collected as those of `Setup` are."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.declared: list[MicrobatchTopology] = []
        self.queries: list[QueryChain] = []

    def __repr__(self) -> str:
        return f"<Topologies: {', '.join(topology.name for topology in self.declared) or 'none'}>"

    def microbatch(self, name: str) -> MicrobatchTopology:
        """Declare a microbatch topology; its name is unique in the module."""
        at = caller_location()
        if not isinstance(name, str) or not name:
            text = f"The name of a topology is a string that is not empty, not {name!r}."
            self.faults.append(Fault(str(at), text, 'Write it like topologies.microbatch("counts").'))
        topology = MicrobatchTopology(str(name), at)
        self.declared.append(topology)
        return topology

    def stream(self, name: str) -> Any:
        """Stream topologies are not part of Tidemill; everything that follows is ignored, the rest is still checked."""
        text = "Tidemill has no stream topologies."
        fault = Fault(str(caller_location()), text, "Use topologies.microbatch(…); it is exactly-once.")
        self.faults.append(fault)
        return _Ignored()

    def query(self, name: str, *variables: str, engine: dataflow.QueryEngine = "local") -> QueryChain:
        """Declare a query topology with its input variables: one batch block over what is committed, which anyone may
        call; `.out("*result")` names the variable that is its result. With `engine="spark"` a cluster runs it on
        Spark, for scans of everything; others run it in their process.
        """
        at = caller_location()
        found: list[Fault] = []
        if not isinstance(name, str) or not name or name.startswith(("*", "$$")):
            text = f"The name of a query is a string without '*' or '$$', not {name!r}."
            found.append(Fault(str(at), text, 'Write it like topologies.query("best", "*n").out("*result").'))
        inputs = [to_var(variable, at, found, "An input of a query") for variable in variables]
        if len(set(inputs)) < len(inputs):
            text = f"The query '{name}' names an input twice."
            found.append(Fault(str(at), text, "Give each input a name of its own."))
        if engine not in get_args(dataflow.QueryEngine):
            text = f'The engine of the query \'{name}\' is "local" or "spark", not {engine!r}.'
            found.append(Fault(str(at), text, 'Write engine="spark", or leave it out.'))
        chain = QueryChain(str(name), inputs, engine, at, found)
        self.queries.append(chain)
        return chain


class _Ignored:
    """Takes any call, so that one unsupported topology does not hide the faults of the others."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: self
