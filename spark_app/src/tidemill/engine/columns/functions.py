"""`each` over a frame: built-in operations as columns where they can be, functions of the module value by value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from tidemill.engine.columns.arithmetic import FAST, get_field
from tidemill.engine.context import StepContext
from tidemill.engine.event_loops import FailedCall
from tidemill.engine.failures import user_error
from tidemill.engine.frame import Frame
from tidemill.engine.query_budget import RunningBudget
from tidemill.language.dataflow import HIDDEN, Arg, Const, Var
from tidemill.language.emits import StreamEmit
from tidemill.language.objects import DeclaredObject
from tidemill.language.operations import Op, expanded
from tidemill.plan.program import Apply
from tidemill.plan.steps import step_name
from tidemill.values import columns as cols
from tidemill.values.columns import Column, RecordColumn
from tidemill.values.errors import BadInput


class ObjectColumn(list[Any]):
    """An object of the module, once for each row; a function of columns gets the object itself."""


_ONE_VALUE = (str, bytes, dict)
"""What Python can go through, letter by letter or key by key, though nobody means these as rows."""


def column_of(frame: Frame, arg: Arg) -> Column:
    """The column of a flat argument."""
    if isinstance(arg, Var):
        return frame.columns[arg.name]
    assert isinstance(arg, Const)
    return cols.repeat(arg.value, frame.rows)


def apply(operator: Apply, frame: Frame, context: StepContext) -> Frame:
    """The frame behind an `each`. What a query makes is counted: value by value where a call makes one, else as
    columns.
    """
    function, call, budget = operator.function, operator.function.call, context.budget
    if isinstance(call, DeclaredObject):
        return frame.with_columns({operator.outs[0]: ObjectColumn([call()] * frame.rows)})
    if call.emits == "many" if isinstance(call, Op) else function.kind == "operation":
        return _many(operator, frame, budget)
    if isinstance(call, Op) and call.needs_context:
        after = _bound(operator, frame, [_of_context(operator, call.name, frame, context)])
    elif isinstance(call, Op) and call.emits == "expand":
        after = _expand(operator, frame)
    elif function.kind == "vectorized":
        after = _vectorized(operator, frame)
    elif function.kind == "async":
        after = _bound(operator, frame, [_awaited(operator, frame, context)])
    else:
        fast = _fast(operator, call, frame) if isinstance(call, Op) else None
        if fast is None:
            return _bound(operator, frame, [_by_value(operator, frame, budget)])
        after = _bound(operator, frame, [fast])
    if budget is not None:
        for out in operator.outs:
            budget.column(after.columns[out])
    return after


def _of_context(operator: Apply, name: str, frame: Frame, context: StepContext) -> Column:
    try:
        values = [context.value(name, task, operator.id) for task in frame.tasks().to_list()]
    except BadInput as error:
        raise _failure(operator, frame, error, 0) from error
    return values if name == "CURRENT_RANDOM_SOURCE" else cols.from_values(values)


def _bound(operator: Apply, frame: Frame, results: Sequence[Column]) -> Frame:
    """The results bound to the outs; one result may go to several outs as the elements of its values."""
    outs = operator.outs
    if not outs:
        return frame
    if len(outs) == len(results):
        return frame.with_columns(dict(zip(outs, results, strict=True)))
    return frame.with_columns(_spread(operator, frame, results[0]))


def _spread(operator: Apply, frame: Frame, column: Column) -> dict[str, Column]:
    """The elements of lists as one column each."""
    outs = operator.outs
    if isinstance(column, RecordColumn) and column.kind == "list" and len(column.fields) == len(outs):
        return dict(zip(outs, column.fields, strict=True))
    rows = []
    for index, value in enumerate(cols.to_values(column)):
        try:
            row = tuple(expanded(value))
            if len(row) != len(outs):
                raise BadInput(f"{len(outs)} variables cannot take the {len(row)} elements of {value!r}")
        except (TypeError, BadInput) as error:
            raise _failure(operator, frame, error, index) from error
        rows.append(row)
    return {out: cols.from_values([row[i] for row in rows]) for i, out in enumerate(outs)}


def _expand(operator: Apply, frame: Frame) -> Frame:
    return frame.with_columns(_spread(operator, frame, column_of(frame, operator.args[0])))


def _fast(operator: Apply, op: Op, frame: Frame) -> Column | None:
    """What a built-in operation makes of whole columns; None where it goes value by value."""
    if op.name in ("GET", "MUST_GET") and len(operator.args) == 2 and isinstance(operator.args[1], Const):
        found = get_field([column_of(frame, operator.args[0])], operator.args[1].value)
        if found is not None:
            return found
    fast = FAST.get(op.name)
    return None if fast is None else fast([column_of(frame, arg) for arg in operator.args])


def argument_values(frame: Frame, args: Sequence[Arg]) -> Iterable[tuple[Any, ...]]:
    """The arguments row by row."""
    if not args:
        return ((),) * frame.rows
    lists = [
        [arg.value] * frame.rows if isinstance(arg, Const) else cols.to_values(column_of(frame, arg)) for arg in args
    ]
    return zip(*lists, strict=True)


def _by_value(operator: Apply, frame: Frame, budget: RunningBudget | None) -> Column:
    call = operator.function.call
    if budget is not None:
        call = budget.counting(operator.function, call)
    values: list[Any] = []
    try:
        if len(operator.args) == 1 and isinstance(operator.args[0], Var):
            values.extend(map(call, cols.to_values(frame.columns[operator.args[0].name])))
            if len(values) != frame.rows:  # `map` takes a StopIteration of the function for the end of the rows
                raise RuntimeError("the function raised StopIteration")
        else:
            for row in argument_values(frame, operator.args):
                values.append(call(*row))  # noqa: PERF401 - its length says which row failed
    except Exception as error:
        raise _failure(operator, frame, error, len(values)) from error
    return cols.from_values(values)


def _awaited(operator: Apply, frame: Frame, context: StepContext) -> Column:
    try:
        values = context.awaiting.results(operator.function.call, argument_values(frame, operator.args))
    except FailedCall as failed:
        cause = failed.__cause__ or failed
        raise _failure(operator, frame, cause, failed.index) from cause
    return cols.from_values(values)


def _failure(operator: Apply, frame: Frame, error: BaseException, index: int) -> BaseException:
    return user_error(error, step_name(operator.function), operator.at, row_values(frame, index))


def row_values(frame: Frame, index: int) -> dict[str, Any]:
    """The variables of one row, for people."""
    if not 0 <= index < frame.rows:
        return {}
    indices = np.array([index])
    return {
        name: cols.to_values(cols.gather_rows(column, indices))[0]
        for name, column in frame.columns.items()
        if name[0] == "*" and not name.startswith(HIDDEN)
    }


def _many(operator: Apply, frame: Frame, budget: RunningBudget | None) -> Frame:
    """A row for each tuple that the function emits, with the variables of the row it was called for."""
    counts: list[int] = []
    emitted: list[tuple[Any, ...]] = []
    width, call = len(operator.outs), operator.function.call
    try:
        for row in argument_values(frame, operator.args):
            before = len(emitted)
            emits = call(*row)
            emitted.extend(as_tuples(emits, width, budget))
            counts.append(len(emitted) - before)
    except Exception as error:
        raise _failure(operator, frame, error, len(counts)) from error
    spread = frame.gather(np.repeat(np.arange(frame.rows), counts))
    if not emitted:
        return spread.with_columns({out: [] for out in operator.outs})
    results = list(zip(*emitted, strict=True)) if width else []
    return spread.with_columns(
        {out: cols.from_values(values) for out, values in zip(operator.outs, results, strict=True)}
    )


def as_tuples(emitted: Any, width: int, budget: RunningBudget | None = None) -> Iterator[tuple[Any, ...]]:
    """What an operation emits, as tuples of `width` values; a lone value needs no tuple.

    Raises:
        BadInput: it emits no rows, or a tuple does not fit the out variables.
    """
    if emitted is not None and (isinstance(emitted, _ONE_VALUE) or not hasattr(emitted, "__iter__")):
        kind = type(emitted).__name__
        raise BadInput(
            f"an @operation yields rows, or returns a list of them, but this returned one {kind}: write yield"
        )
    items = emitted if budget is None else budget.emitted(emitted)
    for item in () if items is None else items:
        if isinstance(item, tuple):
            row = item
        elif type(item) is StreamEmit:  # nothing binds its stream
            continue
        else:
            row = (item,)
        if width and len(row) != width:
            raise BadInput(f"emitted {len(row)} values for {width} out variables: {item!r}")
        yield row if width else ()


def _vectorized(operator: Apply, frame: Frame) -> Frame:
    try:
        args = [as_argument(column_of(frame, arg)) for arg in operator.args]
        result = operator.function.call(*args)
        results = list(result) if isinstance(result, tuple) else [result]
        columns = [_vector_result(series, frame.rows) for series in results]
        if operator.outs and len(columns) not in (1, len(operator.outs)):
            raise BadInput(f"returned {len(columns)} series for {len(operator.outs)} out variables")
    except Exception as error:
        raise _failure(operator, frame, error, 0) from error
    return _bound(operator, frame, columns)


def as_argument(column: Column) -> Any:
    """What a function of columns gets: a series, or an object of the module. There is one row at least."""
    return column[0] if isinstance(column, ObjectColumn) else as_series(column)


def as_series(column: Column) -> pl.Series:
    """The column as a Polars series: records as structs or lists, other values as whatever Polars makes of them."""
    if isinstance(column, pl.Series):
        return column
    values = cols.to_values(column)
    try:
        return pl.Series("", values, strict=False)
    except (TypeError, pl.exceptions.PolarsError):
        return pl.Series("", values, dtype=pl.Object)


def _vector_result(series: Any, rows: int) -> Column:
    if not isinstance(series, pl.Series):
        raise BadInput(f"a vectorized function returns a Polars series, not {type(series).__name__}")
    if len(series) != rows:
        raise BadInput(f"returned {len(series)} values for {rows} rows")
    return cols.from_frame(pl.DataFrame({"v": series})).fields[0]
