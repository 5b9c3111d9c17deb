"""The API of frames: lazy, chainable, checked at each call, run by `collect`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import polars as pl

from tidemill.graphs.dataset import Dataset
from tidemill.graphs.dataset_readers import delete_dataset
from tidemill.graphs.executor import Executor
from tidemill.graphs.executors.asof import AsOfStrategy, asof_joined, check_strategy
from tidemill.graphs.executors.bucket_outputs import BucketFolder, is_bucket
from tidemill.graphs.executors.joins import How, JoinShape
from tidemill.graphs.executors.outputs import OutputCSVExecutor, OutputParquetExecutor, PublishExecutor
from tidemill.graphs.executors.rows import columns_of
from tidemill.graphs.frames.compiler import Compiler
from tidemill.graphs.frames.expressions import aggregate_of, as_expression, check_rows
from tidemill.graphs.frames.plans import (
    AggregatePlan,
    AsOfPlan,
    ColumnsPlan,
    DistinctPlan,
    FilterPlan,
    JoinPlan,
    LimitPlan,
    Plan,
    SessionPlan,
    SortPlan,
    UnionPlan,
    WindowPlan,
    empty,
)
from tidemill.graphs.frames.pushdown import with_columns_below, with_filters_below
from tidemill.graphs.frames.steps import MakeColumns, PickColumns, SpreadWindows, StepsExecutor, same_channel
from tidemill.graphs.frames.window_spans import Span, window_spans
from tidemill.store.urls import open_store
from tidemill.values.errors import BadInput

Name = str | pl.Expr
_PARTIAL = re.compile(r"_\d+(_\w+)?")
"""What columns of partial results are called: keys of such names get other ones meanwhile."""


class FrameGraph(Protocol):
    """What frames need of a task graph."""

    store: str
    parallelism: int

    def fresh(self) -> Any:
        """A graph of the same settings without nodes."""

    def new_non_blocking_node(self, sources: Mapping[int, int], *arguments: Any, **named: Any) -> int:
        """A node whose output is a stream."""


class GraphFrame:
    """Rows that a graph will make. Each method gives a new frame; `collect` makes a graph, runs it, and gives the rows.

    Expressions are those of Polars and look at one row at a time. Rows come in no order but behind `sort` and `top_k`.
    """

    def __init__(self, owner: FrameGraph, plan: Plan) -> None:
        self._owner = owner
        self._plan = plan

    # --- operations --------------------------------------------------------------------------------------------------

    def filter(self, *predicates: pl.Expr) -> GraphFrame:
        """The rows of which all these expressions are true.

        Raises:
            BadInput: an expression looks at several rows. The errors of Polars: a column is missing, types do not fit.
        """
        check_rows(predicates, "filter")
        self._empty.filter(*predicates)
        plan = self._plan
        for predicate in predicates:
            plan = FilterPlan(plan, predicate)
        return self._of(plan)

    def select(self, *columns: Name, **named: Name) -> GraphFrame:
        """These columns instead of those that are there. Raises as `filter`."""
        return self._with_columns(columns, named, keeps=False)

    def with_columns(self, *columns: Name, **named: Name) -> GraphFrame:
        """These columns beside those that are there, or in place of those of their names. Raises as `filter`."""
        return self._with_columns(columns, named, keeps=True)

    def join(
        self,
        other: GraphFrame,
        on: str | Sequence[str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: How = "inner",
        suffix: str = "_right",
    ) -> GraphFrame:
        """The rows of both frames whose keys are equal, as Polars' `join` gives them; null equals nothing.

        The smaller side is held in memory, the other one passes by; if `how` is not inner, `other` is held.

        Raises:
            BadInput: the other frame is of another graph, or the columns do not fit.
        """
        if other._owner is not self._owner:
            raise BadInput("a join takes two frames of one graph: read both with the same TaskGraph")
        shape = JoinShape.of(on, left_on, right_on, how, suffix)
        made = shape.joined(self._empty, other._empty, how)
        keys = tuple(shape.left_on), tuple(shape.right_on)
        return self._of(JoinPlan(self._plan, other._plan, *keys, how, suffix, made.schema))

    def join_asof(
        self,
        other: GraphFrame,
        on: str | None = None,
        *,
        left_on: str | None = None,
        right_on: str | None = None,
        by: str | Sequence[str] | None = None,
        suffix: str = "_right",
        strategy: AsOfStrategy = "backward",
    ) -> GraphFrame:
        """Each row with the last row of `other` that is not later, of those with equal columns `by`, as Polars'
        `join_asof` gives it; with the strategy "forward" the first row that is not earlier, with "nearest" the one that
        is next in time, of two the later one.

        Neither frame need be in order. Of rows of `other` of one time any one is taken. Rows without a time, or with a
        null in `by`, find none. Both frames are held in memory; without `by` in one channel.

        Raises:
            BadInput: the other frame is of another graph, no columns of times are named, or there is no such strategy.
        """
        if other._owner is not self._owner:
            raise BadInput("a join takes two frames of one graph: read both with the same TaskGraph")
        left_time, right_time, keys = left_on or on, right_on or on, tuple(columns_of(by))
        if left_time is None or right_time is None:
            raise BadInput("join_asof needs the columns of times: on=, or left_on= and right_on=")
        check_strategy(strategy)
        made = asof_joined(self._empty, other._empty, left_time, right_time, keys, suffix, strategy)
        return self._of(AsOfPlan(self._plan, other._plan, left_time, right_time, keys, suffix, strategy, made.schema))

    def group_by_dynamic(
        self,
        index_column: str,
        *,
        every: Span,
        period: Span | None = None,
        group_by: Name | Sequence[Name] | None = None,
    ) -> Grouped:
        """Windows of a column of dates, times with a date, or whole numbers, for `agg`; as Polars' `group_by_dynamic`,
        but rows need not be in order, and windows come in none.

        A window begins at each multiple of `every`, and has the rows from there up to `period` later (`every`, if it is
        not given), that one not included: `every="1h"`, `"1mo"`, a timedelta, or a whole number for whole numbers. Its
        start is in `index_column`. Rows without a time are in no window. `group_by`: windows of each key. A row is in
        each window that has its time; Polars leaves out those that begin before a key's first row does.

        Raises:
            BadInput: the column has another type, or the spans do not fit it.
        """
        listed = [group_by] if isinstance(group_by, (str, pl.Expr)) else list(group_by or ())
        spans = window_spans(self.schema, index_column, every, every if period is None else period)
        grouped = self.group_by(*listed, index_column)
        spread = WindowPlan(grouped._frame._plan, index_column, *spans)
        probe = pl.DataFrame({index_column: [0]}).cast(self.schema[index_column])
        if SpreadWindows(index_column, *spans)(probe).is_empty():  # spans that Polars does not know raise here
            raise BadInput(f"windows take spans above 0, not every={every!r}, period={period!r}")
        return Grouped(self._of(spread), grouped._keys, grouped._names)

    def group_by_session(
        self, index_column: str, *, gap: Span, group_by: Name | Sequence[Name] | None = None
    ) -> Grouped:
        """Sessions of a column of dates, times with a date, or whole numbers, for `agg`: rows of which each is less
        than `gap` after the one before, in whatever order they come. A gap has no parts of the unit of the times.

        The time of a session's first row is in `index_column`. Rows without a time are in no session. `group_by`:
        sessions of each key. All rows are held in memory; without `group_by` in one channel.

        Raises:
            BadInput: the column has another type, the gap does not fit it, or a key is a list or a structure.
        """
        listed = [group_by] if isinstance(group_by, (str, pl.Expr)) else list(group_by or ())
        (span,) = window_spans(self.schema, index_column, gap)
        grouped = self.group_by(*listed, index_column)
        keys = tuple(key for key in grouped._keys if key != index_column)
        nested = [key for key in keys if grouped._frame.schema[key].is_nested()]
        if nested:
            raise BadInput(f"sessions are found in the order of their keys, and {nested[0]!r} has none")
        begin = pl.Series([0]).cast(pl.Datetime(getattr(self.schema[index_column], "time_unit", "us")))
        if (
            isinstance(span, str) and not (begin.dt.offset_by(span) > begin).all()
        ):  # what Polars does not know raises here
            raise BadInput(f"sessions take a gap above 0, not {gap!r}")
        plan = SessionPlan(grouped._frame._plan, index_column, span, keys)
        return Grouped(self._of(plan), grouped._keys, grouped._names)

    def group_by(self, *keys: Name) -> Grouped:
        """Groups of equal keys, for `agg`; null is a key like others."""
        expressions = [as_expression(key) for key in keys]
        names = tuple(key.meta.output_name() for key in expressions)
        # A key that is made has a name of its own: aggregates may read the column whose name it takes.
        hidden = tuple(
            name if key.meta.is_column() else f"__tidemill_key_{number}"
            for number, (name, key) in enumerate(zip(names, expressions, strict=True))
        )
        made = [key.alias(own) for own, key in zip(hidden, expressions, strict=True) if not key.meta.is_column()]
        return Grouped(self.with_columns(*made) if made else self, hidden, names)

    def agg(self, *aggregates: pl.Expr, **named: pl.Expr) -> GraphFrame:
        """One row of aggregates of all rows: see `Grouped.agg`."""
        return Grouped(self, (), ()).agg(*aggregates, **named)

    def distinct(self, keys: str | Sequence[str] | None = None) -> GraphFrame:
        """Each row once; with `keys` each combination of these columns, and no others."""
        return self._of(DistinctPlan((self if keys is None else self.select(*columns_of(keys)))._plan))

    def sort(
        self, by: str | Sequence[str], *, descending: bool | Sequence[bool] = False, nulls_last: bool = False
    ) -> GraphFrame:
        """The rows in order. All channels sort, each a range of about as many rows, with runs on disk if they are many.

        Ranges are found by a sample. Rows that are equal in the order come in any order.
        """
        names = columns_of(by)
        self._empty.select(names)
        falling = (descending,) * len(names) if isinstance(descending, bool) else tuple(descending)
        return self._of(SortPlan(self._plan, tuple(names), falling, nulls_last))

    def top_k(self, k: int, by: str | Sequence[str], *, descending: bool | Sequence[bool] = True) -> GraphFrame:
        """The first `k` rows of an order, in order; nulls come last."""
        return self.sort(by, descending=descending, nulls_last=True).limit(k)

    def limit(self, rows: int) -> GraphFrame:
        """Any so many rows, and inputs stop when they are there; behind `sort` the first ones."""
        if rows < 0:
            raise BadInput(f"a limit is 0 or more, this one is {rows}")
        if isinstance(self._plan, SortPlan) and self._plan.limit is None:
            return self._of(replace(self._plan, limit=rows))
        return self._of(LimitPlan(self._plan, rows))

    def union(self, *others: GraphFrame) -> GraphFrame:
        """The rows of all these frames, which have equal columns. Raises BadInput where they do not."""
        for other in others:
            if dict(other.schema) != dict(self.schema):
                raise BadInput(f"a union takes frames of equal columns: {dict(self.schema)} and {dict(other.schema)}")
        return self._of(UnionPlan((self._plan, *(other._plan for other in others))))

    # --- results -----------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self._plan.schema

    @property
    def graph(self) -> Any:
        """The `TaskGraph` that `materialize` would run: its `explain()` prints the nodes."""
        return self._compiled()[0]

    def explain(self) -> str:
        """The nodes as text."""
        return str(self.graph.explain())

    def materialize(self) -> Dataset:
        """Run it and keep the rows as a Dataset in the graph's store."""
        graph, dataset = self._compiled()
        graph.run()
        return dataset

    def collect(self) -> pl.DataFrame:
        """Run it; the rows."""
        dataset = self.materialize()
        rows = list(dataset)
        delete_dataset(open_store(dataset.store), dataset.id)
        return pl.concat(rows) if rows else empty(self.schema)

    def write_csv(self, folder: str | os.PathLike[str], *, separator: str = ",", header: bool = True) -> list[str]:
        """Run it and write CSV files into a folder of this machine, which appears whole at the end; the files. Into a
        folder of a bucket (`s3://bucket/folder?endpoint=URL`) one file is written, which appears whole.

        Raises:
            BadInput: the folder is there already.
        """
        return self._written(OutputCSVExecutor(folder, separator=separator, header=header), folder)

    def write_parquet(self, folder: str | os.PathLike[str]) -> list[str]:
        """The same as `write_csv`, as Parquet files."""
        return self._written(OutputParquetExecutor(folder), folder)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _empty(self) -> pl.DataFrame:
        return empty(self.schema)

    def _of(self, plan: Plan) -> GraphFrame:
        return GraphFrame(self._owner, plan)

    def _with_columns(self, columns: Sequence[Name], named: Mapping[str, Name], keeps: bool) -> GraphFrame:
        made = (
            *(as_expression(each) for each in columns),
            *(as_expression(value).alias(name) for name, value in named.items()),
        )
        check_rows(made, "with_columns" if keeps else "select")
        return self._of(ColumnsPlan(self._plan, made, keeps, MakeColumns(made, keeps)(self._empty).schema))

    def _pushed(self) -> Plan:
        return with_columns_below(with_filters_below(self._plan), set(self.schema))

    def _compiled(self) -> tuple[Any, Dataset]:
        graph = self._owner.fresh()
        made: Dataset = Compiler(graph, self._owner.parallelism).dataset(self._pushed(), PickColumns(self.schema))
        return graph, made

    def _written(self, output: Executor, folder: str | os.PathLike[str]) -> list[str]:
        if is_bucket(folder):
            BucketFolder(os.fspath(folder)).check_free()
        elif os.path.exists(folder):
            raise BadInput(f"{os.fspath(folder)} is there already: remove it, or write to another folder")
        graph = self._owner.fresh()
        source = Compiler(graph, self._owner.parallelism).stream(self._pushed())
        picked = graph.new_non_blocking_node(
            {0: source.node}, None, StepsExecutor([PickColumns(self.schema)]), source.channels, {0: same_channel}
        )
        files = graph.new_non_blocking_node({0: picked}, None, output, source.channels, {0: same_channel})
        made: Dataset = graph.new_blocking_node({0: files}, None, PublishExecutor(folder), 1, {0: None})
        graph.run()
        names = [name for batch in made for name in batch.get_column("file")]
        delete_dataset(open_store(made.store), made.id)
        return names


class Grouped:
    """A frame in groups of equal keys."""

    def __init__(self, frame: GraphFrame, keys: tuple[str, ...], names: tuple[str, ...]) -> None:
        """`keys` are columns of the frame, `names` those that they have in the result."""
        self._frame = frame
        self._keys = keys
        self._names = names

    def agg(self, *aggregates: pl.Expr, **named: pl.Expr) -> GraphFrame:
        """One row per group: its keys, and for each of these its value.

        Takes `sum`, `min`, `max`, `mean`, `count`, `n_unique` of an expression of columns, as
        `(pl.col("price") * pl.col("count")).sum().alias("total")`, and `pl.len()`. Batches are aggregated before they
        are sent where that makes fewer rows. Sums of Int32 and UInt32 are Int64, as Polars has it for smaller types:
        there they would wrap around.

        Raises:
            BadInput: an expression is none of these. The errors of Polars: a column is missing, types do not fit.
        """
        made = (*aggregates, *(value.alias(name) for name, value in named.items()))
        if not made:
            raise BadInput("agg needs at least one aggregate, as pl.len()")
        if hidden := {key: f"__tidemill_key{key}" for key in self._keys if _PARTIAL.fullmatch(key)}:
            frame = self._frame.with_columns(*(pl.col(key).alias(own) for key, own in hidden.items()))
            return Grouped(frame, tuple(hidden.get(key, key) for key in self._keys), self._names).agg(*made)
        rows = empty(self._frame.schema)
        wide = []
        for expression in made:
            kind, inner = aggregate_of(expression)
            of = rows.select(inner).dtypes[0]
            is_number = of.is_numeric() or of in (pl.Boolean, pl.Null)
            if kind in ("sum", "mean") and not (is_number or (kind == "sum" and of == pl.Duration)):
                raise BadInput(f"agg takes the {kind} of numbers, and {inner} is {of}")
            if kind == "sum" and of in (pl.Int32, pl.UInt32):
                wide.append(expression.meta.output_name())
        shown = rows.group_by(self._keys).agg(made) if self._keys else rows.select(made)
        shown = shown.with_columns(pl.col(name).cast(pl.Int64) for name in wide)
        found = GraphFrame(self._frame._owner, AggregatePlan(self._frame._plan, self._keys, made, shown.schema))
        if self._keys == self._names:
            return found
        keys = [pl.col(key).alias(name) for key, name in zip(self._keys, self._names, strict=True)]
        return found.select(*keys, *(pl.col(name) for name in shown.columns[len(keys) :]))
