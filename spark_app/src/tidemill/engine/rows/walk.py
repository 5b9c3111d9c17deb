"""Runs a segment row by row: each row goes depth-first to the next partitioner before the next one starts."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from tidemill.engine import blocks
from tidemill.engine.columns.arithmetic import truth
from tidemill.engine.columns.functions import apply, as_series, as_tuples, column_of
from tidemill.engine.columns.walk import walk
from tidemill.engine.compiled import CompiledProgram
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame
from tidemill.engine.partition import send
from tidemill.engine.rows.source import SegmentSource, SourceWriter
from tidemill.language.dataflow import AggMap, Arg, Var
from tidemill.language.operations import Op, expanded
from tidemill.plan import program as pg
from tidemill.values import columns as cols
from tidemill.values.errors import BadInput

if TYPE_CHECKING:
    from tidemill.engine.thread import ThreadRun

CHUNK_ROWS = 5_000


def walk_rows(run: ThreadRun, start: int, frame: Frame) -> None:
    """Lets the rows of a frame go on behind `start` one after the other, in the order of the frame."""
    code = segment_code(run.compiled, start)
    if code is None:
        for index in range(frame.rows):
            walk(run, start, frame.slice(index, 1))
        return
    frame = _without_state(run, code, frame)
    run.doing = code
    runtime = RowRuntime(run, code.source)
    main = code.make(runtime)
    for begin in range(0, frame.rows, CHUNK_ROWS):
        run.check_cancel()
        chunk = frame if frame.rows <= CHUNK_ROWS else frame.slice(begin, min(CHUNK_ROWS, frame.rows - begin))
        _prefetch(run, start, chunk)
        _run_rows(run, code, main, _rows_of(run, code.start, chunk))
        run.state.maybe_spill()
    runtime.flush()


def _without_state(run: ThreadRun, code: SegmentCode, frame: Frame) -> Frame:
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
        frame = frame.keep_columns(run.program.live[number])
    return frame


def stateless_prefix(program: pg.Program, start: int) -> tuple[int, ...]:
    """The operators behind `start` that every row passes one after the other before it meets state or a fork."""
    entries: dict[int, int] = {}
    for successors in program.next:
        for successor in successors:
            entries[successor] = entries.get(successor, 0) + 1
    found: list[int] = []
    current = start
    while len(program.next[current]) == 1:
        current = program.next[current][0]
        is_free = isinstance(program.operators[current], (pg.Apply, pg.Keep, pg.Join))
        if not is_free or entries[current] != 1:
            break
        found.append(current)
    return tuple(found)


def _rows_of(run: ThreadRun, start: int, frame: Frame) -> Any:
    lists = [cols.to_values(frame.columns[name]) for name in run.program.live[start]]
    return zip(frame.tasks().to_list(), *lists, strict=True)


def _run_rows(run: ThreadRun, code: SegmentCode, main: Callable[[Any], None], rows: Any) -> None:
    try:
        main(rows)
    except Exception as error:  # whatever the module's functions raise
        raise _located(run, code, error) from error


def _located(run: ThreadRun, code: SegmentCode, error: BaseException) -> BaseException:
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
    shown = {name: value for name, value in sample.items() if not name.startswith("*~")}
    return user_error(error, step_of(operator), operator.at, shown)


_NAMES: dict[type, str] = {
    pg.Select: "local_select", pg.Transform: "local_transform", pg.Fold: "agg", pg.Collect: "agg",
    pg.Clear: "local_clear", pg.Explode: "explode_microbatch",
}  # fmt: skip


def step_of(operator: pg.Operator) -> str:
    """How a person calls an operator."""
    if isinstance(operator, pg.Apply):
        return f"each({operator.function.name})"
    if isinstance(operator, pg.Move):
        return f"{operator.kind}_partition"
    kind = _NAMES.get(type(operator), type(operator).__name__.lower())
    pstate = getattr(operator, "pstate", None)
    return f"{kind}({pstate})" if pstate else kind


def _prefetch(run: ThreadRun, start: int, frame: Frame) -> None:
    """Fetches in bulk the elements whose keys are known before the segment runs."""
    if frame.rows < 2:
        return
    fetched = set()
    for number in run.program.segments[start].operators:
        operator = run.program.operators[number]
        if not isinstance(operator, (pg.Select, pg.Transform, pg.Fold)):
            continue
        for key in _leading_keys(run, operator):
            if not isinstance(key, Var) or key.name not in frame.columns or (operator.pstate, key.name) in fetched:
                continue
            fetched.add((operator.pstate, key.name))
            run.state_of(operator.pstate).prefetch(operator.pstate, frame.tasks(), column_of(frame, key))


def _leading_keys(run: ThreadRun, operator: pg.Select | pg.Transform | pg.Fold) -> list[Arg | None]:
    if isinstance(operator, pg.Fold):
        return [key for key, _ in operator.tree.entries] if isinstance(operator.tree, AggMap) else []
    return [run.compiled.paths[operator.id].leading_key]


# --- compiled segments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentCode:
    """The compiled source of a segment; `make(runtime)` gives the function of its rows.

    `prefix` are the operators that run by columns before, `start` the last of them.
    """

    start: int
    prefix: tuple[int, ...]
    source: SegmentSource
    file: str
    make: Callable[[RowRuntime], Callable[[Any], None]]


@lru_cache(maxsize=256)
def segment_code(compiled: CompiledProgram, start: int) -> SegmentCode | None:
    """The code of a segment; None where it begins a batch block, which only the walk by columns can do."""
    program = compiled.program
    numbers = program.segments[start].operators
    if any(isinstance(program.operators[number], (pg.Enter, pg.Start)) for number in numbers):
        return None
    prefix = stateless_prefix(program, start)
    begin = prefix[-1] if prefix else start
    writer = SourceWriter(program, begin, numbers)
    writer.path_arguments = {number: compiled.paths[number].arguments for number in numbers if number in compiled.paths}
    writer.fold_arguments = {number: compiled.folds[number].args for number in numbers if number in compiled.folds}
    source = writer.write()
    file = f"<tidemill {program.topology} {program.key} {start}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(source.text, file, "exec"), space)  # the text is this package's own, see rows.source
    return SegmentCode(begin, prefix, source, file, space["make"])


class RowRuntime:
    """What generated code calls."""

    def __init__(self, run: ThreadRun, source: SegmentSource) -> None:
        self._run = run
        self._source = source
        self._rows: dict[int, list[tuple[Any, ...]]] = {number: [] for number in source.buffers}
        self.constants = source.constants

    @property
    def context(self) -> Callable[[str, int, int], Any]:
        return self._run.context.value

    def roots(self, pstate: str) -> _Roots:
        return _Roots(self._run, pstate)

    def select(self, number: int) -> Callable[..., list[Any]]:
        return self._run.compiled.paths[number].select

    def transform(self, number: int) -> Callable[..., None]:
        return self._run.compiled.paths[number].transform

    def clear(self, number: int) -> Callable[[int], None]:
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Clear)
        state, pstate = self._run.state, operator.pstate

        def clear(task: int) -> None:
            state.clear(pstate, task)

        return clear

    def fold(self, number: int) -> Callable[[int, Sequence[Any]], None]:
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Fold)
        write, state, pstate = self._run.compiled.folds[number].writer.by_row.write, self._run.state, operator.pstate

        def fold(task: int, values: Sequence[Any]) -> None:
            write(state, pstate, task, values)

        return fold

    def buffer(self, number: int) -> Callable[[tuple[Any, ...]], None]:
        return self._rows[number].append

    def _apply(self, number: int) -> pg.Apply:
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Apply)
        return operator

    def call(self, number: int) -> Callable[..., Any]:
        call = self._apply(number).function.call
        plain: Callable[..., Any] = call.call if isinstance(call, Op) else call
        return plain

    def many(self, number: int) -> Callable[..., Any]:
        operator = self._apply(number)
        call, width = operator.function.call, len(operator.outs)

        def many(*args: Any) -> Any:
            return as_tuples(call(*args), width)

        return many

    def spread(self, number: int) -> Callable[..., tuple[Any, ...]]:
        operator = self._apply(number)
        call, width = operator.function.call, len(operator.outs)

        def spread(*args: Any) -> tuple[Any, ...]:
            row = tuple(call(*args))
            if len(row) != width:
                raise BadInput(f"{width} variables cannot take the {len(row)} elements of {list(row)!r}")
            return row

        return spread

    def vector(self, number: int) -> Callable[..., Any]:
        """A function of series on series of one value."""
        operator = self._apply(number)
        call, width = operator.function.call, len(operator.outs)

        def vector(*args: Any) -> Any:
            result = call(*(as_series(cols.from_values([arg])) for arg in args))
            results = result if isinstance(result, tuple) else (result,)
            values = [cols.to_values(cols.from_frame(pl.DataFrame({"v": series})).fields[0])[0] for series in results]
            if width > 1 and len(values) == 1:
                return tuple(expanded(values[0]))
            return tuple(values) if width > 1 else values[0]

        return vector

    def flush(self) -> None:
        """Sends what rows brought to the ends of the segment."""
        for number, rows in sorted(self._rows.items()):
            if not rows:
                continue
            lists = list(zip(*rows, strict=True))
            names = self._source.buffers[number]
            columns = {name: cols.from_values(values) for name, values in zip(names, lists[1:], strict=True)}
            frame = Frame(len(rows), pl.Series("", lists[0], dtype=pl.Int32), columns)
            self._end(self._run.program.operators[number], frame)

    def _end(self, operator: pg.Operator, frame: Frame) -> None:
        if isinstance(operator, pg.Move):
            if not blocks.send_combined(self._run, operator, frame):
                send(self._run, operator, frame)
        elif isinstance(operator, pg.Explode):
            self._run.explode(operator, frame)
        elif isinstance(operator, pg.Collect):
            blocks.collect(self._run, operator, frame)


class _Roots(dict[int, Any]):
    """The root nodes of a PState by task, opened when first asked for."""

    def __init__(self, run: ThreadRun, pstate: str) -> None:
        super().__init__()
        self._state = run.state_of(pstate)
        self._pstate = pstate

    def __missing__(self, task: int) -> Any:
        root = self[task] = self._state.root(self._pstate, task)
        return root
