"""Which variables somebody still reads behind each operator: only those travel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidemill.language import dataflow as df
from tidemill.plan import program as pg
from tidemill.plan.nodes import binds_of


def variables_in(part: Any) -> Iterator[str]:
    """The variables inside an argument, a path, an aggregator or a tuple of them."""
    if isinstance(part, df.Var):
        yield part.name
    elif isinstance(part, df.RecordedPath):
        for nav in part.navs:
            yield from variables_in(nav.args)
            yield from variables_in(tuple(value for _, value in nav.options))
    elif isinstance(part, df.AggMap):
        yield from variables_in(part.entries)
    elif isinstance(part, df.AggList):
        yield from variables_in(part.items)
    elif isinstance(part, df.Aggregator):
        yield from variables_in(part.args)
    elif isinstance(part, tuple):
        for inner in part:
            yield from variables_in(inner)


def reads_of(operator: pg.Operator, regions: Sequence[pg.Region]) -> set[str]:
    """The variables that an operator itself reads."""
    if isinstance(operator, pg.Collect):
        region = regions[operator.region]
        cut = () if region.cut is None else (*region.cut.vars, *region.cut.sort)
        return {*(region.keys or ()), *cut}.union(*(variables_in(output.tree) for output in region.outputs))
    return set(variables_in(tuple(vars(operator).values())))


def live_behind(
    operators: Sequence[pg.Operator], following: Sequence[Sequence[int]], regions: Sequence[pg.Region]
) -> tuple[tuple[str, ...], ...]:
    """For each operator the sorted variables that are read behind it, until nothing changes any more (loops)."""
    reads = [reads_of(operator, regions) for operator in operators]
    binds = [set(binds_of(operator)) for operator in operators]
    behind: list[set[str]] = [set() for _ in operators]
    before: list[set[str]] = [set(read) for read in reads]
    edges = [list(successors) for successors in following]
    for region in regions:
        if region.enter is not None and region.after is not None:
            edges[region.enter].append(region.after)
        for side in region.sides:
            edges[side].append(region.post or side)
    changed = True
    while changed:
        changed = False
        for number in range(len(operators) - 1, -1, -1):
            live = set().union(*(before[successor] for successor in edges[number]))
            operator = operators[number]
            if isinstance(operator, pg.Gather):  # the other side binds the rest
                live &= set(operator.takes)
            if live != behind[number]:
                changed = True
                behind[number] = live
            before[number] = reads[number] | (live - binds[number])
    return tuple(tuple(sorted(live)) for live in behind)
