"""Questions about Polars expressions: the columns that they read, if one row is enough, what they aggregate."""

from __future__ import annotations

import io
import json
import operator
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Literal, TypeAlias

import polars as pl

from tidemill.values.errors import BadInput

ClosedInterval: TypeAlias = Literal["both", "left", "right", "none"]
_COMPARISONS = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CLOSED: dict[ClosedInterval, tuple[str, str]] = {
    "both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<"),
}  # fmt: skip
_FAILING: frozenset[Any] = frozenset(
    (
        "AnonymousFunction", "Combine", "DatetimeFunction", "Gather", "JsonDecode", "ReplaceStrict", "ToDecimal",
        ("options", "Strict"), ("strict", True), ("Get", False), ("HexDecode", True), ("Base64Decode", True),
    )
)  # fmt: skip
"""What marks an expression that may raise, as Polars writes it: names, or names with values."""
AGGREGATES = ("sum", "min", "max", "mean", "count", "n_unique")
"""The aggregations that `agg` takes, each of one expression of a row's columns; and `pl.len()`."""


def as_expression(column: str | pl.Expr) -> pl.Expr:
    """A name as the column of that name."""
    return pl.col(column) if isinstance(column, str) else column


def conjuncts(predicate: pl.Expr) -> Iterator[pl.Expr]:
    """The parts of `a & b & c`."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta.eq(predicate):
        yield from conjuncts(parts[1])
        yield from conjuncts(parts[0])
    else:
        yield predicate


def all_of(predicates: Sequence[pl.Expr]) -> pl.Expr | None:
    """Whether all of them are true; None if there is none."""
    return reduce(operator.and_, predicates) if predicates else None


def comparisons(predicate: pl.Expr) -> list[tuple[str, str, Any]]:
    """What `skip_conditions` of Parquet inputs say the same: (column, operator, value); empty if nothing does."""
    parts = predicate.meta.pop()[::-1]
    if len(parts) not in (2, 3) or not parts[0].meta.is_column() or not all(p.meta.is_literal() for p in parts[1:]):
        return []
    column, values = parts[0], [pl.select(part).item() for part in parts[1:]]
    name = column.meta.output_name()
    if any(value is None or isinstance(value, (list, pl.Series)) for value in values):
        return []
    if len(values) == 2:
        low, high = map(pl.lit, values)
        for closed, how in _CLOSED.items():
            if column.is_between(low, high, closed).meta.eq(predicate):
                return [(name, how[0], values[0]), (name, how[1], values[1])]
    for sign, compare in _COMPARISONS.items() if len(values) == 1 else ():
        if compare(column, values[0]).meta.eq(predicate):  # a literal of a type of its own is not the same
            return [(name, sign, values[0])]
    return []


def roots(expressions: Iterable[pl.Expr], schema: pl.Schema) -> set[str]:
    """The columns that expressions read; all of them where they are selected by a pattern or a type."""
    found: set[str] = set()
    for expression in expressions:
        names = expression.meta.root_names()
        is_named = not expression.meta.has_multiple_outputs() and set(names) <= set(schema)
        found |= set(names) if is_named else set(schema)
    return found


def may_fail(expression: pl.Expr) -> bool:
    """Whether an expression may raise on some rows: functions of users, strict casts, and parsing that is strict.

    A filter that was written before it may be what keeps such rows from it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Polars may still change the text
            return _has_failing(json.loads(expression.meta.serialize(format="json")))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        return True


def _has_failing(tree: Any) -> bool:
    if isinstance(tree, list):
        return any(map(_has_failing, tree))
    if isinstance(tree, dict):
        if tree.keys() == {"literal", "strict"}:  # a pattern that is none, which no row makes one
            return False
        marks = ((name, value) for name, value in tree.items() if isinstance(value, (bool, str)))
        return not _FAILING.isdisjoint((*tree, *marks)) or any(map(_has_failing, tree.values()))
    return tree in ("raise", "Raise", "ReplaceStrict", "RepeatBy")


def check_rows(expressions: Iterable[pl.Expr], word: str) -> None:
    """Refuse expressions that look at several rows: they would see those of one batch. And those that give more or
    fewer values than there are rows: with the other columns they would fit some batches only.

    Raises:
        BadInput: one does.
    """
    for expression in expressions:
        for part in _parts(expression):
            if not _is_of_one_row(part):
                raise BadInput(
                    f"{word} looks at one row at a time, and {part} at several: rows come in batches that are cut "
                    f"anywhere. Use group_by(...).agg(...) and join its result."
                )
        if _gives_other_rows(expression):
            raise BadInput(
                f"{word} takes one value of each row, and {expression} gives more or fewer: use the frame's filter, or "
                f"pl.when(...).then(...)."
            )


def aggregate_of(expression: pl.Expr) -> tuple[str, pl.Expr]:
    """The kind of an aggregation, and the expression of a row's columns that it aggregates.

    Raises:
        BadInput: it is none of `AGGREGATES`.
    """
    if expression.meta.has_multiple_outputs():
        raise BadInput(f"agg takes one column for each aggregate, and {expression} may be several")
    made = expression.meta.undo_aliases()
    if made.meta.eq(pl.len()):
        return "len", pl.lit(1)
    parts = made.meta.pop()
    for kind in AGGREGATES if len(parts) == 1 else ():
        if getattr(parts[0], kind)().meta.eq(made):
            check_rows([parts[0]], "agg")
            if not parts[0].meta.root_names() and not parts[0].meta.has_multiple_outputs():
                raise BadInput(f"{expression} reads no column, so it is no aggregate of rows: use pl.len()")
            return kind, parts[0]
    raise BadInput(
        f"agg takes {', '.join(AGGREGATES)} of an expression of columns, or pl.len(), and not {expression}. Put "
        f"arithmetic of aggregates into a select behind agg."
    )


def _parts(expression: pl.Expr) -> Iterator[pl.Expr]:
    yield expression
    for part in expression.meta.pop():
        yield from _parts(part)


def _is_of_one_row(expression: pl.Expr) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Polars may still change the question
        try:
            return _with_a_column(expression).meta.is_row_separable()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
            return True  # functions of users, which are trusted; fields of a struct, of which Polars does not answer


def _gives_other_rows(expression: pl.Expr) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = _with_a_column(expression).meta
            return not made.is_length_preserving() and not made.is_scalar()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
            return False  # as above


def _with_a_column(expression: pl.Expr) -> pl.Expr:
    """The expression with one column in place of each selection of columns, of which Polars does not answer."""
    if not expression.meta.has_multiple_outputs():
        return expression
    tree = _replaced(json.loads(expression.meta.serialize(format="json")))
    return pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")


def _replaced(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_replaced(part) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"Selector"}:
        return {"Column": "selected"}
    return {name: _replaced(part) for name, part in tree.items()}
