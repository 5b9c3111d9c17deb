"""What is allowed in a module and most likely not meant: warnings, each with its place, as `describe` and a launch
show them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Location, ModuleDeclaration, TopologyDeclaration
from tidemill.plan.check.context import Context
from tidemill.plan.follow import SourceFollower
from tidemill.plan.nodes import every_node
from tidemill.plan.warn_constants import ConstantCheck
from tidemill.values.errors import DefinitionWarning, Fault


def warnings_of(declaration: ModuleDeclaration) -> list[Fault]:
    """All warnings of a module that has no fault, in the order of its source."""
    context = Context.of(declaration)
    found: list[Fault] = list(declaration.extra.get("unattached", ()))
    if not (declaration.depots or declaration.topologies or declaration.queries):
        text = f"'{declaration.name}' declares nothing: no depot, no topology and no query."
        found.append(
            _warning(
                declaration.extra.get("defined_at", Location()),
                text,
                "Declare them in define(self, setup, topologies).",
            )
        )
    found += _unread_clocks(declaration)
    for topology in declaration.topologies:
        found += _of_topology(context, topology)
    schemas = {name: pstate.schema for name, (_, pstate) in context.pstates.items()}
    for query in declaration.queries:
        found += ConstantCheck(query.inputs, list(every_node(query.body)), schemas).warnings()
        found += SourceFollower(context).follow_query(query)
    return sorted(dict.fromkeys(found), key=lambda warning: warning.place)


def warn(declaration: ModuleDeclaration) -> None:
    """Show the warnings of a module as Python shows warnings, at the lines of the module's author."""
    for found in warnings_of(declaration):
        file, line = found.place
        text = f"{found.text} {found.advice}".rstrip()
        warnings.warn_explicit(text, DefinitionWarning, file, line, module=declaration.name)


def _unread_clocks(declaration: ModuleDeclaration) -> Iterator[Fault]:
    """Another depot may have readers elsewhere; a clock ticks for its source alone."""
    read = {source.depot for topology in declaration.topologies for source in topology.sources}
    for depot in declaration.depots:
        if depot.tick_millis is not None and depot.name not in read:
            text = f"No topology reads the tick depot '{depot.name}', so it never ticks."
            yield _warning(depot.at, text, "Add a source for it, or remove it.")


def _of_topology(context: Context, topology: TopologyDeclaration) -> Iterator[Fault]:
    schemas = {name: pstate.schema for name, (_, pstate) in context.pstates.items()}
    for source in topology.sources:
        if not source.body:
            yield _warning(
                source.at, f"Nothing follows the source of '{source.depot}'.", "Add its steps, or remove it."
            )
        names = () if source.microbatch is None else (source.microbatch,)
        yield from ConstantCheck(names, list(every_node(source.body)), schemas).warnings()
        yield from SourceFollower(context).follow(source)
    nodes = [node for source in topology.sources for node in every_node(source.body)]
    written = {getattr(node, "pstate", None) for node in nodes if not isinstance(node, df.LocalSelect)}
    for pstate in topology.pstates:
        if pstate.name not in written:
            text = f"'{topology.name}' never writes the PState '{pstate.name}'."
            yield _warning(pstate.at, text, "Write it, or remove it.")


def _warning(at: Location, text: str, advice: str) -> Fault:
    return Fault(str(at), text, advice)
