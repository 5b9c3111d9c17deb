"""From a plan to nodes. RowSteps on single batches are done where the batch is made, by the node before an exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tidemill.graphs.executor import Executor
from tidemill.graphs.executors.aggregation import AggExecutor, Aggregation, MergingAggExecutor
from tidemill.graphs.executors.asof import AsOfJoinExecutor, asof_joined
from tidemill.graphs.executors.joins import JoinExecutor, JoinShape
from tidemill.graphs.executors.range_sort import (
    BOUNDS,
    ROWS,
    BoundsExecutor,
    MergeRunsExecutor,
    RangeRunsExecutor,
    SampledKeys,
    to_range,
)
from tidemill.graphs.executors.rows import DistinctExecutor, LimitExecutor, UnionExecutor
from tidemill.graphs.executors.session_starts import SessionStartsExecutor
from tidemill.graphs.executors.sort import Order, SortExecutor, TopKExecutor
from tidemill.graphs.frames.expressions import aggregate_of
from tidemill.graphs.frames.heavy_keys import JoinSide, split_partitions
from tidemill.graphs.frames.plans import (
    AggregatePlan,
    AsOfPlan,
    ColumnsPlan,
    DistinctPlan,
    FilterPlan,
    JoinPlan,
    LimitPlan,
    Plan,
    ScanPlan,
    SessionPlan,
    SortPlan,
    UnionPlan,
    WindowPlan,
    empty,
)
from tidemill.graphs.frames.samples import kept_share
from tidemill.graphs.frames.steps import (
    FirstRows,
    GatherGroups,
    KeepRows,
    MakeColumns,
    PickColumns,
    RowStep,
    RowSteps,
    SpreadWindows,
    StepsExecutor,
    UniqueRows,
    same_channel,
)

BROADCAST_BYTES = 4 << 20
"""The side of a join that is built goes to all channels if it is smaller, about, and no join itself."""
FILTER_SHARE = 0.3
"""The share of rows that a filter keeps, as long as nobody knows."""
GROUP_SHARE = 0.1
"""The share of rows that are left as groups, as long as nobody knows."""


class Nodes(Protocol):
    """The part of a task graph that makes nodes."""

    def new_non_blocking_node(self, sources: Mapping[int, int], *arguments: Any, **named: Any) -> int:
        """A node whose output is a stream."""

    def new_blocking_node(self, sources: Mapping[int, int], *arguments: Any, **named: Any) -> Any:
        """A node whose output is a Dataset."""


@dataclass(frozen=True)
class NodeStream:
    """A node: its number, its channels (None: as many as the graph says), inputs behind it, and its columns."""

    node: int
    channels: int
    inputs: tuple[int, ...]
    columns: pl.DataFrame


class Compiler:
    """Makes the nodes of plans in one graph; `channels` are those of nodes that may have several."""

    def __init__(self, graph: Nodes, channels: int) -> None:
        self._graph = graph
        self._channels = channels

    def stream(self, plan: Plan, steps: Sequence[RowStep] = (), after: tuple[int, ...] = ()) -> NodeStream:
        """The node whose batches are those of a plan after these steps; its inputs wait for the inputs `after`."""
        match plan:
            case ScanPlan():
                return self._scan(plan, steps, after)
            case FilterPlan():
                return self.stream(plan.source, (KeepRows(plan.predicate), *steps), after)
            case ColumnsPlan():
                return self.stream(plan.source, (MakeColumns(plan.expressions, plan.keeps), *steps), after)
            case WindowPlan():
                spread = SpreadWindows(plan.column, plan.every, plan.period)
                return self.stream(plan.source, (spread, *steps), after)
            case SessionPlan():
                return self._with(self._sessions(plan, after), steps)
            case JoinPlan():
                return self._join(plan, steps, after)
            case AsOfPlan():
                return self._with(self._asof(plan, after), steps)
            case AggregatePlan():
                return self._aggregate(plan, steps, after)
            case DistinctPlan():
                source = self.stream(plan.source, (UniqueRows(),), after)
                keys = hashable(source.columns.columns, source.columns.schema)
                return self._with(self._node(source, DistinctExecutor(), keys, 0 if keys else 1), steps)
            case SortPlan(limit=None):
                return self._sort(plan, steps, after)
            case SortPlan():
                return self._with(self._first(plan, after), steps)
            case LimitPlan():
                source = self.stream(plan.source, (), after)
                return self._with(self._node(source, LimitExecutor(plan.rows), None, channels=1), steps)
            case UnionPlan():
                return self._union(plan, steps, after)

    def _scan(self, plan: ScanPlan, steps: Sequence[RowStep], after: tuple[int, ...]) -> NodeStream:
        columns = plan.columns or tuple(plan.schema)
        node = plan.add(self._graph, columns, plan.predicates, RowSteps(tuple(steps)) if steps else None, after)
        made = RowSteps(tuple(steps))(empty(plan.schema).select(columns))
        return NodeStream(node, self._channels, (node,), made)

    def _join(self, plan: JoinPlan, steps: Sequence[RowStep], after: tuple[int, ...]) -> NodeStream:
        builds_left = plan.how == "inner" and size(plan.left) < size(plan.right)
        built, probed = (plan.left, plan.right) if builds_left else (plan.right, plan.left)
        build = self.stream(built, (), after)
        probe = self.stream(probed, (), (*after, *build.inputs))
        left, right = (build, probe) if builds_left else (probe, build)
        shape = JoinShape(list(plan.left_on), list(plan.right_on), plan.how, plan.suffix)
        made = RowSteps(tuple(steps))(shape.joined(left.columns, right.columns, plan.how))
        executor = JoinExecutor(
            left_on=plan.left_on, right_on=plan.right_on, how=plan.how, suffix=plan.suffix,
            build=0 if builds_left else 1, batch_func=RowSteps(tuple(steps)) if steps else None,
            right_schema=right.columns.schema,
        )  # fmt: skip
        keys: dict[int, Any] = {0: list(plan.left_on), 1: list(plan.right_on)}
        sides = ((keys[0], left.columns.schema), (keys[1], right.columns.schema))
        is_hashable = all(hashable(names, schema) == names for names, schema in sides)
        copied: dict[int, Any] = {0 if builds_left else 1: None, 1 if builds_left else 0: same_channel}
        if not is_hashable or (size(built) < BROADCAST_BYTES and not _has_join(built)):
            keys = copied
        elif self._channels > 1 and size(probed) >= BROADCAST_BYTES:
            keys = copied if _is_small(built) else self._even(plan, builds_left) or keys
        node = self._graph.new_non_blocking_node({0: left.node, 1: right.node}, None, executor, self._channels, keys)
        return NodeStream(node, self._channels, (*build.inputs, *probe.inputs), made)

    def _even(self, plan: JoinPlan, builds_left: bool) -> dict[int, Any] | None:
        """How the rows of both sides are dealt where one of them has heavy keys. The side that passes by is split, or
        the one that is held, if the join gives rows of the other side in pairs only.
        """
        sides = JoinSide(plan.left, plan.left_on), JoinSide(plan.right, plan.right_on)
        probed, built = (1, 0) if builds_left else (0, 1)
        for split, copied in [(probed, built), (built, probed)][: 2 if plan.how == "inner" else 1]:
            limit = BROADCAST_BYTES / max(1.0, size(sides[copied].plan))
            found = split_partitions(sides[split], sides[copied], self._channels, limit)
            if found is not None:
                return {split: found[0], copied: found[1]}
        return None

    def _sessions(self, plan: SessionPlan, after: tuple[int, ...]) -> NodeStream:
        source = self.stream(plan.source, (), after)
        keys = hashable(plan.keys, source.columns.schema)
        executor = SessionStartsExecutor(plan.column, plan.gap, plan.keys)
        return self._node(source, executor, keys, channels=self._channels if keys else 1)

    def _aggregate(self, plan: AggregatePlan, steps: Sequence[RowStep], after: tuple[int, ...]) -> NodeStream:
        kinds = [(made.meta.output_name(), *aggregate_of(made)) for made in plan.expressions]
        arguments = MakeColumns(
            (*map(pl.col, plan.keys), *(inner.alias(f"_{n}") for n, (_, _, inner) in enumerate(kinds))), keeps=False
        )
        final = tuple(_final(n, name, kind, plan.schema[name]) for n, (name, kind, _) in enumerate(kinds))
        last = RowSteps((MakeColumns((*map(pl.col, plan.keys), *final), keeps=False), *steps))
        keys = hashable(plan.keys, plan.schema)
        channels = self._channels if keys else 1
        if any(kind == "n_unique" for _, kind, _ in kinds):
            nulls = [
                pl.col(f"_{n}").is_null().alias(f"_{n}_null") for n, (_, k, _) in enumerate(kinds) if k == "n_unique"
            ]
            source = self.stream(plan.source, (arguments, MakeColumns(tuple(nulls), keeps=True)), after)
            executor: Executor = AggExecutor(
                plan.keys, _distinct_kinds(kinds), final_func=last,
                input_schema=None if plan.keys else source.columns.schema,
            )  # fmt: skip
        else:
            source, executor = self._partial(plan, kinds, arguments, last, after)
        node = self._node(source, executor, keys, channels=channels)
        made = last(pl.DataFrame(schema={**{key: plan.schema[key] for key in plan.keys}, **_named(kinds, plan.schema)}))
        return NodeStream(node.node, channels, node.inputs, made)

    def _partial(
        self,
        plan: AggregatePlan,
        kinds: Sequence[tuple[str, str, pl.Expr]],
        arguments: MakeColumns,
        last: RowSteps,
        after: tuple[int, ...],
    ) -> tuple[NodeStream, Executor]:
        aggregations = [Aggregation(f"_{n}", f"_{n}", kind) for n, (_, kind, _) in enumerate(kinds)]
        types = arguments(empty(plan.source.schema)).schema
        each = list(enumerate(aggregations))
        grouped = tuple(made for n, aggregation in each for made in aggregation.partial(n, types))
        single = tuple(made for n, aggregation in each for made in aggregation.single(n, types))
        source = self.stream(plan.source, (arguments, GatherGroups(plan.keys, grouped, single)), after)
        return source, MergingAggExecutor(plan.keys, aggregations, source.columns, last)

    def _asof(self, plan: AsOfPlan, after: tuple[int, ...]) -> NodeStream:
        left, right = self.stream(plan.left, (), after), self.stream(plan.right, (), after)
        shared = hashable(plan.by, left.columns.schema)
        keys = shared if shared == hashable(plan.by, right.columns.schema) else None
        executor = AsOfJoinExecutor(
            plan.left_on, plan.right_on, plan.by, suffix=plan.suffix, right_schema=right.columns.schema,
            strategy=plan.strategy,
        )  # fmt: skip
        channels = self._channels if keys else 1
        sources = {0: left.node, 1: right.node}
        node = self._graph.new_non_blocking_node(sources, None, executor, channels, {0: keys, 1: keys})
        made = asof_joined(
            left.columns, right.columns, plan.left_on, plan.right_on, plan.by, plan.suffix, plan.strategy
        )
        return NodeStream(node, channels, (*left.inputs, *right.inputs), made)

    def dataset(self, plan: Plan, last: PickColumns, steps: Sequence[RowStep] = ()) -> Any:
        """The Dataset whose batches are those of a plan after these steps and a last one. Rows that are sorted last are
        written while they are merged.
        """
        match plan:
            case FilterPlan():
                return self.dataset(plan.source, last, (KeepRows(plan.predicate), *steps))
            case ColumnsPlan():
                return self.dataset(plan.source, last, (MakeColumns(plan.expressions, plan.keeps), *steps))
            case SortPlan(limit=None):
                sources, executor, channels, keys, _ = self._sorting(plan, (*steps, last), ())
                return self._graph.new_blocking_node(sources, None, executor, channels, keys, schema=last.schema)
            case ScanPlan() | WindowPlan() | JoinPlan() | AggregatePlan():  # what they drop is not sent
                source, steps = self.stream(plan, steps), ()
            case _:
                source = self.stream(plan)
        written = StepsExecutor([*steps, last])
        return self._graph.new_blocking_node(
            {0: source.node}, None, written, source.channels, {0: same_channel}, schema=last.schema
        )

    def _sort(self, plan: SortPlan, steps: Sequence[RowStep], after: tuple[int, ...]) -> NodeStream:
        sources, executor, channels, keys, source = self._sorting(plan, steps, after)
        node = self._graph.new_non_blocking_node(sources, None, executor, channels, keys)
        return NodeStream(node, channels, source.inputs, RowSteps(tuple(steps))(source.columns))

    def _sorting(
        self, plan: SortPlan, steps: Sequence[RowStep], after: tuple[int, ...]
    ) -> tuple[dict[int, int], Executor, int, dict[int, Any], NodeStream]:
        """What the node takes and does from which sorted rows come: channel 0 has the first ones."""
        order, then = Order(plan.by, plan.descending, plan.nulls_last), RowSteps(tuple(steps)) if steps else None
        source = self.stream(plan.source, (), after)
        if self._channels == 1 or hashable(plan.by, source.columns.schema) != list(plan.by):  # lists are not compared
            sort = SortExecutor(plan.by, plan.descending, nulls_last=plan.nulls_last, batch_func=then)
            return {0: source.node}, sort, 1, {0: None}, source
        bounds = self._node(source, BoundsExecutor(order, self._channels), SampledKeys(order), channels=1)
        runs = self._graph.new_non_blocking_node(
            {ROWS: source.node, BOUNDS: bounds.node}, None, RangeRunsExecutor(order), self._channels,
            {ROWS: same_channel, BOUNDS: None},
        )  # fmt: skip
        return {0: runs}, MergeRunsExecutor(order, then), self._channels, {0: to_range}, source

    def _first(self, plan: SortPlan, after: tuple[int, ...]) -> NodeStream:
        assert plan.limit is not None
        first = FirstRows(Order(plan.by, plan.descending, plan.nulls_last), plan.limit)
        source = self.stream(plan.source, (first,), after)
        top = TopKExecutor(plan.limit, plan.by, plan.descending, nulls_last=plan.nulls_last)
        return self._node(source, top, None, channels=1)

    def _union(self, plan: UnionPlan, steps: Sequence[RowStep], after: tuple[int, ...]) -> NodeStream:
        sources = [self.stream(source, (), after) for source in plan.sources]
        # A source may have more columns than are needed, as one of distinct rows does.
        shared = [name for name in sources[0].columns.columns if all(name in each.columns for each in sources)]
        columns = sources[0].columns.select(shared)
        numbered = dict(enumerate(source.node for source in sources))
        node = self._graph.new_non_blocking_node(
            numbered, None, UnionExecutor(shared), self._channels, dict.fromkeys(numbered, same_channel)
        )
        inputs = tuple(number for source in sources for number in source.inputs)
        return self._with(NodeStream(node, self._channels, inputs, columns), steps)

    def _with(self, source: NodeStream, steps: Sequence[RowStep]) -> NodeStream:
        """What comes of a node's batches in these steps, in a node of its own."""
        if not steps:
            return source
        made = self._node(source, StepsExecutor(steps), same_channel, channels=source.channels)
        return NodeStream(made.node, made.channels, made.inputs, RowSteps(tuple(steps))(source.columns))

    def _node(self, source: NodeStream, executor: Executor, key: Any, channels: int | None = None) -> NodeStream:
        channels = channels or self._channels
        node = self._graph.new_non_blocking_node({0: source.node}, None, executor, channels, {0: key})
        return NodeStream(node, channels, source.inputs, source.columns)


def hashable(columns: Sequence[str], schema: pl.Schema) -> list[str] | None:
    """Of these columns those by which rows can be dealt to channels; None if there is none.

    Rows that are equal in all columns are equal in some of them, so they still meet.
    """
    return [name for name in columns if not (schema[name].is_nested() or schema[name] in (pl.Null, pl.Object))] or None


def size(plan: Plan) -> float:
    """About how many bytes a plan gives."""
    match plan:
        case ScanPlan():
            share = len(plan.columns or plan.schema) / max(1, len(plan.schema))
            return float(plan.bytes * share * _supposed_share(plan))
        case FilterPlan():
            return FILTER_SHARE * size(plan.source)
        case JoinPlan():
            left = size(plan.left)
            return left if plan.how in ("semi", "anti") else max(left, size(plan.right))
        case AsOfPlan():
            return size(plan.left)
        case AggregatePlan():
            return GROUP_SHARE * size(plan.source) if plan.keys else 1.0
        case UnionPlan():
            return sum(map(size, plan.sources))
        case LimitPlan() | SortPlan(limit=int()):
            return min(float(BROADCAST_BYTES), size(plan.source))
        case ColumnsPlan() | DistinctPlan() | SortPlan() | WindowPlan() | SessionPlan():
            return size(plan.source)


def _supposed_share(scan: ScanPlan) -> float:
    return float(FILTER_SHARE ** min(2, len(scan.predicates)))


def _is_small(plan: Plan) -> bool:
    """Whether a sample shows that the filters of an input keep so few rows that they may go to all channels."""
    scan = plan
    while isinstance(scan, (FilterPlan, ColumnsPlan)):
        scan = scan.source
    share = kept_share(scan) if isinstance(scan, ScanPlan) and scan.predicates else None
    if share is None:
        return False
    assert isinstance(scan, ScanPlan)
    return size(plan) * share / _supposed_share(scan) < BROADCAST_BYTES


def _has_join(plan: Plan) -> bool:
    if isinstance(plan, (JoinPlan, AsOfPlan)):
        return True
    if isinstance(plan, UnionPlan):
        return any(map(_has_join, plan.sources))
    return not isinstance(plan, ScanPlan) and _has_join(plan.source)


def _final(number: int, name: str, kind: str, made: pl.DataType) -> pl.Expr:
    value = pl.col(f"_{number}")
    if kind == "n_unique":
        value = value + pl.col(f"_{number}_null").fill_null(False).cast(pl.Int64)
    return value.cast(made, strict=made != pl.Null).alias(name)  # a sum of nulls without a type is null, and was 0


def _distinct_kinds(kinds: Sequence[tuple[str, str, pl.Expr]]) -> dict[str, str | tuple[str, str]]:
    """The aggregations of `AggExecutor`; where distinct values are counted, null is one more."""
    made: dict[str, str | tuple[str, str]] = {}
    for number, (_, kind, _) in enumerate(kinds):
        made[f"_{number}"] = "count_distinct" if kind == "n_unique" else kind
        if kind == "n_unique":
            made[f"_{number}_null"] = "max"
    return made


def _named(kinds: Sequence[tuple[str, str, pl.Expr]], schema: pl.Schema) -> dict[str, pl.DataType]:
    """The columns that the last step of an aggregation takes."""
    found: dict[str, pl.DataType] = {}
    for number, (name, kind, _) in enumerate(kinds):
        found[f"_{number}"] = schema[name]
        if kind == "n_unique":
            found[f"_{number}_null"] = pl.Boolean()
    return found
