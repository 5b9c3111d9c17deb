"""Which segments run by columns and which row by row.

By columns every row passes an operator before any row passes the next one. That shows only where one row reads what
another row of the segment wrote in between: so a segment runs by rows if it touches a PState at two operators with
a write whose order matters, or writes it, order mattering, inside a loop. The same holds for a depot that it appends
to, and for rows that it materializes: they stand there as row after row left them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.language.aggregation_order import shows_order
from tidemill.plan import program as pg
from tidemill.plan.compile.order import touched_by, writes_in_order


def segments_of(
    operators: Sequence[pg.Operator],
    following: Sequence[Sequence[int]],
    regions: Sequence[pg.Region],
    schemas: Mapping[str, Any],
) -> dict[int, pg.ProgramSegment]:
    """The segment that begins at each place where rows can arrive."""
    starts = [op.id for op in operators if isinstance(op, (pg.Start, pg.Move, pg.Explode))]
    starts += [place for region in regions for place in (region.post, region.after) if place is not None]
    found = {}
    for start in sorted(set(starts)):
        reached = _reached(start, operators, following)
        mode, reason = _mode(reached, operators, following, schemas)
        found[start] = pg.ProgramSegment(start, tuple(sorted(reached)), mode, reason)
    return found


def _reached(start: int, operators: Sequence[pg.Operator], following: Sequence[Sequence[int]]) -> set[int]:
    """The operators that rows reach from `start` without a wait; where they wait ends the walk but belongs to it."""
    reached: set[int] = set()
    waiting = list(following[start])
    while waiting:
        number = waiting.pop()
        if number in reached:
            continue
        reached.add(number)
        if not isinstance(operators[number], pg.SEGMENT_ENDS):
            waiting.extend(following[number])
    return reached


def _mode(
    reached: set[int],
    operators: Sequence[pg.Operator],
    following: Sequence[Sequence[int]],
    schemas: Mapping[str, Any],
) -> tuple[Any, str]:
    touches: dict[str, list[pg.Operator]] = {}
    for number in sorted(reached):
        operator = operators[number]
        if (touched := touched_by(operator)) is not None:
            touches.setdefault(touched, []).append(operator)
    for name, found in touches.items():
        if _clash(found, schemas.get(name)):
            lines = ", ".join(sorted({str(operator.at.line) for operator in found}))
            return "rows", f"{name} is touched at several operators (lines {lines}), at least one writes"
        for operator in found:
            if writes_in_order(operator, schemas.get(name)) and _is_in_loop(operator.id, reached, operators, following):
                return "rows", f"{name} is written inside a loop (line {operator.at.line})"
    return "columns", "no row can see what another row of the segment wrote"


def _clash(touches: Sequence[pg.Operator], schema: Any) -> bool:
    """Whether the order between two operators on one PState can show."""
    if len(touches) < 2 or all(isinstance(operator, pg.Select) for operator in touches):
        return False
    folds = [operator for operator in touches if isinstance(operator, pg.Fold)]
    return len(folds) < len(touches) or shows_order([fold.tree for fold in folds], schema)


def _is_in_loop(
    number: int, reached: set[int], operators: Sequence[pg.Operator], following: Sequence[Sequence[int]]
) -> bool:
    waiting = list(following[number])
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current == number:
            return True
        if current in seen or current not in reached or isinstance(operators[current], pg.SEGMENT_ENDS):
            continue
        seen.add(current)
        waiting.extend(following[current])
    return False
