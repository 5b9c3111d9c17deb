"""From a checked declaration to a `Program`."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import cloudpickle

from tidemill.language import dataflow as df
from tidemill.language.aggregation_order import depends_on_order
from tidemill.language.external import ExternalSink
from tidemill.language.objects import DeclaredObject
from tidemill.plan import program as pg
from tidemill.plan.branches import explicit_block, explicit_source
from tidemill.plan.compile.graph import GraphBuilder
from tidemill.plan.compile.liveness import live_behind
from tidemill.plan.compile.order import leaves, merging_trees, ordered_points
from tidemill.plan.compile.schedule import certain_operators, predecessors_of, schedule_of, with_waits
from tidemill.plan.compile.segments import segments_of
from tidemill.plan.steps import step_of
from tidemill.values.errors import BadInput, DefinitionError, Fault, UnknownName, message_of

T = TypeVar("T")


def compile_topology(
    declaration: df.ModuleDeclaration, topology_name: str, ids: Mapping[str, str] | None = None
) -> pg.Program:
    """The program of one topology. `ids` gives the definition's id of each PState by name (its name where it is
    missing).

    The declaration has passed `plan.check.module`; what is refused here as well is what no program can express.

    Raises:
        DefinitionError: branches cannot be joined, or a step cannot be sent to workers.
        UnknownName: the module has no topology of this name.
    """
    topology = next((found for found in declaration.topologies if found.name == topology_name), None)
    if topology is None:
        raise UnknownName(f"Module {declaration.name} has no topology '{topology_name}'.")
    builder = _builder(declaration)
    for source in topology.sources:
        builder.source(_sound(declaration, explicit_source(source)))
    program = _program(declaration, topology.name, topology.pstates, builder, ids or {})
    called = called_queries(program, compile_queries(declaration, ids))
    reads = {name: owner for query in called.values() for name, owner in query.reads.items() if owner != topology_name}
    others = {name: query.others[name] for query in called.values() for name in query.reads if name in reads}
    whole = replace(program, queries=called, reads={**program.reads, **reads}, others={**program.others, **others})
    read = {source.depot for source in topology.sources}
    depots = {name: found for name, found in declaration.objects.items() if name in read or _is_sink(found)}
    mirrored = mirrored_queries(declaration, [program, *called.values()])
    whole = replace(whole, objects={**_used(program, *called.values()), **depots}, mirrored=mirrored)
    return _named(whole)


def _used(*programs: pg.Program) -> dict[str, DeclaredObject]:
    """The objects that operators use."""
    calls = (getattr(op, "function", None) for program in programs for op in program.operators)
    return {f.call.name: f.call for f in calls if f is not None and isinstance(f.call, DeclaredObject)}


def compile_alone(declaration: df.ModuleDeclaration) -> dict[str, pg.Program]:
    """The programs of all topologies and queries by name, for people who look at them without a store.

    Raises:
        BadInput: the module mirrors objects of others, which decide of its programs.
        DefinitionError: as `compile_topology`.
    """
    if declaration.mirrors:
        text = f"{declaration.name} mirrors objects of other modules, so what runs is known on their stores only."
        raise BadInput(f"{text} Ask for it without its plan.")
    topologies = {one.name: compile_topology(declaration, one.name) for one in declaration.topologies}
    return {**topologies, **compile_queries(declaration)}


def compile_queries(declaration: df.ModuleDeclaration, ids: Mapping[str, str] | None = None) -> dict[str, pg.Program]:
    """The programs of all queries of a module by name; `ids` as for `compile_topology`. They own no PState, and
    their `queries` are empty: whoever runs one has those that it calls.

    Raises:
        DefinitionError: as `compile_topology`.
    """
    found = {}
    for query in declaration.queries:
        builder = _builder(declaration)
        builder.query(query, _sound(declaration, explicit_block(query.block)))
        program = _program(declaration, query.name, (), builder, ids or {})
        found[query.name] = _named(replace(program, inputs=query.inputs, objects=_used(program)))
    return found


def called_queries(program: pg.Program, queries: Mapping[str, pg.Program]) -> dict[str, pg.Program]:
    """The queries that a program calls, and those that they call."""
    found: dict[str, pg.Program] = {}
    waiting = [program]
    while waiting:
        for operator in waiting.pop().operators:
            if isinstance(operator, pg.Invoke) and operator.query in queries and operator.query not in found:
                found[operator.query] = queries[operator.query]
                waiting.append(found[operator.query])
    return found


def with_calls(
    program: pg.Program, called: Mapping[str, pg.Program], mirrored: Mapping[str, pg.MirroredQuery]
) -> pg.Program:
    """A query with all that it calls, of this module and of others, to run in another process."""
    return _named(replace(program, queries=called, mirrored=mirrored)) if called or mirrored else program


def queries_from(declaration: df.ModuleDeclaration, query: str, ids: Mapping[str, str]) -> dict[str, pg.Program]:
    """The program of a query, and of those that it calls."""
    programs = compile_queries(declaration, ids)
    return {query: programs[query], **called_queries(programs[query], programs)}


def mirrored_queries(declaration: df.ModuleDeclaration, programs: Iterable[pg.Program]) -> dict[str, pg.MirroredQuery]:
    """The queries of other modules that these programs call."""
    names = {op.query for program in programs for op in program.operators if isinstance(op, pg.Invoke)}
    return {
        mirror.name: _mirrored_query(mirror, mirror.found)
        for mirror in declaration.mirrors
        if mirror.name in names and mirror.kind == "query" and mirror.found is not None
    }


def _mirrored_query(mirror: df.MirrorDeclaration, found: df.MirroredObject) -> pg.MirroredQuery:
    programs = queries_from(mirror.code, mirror.object, {name: id_ for name, (id_, _) in found.reads.items()})
    plans = {name: program.others[name] for program in programs.values() for name in program.reads}
    places = {name: found.reads[name][1] for name in plans}
    return pg.MirroredQuery(mirror.module, found.tasks, mirror.object, programs, plans, places)


def _builder(declaration: df.ModuleDeclaration) -> GraphBuilder:
    return GraphBuilder(_global_objects(declaration), _schemas(declaration), _mirrors(declaration))


def _mirrors(declaration: df.ModuleDeclaration) -> dict[str, df.MirroredObject]:
    return {mirror.name: mirror.found for mirror in declaration.mirrors if mirror.found is not None}


def _mirrored_pstates(declaration: df.ModuleDeclaration) -> dict[str, tuple[df.MirroredObject, df.PStateDeclaration]]:
    found = _mirrors(declaration).items()
    return {name: (each, each.declared) for name, each in found if isinstance(each.declared, df.PStateDeclaration)}


def _sound(declaration: df.ModuleDeclaration, explicit: tuple[T, list[Fault]]) -> T:
    found, faults = explicit
    if faults:
        raise DefinitionError(faults, module=declaration.name)
    return found


def _named(program: pg.Program) -> pg.Program:
    key = hashlib.sha256(_shipped(program)).hexdigest()[:24]
    return replace(program, key=key, shape=_shape(program))


def _shape(program: pg.Program) -> int:
    """A number for the operators and where each leads; paths of files, which differ from machine to machine, are out
    of it.
    """
    lines = (f"{type(one).__name__} {step_of(one)} {program.next[one.id]}" for one in program.operators)
    return zlib.crc32("\n".join(lines).encode())


_TEMPORARY = "~"
"""How the ids of temporary PStates begin, which no declared one's does."""


def _shipped(program: pg.Program) -> bytes:
    """The program as workers get it.

    Raises:
        DefinitionError: a function holds something that cannot travel; names each such function.
    """
    try:
        content: bytes = cloudpickle.dumps(program)
        return content
    except Exception as error:  # whatever a user's object raises when it is pickled
        faults = [
            Fault(str(operator.at), f"this step cannot be sent to workers: {reason}.", _TRAVEL)
            for operator in program.operators
            if (reason := _travel_fault(operator))
        ]
        plans = (*program.pstates.values(), *program.others.values())
        made: list[df.MigrationStep | df.DepotMigration] = [step for plan in plans for step in plan.declaration.steps]
        made += [depot.migration for depot in program.migrated.values()]
        faults += [
            Fault(str(each.at), f"the migration '{each.id}' cannot be sent to workers: {reason}.", _TRAVEL)
            for each in made
            if (reason := _travel_fault(each))
        ]
        raise DefinitionError(faults or f"The module cannot be sent to workers: {error}.") from error


_TRAVEL = "Let its function make locks, connections and files itself, or keep them in a Python module that it imports."


def _travel_fault(thing: pg.Operator | df.MigrationStep | df.DepotMigration) -> str:
    try:
        cloudpickle.dumps(thing)
    except Exception as error:  # noqa: BLE001 - a user's object may raise anything
        return f"{type(error).__name__}: {message_of(error)}"
    return ""


def _schemas(declaration: df.ModuleDeclaration) -> dict[str, Any]:
    mirrored = {name: pstate.schema for name, (_, pstate) in _mirrored_pstates(declaration).items()}
    return mirrored | {p.name: p.schema for topology in declaration.topologies for p in topology.pstates}


def _global_objects(declaration: df.ModuleDeclaration) -> frozenset[str]:
    depots = {depot.name for depot in declaration.depots if depot.is_global or depot.tick_millis is not None}
    pstates = {p.name for topology in declaration.topologies for p in topology.pstates if p.is_global}
    return frozenset(depots | pstates)


def _program(
    declaration: df.ModuleDeclaration,
    name: str,
    pstates: Sequence[df.PStateDeclaration],
    builder: GraphBuilder,
    ids: Mapping[str, str],
) -> pg.Program:
    following = tuple(tuple(successors) for successors in builder.next)
    schemas = _schemas(declaration)
    regions = tuple(_with_combining(region, schemas) for region in builder.regions)
    live = live_behind(builder.operators, following, regions)
    operators, regions = _with_direct_explodes(builder.operators, following, regions, live)
    regions = with_waits(operators, following, regions)
    owners = {p.name: found.name for found in declaration.topologies for p in found.pstates if found.name != name}
    owners |= {pstate: mirrored.place for pstate, (mirrored, _) in _mirrored_pstates(declaration).items()}
    each = [inner for op in operators for inner in (getattr(op, "ways", ()) or (op,))]
    touched = {found for op in each if (found := getattr(op, "pstate", None) or getattr(op, "target", None))}
    touched |= {output.pstate for region in regions for output in region.outputs if output.pstate is not None}
    others = {found: owner for found, owner in owners.items() if found in touched}
    merges = merging_trees(operators, regions, [p.name for p in pstates])
    return pg.Program(
        module=declaration.name,
        topology=name,
        operators=operators,
        next=following,
        live=live,
        keeps_order=ordered_points(operators, _through_rows(operators, following, regions), regions, schemas),
        regions=regions,
        segments=segments_of(operators, following, regions, schemas),
        pstates={p.name: pg.PStatePlan(p.name, ids.get(p.name, p.name), p, merges.get(p.name)) for p in pstates},
        temps={
            name: pg.PStatePlan(name, f"{_TEMPORARY}{number}", made)
            for number, (name, made) in enumerate(builder.temps.items())
            if name in touched
        },
        reads=others,
        others=_other_plans(declaration, others, ids),
        schedule=schedule_of(operators, following, regions),
        targets=_targets(declaration, operators),
        migrated=_migrated(declaration),
    )


def _migrated(declaration: df.ModuleDeclaration) -> dict[str, pg.MigratedDepot]:
    depots = {depot.name: depot for depot in declaration.depots}
    for name, mirrored in _mirrors(declaration).items():
        if isinstance(mirrored.declared, df.DepotDeclaration):
            depots[name] = mirrored.declared
    return {
        name: pg.MigratedDepot(name, depot.schema, depot.migration)
        for name, depot in depots.items()
        if depot.migration is not None
    }


def _targets(declaration: df.ModuleDeclaration, operators: Sequence[pg.Operator]) -> dict[str, pg.AppendTarget]:
    names = {operator.depot for operator in operators if isinstance(operator, pg.Append)}
    own = {
        depot.name: pg.AppendTarget(depot.name, depot.schema, depot.is_global, check=_check_of(declaration, depot.name))
        for depot in declaration.depots
        if depot.name in names
    }
    others = {
        name: pg.AppendTarget(name, mirrored.declared.schema, mirrored.declared.is_global, mirrored.tasks)
        for name, mirrored in _mirrors(declaration).items()
        if name in names and isinstance(mirrored.declared, df.DepotDeclaration)
    }
    return {**own, **others}


def _is_sink(declared: DeclaredObject) -> bool:
    """Also one that this topology does not append to: what an older version of it appended may still wait."""
    return isinstance(declared.value, ExternalSink)


def _check_of(declaration: df.ModuleDeclaration, depot: str) -> Callable[[Any], None] | None:
    declared = declaration.objects.get(depot)
    sink = declared.value if declared is not None else None
    if not isinstance(sink, ExternalSink) or type(sink).check is ExternalSink.check:
        return None
    return sink.check


def _through_rows(
    operators: Sequence[pg.Operator], following: Sequence[Sequence[int]], regions: Sequence[pg.Region]
) -> list[list[int]]:
    """The edges, and from rows to the groups and joined rows that they make, which come in the order of their rows;
    also from where rows are materialized to where they come back.
    """
    edges = [list(successors) for successors in following]
    for operator in operators:
        if isinstance(operator, pg.Retain):
            edges[operator.id] += [op.id for op in operators if isinstance(op, pg.Explode) and op.temp == operator.temp]
    for region in regions:
        for side in region.sides:
            edges[side].append(region.post or side)
        is_by_row = (region.keys, region.captured, region.cut) != (None, None, None)
        if region.collect is not None and region.post is not None and is_by_row:
            edges[region.collect].append(region.post)
    return edges


def _other_plans(
    declaration: df.ModuleDeclaration, others: Mapping[str, str], ids: Mapping[str, str]
) -> dict[str, pg.PStatePlan]:
    found = {
        p.name: pg.PStatePlan(p.name, ids.get(p.name, p.name), p) for t in declaration.topologies for p in t.pstates
    }
    for name, (mirrored, pstate) in _mirrored_pstates(declaration).items():
        found[name] = pg.PStatePlan(name, mirrored.id, pstate)
    return {name: found[name] for name in others}


def _with_combining(region: pg.Region, schemas: Mapping[str, Any]) -> pg.Region:
    """Rows may be combined before the final partitioner if every aggregator of the block is a combiner, and none shows
    in which order, that is on which threads, the sending tasks are.
    """
    is_combining = (
        region.final is not None
        and region.cut is None
        and all(
            all(leaf.kind == "combiner" for leaf in leaves(output.tree))
            and not depends_on_order(output.tree, schemas.get(output.pstate or ""))
            for output in region.outputs
        )
    )
    return replace(region, combines=is_combining)


def _with_direct_explodes(
    operators: Sequence[pg.Operator],
    following: Sequence[Sequence[int]],
    regions: Sequence[pg.Region],
    live: Sequence[Sequence[str]],
) -> tuple[tuple[pg.Operator, ...], tuple[pg.Region, ...]]:
    """Explodes that exactly one row without variables reaches start on all owning tasks at once, without a message.

    In a batch block that needs a schedule: elsewhere no thread but the first knows when the block begins.
    """
    certain = certain_operators(operators, following, regions)
    is_static = schedule_of(operators, following, regions) is not None
    before = predecessors_of(following)
    changed: list[Any] = list(operators)
    explodes: dict[int, list[int]] = {}
    for operator in operators:
        if not isinstance(operator, pg.Explode) or not certain[operator.id]:
            continue
        is_free = not set(live[operator.id]) - set(operator.outs)
        region = regions[operator.region]
        is_complete = not operator.temp or region.kind == "block"  # when the region starts
        is_early = not _follows_block(operator.id, region.start, before) if region.kind == "source" else is_static
        if is_free and is_complete and is_early:
            changed[operator.id] = replace(operator, is_direct=True)
            explodes.setdefault(operator.region, []).append(operator.id)
    regions = tuple(replace(region, explodes=tuple(explodes.get(region.id, ()))) for region in regions)
    return tuple(changed), regions


def _follows_block(number: int, start: int, before: Sequence[Sequence[int]]) -> bool:
    """Whether one row reaches an operator when a batch block is done, and so not at once from the source's start."""
    while before[number]:
        number = before[number][0]
    return number != start
