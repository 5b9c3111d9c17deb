"""Runs a segment row by row: each row goes depth-first to the next partitioner before the next one starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.engine.columns import access
from tidemill.engine.columns.arithmetic import truth
from tidemill.engine.columns.functions import apply, column_of
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame
from tidemill.engine.row_runtime import RowRuntime
from tidemill.engine.rows.code import SegmentCode, segment_code
from tidemill.engine.step import Step
from tidemill.language.dataflow import HIDDEN, AggMap, Arg, Var
from tidemill.plan import program as pg
from tidemill.plan.steps import step_of
from tidemill.values import columns as cols
from tidemill.values.errors import ends_programs

CHUNK_ROWS = 5_000


def walk_rows(run: Step, start: int, frame: Frame) -> None:
    """Lets the rows of a frame go on behind `start` one after the other, in the order of the frame."""
    code = segment_code(run.compiled, start)
    run.tally.rows[start] += frame.rows
    frame = _without_state(run, code, frame)
    run.doing = code
    runtime = RowRuntime(run, code.source)
    main = code.make(runtime)
    for begin in range(0, frame.rows, CHUNK_ROWS):
        run.check_cancel()
        chunk = frame if frame.rows <= CHUNK_ROWS else frame.slice(begin, min(CHUNK_ROWS, frame.rows - begin))
        _prefetch(run, start, chunk)
        _run_rows(run, code, main, _rows_of(run, code.start, chunk))
        runtime.stage()
        run.state.maybe_spill()
    runtime.flush()


def _without_state(run: Step, code: SegmentCode, frame: Frame) -> Frame:
    """The frame behind the operators at the segment's beginning that touch no state: those run by columns, so that the
    keys that they compute are known before the first row runs.
    """
    for number in code.prefix:
        operator = run.program.operators[number]
        if not frame.rows:
            break
        run.doing = operator
        if isinstance(operator, pg.Apply):
            frame = apply(operator, frame, run.context)
        elif isinstance(operator, pg.Keep):
            frame = frame.filter(truth(column_of(frame, operator.condition)))
        elif isinstance(operator, pg.Select):
            frame = access.select(run, operator, frame)
        frame = frame.keep_columns(run.program.live[number])
        run.tally.rows[number] += frame.rows
    return frame


def _rows_of(run: Step, start: int, frame: Frame) -> Any:
    lists = [cols.to_values(frame.columns[name]) for name in run.program.live[start]]
    return zip(frame.tasks().to_list(), *lists, strict=True)


def _run_rows(run: Step, code: SegmentCode, main: Callable[[Any], None], rows: Any) -> None:
    try:
        main(rows)
    except BaseException as error:  # whatever the module's functions raise
        if not isinstance(error, Exception) and not ends_programs(error):
            raise
        raise _located(run, code, error) from error


def _located(run: Step, code: SegmentCode, error: BaseException) -> BaseException:
    """The error with the operator whose line was running, and the variables that its row had there."""
    trace = error.__traceback__
    operator: pg.Operator | None = None
    sample: dict[str, Any] = {}
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == code.file:
            number = code.source.operator_of.get(trace.tb_lineno)
            operator = run.program.operators[number] if number is not None else operator
            bound = code.source.scopes.get(number or 0, set()) & code.source.names.keys()
            sample.update({code.source.names[k]: v for k, v in trace.tb_frame.f_locals.items() if k in bound})
        trace = trace.tb_next
    if operator is None:
        return error
    shown = {name: value for name, value in sample.items() if not name.startswith(HIDDEN)}
    return user_error(error, step_of(operator), operator.at, shown)


def _prefetch(run: Step, start: int, frame: Frame) -> None:
    """Fetches in bulk the elements whose keys are known before the segment runs."""
    if frame.rows < 2:
        return
    fetched = set()
    for number in run.program.segments[start].operators:
        operator = run.program.operators[number]
        if not isinstance(operator, (pg.Select, pg.Transform, pg.Fold)):
            continue
        partition = operator.partition if isinstance(operator, pg.Select) else None
        if isinstance(partition, Var) and partition.name not in frame.columns:
            continue
        for key in _leading_keys(run, operator):
            if not isinstance(key, Var) or key.name not in frame.columns or (operator.pstate, key.name) in fetched:
                continue
            fetched.add((operator.pstate, key.name))
            partitions = access.partitions_of(partition, frame)
            run.state_of(operator.pstate).prefetch(operator.pstate, partitions, column_of(frame, key))


def _leading_keys(run: Step, operator: pg.Select | pg.Transform | pg.Fold) -> list[Arg | None]:
    if isinstance(operator, pg.Fold):
        return [key for key, _ in operator.tree.entries] if isinstance(operator.tree, AggMap) else []
    return [run.compiled.paths[operator.id].leading_key]
