"""Runs one block without a module and without a store: `Block.execute()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tidemill.api.arguments import Helpers, to_name
from tidemill.api.block import Block
from tidemill.api.declaration import declared_objects
from tidemill.api.locations import caller_location
from tidemill.api.module import Setup
from tidemill.api.schemas import to_schema
from tidemill.engine.resources import empty_state
from tidemill.engine.schedule import run_supersteps
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptWork
from tidemill.journal.clock import SystemClock
from tidemill.journal.snapshot import Snapshot
from tidemill.language import dataflow as df
from tidemill.language.objects import close_objects, with_objects
from tidemill.language.recorded_parts import rewritten
from tidemill.plan.check.context import Context
from tidemill.plan.check.module import checked, ends_of
from tidemill.plan.compile.topology import compile_topology
from tidemill.plan.phases import phases
from tidemill.pstate.test_pstate import TestPState
from tidemill.values.errors import BadInput, Fault
from tidemill.values.numbers import MicrobatchId, Version

_NAME = "block"


class _Ends:
    """Takes the rows that reach the end of a block."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.rows: list[dict[str, Any]] = []

    def __call__(self, *values: Any) -> None:
        self.rows.append(dict(zip(self.names, values, strict=True)))


def execute(
    block: Block, tasks: int, pstates: Mapping[str, Any], objects: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The rows that reach the end of the block; everything else as `Block.execute` says."""
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1 or tasks & (tasks - 1):
        raise BadInput(f"The number of tasks is a power of two, not {tasks!r}.")
    if not isinstance(pstates, Mapping):
        raise BadInput(f'The PStates of execute() are a dict of schemas by name, as {{"$$n": int}}, not {pstates!r}.')
    given = {name: pstate for name, pstate in pstates.items() if isinstance(pstate, TestPState)}
    if given and tasks != 1:
        raise BadInput(f"A TestPState is one partition, of one task; give schemas to execute() on {tasks} tasks.")
    at = caller_location()
    faults = list(block.faults)
    declared = tuple(_declared(pstates, at, faults))
    setup = Setup()
    for name, value in (objects or {}).items():
        setup.declare_object(name, value)
    known = declared_objects(setup.objects, _NAME, faults)
    faults.extend(setup.faults)
    written = with_objects(block.nodes, known)
    if tasks == 1:
        written = rewritten(written, _aggregating_here)
    module = checked(replace(_module(written, declared, at), faults=tuple(faults), objects=known))
    (source,) = module.topologies[0].sources
    end, block_end = ends_of(Context.of(module), _NAME, source)
    *before, last = written or (None,)
    bound = block_end if isinstance(last, df.BatchBlock) else end
    ends = _Ends(tuple(sorted(name for name in bound.names if not Helpers.is_generated_var(name))))
    take = df.Each(df.Function("execute", "function", ends), tuple(map(df.Var, ends.names)), (), at)
    nodes = (*written, take)
    if isinstance(last, df.BatchBlock):
        nodes = (*before, replace(last, body=(*last.body, take)))
    try:
        _run(_module(nodes, declared, at), tasks, given)
    finally:
        close_objects(known.values())
    return ends.rows


def _aggregating_here(part: Any) -> Any:
    """Batch blocks that name no task to aggregate on do it on the only one."""
    if not isinstance(part, (df.BatchBlock, df.SubBatchRows)):
        return part
    body = rewritten(part.body, _aggregating_here)
    before, aggregators, behind = phases(body)
    is_placed = any(isinstance(node, df.Partition) for node in before[-1:])
    if aggregators and not is_placed and not isinstance(aggregators[0], df.GroupBy):
        body = (*before, df.Partition("global", (), None, aggregators[0].at), *aggregators, *behind)
    return part if body is part.body else replace(part, body=body)


def _declared(pstates: Mapping[str, Any], at: df.Location, faults: list[Fault]) -> Iterator[df.PStateDeclaration]:
    for name, schema in pstates.items():
        recorded = schema.schema if isinstance(schema, TestPState) else to_schema(schema, at, faults)
        yield df.PStateDeclaration(to_name(name, "$$", "PState", at, faults), recorded, at)


def _module(
    nodes: tuple[df.Node, ...], pstates: tuple[df.PStateDeclaration, ...], at: df.Location
) -> df.ModuleDeclaration:
    """A module of one source, whose depot is never read."""
    depot = df.DepotDeclaration("*none", "disallow", at)
    source = df.SourceDeclaration(depot.name, depot.name, None, df.StartFrom(), nodes, at)
    return df.ModuleDeclaration(_NAME, (depot,), (df.TopologyDeclaration(_NAME, pstates, (source,), at),))


def _run(module: df.ModuleDeclaration, tasks: int, given: Mapping[str, TestPState]) -> None:
    """Row by row, so that what a block prints comes in the order in which it is written. The given PStates hold what
    it wrote once all of it has run, as those of a microbatch do.
    """
    program = compile_topology(module, _NAME)
    segments = {
        start: replace(segment, mode="rows", is_strict=True, reason="execute() goes row by row")
        for start, segment in program.segments.items()
    }
    program = replace(program, segments=segments, key=f"{program.key}-executed")
    work = AttemptWork(
        "",
        _NAME,
        _NAME,
        program,
        tasks,
        1,
        MicrobatchId(1),
        Version(1),
        Snapshot(),
        {},
        now_millis=SystemClock().now_ms(),
    )
    run = ThreadRun(work, 0, empty_state(program), {})
    try:
        for name, pstate in given.items():
            pstate.lend(run.state.root(name, 0))
        for _ in run_supersteps(work, [run]):
            pass
        for name, pstate in given.items():
            pstate.take(run.state.root(name, 0))
    finally:
        run.close()
