"""What the generated code of a segment calls: paths, functions, state, and the ends where its rows gather."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import polars as pl

from tidemill.engine import blocks
from tidemill.engine.columns.calls import invoke_once
from tidemill.engine.columns.functions import as_series, as_tuples
from tidemill.engine.combined import send_combined
from tidemill.engine.event_loops import FailedCall
from tidemill.engine.frame import Frame
from tidemill.engine.materialized import keep_rows
from tidemill.engine.partition import send
from tidemill.engine.rows.source import SegmentSource
from tidemill.engine.step import AppendedRow, RetainedRow, Step
from tidemill.language.dataflow import Var
from tidemill.language.objects import DeclaredObject
from tidemill.language.operations import Op, expanded
from tidemill.plan import program as pg
from tidemill.values import columns as cols
from tidemill.values.data import detached
from tidemill.values.errors import BadInput


class RowRuntime:
    """What generated code calls."""

    def __init__(self, run: Step, source: SegmentSource) -> None:
        self._run = run
        self._source = source
        self._rows: dict[int, list[tuple[Any, ...]]] = {number: [] for number in source.buffers}
        self._appended: dict[str, list[AppendedRow]] = {}
        self._retained: dict[str, list[RetainedRow]] = {}
        self.constants = source.constants

    @property
    def context(self) -> Callable[[str, int, int], Any]:
        """A function of (built-in operation that depends on its place, task, operator) that gives its value."""
        return self._run.context.value

    def roots(self, pstate: str) -> _Roots:
        """The root nodes of a PState by task; a node is opened when it is first asked for."""
        return _Roots(self._run, pstate)

    def select(self, number: int) -> Callable[..., list[Any]]:
        """The select of operator `number`: its path, ready to call."""
        return self._run.compiled.paths[number].select

    def query(self, number: int) -> Callable[[int, tuple[Any, ...]], Any]:
        """A function of (task, arguments) that calls the query of operator `number`."""
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Invoke)
        return partial(invoke_once, self._run, operator)

    @property
    def answer(self) -> Callable[[Any], None]:
        """Takes an answer of the query."""
        return self._run.answers.append

    def transform(self, number: int) -> Callable[..., None]:
        """The transform of operator `number`: its path, ready to call."""
        return self._run.compiled.paths[number].transform

    def clear(self, number: int) -> Callable[[int], None]:
        """A function of a task that resets the PState of operator `number` there to its initial value."""
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Clear)
        state, pstate = self._run.state, operator.pstate

        def clear(task: int) -> None:
            state.clear(pstate, task)

        return clear

    def fold(self, number: int) -> Callable[[int, Sequence[Any]], None]:
        """A function of (task, arguments) that aggregates one row into the PState of operator `number`."""
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Fold)
        write, state, pstate = self._run.compiled.folds[number].writer.by_row.write, self._run.state, operator.pstate

        def fold(task: int, values: Sequence[Any]) -> None:
            write(state, pstate, task, values)

        return fold

    def append(self, number: int) -> Callable[[int, Any], None]:
        """A function of (task, record) that appends one record to the depot of operator `number`."""
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Append)
        held = self._appended.setdefault(operator.depot, [])

        def append(task: int, value: Any) -> None:
            held.append(AppendedRow(task, number, detached(value)))

        return append

    def retain(self, number: int) -> Callable[[int, tuple[Any, ...]], None]:
        """A function of (task, values) that materializes one row of operator `number`; `flush` keeps them."""
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Retain)
        held = self._retained.setdefault(operator.temp, [])

        def retain(task: int, values: tuple[Any, ...]) -> None:
            held.append(RetainedRow(task, number, values))

        return retain

    def stage(self) -> None:
        """Stages what rows appended to depots, in their order."""
        for depot, rows in self._appended.items():
            if rows:
                self._run.append_rows(depot, rows)
                rows.clear()

    def buffer(self, number: int) -> Callable[[tuple[Any, ...]], None]:
        """Takes one row for the end `number`, as (task, values of its columns); `flush` sends them."""
        return self._rows[number].append

    def _apply(self, number: int) -> pg.Apply:
        operator = self._run.program.operators[number]
        assert isinstance(operator, pg.Apply)
        return operator

    def call(self, number: int) -> Callable[..., Any]:
        """The function of operator `number` that returns one value a row."""
        function = self._apply(number).function
        if function.kind == "async":
            return self._awaited(function.call)
        call = function.call
        plain: Callable[..., Any] = call.call if isinstance(call, Op) else call
        budget = self._run.context.budget
        return plain if budget is None else budget.counting(function, plain)

    def _awaited(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Waits for one call; where many rows can wait together, they come here by columns."""
        results = self._run.context.awaiting.results

        def awaited(*args: Any) -> Any:
            try:
                return results(call, [args])[0]
            except FailedCall as failed:
                raise failed.__cause__ or failed from None

        return awaited

    def many(self, number: int) -> Callable[..., Any]:
        """The function of operator `number` that emits any number of rows: each one a tuple, a value a variable."""
        operator = self._apply(number)
        call, width = operator.function.call, len(operator.outs)

        budget = self._run.context.budget

        def many(*args: Any) -> Any:
            emitted = call(*args)
            return as_tuples(emitted, width, budget)

        return many

    def spread(self, number: int) -> Callable[..., tuple[Any, ...]]:
        """The function of operator `number` that takes a list apart, one element a variable.

        Its calls raise BadInput where the list is shorter or longer than the variables.
        """
        operator = self._apply(number)
        call, width = operator.function.call, len(operator.outs)

        def spread(*args: Any) -> tuple[Any, ...]:
            row = tuple(call(*args))
            if len(row) != width:
                raise BadInput(f"{width} variables cannot take the {len(row)} elements of {list(row)!r}")
            return row

        return spread

    def vector(self, number: int) -> Callable[..., Any]:
        """A function of series on series of one value; objects of the module are passed as they are."""
        operator = self._apply(number)
        call, width = operator.function.call, len(operator.outs)
        objects = object_variables(self._run.program)
        is_object = [isinstance(arg, Var) and arg.name in objects for arg in operator.args]

        def vector(*args: Any) -> Any:
            pairs = zip(args, is_object, strict=True)
            result = call(*(arg if whole else as_series(cols.from_values([arg])) for arg, whole in pairs))
            results = result if isinstance(result, tuple) else (result,)
            values = [cols.to_values(cols.from_frame(pl.DataFrame({"v": series})).fields[0])[0] for series in results]
            if width > 1 and len(values) == 1:
                return tuple(expanded(values[0]))
            return tuple(values) if width > 1 else values[0]

        return vector

    def flush(self) -> None:
        """Keeps what rows materialized, and sends what they brought to the ends of the segment."""
        for temp, retained in self._retained.items():
            if retained:
                keep_rows(self._run, temp, retained)
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
            if not send_combined(self._run, operator, frame):
                send(self._run, operator, frame)
        elif isinstance(operator, pg.Explode):
            self._run.explode(operator, frame)
        elif isinstance(operator, (pg.Collect, pg.Gather)):
            blocks.collect(self._run, operator, frame)
        elif isinstance(operator, pg.Enter):
            blocks.enter(self._run, operator, frame)


def object_variables(program: pg.Program) -> frozenset[str]:
    """The variables that hold objects of the module."""
    return frozenset(
        operator.outs[0]
        for operator in program.operators
        if isinstance(operator, pg.Apply) and isinstance(operator.function.call, DeclaredObject)
    )


class _Roots(dict[int, Any]):
    """The root nodes of a PState by task, opened when first asked for."""

    def __init__(self, run: Step, pstate: str) -> None:
        super().__init__()
        self._state = run.state_of(pstate)
        self._pstate = pstate

    def __missing__(self, task: int) -> Any:
        root = self[task] = self._state.root(self._pstate, task)
        return root
