"""A module as notebooks show it: what it declares, and a picture of each plan; or the mistakes in it."""

from __future__ import annotations

from typing import Any, Final

from tidemill.api.declaration import record_module
from tidemill.language.dataflow import DepotDeclaration
from tidemill.language.schema import to_text
from tidemill.plan.check.module import checked
from tidemill.plan.compile.topology import compile_alone
from tidemill.plan.picture import picture
from tidemill.values import notebook
from tidemill.values.errors import DefinitionError

PICTURES_MAX: Final = 5
"""Of one module: the others are drawn by `tidemill describe --svg`."""


def _held(depot: DepotDeclaration) -> str:
    return depot.partitioner if depot.schema is None else f"{depot.partitioner}: {to_text(depot.schema)}"


def module_html(module: Any) -> str:
    """Tables and pictures of a module."""
    try:
        declaration = checked(record_module(module))
        programs = compile_alone(declaration)
    except DefinitionError as error:
        faults = [(fault.location, fault.text, fault.advice) for fault in error.faults] or [("", str(error), "")]
        return notebook.table(f"Mistakes in {type(module).__name__}", ("where", "what", "what to do"), faults)
    rows = [("depot", depot.name, _held(depot)) for depot in declaration.depots]
    for topology in declaration.topologies:
        rows += [("PState", pstate.name, to_text(pstate.schema)) for pstate in topology.pstates]
    rows += [("query", query.name, ", ".join(query.inputs)) for query in declaration.queries]
    parts = [notebook.table(f"Module {declaration.name}", ("kind", "name", "what it holds or takes"), rows)]
    for name, program in list(programs.items())[:PICTURES_MAX]:
        parts += [f"<strong>{notebook.text(name)}</strong>", notebook.picture(picture(program))]
    return "".join(parts)
