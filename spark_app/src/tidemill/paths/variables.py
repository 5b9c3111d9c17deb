"""Aggregation into variables: batch blocks and `group_by`, in one phase or with partial results that cross a
partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill.language.combiners import Accumulator, Combiner, accumulator_of, as_accumulator, combiner_of
from tidemill.language.dataflow import Aggregator, AggTree, Arg
from tidemill.tables.row_groups import group_columns, group_keys
from tidemill.tables.runs import CombinerColumns
from tidemill.tables.value_trees import accumulator_of_tree
from tidemill.values.columns import Column, from_values, gather_rows, length, to_values


@dataclass(frozen=True)
class VariableAggregation:
    """Several aggregators over the same rows. `positions` are those of each one's arguments among the argument
    columns.
    """

    aggregators: tuple[Combiner | Accumulator, ...]
    positions: tuple[tuple[int, ...], ...]

    @property
    def is_two_phase(self) -> bool:
        """Whether `partial`, `merge` and `finish` can be used; one accumulator rules them out."""
        return all(isinstance(aggregator, Combiner) for aggregator in self.aggregators)

    @property
    def is_flush_required(self) -> bool:
        """Whether a combiner says that its results grow without bound, so that partial ones shall be sent on."""
        return any(isinstance(found, Combiner) and found.is_flush_required for found in self.aggregators)

    def partial(self, group: Sequence[Column], args: Sequence[Column], rows: int) -> tuple[list[Column], list[Column]]:
        """(distinct groups in the order first seen, operands). Without group columns: one row, or none for no rows."""
        return group_columns(
            group, rows, [CombinerColumns(c, tuple(args[p] for p in ps)) for c, ps in self._combiners()]
        )

    def merge(self, group: Sequence[Column], operands: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        """The same for operands, which come in the order in which they shall be combined."""
        rows = length(operands[0]) if operands else length(group[0])
        folds = [
            CombinerColumns(c, (operand,), True) for (c, _), operand in zip(self._combiners(), operands, strict=True)
        ]
        return group_columns(group, rows, folds)

    def finish(self, operands: Sequence[Column]) -> list[Column]:
        """The results that people see, of merged operands."""
        pairs = zip(self._combiners(), operands, strict=True)
        return [_finished(combiner, operand) for (combiner, _), operand in pairs]

    def zero(self) -> list[Any]:
        """The results where there were no rows."""
        return [a.finish(a.zero() if isinstance(a, Combiner) else a.init()) for a in self.aggregators]

    def run(self, group: Sequence[Column], args: Sequence[Column], rows: int) -> tuple[list[Column], list[Column]]:
        """(groups, results) in one phase; works with accumulators too, in row order."""
        if self.is_two_phase:
            groups, operands = self.partial(group, args, rows)
            return groups, self.finish(operands)
        members = _members(group, rows)
        firsts = np.array([rows_of[0] for rows_of in members], dtype=np.int64)
        results = [
            _run(aggregator, [to_values(args[p]) for p in positions], members)
            for aggregator, positions in zip(self.aggregators, self.positions, strict=True)
        ]
        return [gather_rows(column, firsts) for column in group], results

    def _combiners(self) -> list[tuple[Combiner, tuple[int, ...]]]:
        pairs = zip(self.aggregators, self.positions, strict=True)
        return [(aggregator, positions) for aggregator, positions in pairs if isinstance(aggregator, Combiner)]


def compile_aggregation(trees: Sequence[AggTree], arg_index: Callable[[Arg], int]) -> VariableAggregation:
    """Prepare aggregators for rows whose argument columns stand at `arg_index(arg)`.

    Compound ones take rows one by one, as accumulators do.
    """
    aggregators: list[Combiner | Accumulator] = []
    positions: list[tuple[int, ...]] = []
    for tree in trees:
        args = tree.args if isinstance(tree, Aggregator) else ()
        if not isinstance(tree, Aggregator):
            made, args = accumulator_of_tree(tree)
            aggregators.append(made)
        else:
            aggregators.append(combiner_of(tree) if tree.kind == "combiner" else accumulator_of(tree))
        positions.append(tuple(map(arg_index, args)))
    return VariableAggregation(tuple(aggregators), tuple(positions))


def _finished(combiner: Combiner, operand: Column) -> Column:
    """Most combiners' operands are their values already."""
    return from_values(list(map(combiner.finish, to_values(operand)))) if combiner.has_finish else operand


def _members(group: Sequence[Column], rows: int) -> list[list[int]]:
    """Row numbers of each group, groups in the order first seen."""
    if not group:
        return [list(range(rows))] if rows else []
    keys = group_keys(group)
    grouped = keys.with_row_index("\x00row").group_by(keys.columns, maintain_order=True).agg("\x00row")
    members: list[list[int]] = grouped["\x00row"].to_list()
    return members


def _run(aggregator: Combiner | Accumulator, columns: list[list[Any]], members: list[list[int]]) -> Column:
    accumulator = aggregator if isinstance(aggregator, Accumulator) else as_accumulator(aggregator)
    results = []
    for rows in members:
        state = accumulator.init()
        for row in rows:
            state = accumulator.accumulate(state, *(column[row] for column in columns))
        results.append(accumulator.finish(state))
    return from_values(results)
