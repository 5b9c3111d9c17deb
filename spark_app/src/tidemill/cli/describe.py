"""`tidemill describe`: what a module declares, and whether it may follow what a store holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.loader import (
    BreakMirrorsOption,
    ClassArgument,
    JsonOption,
    OwnerOption,
    TakeOverFromOption,
    load_module,
)
from tidemill.cli.output import (
    EXIT_REFUSED,
    command,
    console,
    show_json,
    show_table,
    wants_json,
)
from tidemill.cli.verdict import Candidate, partitioner_text, split_names, start_text
from tidemill.language import schema as schemas
from tidemill.language.dataflow import ModuleDeclaration
from tidemill.language.migrations import location_text
from tidemill.values.errors import BadInput

if TYPE_CHECKING:
    from tidemill.plan.program import Program


@command
def describe(
    name: ClassArgument,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show which segments run by columns or by rows, and why.")
    ] = False,
    svg: Annotated[
        str, typer.Option("--svg", help="Draw the plan of this topology or query as SVG, to the output.")
    ] = "",
    json_: JsonOption = False,
    against: Annotated[
        str, typer.Option("--against", help="A store: say whether the module may follow what it holds.")
    ] = "",
    tasks: Annotated[int, typer.Option("--tasks", help="With --against: the number of tasks.")] = 4,
    threads: Annotated[int, typer.Option("--threads", help="With --against: the number of threads.")] = 2,
    objects_to_delete: Annotated[
        str, typer.Option("--objects-to-delete", help="With --against: depots and PStates that go, A,B.")
    ] = "",
    conf: Annotated[str, typer.Option("--conf", help="With --against: a spark.json to check.")] = "",
    restore_retired: Annotated[
        bool, typer.Option("--restore-retired", envvar="TIDEMILL_RESTORE_RETIRED", help="With --against: a rollback.")
    ] = False,
    owner: OwnerOption = "",
    take_over_from: TakeOverFromOption = "",
    break_mirrors: BreakMirrorsOption = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="With --against: exit code 0 for a refusal too; the verdict tells.")
    ] = False,
) -> None:
    """Check a module and show what it declares; nothing is run, and no store is needed without --against."""
    from tidemill.api.declaration import record_module
    from tidemill.plan.check.module import checked
    from tidemill.plan.warn import warnings_of

    wants_json(json_)
    if against:
        names = split_names(objects_to_delete)
        candidate = Candidate(
            name, against, tasks, threads, names, conf, restore_retired, owner, take_over_from, break_mirrors
        )
        if not candidate.show(json_) and not exit_zero:
            raise typer.Exit(EXIT_REFUSED)
        return
    declaration = checked(record_module(load_module(name)))
    if svg:
        from tidemill.plan.picture import picture

        typer.echo(picture(_program(declaration, svg)), nl=False)
        return
    plans = list(_segments(declaration)) if plan else None
    found = warnings_of(declaration)
    if json_:
        shown = {"warnings": [dict(vars(warning)) for warning in found]}
        show_json(_described(declaration) | shown | ({} if plans is None else {"plan": plans}))
        return
    _show(declaration)
    for warning in found:
        console().print(f"Warning: {warning}", style="yellow", markup=False)
    if plans is not None:
        columns = ("topology", "from", "mode", "operators", "reason")
        show_table("Segments", columns, ([row[column] for column in columns] for row in plans))


def _show(declaration: ModuleDeclaration) -> None:
    """What a module declares, as tables without empty ones, and the schemas of PStates as trees."""
    console().print(f"Module {declaration.name}", style="bold")
    _show_some("Depots", ("depot", "partitioner", "global", "tick ms", "schema"), (
        (d.name, partitioner_text(d), d.is_global, d.tick_millis, schemas.to_text(d.schema) if d.schema else None)
        for d in declaration.depots
    ))  # fmt: skip
    _show_some("Sources", ("topology", "source", "depot", "start from"), (
        (t.name, s.source_id, s.depot, start_text(s.start_from)) for t in declaration.topologies for s in t.sources
    ))  # fmt: skip
    for topology in declaration.topologies:
        for pstate in topology.pstates:
            kinds = [word for word, holds in (("global", pstate.is_global), ("private", pstate.is_private)) if holds]
            console().print(
                " ".join(["PState", pstate.name, "of", topology.name, *kinds]), style="italic", markup=False
            )
            for line in _tree(pstate.schema, 1):
                console().print(line, markup=False, soft_wrap=True)
    _show_some("Migrations", ("PState", "of", "migration", "to"), (
        (p.name, location_text(m.location), m.id, schemas.to_text(m.schema))
        for t in declaration.topologies for p in t.pstates for m in p.migrations
    ))  # fmt: skip
    _show_some("Objects of other modules", ("mirror", "module", "object", "store"), (
        (m.name, m.module, m.object, m.store or "the own one") for m in declaration.mirrors
    ))  # fmt: skip
    _show_some("Queries", ("query", "inputs", "result"), (
        (q.name, ", ".join(q.inputs), q.result) for q in declaration.queries
    ))  # fmt: skip


def _show_some(title: str, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> None:
    if found := list(rows):
        show_table(title, columns, found)


def _tree(schema: schemas.Schema, depth: int) -> Iterator[str]:
    """A schema as lines: what holds a structure that is nested has it below, one step in."""
    inside = "  " * depth
    if isinstance(schema, schemas.FixedKeysSchema):
        for key, field in schema.fields:
            yield f"{inside}{key!r}: {_head(field)}"
            yield from _tree(field, depth + 1)
    elif isinstance(schema, schemas.MapSchema):
        yield f"{inside}{schemas.key_text(schema)}: {_head(schema.value)}"
        yield from _tree(schema.value, depth + 1)
    elif depth == 1:
        yield f"{inside}{schemas.to_text(schema)}"


def _head(schema: schemas.Schema) -> str:
    """A schema in one line, without what its tree shows below."""
    if isinstance(schema, schemas.FixedKeysSchema):
        return "fixed keys"
    if isinstance(schema, schemas.MapSchema):
        return "map, subindexed" if schema.subindexed else "map"
    return schemas.to_text(schema)


def _described(declaration: ModuleDeclaration) -> dict[str, Any]:
    return {
        "module": declaration.name,
        "depots": [
            {
                "name": d.name,
                "partitioner": partitioner_text(d),
                "global": d.is_global,
                "tick_millis": d.tick_millis,
                "schema": None if d.schema is None else schemas.to_json(d.schema),
            }
            for d in declaration.depots
        ],
        "topologies": [
            {
                "name": t.name,
                "sources": [
                    {"source_id": s.source_id, "depot": s.depot, "start_from": start_text(s.start_from)}
                    for s in t.sources
                ],
                "pstates": [
                    {
                        "name": p.name,
                        "schema": schemas.to_json(p.schema),
                        "global": p.is_global,
                        "private": p.is_private,
                        "migrations": [{"of": location_text(m.location), "id": m.id} for m in p.migrations],
                    }
                    for p in t.pstates
                ],
            }
            for t in declaration.topologies
        ],
        "mirrors": [
            {"name": m.name, "kind": m.kind, "module": m.module, "object": m.object, "store": m.store}
            for m in declaration.mirrors
        ],
        "queries": [{"name": q.name, "inputs": list(q.inputs), "result": q.result} for q in declaration.queries],
    }


def _program(declaration: ModuleDeclaration, name: str) -> Program:
    from tidemill.plan.compile.topology import compile_alone

    found = compile_alone(declaration)
    if name not in found:
        raise BadInput(f"{declaration.name} has no topology or query {name!r}; it has {', '.join(sorted(found))}.")
    return found[name]


def _segments(declaration: ModuleDeclaration) -> Iterator[dict[str, Any]]:
    from tidemill.plan.compile.topology import compile_alone

    for program in compile_alone(declaration).values():
        for segment in program.segments.values():
            start = program.operators[segment.start]
            names = [type(program.operators[operator]).__name__.lower() for operator in segment.operators]
            yield {
                "topology": program.topology,
                "from": str(start.at).rpartition("/")[2],
                "mode": segment.mode,
                "operators": " ".join(names),
                "reason": segment.reason,
            }
