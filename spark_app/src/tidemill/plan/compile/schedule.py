"""When what happens, where that is known before any record: the supersteps of a program and their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemill.language.operations import Op
from tidemill.plan import program as pg


def predecessors_of(following: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each operator the operators that it follows; `following[i]` are the successors of operator i."""
    found: list[list[int]] = [[] for _ in following]
    for number, successors in enumerate(following):
        for successor in successors:
            found[successor].append(number)
    return found


def _gives_one_row(operator: pg.Operator) -> bool:
    """Whether exactly one row comes out, here and now, for the one that went in."""
    if isinstance(operator, pg.Apply):
        call = operator.function.call
        is_one = not isinstance(call, Op) or call.emits != "many"
        return operator.function.kind != "operation" and is_one
    kinds = (pg.Start, pg.Join, pg.Retain, pg.Transform, pg.Clear, pg.Append, pg.Fold, pg.Invoke)
    return isinstance(operator, kinds)


def certain_operators(
    operators: Sequence[pg.Operator], following: Sequence[Sequence[int]], regions: Sequence[pg.Region]
) -> list[bool]:
    """Operators that exactly one row passes in every attempt, on task 0, without a message since its region began."""
    before = predecessors_of(following)
    after = {region.after: region.enter for region in regions if region.after is not None}
    certain = [False] * len(operators)
    for operator in operators:
        number = operator.id
        if isinstance(operator, pg.Start) and regions[operator.region].kind == "source":
            certain[number] = True
        elif number in after:
            enter = after[number]
            certain[number] = enter is not None and certain[enter]
        elif len(before[number]) == 1:
            source = operators[before[number][0]]
            passes = _gives_one_row(source) or (isinstance(source, pg.Enter) and isinstance(operator, pg.Start))
            certain[number] = passes and certain[source.id]
    return certain


def schedule_of(
    operators: Sequence[pg.Operator], following: Sequence[Sequence[int]], regions: Sequence[pg.Region]
) -> tuple[pg.Superstep, ...] | None:
    """The events of each superstep; None where loops over messages or conditional batch blocks leave it to the data."""
    certain = certain_operators(operators, following, regions)
    if any(isinstance(op, pg.Enter) and not certain[op.id] for op in operators):
        return None
    if _has_moving_loop(operators, following):
        return None
    levels, finishes = _levels(operators, following, regions)
    events: list[list[pg.Event]] = [[] for _ in range(max(levels, default=0) + 1)]
    for region in regions:
        if region.kind != "join":
            events[levels[region.start]].append(pg.Event("start", region.id))
        if region.kind != "source":
            events[finishes[region.id]].append(pg.Event("finish", region.id))
    return tuple(pg.Superstep(tuple(sorted(step, key=lambda event: _place(event, regions)))) for step in events)


def _place(event: pg.Event, regions: Sequence[pg.Region]) -> int:
    """Events of one superstep happen in the order of the operators that they let run."""
    region = regions[event.region]
    if event.kind == "start":
        return region.start
    found = region.post if region.post is not None else region.after
    return region.start if found is None else found


def with_waits(
    operators: Sequence[pg.Operator], following: Sequence[Sequence[int]], regions: Sequence[pg.Region]
) -> tuple[pg.Region, ...]:
    """The regions with what each of them waits for: a block for all that is inside, others for what reaches them."""
    edges = [list(successors) for successors in following]
    for region in regions:
        for end in (*region.sides, *(() if region.collect is None else (region.collect,))):
            edges[end] += [] if region.post is None else [region.post]
    before = predecessors_of(edges)
    return tuple(_with_waits(region, operators, before, regions) for region in regions)


def _with_waits(
    region: pg.Region,
    operators: Sequence[pg.Operator],
    before: Sequence[Sequence[int]],
    regions: Sequence[pg.Region],
) -> pg.Region:
    if region.kind == "source":
        return region
    if region.kind == "block":
        inside = {inner.id for inner in regions if region.id in ancestors_of(inner, regions)}
        reaching = {operator.id for operator in operators if operator.region in {region.id, *inside}}
    else:
        reaching = _reaching(region.sides or (region.collect or 0,), operators, before)
        inside = {inner.id for inner in regions if inner.parent is not None and inner.post in reaching}
    waits = frozenset(n for n in reaching if isinstance(operators[n], (pg.Move, pg.Explode)))
    return replace(region, waits=waits, needs=frozenset(inside))


def ancestors_of(region: pg.Region, regions: Sequence[pg.Region]) -> list[int]:
    """The regions around a region, from the inside out."""
    found: list[int] = []
    while region.parent is not None:
        found.append(region.parent)
        region = regions[region.parent]
    return found


def _reaching(ends: Sequence[int], operators: Sequence[pg.Operator], before: Sequence[Sequence[int]]) -> set[int]:
    """The operators from which rows reach these ends, back to the beginning of their batch block."""
    found: set[int] = set()
    waiting = list(ends)
    while waiting:
        number = waiting.pop()
        if number not in found and not isinstance(operators[number], pg.Enter):
            found.add(number)
            waiting.extend(before[number])
    return found


def operators_of(program: pg.Program) -> tuple[tuple[int, ...], ...]:
    """The operators that may run in each superstep of a program with a schedule."""
    operators, following, regions = program.operators, program.next, program.regions
    levels, finishes = _levels(operators, following, regions)
    found: list[set[int]] = [set() for _ in operators]
    for region in regions:
        found[region.start].add(levels[region.start])
        for place in (region.post, region.after):
            if place is not None:
                found[place].add(finishes[region.id])
    for operator in operators:
        is_message = isinstance(operator, pg.Move) or (isinstance(operator, pg.Explode) and not operator.is_direct)
        for successor in following[operator.id]:
            if successor > operator.id:
                found[successor] |= {step + is_message for step in found[operator.id]}
    steps = range(len(program.schedule or ()))
    return tuple(tuple(number for number, when in enumerate(found) if step in when) for step in steps)


def _has_moving_loop(operators: Sequence[pg.Operator], following: Sequence[Sequence[int]]) -> bool:
    return any(
        isinstance(op, (pg.Move, pg.Explode)) and _reaches_itself(op.id, following)
        for op in operators
    )  # fmt: skip


def _reaches_itself(number: int, following: Sequence[Sequence[int]]) -> bool:
    seen: set[int] = set()
    waiting = list(following[number])
    while waiting:
        current = waiting.pop()
        if current == number:
            return True
        if current not in seen:
            seen.add(current)
            waiting.extend(following[current])
    return False


def _levels(
    operators: Sequence[pg.Operator], following: Sequence[Sequence[int]], regions: Sequence[pg.Region]
) -> tuple[list[int], dict[int, int]]:
    """The last superstep in which each operator may run, and in which each batch block is finished.

    A block's operators come before its `post` and `after`, so one pass in the order of ids is enough.
    """
    levels = [0] * len(operators)
    starts_late = {place: region.id for region in regions for place in (region.post, region.after) if place is not None}
    finishes: dict[int, int] = {region.id: 0 for region in regions}
    for operator in operators:
        number = operator.id
        if number in starts_late:
            levels[number] = max(levels[number], finishes[starts_late[number]])
        is_message = isinstance(operator, pg.Move) or (isinstance(operator, pg.Explode) and not operator.is_direct)
        behind = levels[number] + (1 if is_message else 0)
        if not isinstance(operator, pg.Enter):
            finishes[operator.region] = max(finishes[operator.region], behind)
        for successor in following[number]:
            if successor > number:
                levels[successor] = max(levels[successor], behind)
    return levels, finishes
