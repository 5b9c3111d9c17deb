"""Finds everything that is wrong with a module before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import cloudpickle

from tidemill.language.dataflow import (
    DepotDeclaration,
    Location,
    ModuleDeclaration,
    PStateDeclaration,
    SourceDeclaration,
    StartFrom,
    TopologyDeclaration,
)
from tidemill.language.objects import objects_in
from tidemill.language.options import check_scope, check_value
from tidemill.language.schema import (
    FixedKeysSchema,
    Leaf,
    ListSchema,
    MapSchema,
    Schema,
    SetSchema,
    children,
    has_indexed,
    to_text,
)
from tidemill.paths.schema_fit import fits
from tidemill.plan.branches import explicit_source
from tidemill.plan.check.blocks import ChainCheck
from tidemill.plan.check.context import Context, advice_for
from tidemill.plan.check.migrations import check_migrations
from tidemill.plan.check.query import check_query
from tidemill.plan.check.scope import Scope
from tidemill.plan.check.temps import TempCheck
from tidemill.values.data import check_data
from tidemill.values.errors import DefinitionError, Fault, OptionError, RecordRefused, message_of
from tidemill.values.names import is_folder_name, name_flaw
from tidemill.values.texts import shortened

_NAME_CHARS: Final = 40


def check(declaration: ModuleDeclaration) -> list[Fault]:
    """All faults of a module, in the order of its source: what recording found, and what the dataflow shows.

    Where `define` itself raised, only what was found until then is returned: the rest of the module is not known.
    """
    if declaration.extra.get("is_incomplete"):
        return list(declaration.faults)
    context = Context.of(declaration)
    _check_names(context, declaration)
    _check_options(context, declaration)
    for depot in declaration.depots:
        if depot.schema is not None:
            _check_depot_schema(context, depot, depot.schema)
    _check_objects(context, declaration)
    for topology in declaration.topologies:
        for pstate in topology.pstates:
            _check_pstate(context, pstate)
        _check_sources(context, topology)
    for query in declaration.queries:
        check_query(context, query)
    return sorted(dict.fromkeys([*declaration.faults, *context.faults]), key=lambda fault: fault.place)


def checked(declaration: ModuleDeclaration) -> ModuleDeclaration:
    """The declaration, if nothing is wrong with it.

    Raises:
        DefinitionError: lists all faults; the module's author fixes them.
    """
    faults = check(declaration)
    if faults:
        raise DefinitionError(faults, module=declaration.name)
    return declaration


def ends_of(context: Context, topology: str, source: SourceDeclaration) -> tuple[Scope, Scope]:
    """What is bound at the end of a source's chain, and of its last batch block; its faults go to the context."""
    names = frozenset(() if source.microbatch is None else (source.microbatch,))
    explicit, faults = explicit_source(source)
    context.faults.extend(faults)
    chain = ChainCheck(context, TempCheck(context, topology, source.source_id), source.depot)
    return chain.run(explicit.body, Scope(names, names)), chain.block_end


def _check_names(context: Context, declaration: ModuleDeclaration) -> None:
    """Every name stands for one thing."""
    if not is_folder_name(declaration.name):
        text = f"The module's name {declaration.name!r} cannot be a folder's name in a store."
        context.fault("module", text, "Return letters, digits, '.', '-' and '_' from module_name().")
    depots = [(depot.name, depot.at) for depot in declaration.depots]
    topologies = _topologies(declaration)
    pstates = [(pstate.name, pstate.at) for topology in declaration.topologies for pstate in topology.pstates]
    sources = [source for topology in declaration.topologies for source in topology.sources]
    ids = [(source.source_id, source.at) for source in sources if source.source_id != source.depot]
    depots += [(mirror.name, mirror.at) for mirror in declaration.mirrors if mirror.kind != "pstate"]
    pstates += [(mirror.name, mirror.at) for mirror in declaration.mirrors if mirror.kind == "pstate"]
    for kind, named in (("depot", depots), ("topology", topologies), ("PState", pstates)):
        _check_duplicates(context, kind, named)
    for name, at in (*depots, *topologies, *pstates, *ids):
        plain = name.lstrip("*$")
        if plain and (flaw := name_flaw(plain)):
            context.fault(at, f"The name {shortened(name, _NAME_CHARS)!r} {flaw}.", "Write another name.")


def _topologies(declaration: ModuleDeclaration) -> list[tuple[str, Location]]:
    """Names of topologies, which no two have, and queries are topologies, too."""
    own = [(topology.name, topology.at) for topology in declaration.topologies]
    return own + [(query.name, query.at) for query in declaration.queries]


def _check_duplicates(context: Context, kind: str, named: Sequence[tuple[str, Location]]) -> None:
    first: dict[str, Location] = {}
    for name, at in named:
        if name in first:
            text = f"The {kind} '{name}' is declared twice; the first time at {first[name]}."
            context.fault(at, text, "Give one of them another name.")
        first.setdefault(name, at)


def _check_options(context: Context, declaration: ModuleDeclaration) -> None:
    """Options that the code sets are known, fit, and name something that exists."""
    places = declaration.extra.get("option_locations", ("module",) * len(declaration.options))
    known = {
        "depot": set(context.depots),
        "pstate": set(context.pstates),
        "topology": {name for name, _ in _topologies(declaration)},
    }
    for (scope, name, option, value), at in zip(declaration.options, places, strict=True):
        try:
            check_value(option, value)
            check_scope(option, scope, name)
        except OptionError as error:
            context.fault(at, str(error).rstrip(".?") + ".", "See `tidemill options list`.")
        if scope in known and name not in known[scope]:
            kind = "PState" if scope == "pstate" else scope
            advice = advice_for(name, known[scope], f"Declare the {kind}, or remove the option.")
            context.fault(at, f"There is no {kind} '{name}' to set an option of.", advice)


# --- objects ---


def _check_objects(context: Context, declaration: ModuleDeclaration) -> None:
    """An object can travel, and has a name and, if it asks for that, a place of its own."""
    for declared in declaration.objects.values():
        depot = context.depots.get(declared.name)
        if depot is not None and depot.partitioner not in ("external", "sink"):
            text = f"'{declared.name}' is a depot, declared at {depot.at}, and an object."
            context.fault(declared.at, text, "Give one of them another name.")
        try:
            cloudpickle.dumps(declared.value)
        except Exception as error:  # noqa: BLE001 - a user's object may raise anything
            said = f"{type(error).__name__}: {message_of(error)}"
            text = f"The object '{declared.name}' cannot be sent to other processes: {said}."
            advice = "Pass a function that makes it there, or a TaskGlobalObject that opens it in prepare_for_task."
            context.fault(declared.at, text, advice)
    _check_places(context, declaration)


def _check_places(context: Context, declaration: ModuleDeclaration) -> None:
    """An object that may be named once is named once, in all topologies and queries together."""
    named = Counter(found.name for found in objects_in((declaration.topologies, declaration.queries)))
    for name, count in named.items():
        declared = declaration.objects[name]
        if count > 1 and getattr(declared.value, "is_used_once", False):
            text = f"The object '{name}' is named at {count} places, and may be at one."
            context.fault(declared.at, text, "Declare one object for each place.")


# --- depots ---


def _check_depot_schema(context: Context, depot: DepotDeclaration, schema: Schema) -> None:
    """A record is one value: nothing in it is indexed, and what it is partitioned by is in it."""
    if has_indexed(schema):
        text = f"The schema of the depot '{depot.name}' has something subindexed."
        context.fault(depot.at, text, "A record is stored whole; remove .subindexed().")
    if isinstance(schema, FixedKeysSchema):
        for name in depot.fields:
            if schema.field(name) is None:
                text = f"'{depot.name}' is partitioned by the field '{name}', which its schema lacks."
                context.fault(depot.at, text, advice_for(name, map(str, dict(schema.fields)), "Add the field."))


# --- PStates ---------------------------------------------------------------------------------------------------------


def _check_pstate(context: Context, pstate: PStateDeclaration) -> None:
    schema = pstate.schema
    if isinstance(schema, (SetSchema, ListSchema)):
        text = f"'{pstate.name}' is a {'set' if isinstance(schema, SetSchema) else 'list'} at the top level."
        context.fault(pstate.at, text, "The top level is a map, fixed keys or a plain type such as set or list.")
    elif isinstance(schema, MapSchema) and schema.subindexed:
        text = f"The top-level map of '{pstate.name}' is subindexed."
        context.fault(pstate.at, text, "Its elements are indexed one by one anyway; remove .subindexed().")
    for value in _inner(schema):
        if isinstance(value, FixedKeysSchema) and not value.fields:
            context.fault(pstate.at, f"'{pstate.name}' has a record without keys.", "Add a key and its schema.")
    check_migrations(context, pstate)
    _check_initial_value(context, pstate)


def _inner(schema: Schema) -> Iterator[Schema]:
    yield schema
    for child in children(schema):
        yield from _inner(child)


def _check_initial_value(context: Context, pstate: PStateDeclaration) -> None:
    if pstate.initial_value is None:
        return
    if not isinstance(pstate.schema, Leaf):
        text = f"'{pstate.name}' has an initial value, but its schema is no plain type."
        context.fault(pstate.at, text, "Only a PState such as mb.pstate(…, int) can have one; maps begin empty.")
    elif not fits(pstate.initial_value, pstate.schema):
        text = f"The initial value {pstate.initial_value!r} of '{pstate.name}' is no {to_text(pstate.schema)}."
        context.fault(pstate.at, text, "Make the value fit the schema.")
    else:
        try:
            check_data(pstate.initial_value)
        except RecordRefused as error:
            text = f"The initial value of '{pstate.name}' cannot be stored: {str(error).rstrip('.')}."
            context.fault(pstate.at, text, "Give another value.")


# --- sources ---------------------------------------------------------------------------------------------------------


def _check_sources(context: Context, topology: TopologyDeclaration) -> None:
    first: dict[str, Location] = {}
    for source in topology.sources:
        if source.source_id in first:
            text = f"Two sources of '{topology.name}' have the id '{source.source_id}'; the first is at "
            advice = 'Give this one another with MicrobatchSourceOptions.source_id("…").'
            context.fault(source.at, f"{text}{first[source.source_id]}.", advice)
        first.setdefault(source.source_id, source.at)
        depot = context.depots.get(source.depot)
        if source.microbatch in context.objects:
            text = f"'{source.microbatch}' is an object of the module, and cannot be bound."
            context.fault(source.at, text, "Choose another name for the microbatch.")
        if depot is None and source.depot in context.objects:
            text = f"The object '{source.depot}' is no depot."
            advice = "A source names a depot, or an ExternalDepot that is declared as it is, not made by a function."
            context.fault(source.at, text, advice)
        elif depot is None:
            advice = advice_for(source.depot, context.depots, "Declare it with setup.declare_depot(…).")
            context.fault(source.at, f"There is no depot '{source.depot}'.", advice)
        elif depot.partitioner == "sink":
            text = f"The sink '{source.depot}' cannot be read: its rows are in another system."
            context.fault(source.at, text, "Append to a depot of the store as well, and read that.")
        elif depot.tick_millis is not None and source.start_from != StartFrom():
            text = f"The tick depot '{source.depot}' holds no records, so it has no place to start from."
            context.fault(source.at, text, "Remove the start_from option.")
        ends_of(context, topology.name, source)
