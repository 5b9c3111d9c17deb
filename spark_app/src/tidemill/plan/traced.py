"""A program whose rows keep the record that they come from: what a retry runs, so that a failure can name it."""

from __future__ import annotations

from dataclasses import replace

from tidemill.plan.compile.schedule import predecessors_of
from tidemill.plan.program import Explode, Program

SUFFIX = "-traced"


def traced(program: Program) -> Program:
    """The same program; the record of an explode stays among the variables of a row until rows are aggregated."""
    kept = _records_behind(program)
    live = tuple(tuple(sorted({*names, *kept[number]})) for number, names in enumerate(program.live))
    return replace(program, live=live, key=program.key + SUFFIX)


def _records_behind(program: Program) -> list[frozenset[str]]:
    """For each operator the records that are bound behind it, whichever way a row came."""
    edges = [list(following) for following in program.next]
    for region in program.regions:
        if region.enter is not None and region.after is not None:
            edges[region.enter].append(region.after)
    sides = {region.post: region.sides for region in program.regions if region.sides}
    before = predecessors_of(edges)
    own = [frozenset(op.outs if isinstance(op, Explode) and op.source_id else ()) for op in program.operators]
    every = frozenset[str]().union(*own)
    behind = [own[number] if not before[number] and number not in sides else every for number in range(len(own))]
    changed = True
    while changed:
        changed = False
        for number, ways in enumerate(before):
            found = own[number].union(frozenset.intersection(*(behind[way] for way in ways)) if ways else ())
            found = found.union(*(behind[side] for side in sides.get(number, ())))
            if found != behind[number]:
                behind[number], changed = found, True
    return behind
