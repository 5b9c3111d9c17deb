"""What a filter says of the columns by which rows are found: a superset of what it lets pass is enough.

A filter is never trusted to be understood: whoever reads by these bounds applies the whole filter to what it read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tidemill.tables.sorted_table import nan_token

VALUES_MAX: Final = 10_000
"""More values of one column than these are not looked up one by one."""


@dataclass(frozen=True)
class Allowed:
    """A column is one of `values` (None: any), and from `low` to `high`, both included (None: open)."""

    values: tuple[Any, ...] | None = None
    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class Bound:
    """One comparison that must hold: `sign` is ==, <= (also for <), >= (also for >) or in; `value` a list for `in`."""

    column: str
    sign: str
    value: Any


def bounds_of(terms: Iterable[Bound]) -> dict[str, Allowed]:
    """What all of these terms say together, by column; terms that cannot be compared are left out."""
    found: dict[str, Allowed] = {}
    for term in terms:
        known = found.get(term.column, Allowed())
        try:
            found[term.column] = _narrowed(known, term)
        except TypeError:
            continue
    return found


def _narrowed(known: Allowed, term: Bound) -> Allowed:
    if term.sign == "in":
        found = {nan_token(value): value for value in term.value if value is not None}
        if known.values is not None:
            found = {token: value for value in known.values if (token := nan_token(value)) in found}
        return Allowed(tuple(found.values()), known.low, known.high) if len(found) <= VALUES_MAX else known
    if term.value is None:  # nothing is equal to it, except for a comparison that says so
        return known
    if term.sign == "==":
        return _narrowed(known, Bound(term.column, "in", [term.value]))
    if term.sign == ">=":
        low = term.value if known.low is None else max(known.low, term.value)
        return Allowed(known.values, low, known.high)
    high = term.value if known.high is None else min(known.high, term.value)
    return Allowed(known.values, known.low, high)


def terms_of(predicate: pl.Expr | None) -> list[Bound]:
    """The comparisons of a column with a constant that a Polars filter, taken apart at its `&`, is made of.

    What an expression is shows in its parts: if they, put together by an operation, give an equal expression, it is
    that operation. So nothing depends on how Polars writes expressions down.
    """
    return [] if predicate is None else [term for part in joined(predicate) for term in _terms(part)]


def joined(predicate: pl.Expr) -> Iterator[pl.Expr]:
    """The parts of a filter that are joined by `&`; itself if it has none."""
    parts = predicate.meta.pop()[::-1]
    if len(parts) == 2 and (parts[0] & parts[1]).meta.eq(predicate):
        yield from joined(parts[0])
        yield from joined(parts[1])
    else:
        yield predicate


def _terms(expression: pl.Expr) -> Iterator[Bound]:
    parts = expression.meta.pop()[::-1]
    if len(parts) == 2:
        left, right = parts
        if left.meta.is_column() and _is_constant(right):
            yield from _comparison(expression, left, right)
        elif _is_constant(left) and right.meta.is_column():
            yield from _turned(expression, left, right)
    elif len(parts) == 3:
        yield from _between(expression, *parts)


def _is_constant(expression: pl.Expr) -> bool:
    return bool(expression.meta.is_literal())


def _comparison(expression: pl.Expr, column: pl.Expr, constant: pl.Expr) -> Iterator[Bound]:
    name, values = column.meta.output_name(), _values(constant)
    for sign, made in (
        ("==", column == constant), ("==", column.eq_missing(constant)), (">=", column >= constant),
        (">=", column > constant), ("<=", column <= constant), ("<=", column < constant),
    ):  # fmt: skip
        if made.meta.eq(expression) and len(values) == 1:
            yield Bound(name, sign, values[0])
            return
    if column.is_in(constant).meta.eq(expression):
        items = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        yield Bound(name, "in", items)


def _turned(expression: pl.Expr, constant: pl.Expr, column: pl.Expr) -> Iterator[Bound]:
    name, values = column.meta.output_name(), _values(constant)
    for sign, made in (
        ("==", constant == column), (">=", constant <= column), (">=", constant < column),
        ("<=", constant >= column), ("<=", constant > column),
    ):  # fmt: skip
        if made.meta.eq(expression) and len(values) == 1:
            yield Bound(name, sign, values[0])
            return


def _between(expression: pl.Expr, column: pl.Expr, low: pl.Expr, high: pl.Expr) -> Iterator[Bound]:
    if not (column.meta.is_column() and _is_constant(low) and _is_constant(high)):
        return
    if any(column.is_between(low, high, closed=closed).meta.eq(expression) for closed in _CLOSED):
        lows, highs = _values(low), _values(high)
        if len(lows) == len(highs) == 1:
            yield Bound(column.meta.output_name(), ">=", lows[0])
            yield Bound(column.meta.output_name(), "<=", highs[0])


_CLOSED: Final[tuple[Any, ...]] = ("both", "left", "right", "none")


def _values(constant: pl.Expr) -> list[Any]:
    """The values of a constant; none of a type whose order is its own, by which Polars then compares texts."""
    found = pl.select(constant).to_series()
    return [] if isinstance(found.dtype, (pl.Enum, pl.Categorical)) else found.to_list()


Bounds = Mapping[str, Allowed]
