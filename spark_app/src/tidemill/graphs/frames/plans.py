"""What a frame stands for: a tree of operations. Nothing here reads or runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from tidemill.graphs.executors.asof import AsOfStrategy
from tidemill.graphs.executors.joins import How


@dataclass(frozen=True)
class ScanPlan:
    """An input. `add(graph, columns, predicates, batch_func, dependents)` makes its node; `bytes`: its size.
    `sample(columns, predicates)`: some of its rows, from all over it; None where that would cost much.
    """

    add: Callable[..., int]
    schema: pl.Schema
    bytes: int
    columns: tuple[str, ...] = ()
    predicates: tuple[pl.Expr, ...] = ()
    sample: Callable[[Sequence[str], Sequence[pl.Expr]], pl.DataFrame] | None = None


@dataclass(frozen=True)
class FilterPlan:
    """The rows of which an expression is true."""

    source: Plan
    predicate: pl.Expr

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.source.schema


@dataclass(frozen=True)
class ColumnsPlan:
    """New columns; with `keeps` beside those that are there, else instead of them."""

    source: Plan
    expressions: tuple[pl.Expr, ...]
    keeps: bool
    schema: pl.Schema


@dataclass(frozen=True)
class JoinPlan:
    """Two plans joined by equal keys."""

    left: Plan
    right: Plan
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: How
    suffix: str
    schema: pl.Schema


@dataclass(frozen=True)
class AsOfPlan:
    """Each left row with the right row of its keys that is next to it in time."""

    left: Plan
    right: Plan
    left_on: str
    right_on: str
    by: tuple[str, ...]
    suffix: str
    strategy: AsOfStrategy
    schema: pl.Schema


@dataclass(frozen=True)
class WindowPlan:
    """Each row once for each window that has it; the column of its time becomes the window's start."""

    source: Plan
    column: str
    every: str | int
    period: str | int

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.source.schema


@dataclass(frozen=True)
class SessionPlan:
    """Each row that has a time, in whose place is the start of the row's session."""

    source: Plan
    column: str
    gap: str | int
    keys: tuple[str, ...]

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.source.schema


@dataclass(frozen=True)
class AggregatePlan:
    """One row per group; without keys one row."""

    source: Plan
    keys: tuple[str, ...]
    expressions: tuple[pl.Expr, ...]
    schema: pl.Schema


@dataclass(frozen=True)
class DistinctPlan:
    """Each row once."""

    source: Plan

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.source.schema


@dataclass(frozen=True)
class SortPlan:
    """Rows in order; the first `limit` of them, if it is given."""

    source: Plan
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: bool
    limit: int | None = None

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.source.schema


@dataclass(frozen=True)
class LimitPlan:
    """Any so many rows; the first ones of a source that is sorted."""

    source: Plan
    rows: int

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.source.schema


@dataclass(frozen=True)
class UnionPlan:
    """The rows of several plans of equal columns."""

    sources: tuple[Plan, ...]

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self.sources[0].schema


Plan: TypeAlias = (
    ScanPlan
    | FilterPlan
    | ColumnsPlan
    | JoinPlan
    | AsOfPlan
    | WindowPlan
    | SessionPlan
    | AggregatePlan
    | DistinctPlan
    | SortPlan
    | LimitPlan
    | UnionPlan
)


def empty(schema: pl.Schema) -> pl.DataFrame:
    """A frame of these columns, without rows: operations on it show what they give, and if they are possible."""
    return pl.DataFrame(schema=dict[str, Any](schema))
