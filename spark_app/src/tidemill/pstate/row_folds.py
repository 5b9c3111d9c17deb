"""Aggregation into PStates one row at a time, straight into the cells of a task: what segments that run by rows do, and
aggregators whose order shows from row to row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.language.combiners import combiner_of, onto_of
from tidemill.language.dataflow import Aggregator, Arg
from tidemill.pstate.row_nodes import TaskPartition
from tidemill.pstate.targets import Target
from tidemill.tables.codecs import Misfit, checker, key_codec
from tidemill.tables.null_keys import check_nulls, shown
from tidemill.tables.tables import Table, ValuePlace, value_schema
from tidemill.tables.value_trees import compile_value_tree
from tidemill.values.absent import ABSENT

Apply = Callable[[Any, Sequence[Any]], Any]
"""`apply(current, values)`: a value after one row was aggregated into it; None counts as nothing yet."""

WriteRow = Callable[[TaskPartition, Sequence[Any]], None]
"""`write(partition, values)`: aggregates one row, whose values stand at the positions of the tree's arguments."""


def apply_of(target: Target, arg_index: Callable[[Arg], int]) -> Apply:
    """What a `fold` target does to the value, or field, that it writes."""
    if not isinstance(target.tree, Aggregator):
        return compile_value_tree(target.tree, arg_index).apply
    onto, args = onto_of(target.tree), target.args
    return lambda current, values: onto(current, *[values[p] for p in args])


@dataclass(frozen=True)
class RowTarget:
    """A target and, for `fold`, what it does to the value there."""

    target: Target
    apply: Apply | None

    def writer(self) -> WriteRow:
        """The function that writes one row."""
        how, table = self.target.how, self.target.table
        if how == "fold" and table is not None and self.apply is not None:
            held = _field(table, self.target.field, self.apply) if self.target.field else _value(table, self.apply)
            return _cell(table, self.target.keys, held)
        if how in ("put", "delete") and table is not None:
            return _put(table, self.target) if how == "put" else _delete(table, self.target)
        return _structure(self.target)


Change = Callable[[TaskPartition, Any, Sequence[Any]], Any]
"""`change(partition, held, values)`: what a cell holds after a row."""


def _cell(table: Table, positions: Sequence[int], change: Change) -> WriteRow:
    path = _path_of(table, positions)

    def write(partition: TaskPartition, values: Sequence[Any]) -> None:
        prefix = path(partition, values)
        cells = partition.tables[table.id].cells(prefix[:-1])
        key = prefix[-1] if prefix else None
        try:
            cells.put(key, change(partition, cells.get(key), values))
        except Misfit as misfit:
            raise partition.mismatch(misfit, shown(table, prefix)) from None

    return write


def _path_of(table: Table, positions: Sequence[int]) -> Callable[[TaskPartition, Sequence[Any]], tuple[Any, ...]]:
    """The stored keys of a row."""
    checks = [(key_codec(kind).check, position) for kind, position in zip(table.keys, positions, strict=False)]

    def path(partition: TaskPartition, values: Sequence[Any]) -> tuple[Any, ...]:
        try:
            stored = tuple([check(values[position]) for check, position in checks])
            if None in stored:
                check_nulls(table, stored)
        except Misfit as misfit:
            raise partition.mismatch(misfit, ()) from None
        return stored

    return path


def _value(table: Table, apply: Apply) -> Change:
    check = checker(value_schema(table))

    def change(partition: TaskPartition, held: Any, values: Sequence[Any]) -> Any:
        if held is ABSENT:
            held = None if table.keys else partition.initial_value
        return check(apply(held, values))

    return change


def _field(table: Table, field: str, apply: Apply) -> Change:
    """One field of the record that a cell holds; the others stay, in the order of the schema."""
    schemas = dict(table.fields or ())
    check = checker(schemas[field])

    def change(partition: TaskPartition, held: Any, values: Sequence[Any]) -> Any:
        record = held if isinstance(held, dict) else {}
        try:
            value = check(apply(record.get(field), values))
        except Misfit as misfit:
            raise misfit.below(field) from None
        changed = {**record, field: value}
        return changed if field in record else {name: changed[name] for name in schemas if name in changed}

    return change


def _put(table: Table, target: Target) -> WriteRow:
    if len(target.args) == 1:
        return _cell(table, (*target.keys, *target.args), lambda partition, held, values: True)
    check, position = checker(value_schema(table)), target.args[1]
    return _cell(table, (*target.keys, target.args[0]), lambda partition, held, values: check(values[position]))


def _delete(table: Table, target: Target) -> WriteRow:
    return _cell(table, (*target.keys, *target.args), lambda partition, held, values: ABSENT)


def _structure(target: Target) -> WriteRow:
    """Lists, whole maps, and what `voided` removes."""

    def write(partition: TaskPartition, values: Sequence[Any]) -> None:
        write_structure(partition, target, [values[p] for p in target.keys], [values[p] for p in target.args])

    return write


def write_structure(partition: TaskPartition, target: Target, path: Sequence[Any], args: Sequence[Any]) -> None:
    """One row of a target that is neither a fold nor a point; `path` are the keys above it.

    Raises:
        SchemaMismatch: a key or an element does not fit the schema.
        BadInput: the argument of `merge` is no map.
    """
    stored = partition.stored_path(target.place, path)
    if target.how == "clear":
        _clear(partition, target, stored)
    elif target.how == "append":
        partition.node(target.place, stored).append(args[0])
    else:
        assert isinstance(target.tree, Aggregator)
        partition.node(target.place, stored).fill(combiner_of(target.tree).lift(*args) or {})


def _clear(partition: TaskPartition, target: Target, stored: tuple[Any, ...]) -> None:
    if target.field is None or target.table is None or not isinstance(target.place, ValuePlace):
        partition.clear(target.place, stored)
        return
    cells = partition.tables[target.table.id].cells(stored[:-1])
    key = stored[-1] if stored else None
    record = cells.get(key)
    if record and target.field in record:
        cells.put(key, {name: value for name, value in record.items() if name != target.field})
