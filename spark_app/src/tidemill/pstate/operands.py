"""Aggregation into PStates by columns: group, combine, then append operands (merge on read) or merge with what is
stored.

Operands are appended without reading where the planner allows it, and where folding them later surely gives the
same: built-in combiners, no float sums (their rounding would depend on when compaction runs), no sum that could
overflow an int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tidemill.language.aggregation_order import has_order_between_leaves
from tidemill.language.combiners import Combiner, combiner_named
from tidemill.language.dataflow import AggTree, Arg
from tidemill.language.schema import Leaf, MapSchema, Schema, SetSchema
from tidemill.pstate.row_folds import Apply, RowTarget, WriteRow, apply_of, write_structure
from tidemill.pstate.targets import Target, targets_of
from tidemill.pstate.thread_state import ThreadState
from tidemill.tables.cells import cells_of
from tidemill.tables.codecs import Misfit, checker, refusal, value_codec
from tidemill.tables.container import OPERAND, PUT
from tidemill.tables.level_merge import CombinerNames, key_columns, key_rows, resolve, rows_frame
from tidemill.tables.null_keys import shown
from tidemill.tables.row_groups import combine_groups
from tidemill.tables.runs import CombinerColumns
from tidemill.tables.table_bounds import absolute_max
from tidemill.tables.tables import Table, ValuePlace, layout_of, value_schema
from tidemill.tables.value_trees import combiner_for
from tidemill.values.absent import ABSENT
from tidemill.values.columns import Column, length, to_values

_INT_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class OperandWriter:
    """A compiled aggregator tree; `write` may be called for any number of batches, `by_row` does the same for a row."""

    steps: tuple[OperandStep, ...]
    by_row: RowWriter

    def write(
        self, state: ThreadState, pstate: str, tasks: pl.Series | int, args: Sequence[Column], rows: int | None = None
    ) -> None:
        """Aggregate one batch of rows; `args` are the argument columns, `rows` is needed where there are none.

        Raises:
            SchemaMismatch: a key or a result does not fit the schema.
            BadInput: an aggregator cannot take an argument, for example the sum of a str.
        """
        count = _row_count(tasks, args, rows)
        if count == 0:
            return
        task = tasks if isinstance(tasks, pl.Series) else pl.Series([tasks], dtype=pl.Int32).new_from_index(0, count)
        for step in self.steps:
            step.write(state, pstate, task.cast(pl.Int32), args)


def _row_count(tasks: pl.Series | int, args: Sequence[Column], rows: int | None) -> int:
    if rows is not None:
        return rows
    if isinstance(tasks, pl.Series):
        return len(tasks)
    return length(args[0]) if args else 1


@dataclass(frozen=True)
class RowWriter:
    """`write(state, pstate, task, values)` aggregates one row: each leaf of the tree, from left to right."""

    writers: tuple[WriteRow, ...]

    def write(self, state: ThreadState, pstate: str, task: int, values: Sequence[Any]) -> None:
        """Raises SchemaMismatch and BadInput as `OperandWriter.write` does."""
        partition = state.partition(pstate, task)
        for write in self.writers:
            write(partition, values)


class OperandStep:
    """Targets that are written together."""

    def write(self, state: ThreadState, pstate: str, tasks: pl.Series, args: Sequence[Column]) -> None:
        """Aggregate a batch into a PState: `tasks` (Int32) and each column of `args` have an entry a row.

        Raises:
            SchemaMismatch: a key or a result does not fit the schema.
            BadInput: an aggregator cannot take an argument.
        """
        raise NotImplementedError


def compile_writer(
    tree: AggTree, schema: Schema, arg_index: Callable[[Arg], int], merge_on_read: bool = False
) -> OperandWriter:
    """Prepare a tree for a PState of this schema; every argument and key of it has a column at `arg_index(arg)`.

    Constant keys of records need none. `merge_on_read` allows operands: nothing in the topology reads the PState,
    and all that write to it aggregate with the same combiners.

    Raises:
        DefinitionError: the tree does not fit the schema.
    """
    targets = targets_of(tree, layout_of(schema), arg_index)
    row_targets = tuple(RowTarget(t, apply_of(t, arg_index) if t.how == "fold" else None) for t in targets)
    by_row = RowWriter(tuple(target.writer() for target in row_targets))
    if has_order_between_leaves(tree, schema):
        leading = {t.keys[0] for t in targets if t.keys}
        return OperandWriter((RowsStep(by_row, tuple(sorted(leading))),), by_row)
    return OperandWriter(tuple(_steps(row_targets, merge_on_read)), by_row)


def _steps(row_targets: Sequence[RowTarget], merge_on_read: bool) -> list[OperandStep]:
    folds: dict[tuple[str, tuple[int, ...]], list[Target]] = {}
    steps: list[OperandStep] = []
    for found in row_targets:
        target = found.target
        if target.how != "fold":
            steps.append(PointStep(target))
            continue
        assert target.table is not None and found.apply is not None
        together = folds.setdefault((target.table.id, target.keys), [])
        if combiner_for(target.tree) is None or any(other.field == target.field for other in together):
            steps.append(TreeStep(target, found.apply))
            continue
        together.append(target)
    return steps + [FoldStep(tuple(targets), merge_on_read) for targets in folds.values() if targets]


# --- combiners -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoldStep(OperandStep):
    """Combiners into the value, or into fields, of the rows of one table."""

    targets: tuple[Target, ...]
    merge_on_read: bool

    @property
    def table(self) -> Table:
        """The table that all targets are in."""
        table = self.targets[0].table
        assert table is not None
        return table

    def write(self, state: ThreadState, pstate: str, tasks: pl.Series, args: Sequence[Column]) -> None:
        keys = state.written_keys(pstate, self.table, tasks, [args[p] for p in self.targets[0].keys])
        folds = [CombinerColumns(_combiner(target), tuple(args[p] for p in target.args)) for target in self.targets]
        groups, operands = combine_groups(keys, len(tasks), folds, keeps_order=False)
        rows = self._operand_rows(groups, operands)
        combiner_names = self._combiner_names()
        if rows is None or not self._can_fold(state, pstate, rows, combiner_names):
            self._merge_values(state, pstate, groups, operands)
        elif (
            self.merge_on_read
            and self._may_stay(combiner_names)
            and state.has_combiner_names(pstate, self.table.id, combiner_names)
        ):
            state.add_rows(pstate, self.table.id, rows, combiner_names)
        else:
            self._merge_rows(state, pstate, rows, combiner_names)

    def _combiner_names(self) -> CombinerNames:
        by_field = {target.field: _combiner(target).stored_name for target in self.targets}
        if self.table.fields is None:
            return (by_field.get(None),)
        return tuple(by_field.get(name) for name, _ in self.table.fields)

    def _may_stay(self, combiner_names: CombinerNames) -> bool:
        """Whether operands of these combiners may wait: not in tables of one row a task, no float sums, and nothing
        that could be refused when it meets what is stored.
        """
        if not self.table.keys:
            return False
        return all(
            not (combiner.is_sum and value_codec(schema).leaf != "int")
            and not (combiner.holds_any_keys and has_any_keys(schema))
            for _, schema, combiner in self._stored(combiner_names)
        )

    def _stored(self, combiner_names: CombinerNames) -> list[tuple[str, Schema, Combiner]]:
        """The value columns that hold operands: name, schema, and combiner."""
        pairs = zip(self.table.columns, combiner_names, strict=True)
        return [
            (name, schema, combiner_named(combiner_name))
            for (name, schema), combiner_name in pairs
            if combiner_name is not None
        ]

    def _operand_rows(self, groups: pl.DataFrame, operands: Sequence[Column]) -> pl.DataFrame | None:
        """The operands as rows, or None where only Python can merge them."""
        kinds = pl.Series("kind", [OPERAND], dtype=pl.Int8).new_from_index(0, groups.height)
        columns = [*groups.get_columns(), kinds]
        by_field = {target.field: operand for target, operand in zip(self.targets, operands, strict=True)}
        if self.table.fields is not None and None in by_field:
            return None
        if not all(_combiner(target).is_stored for target in self.targets):
            return None
        for name, schema in self.table.columns:
            codec = value_codec(schema)
            operand = by_field.get(name.removeprefix("value.") if self.table.fields is not None else None)
            if operand is None:
                series = pl.Series([None], dtype=codec.dtype).new_from_index(0, groups.height)
            else:
                try:
                    series = codec.column_series(operand)
                except Misfit:
                    return None  # Python finds the key of the value that does not fit, or that fits once it is merged
                if self.table.fields is not None and series.null_count():
                    return None
            columns.append(series.alias(name))
        return pl.DataFrame(columns)

    def _can_fold(self, state: ThreadState, pstate: str, rows: pl.DataFrame, combiner_names: CombinerNames) -> bool:
        """Whether no integer sum can leave 64 bits."""
        sums = [(name, schema) for name, schema, combiner in self._stored(combiner_names) if combiner.is_sum]
        if any(value_codec(schema).leaf is None for _, schema in sums):
            return False  # how large the integers in an `object` are is not known
        summed = [name for name, _ in sums]
        added = max((absolute_max(rows[name]) for name in summed), default=0)
        return added == 0 or state.bound(pstate, self.table.id) + added <= _INT_MAX

    def _merge_rows(self, state: ThreadState, pstate: str, rows: pl.DataFrame, combiner_names: CombinerNames) -> None:
        """Fold operands onto what is stored, by columns."""
        keys = rows.select(key_columns(self.table))
        current = state.rows_of(pstate, self.table.id, keys)
        none = tuple(None for _ in combiner_names)
        merged, _ = resolve(self.table, [(current, none), (rows, combiner_names)], is_base=True)
        state.add_rows(pstate, self.table.id, merged)

    def _merge_values(self, state: ThreadState, pstate: str, groups: pl.DataFrame, operands: Sequence[Column]) -> None:
        """The same in Python: custom combiners, whole records, sums beyond 64 bits, values that do not fit."""
        columns = list(zip(*map(to_values, operands), strict=True))
        merge_cells(state, pstate, self.table, groups, lambda current, row: self._onto(current, columns[row]))

    def _onto(self, current: Any, operands: Sequence[Any]) -> Any:
        for target, operand in zip(self.targets, operands, strict=True):
            combiner = _combiner(target)
            if target.field is None:
                current = combiner.onto(None if current is ABSENT else current, operand)
            else:
                record = current if isinstance(current, dict) else {}
                current = {**record, target.field: combiner.onto(record.get(target.field), operand)}
        return current


def has_any_keys(schema: Schema) -> bool:
    """Whether keys of several types may meet in this plain map or set (`values.keys`)."""
    if isinstance(schema, MapSchema):
        return schema.key == "object"
    return schema.element == "object" if isinstance(schema, SetSchema) else isinstance(schema, Leaf)


def _combiner(target: Target) -> Combiner:
    combiner = combiner_for(target.tree)
    assert combiner is not None
    return combiner


def merge_cells(
    state: ThreadState,
    pstate: str,
    table: Table,
    keys: pl.DataFrame,
    onto: Callable[[Any, int], Any],
) -> None:
    """Read the rows of distinct keys, replace each by `onto(what it holds or ABSENT, position)`, and write them."""
    columns = key_columns(table)
    current = state.rows_of(pstate, table.id, keys)
    stored = dict(zip(key_rows(table, current), cells_of(table, current), strict=True))
    check = checker(value_schema(table))
    cells = []
    for row, key in enumerate(key_rows(table, keys)):
        value = onto(stored.get(key, ABSENT), row)
        try:
            cells.append(check(value))
        except Misfit as misfit:
            raise refusal(pstate, shown(table, key[1:]), misfit, "the aggregate ") from None
    frame = rows_frame(table, *_by_column(keys, columns), [PUT] * len(cells), cells)
    state.add_rows(pstate, table.id, frame)


def _by_column(keys: pl.DataFrame, columns: list[str]) -> tuple[list[int], list[list[Any]]]:
    return keys["task"].to_list(), [keys[name].to_list() for name in columns[1:]]


# --- everything else -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TreeStep(OperandStep):
    """A compound tree inside one value, or a second aggregator of the same field: row by row, one read and one write a
    key.
    """

    target: Target
    apply: Apply

    def write(self, state: ThreadState, pstate: str, tasks: pl.Series, args: Sequence[Column]) -> None:
        table = self.target.table
        assert table is not None
        keys = state.written_keys(pstate, table, tasks, [args[p] for p in self.target.keys])
        groups = keys.with_row_index("\x00row").group_by(key_columns(table), maintain_order=True).agg("\x00row")
        members = groups["\x00row"].to_list()
        rows = list(_rows(args, len(tasks)))
        distinct = groups.drop("\x00row")
        merge_cells(state, pstate, table, distinct, lambda at, i: self._onto(at, [rows[r] for r in members[i]]))

    def _onto(self, current: Any, rows: Sequence[Sequence[Any]]) -> Any:
        current = None if current is ABSENT else current
        field = self.target.field
        value = current if field is None else (current or {}).get(field)
        for row in rows:
            value = self.apply(value, row)
        return value if field is None else {**(current or {}), field: value}


@dataclass(frozen=True)
class PointStep(OperandStep):
    """Sets, maps and lists of indexed elements, and `voided`: writes that need no old value."""

    target: Target

    def write(self, state: ThreadState, pstate: str, tasks: pl.Series, args: Sequence[Column]) -> None:
        target = self.target
        keys = [args[p] for p in target.keys]
        if target.how in ("put", "delete") and target.table is not None:
            points = [*keys, args[target.args[0]]]
            if target.how == "delete":
                state.delete_points(pstate, target.table.id, tasks, points)
            else:
                values = args[target.args[1]] if len(target.args) > 1 else None
                state.put_points(pstate, target.table.id, tasks, points, values)
        elif target.how == "clear" and isinstance(target.place, ValuePlace) and target.field is None:
            state.delete_points(pstate, target.place.table.id, tasks, keys)
        else:
            by_row = _rows(keys, len(tasks)), _rows([args[p] for p in target.args], len(tasks))
            for task, path, row in zip(tasks.to_list(), *by_row, strict=True):
                write_structure(state.partition(pstate, task), target, path, row)


@dataclass(frozen=True)
class RowsStep(OperandStep):
    """Leaves that may meet in one place, where the order of rows shows: each row writes all of them before the next.

    `leading` are the positions of the keys of the top level, whose elements are fetched in bulk.
    """

    writer: RowWriter
    leading: tuple[int, ...]

    def write(self, state: ThreadState, pstate: str, tasks: pl.Series, args: Sequence[Column]) -> None:
        for position in self.leading if len(tasks) > 1 else ():
            state.prefetch(pstate, tasks, args[position])
        for task, row in zip(tasks.to_list(), _rows(args, len(tasks)), strict=True):
            self.writer.write(state, pstate, task, row)
        state.maybe_spill()


def _rows(columns: Sequence[Column], count: int) -> Iterable[tuple[Any, ...]]:
    return zip(*map(to_values, columns), strict=True) if columns else [()] * count
