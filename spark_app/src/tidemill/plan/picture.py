"""A topology's program as a picture: its operators, where rows move between tasks, and what is written where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tidemill.drawing.layout import Arrow, Box, BoxKind, Way, layout
from tidemill.drawing.svg import to_svg
from tidemill.language.dataflow import Arg, Var
from tidemill.plan import program as pg
from tidemill.plan.steps import step_of

_REGIONS = {"source": "microbatch", "block": "batch block", "sub": "sub-batch", "join": "join"}
_PURPOSES = {
    "enter": "loop begins",
    "head": "loop",
    "again": "once more",
    "emit": "loop ends",
    "bind": "sub-batch ends",
}


def picture(program: pg.Program) -> str:
    """The program as SVG: thick arrows where rows move to other tasks, dashed ones for what is kept in the store."""
    return drawn(*Sketch(program).parts(), title_of(program), program.shape)


def title_of(program: pg.Program) -> str:
    """What is read to those who do not see the picture."""
    return f"The plan of {program.topology} in {program.module}"


def drawn(boxes: Sequence[Box], arrows: Sequence[Arrow], title: str, shape: int) -> str:
    """The SVG of a plan's boxes and arrows; `shape` is that of its program."""
    return to_svg(layout(boxes, arrows), title, str(shape))


class Sketch:
    """The boxes and arrows of one program."""

    def __init__(self, program: pg.Program) -> None:
        self._program = program
        segments = program.segments.values()
        self._segments = {number: segment for segment in segments for number in segment.operators}

    def parts(self) -> tuple[list[Box], list[Arrow]]:
        """All of them; an operator that only brings branches together, or begins a source, is drawn by its arrows."""
        arrows = [*self._rows(), *self._regions(), *self._kept()]
        passed = {str(op.id) for op in self._program.operators if isinstance(op, pg.Join)}
        arrows = _without(passed - _meeting(arrows), arrows)
        names = {name for arrow in arrows for name in (arrow.source, arrow.target)}
        shown = [self._box(operator) for operator in self._program.operators if str(operator.id) in names]
        stores = sorted(name for name in names if not name.isdigit())
        return [*(Box(name, name.partition(" ")[2], kind="store") for name in stores), *shown], _merged(arrows)

    # --- boxes -------------------------------------------------------------------------------------------------------

    def _box(self, operator: pg.Operator) -> Box:
        segment = self._segments.get(operator.id)
        mode = segment.mode if segment else ""
        reason = f"\nby {segment.mode}: {segment.reason}" if segment and segment.reason else ""
        title, text = self._texts(operator)
        kind: BoxKind = "moved" if isinstance(operator, pg.Move) else "step"
        if isinstance(operator, (pg.Start, pg.Join)):
            kind = "end"
        hint = f"{title} at {operator.at}{reason}"
        return Box(str(operator.id), title, text, hint, kind, mode if mode == "rows" else "")

    def _texts(self, operator: pg.Operator) -> tuple[str, str]:
        """The two lines of a box: the step, and the variables that it takes and binds."""
        if isinstance(operator, pg.Start):
            region = self._program.regions[operator.region]
            return _REGIONS[region.kind], region.source_id or ""
        if isinstance(operator, pg.Assign):
            return _PURPOSES[operator.purpose], _flow(operator.args, operator.outs)
        if isinstance(operator, pg.Enter):
            return "batch block", "waits until all that came before is done"
        if isinstance(operator, pg.Collect):
            return "aggregate", _flow((), tuple(out.out for out in self._outputs(operator) if out.out))
        if isinstance(operator, pg.Keep):
            return "keep_true", _names((operator.condition,))
        if isinstance(operator, pg.Split):
            return "if_true", _names((operator.condition,))
        if isinstance(operator, pg.Join):
            return "branches meet", ""
        if isinstance(operator, pg.Gather):
            return "join", _names(operator.on)
        args = getattr(operator, "args", ())
        return step_of(operator), _flow(args, getattr(operator, "outs", ()))

    # --- arrows ------------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Arrow]:
        for operator in self._program.operators:
            way: Way = "moved" if isinstance(operator, pg.Move) else "rows"
            for following in self._program.next[operator.id]:
                counted = f"{operator.id}>{following}" if isinstance(operator, pg.Split) else str(operator.id)
                counted = str(following) if isinstance(operator, pg.Enter) else counted  # a block begins there anew
                yield Arrow(str(operator.id), str(following), way, counts=counted)

    def _regions(self) -> Iterator[Arrow]:
        """Where rows wait until a region is finished, and go on behind it."""
        for region in self._program.regions:
            ends = [end for end in (region.collect, *region.sides) if end is not None]
            if region.enter is not None and region.start not in self._program.next[region.enter]:
                yield Arrow(str(region.enter), str(region.start), counts=str(region.start))
            if region.post is not None:
                yield from (Arrow(str(end), str(region.post), counts=str(region.post)) for end in ends)
            if region.after is not None and region.enter is not None:
                yield Arrow(str(region.enter), str(region.after), counts=str(region.after))

    def _kept(self) -> Iterator[Arrow]:
        """What is read from depots, and written to PStates and depots."""
        for operator in self._program.operators:
            name = str(operator.id)
            if isinstance(operator, pg.Explode) and not operator.temp:
                yield Arrow(f"depot {operator.source_id}", name, "state")
            elif isinstance(operator, (pg.Fold, pg.Transform, pg.Clear)):
                yield Arrow(name, f"PState {operator.pstate}", "state")
            elif isinstance(operator, pg.Append):
                yield Arrow(name, f"appends {operator.depot}", "state")
            elif isinstance(operator, pg.Collect):
                yield from (
                    Arrow(name, f"PState {out.pstate}", "state") for out in self._outputs(operator) if out.pstate
                )

    def _outputs(self, operator: pg.Collect) -> tuple[pg.Output, ...]:
        return next((region.outputs for region in self._program.regions if region.collect == operator.id), ())


def _meeting(arrows: Iterable[Arrow]) -> set[str]:
    """The boxes at which several arrows end, and from which one begins."""
    ending = Counter(arrow.target for arrow in arrows)
    return {arrow.source for arrow in arrows if ending[arrow.source] > 1}


def _without(passed: set[str], arrows: list[Arrow]) -> list[Arrow]:
    """The arrows, drawn through these boxes to where they lead; those that lead nowhere go."""
    for name in passed:
        before = [arrow for arrow in arrows if arrow.target == name]
        after = [arrow for arrow in arrows if arrow.source == name]
        arrows = [arrow for arrow in arrows if name not in (arrow.source, arrow.target)]
        arrows += [replace(first, target=then.target) for first in before for then in after]
    return arrows


def _merged(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Arrows between the same boxes as one, along which all of them are counted."""
    counts: dict[Arrow, dict[str, None]] = {}
    for arrow in arrows:
        counts.setdefault(replace(arrow, counts=""), {})[arrow.counts] = None
    return [replace(arrow, counts=" ".join(filter(None, names))) for arrow, names in counts.items()]


def _flow(args: tuple[Arg, ...], outs: tuple[str, ...]) -> str:
    """`*a, *b → *c`."""
    taken, bound = _names(args), ", ".join(_plain(out) for out in outs)
    return " → ".join(part for part in (taken, bound) if part)


def _names(args: tuple[Arg, ...]) -> str:
    return ", ".join(_plain(arg.name) for arg in args if isinstance(arg, Var))


def _plain(name: str) -> str:
    """A variable without what the planner added to tell it from another of its name."""
    return name.split("'")[0]
