"""Where an attempt is right now, asked from another thread: for the person who wonders why a phase takes so long.

Nothing is recorded on the way but one reference an operator; the rest is read off the thread's stack when somebody
asks.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import dropwhile
from types import FrameType
from weakref import ref

from tidemill.engine.rows.code import SegmentCode
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import CurrentStep
from tidemill.plan import program as pg
from tidemill.plan.compile.schedule import operators_of
from tidemill.plan.steps import step_of

STEPS_SHOWN = 5
_SILENT = (pg.Start, pg.Join, pg.Assign, pg.Keep, pg.Split, pg.Enter)


def named(operator: pg.Operator) -> str:
    """An operator and its line, as failures name it."""
    return f"{step_of(operator)} at {operator.at}"


def finder(runs: Sequence[ThreadRun], thread: int) -> Callable[[], CurrentStep]:
    """A function that says where `runs` are, which the Python thread `thread` takes from superstep to superstep.

    It does not keep them: whoever cancels the runs has this function, and they have whoever cancels them.
    """
    known = [ref(run) for run in runs]

    def find() -> CurrentStep:
        frame = sys._current_frames().get(thread)
        there = [run for run in (each() for each in known) if run is not None]
        found = [_operator(run.program, run.doing, frame) for run in there if run.doing is not None]
        step = named(found[0]) if found else "writing what the steps changed"
        return CurrentStep(step, _own_stack(frame))

    return find


def _operator(program: pg.Program, doing: pg.Operator | SegmentCode, frame: FrameType | None) -> pg.Operator:
    """The operator under way; in code that was generated for rows, the one whose line is running."""
    if not isinstance(doing, SegmentCode):
        return doing
    number = doing.start
    for each, line in traceback.walk_stack(frame):
        if each.f_code.co_filename == doing.file and line in doing.source.operator_of:
            number = doing.source.operator_of[line]
            break
    return program.operators[number]


def _own_stack(frame: FrameType | None) -> str:
    """The stack from where the engine called other code, such as a function of the module; empty where it did not."""
    calls = list(traceback.walk_stack(frame))[::-1]
    inside = dropwhile(lambda call: not _is_engine(call[0]), calls)
    own = list(dropwhile(lambda call: _is_engine(call[0]), inside))
    return "".join(traceback.StackSummary.extract(iter(own)).format())


def _is_engine(frame: FrameType) -> bool:
    is_generated = frame.f_code.co_filename.startswith("<tidemill ")
    return is_generated or str(frame.f_globals.get("__name__", "")).startswith("tidemill.")


def superstep_text(program: pg.Program, number: int) -> str:
    """A superstep as a person finds it in the code: its number and the steps that it takes."""
    if program.schedule is None:
        return f"superstep {number + 1}"
    operators = [program.operators[each] for each in operators_of(program)[number]]
    steps = [named(operator) for operator in operators if not isinstance(operator, _SILENT)]
    more = [f"{len(steps) - STEPS_SHOWN} more"] if len(steps) > STEPS_SHOWN else []
    listed = ", ".join([*steps[:STEPS_SHOWN], *more])
    return f"superstep {number + 1} of {len(program.schedule)}" + (f" ({listed})" if listed else "")
