"""The PStates of one thread's tasks during an attempt: the committed snapshot, and above it what the attempt changed.

Rows read and write through nodes (`root`), columns through points and operands. What changed is kept as overlay
levels, one list a table, oldest first; `to_bytes` packs them to travel with the thread to its next superstep,
`finish` merges them into one delta. Who only reads what was committed has `pstate.snapshot_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import polars as pl

from tidemill.journal.snapshot import Part
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.overlay import ChangedRows, TaskTable
from tidemill.pstate.row_nodes import TaskPartition
from tidemill.tables.cells import cells_of
from tidemill.tables.codecs import Misfit, checker, key_codec, refusal, value_codec
from tidemill.tables.container import DELETE, OPERAND, PUT, TableKey, TableRows, decode, encode
from tidemill.tables.level_merge import CombinerNames, key_columns, order_rows, resolve, rows_frame
from tidemill.tables.lookup import lookup
from tidemill.tables.merge_reader import TaskReader
from tidemill.tables.null_keys import check_null_columns, shown
from tidemill.tables.record_columns import record_series
from tidemill.tables.sizes import ElementRows, live_keys, size_rows
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.table_bounds import bound_of
from tidemill.tables.tables import Layout, MapPlace, RecordPlace, Table, ValuePlace, row_key, value_schema
from tidemill.tables.view import SnapshotView, newest_first
from tidemill.values.absent import ABSENT
from tidemill.values.columns import Column, filter_rows, length, to_values
from tidemill.values.errors import SchemaMismatch

FLUSH_PATH_COUNT = 100_000
_TOP = "0"
"""The table of a plain value, and of maps of plain values."""

_T = TypeVar("_T")


class ThreadState:
    """State of the tasks of `view.task_set`; a task that is not among them must not be asked for."""

    def __init__(
        self,
        pstates: Mapping[str, PStateInfo],
        view: SnapshotView,
        *,
        overlay: bytes = b"",
        flush_path_count: int = FLUSH_PATH_COUNT,
    ) -> None:
        self.pstates, self._view, self._flush_path_count = dict(pstates), view, flush_path_count
        self._layouts: dict[str, Layout] = {name: info.layout for name, info in pstates.items()}
        self._tables: dict[TableKey, Table] = {
            (info.id, table.id): table
            for name, info in pstates.items()
            for table in self._layouts[name].stored.values()
        }
        self._sizes: dict[TableKey, TableKey] = {
            (info.id, counted): (info.id, sizes.id)
            for name, info in pstates.items()
            for counted, sizes in self._layouts[name].sizes.items()
        }
        self._names = {info.id: name for name, info in pstates.items()}
        self._overlay: dict[TableKey, list[SortedTable]] = {}
        self._partitions: dict[tuple[str, int], TaskPartition] = {}
        self._task_tables: dict[TableKey, dict[int, TaskTable]] = {}
        if overlay:
            self._unpack(overlay)

    # --- rows ---

    def root(self, pstate: str, task: int) -> Any:
        """The root node of one task's partition. It stays valid; nodes below it only until the next spill or column
        write.
        """
        partition = self._partitions.get((pstate, task))
        return partition.top if partition is not None else self.partition(pstate, task).top

    def partition(self, pstate: str, task: int) -> TaskPartition:
        """One task's partition, for row writers; it stays valid as its root does."""
        partition = self._partitions.get((pstate, task))
        if partition is None:
            info = self.pstates[pstate]
            partition = TaskPartition(
                pstate,
                self._layouts[pstate],
                info.initial_value,
                lambda table: self._task_table((info.id, table.id), task),
            )
            self._partitions[pstate, task] = partition
        return partition

    def _task_table(self, key: TableKey, task: int) -> TaskTable:
        tables = self._task_tables.setdefault(key, {})
        if task not in tables:
            count = partial(self._count, key, task) if key in self._sizes else None
            name = self._names[key[0]]
            tables[task] = TaskTable(
                name, self._tables[key], task, lambda: self._reader(key, task), lambda: self._parts(key, task), count
            )
        return tables[task]

    def _parts(self, key: TableKey, task: int) -> tuple[TaskReader, TaskReader]:
        """The readers of what was committed, and of the overlay alone."""
        table = self._tables[key]
        return self._view.reader(key, table, task), TaskReader(table, task, self._overlay.get(key, [])[::-1])

    def _count(self, key: TableKey, task: int, prefix: tuple[Any, ...]) -> int:
        """The size as it was committed, and what the overlay added to it."""
        table, sizes = self._tables[key], self._sizes[key]
        overlay = self._parts(key, task)[1]
        is_cleared = any(level.clears_key(task, prefix) for level in overlay.levels)
        held = ABSENT if is_cleared else self._view.reader(sizes, self._tables[sizes], task).get(prefix)
        size = int(held) if isinstance(held, int) else 0
        changed = overlay.newest(prefix) if overlay.levels else None
        if changed is None or changed.height == 0:
            return size
        size += int((changed["kind"] != DELETE).sum())
        if is_cleared:
            return size
        keys = _keys_below(table, task, prefix, changed["key"])
        levels = [level for stack in self._view.levels(key, table) for level in stack]
        return size - int(live_keys(table, levels, keys).sum())

    def _reader(self, key: TableKey, task: int) -> TaskReader:
        overlay = self._overlay.get(key)
        if not overlay:
            return self._view.reader(key, self._tables[key], task)
        return TaskReader(self._tables[key], task, newest_first(self._levels(key)))

    def clear(self, pstate: str, task: int) -> None:
        """Reset one task's partition to its initial value."""
        partition = self.partition(pstate, task)
        partition.clear(partition.layout.root, ())

    def prefetch(self, pstate: str, tasks: pl.Series | int, keys: Column) -> None:
        """Read the elements of these top-level keys into the row caches, all at once."""
        layout = self._layouts[pstate]
        if not isinstance(layout.root, MapPlace) or length(keys) == 0:
            return
        element = layout.root.element
        table = element.table if isinstance(element, ValuePlace) else None
        if isinstance(element, RecordPlace):
            table = element.own
        if table is None:
            return
        key = (self.pstates[pstate].id, table.id)
        levels = [level for stack in self._levels(key) for level in stack]
        try:
            wanted = self.key_frame(pstate, table, tasks, [keys]).unique(maintain_order=True)
        except SchemaMismatch:
            return  # a key that does not fit is found by the row that uses it
        found = lookup(table, levels, wanted)
        self._fill_caches(key, wanted, found)

    def _fill_caches(self, key: TableKey, wanted: pl.DataFrame, found: pl.DataFrame) -> None:
        table = self._tables[key]
        for (task,), rows in wanted.partition_by("task", as_dict=True, maintain_order=True).items():
            cells = self._task_table(key, int(task)).cells(())
            fetched: dict[Any, Any] = dict.fromkeys(_stored_keys(table, rows), ABSENT)
            if not cells.is_cleared:  # else a clear that no level knows yet took away all that was found
                held = found.filter(pl.col("task") == task)
                fetched.update(zip(_stored_keys(table, held), cells_of(table, held), strict=True))
            cells.cache.update({k: v for k, v in fetched.items() if k not in cells.cache})

    # --- columns ---

    def prefers_columns(self, rows: int) -> bool:
        """Whether so many keys are better looked up together: always, as what was changed is in columns, too."""
        return True

    def rows_of(self, pstate: str, table_id: str, keys: pl.DataFrame) -> pl.DataFrame:
        """The live rows of distinct stored keys; a plain value that was never written is its initial value."""
        key, table = self._key(pstate, table_id)
        self._flush_table(key)
        found = lookup(table, [level for stack in self._levels(key) for level in stack], keys)
        initial = self.pstates[pstate].initial_value
        if initial is None or not isinstance(self._layouts[pstate].root, ValuePlace):
            return found
        missing = keys.join(found, on="task", how="anti")["task"].to_list()
        initials = rows_frame(table, missing, [], [PUT] * len(missing), [initial] * len(missing))
        return pl.concat([found, initials], how="diagonal")

    def get_points(self, pstate: str, tasks: pl.Series | int, keys: Sequence[Column]) -> Column:
        """The value to which each row's keys lead through maps, None where there is none.

        A plain value that was never written is its initial value. A key that the map cannot have is not there, as when
        rows look for it one by one.
        """
        try:
            return self._points(pstate, tasks, keys)
        except SchemaMismatch:
            if not keys:
                raise
        fits = _fitting_keys(self._layouts[pstate].tables[_TOP], keys[-1])
        some = tasks.filter(fits) if isinstance(tasks, pl.Series) else tasks
        values = iter(to_values(self._points(pstate, some, [filter_rows(each, fits) for each in keys])))
        return [next(values) if fit else None for fit in fits]

    def _points(self, pstate: str, tasks: pl.Series | int, keys: Sequence[Column]) -> Column:
        table = self._layouts[pstate].tables[_TOP]
        wanted = self.key_frame(pstate, table, tasks, keys)
        found = self.rows_of(pstate, _TOP, wanted.unique(maintain_order=True)).with_columns(found=pl.lit(True))
        rows = wanted.join(found, on=key_columns(table), how="left", nulls_equal=True, maintain_order="left")
        if table.fields is None and table.value is not None:
            return value_codec(table.value).column(rows["value"])
        return [cell if hit else None for cell, hit in zip(cells_of(table, rows), rows["found"], strict=True)]

    def put_points(
        self,
        pstate: str,
        table_id: str,
        tasks: pl.Series | int,
        keys: Sequence[Column],
        values: Column | None,
    ) -> None:
        """Write a value at each key (None for the tables of sets); the last row of a key wins."""
        key, table = self._key(pstate, table_id)
        frame = self.written_keys(pstate, table, tasks, keys, length(values) if values is not None else None)
        frame = frame.with_columns(pl.lit(PUT, dtype=pl.Int8).alias("kind"))
        if values is not None:
            frame = frame.with_columns(**self._value_columns(pstate, table, values, frame))
        self.add_rows(pstate, table_id, frame.unique(key_columns(table), keep="last", maintain_order=True))

    def delete_points(self, pstate: str, table_id: str, tasks: pl.Series | int, keys: Sequence[Column]) -> None:
        """Delete the rows of these keys; a key that has no row is no error.

        Raises:
            SchemaMismatch: a key does not fit the schema.
        """
        _, table = self._key(pstate, table_id)
        frame = self.written_keys(pstate, table, tasks, keys).unique(maintain_order=True)
        blank = rows_frame(table, [], [[] for _ in table.keys], [], [])
        frame = frame.with_columns(pl.lit(DELETE, dtype=pl.Int8).alias("kind"))
        self.add_rows(pstate, table_id, pl.concat([blank, frame], how="diagonal"))

    def add_rows(self, pstate: str, table_id: str, rows: pl.DataFrame, combiner_names: CombinerNames = ()) -> None:
        """Add rows in container form with distinct keys, in any order, as the newest overlay level of a table."""
        if rows.height == 0:
            return
        key, table = self._key(pstate, table_id)
        self._flush_table(key)
        combiner_names = combiner_names or tuple(None for _ in table.columns)
        self._overlay.setdefault(key, []).append(SortedTable(table, order_rows(table, rows), combiner_names))
        self._forget(key)

    def bound(self, pstate: str, table_id: str) -> int:
        """No integer in this table can be farther from zero than this, the overlay included."""
        key, table = self._key(pstate, table_id)
        self._flush_table(key)
        return self._view.bound(key, table) + sum(bound_of(table, level.frame) for level in self._overlay.get(key, ()))

    def has_combiner_names(self, pstate: str, table_id: str, combiner_names: CombinerNames) -> bool:
        """Whether operands of these combiners can stand above those that the overlay holds already."""
        key, _ = self._key(pstate, table_id)
        return all(
            stored is None or added is None or stored == added
            for level in self._overlay.get(key, ())
            for stored, added in zip(level.combiner_names, combiner_names, strict=True)
        )

    def _key(self, pstate: str, table_id: str) -> tuple[TableKey, Table]:
        key = (self.pstates[pstate].id, table_id)
        return key, self._tables[key]

    def key_frame(
        self, pstate: str, table: Table, tasks: pl.Series | int, keys: Sequence[Column], rows: int | None = None
    ) -> pl.DataFrame:
        """The keys in stored form, as they were given: columns task (Int32), k0, k1, …; one row a key.

        `tasks` is a task for each row, or one for all; then `rows` says how many there are if the table has no keys.

        Raises:
            SchemaMismatch: a key does not fit the schema.
        """
        pairs = zip(table.key_names, table.keys, keys, strict=True)
        series = [
            self._fitting(pstate, partial(key_codec(kind).series, column)).alias(name) for name, kind, column in pairs
        ]
        if isinstance(tasks, pl.Series):
            task = tasks.cast(pl.Int32).alias("task")
        else:
            height = len(series[0]) if series else rows or 1
            task = pl.Series("task", [tasks], dtype=pl.Int32).new_from_index(0, height)
        return pl.DataFrame([task, *series])

    def written_keys(
        self, pstate: str, table: Table, tasks: pl.Series | int, keys: Sequence[Column], rows: int | None = None
    ) -> pl.DataFrame:
        """`key_frame` of rows that are about to be written: also refuses a None that is no key."""
        frame = self.key_frame(pstate, table, tasks, keys, rows)
        self._fitting(pstate, partial(check_null_columns, table, frame))
        return frame

    def _value_columns(self, pstate: str, table: Table, values: Column, keys: pl.DataFrame) -> dict[str, pl.Series]:
        """Values as columns of the table; of one that does not fit, `keys` say where it should go."""
        try:
            if table.fields is None:
                assert table.value is not None
                return {"value": value_codec(table.value).column_series(values)}
            return record_series(table, values)
        except Misfit as misfit:
            raise _misfit_of(pstate, table, values, keys) or refusal(pstate, (), misfit) from None

    def _fitting(self, pstate: str, make: Callable[[], _T]) -> _T:
        try:
            return make()
        except Misfit as misfit:
            raise refusal(pstate, (), misfit) from None

    # --- levels ---

    def _levels(self, key: TableKey) -> list[list[SortedTable]]:
        """Committed and overlay levels of a table, oldest first."""
        return [*self._view.levels(key, self._tables[key]), *([level] for level in self._overlay.get(key, ()))]

    def _flush_table(self, key: TableKey) -> None:
        """Turn what rows wrote into a table into its newest overlay level."""
        changed = [table for table in self._task_tables.get(key, {}).values() if table.changed or table.cleared]
        if not changed:
            return
        rows = ChangedRows(self._tables[key])
        for table in changed:
            table.take_changes(rows)
        frame = rows_frame(rows.table, rows.tasks, rows.keys, rows.kinds, rows.cells)
        combiner_names = tuple(None for _ in rows.table.columns)
        self._overlay.setdefault(key, []).append(SortedTable(rows.table, order_rows(rows.table, frame), combiner_names))
        self._forget(key)

    def _forget(self, key: TableKey) -> None:
        for table in self._task_tables.get(key, {}).values():
            table.forget()
        for partition in self._partitions.values():
            partition.generation += 1

    def maybe_spill(self) -> None:
        """Spill rows that were written into overlay levels if there are many; call it between batches of rows."""
        tables = [table for by_task in self._task_tables.values() for table in by_task.values()]
        if sum(table.changes for table in tables) > self._flush_path_count:
            self._flush()
        elif sum(table.cached for table in tables) > 4 * self._flush_path_count:
            self._flush()
            for key in self._task_tables:
                self._forget(key)

    def changed_bytes(self, pstate: str) -> int:
        """About how many bytes the changes of a PState take in memory."""
        keys = [key for key in self._tables if key[0] == self.pstates[pstate].id]
        for key in keys:
            self._flush_table(key)
        return sum(int(level.frame.estimated_size()) for key in keys for level in self._overlay.get(key, ()))

    def _flush(self) -> None:
        for key in list(self._task_tables):
            self._flush_table(key)

    def _merged(self, without: frozenset[str] = frozenset()) -> dict[TableKey, TableRows]:
        """The overlay as one level: sorted rows with clears and operands; `without` are ids of PStates."""
        self._flush()
        merged = {}
        for key, levels in self._overlay.items():
            if key[0] in without:
                continue
            table = self._tables[key]
            frames = [(level.full_frame, level.combiner_names) for level in levels]
            rows, combiner_names = resolve(table, frames, is_base=False)
            if not self._view.has_rows(key, table):
                rows = rows.filter(pl.col("kind").is_in([PUT, OPERAND]))
            if rows.height:
                merged[key] = TableRows(table, rows, combiner_names)
        return merged

    def _merged_sizes(self, merged: Mapping[TableKey, TableRows]) -> dict[TableKey, TableRows]:
        """What changed of sizes: inner structures first, for whether they are empty is what outer ones count."""
        found: dict[TableKey, TableRows] = {}
        for pstate in {key[0] for key in merged}:
            for counted in self._layouts[self._names[pstate]].counted:
                changed = {mark: merged.get((pstate, mark)) or found.get((pstate, mark)) for mark in counted.marks}
                if any(changed.values()):
                    marks = [self._mark((pstate, mark), rows) for mark, rows in changed.items()]
                    rows = size_rows(counted.sizes, marks)
                    found |= {} if rows is None else {(pstate, counted.sizes.id): rows}
        return found

    def _mark(self, key: TableKey, changed: TableRows | None) -> ElementRows:
        table = self._tables[key]
        return ElementRows(table, [level for stack in self._view.levels(key, table) for level in stack], changed)

    def to_bytes(self) -> bytes:
        """All changes as a container, b"" if there are none; `overlay=` of the next ThreadState takes it."""
        merged = self._merged()
        return encode(merged) if merged else b""

    def _unpack(self, overlay: bytes) -> None:
        container = decode(overlay)
        for key, table in container.tables.items():
            meta = container.meta[key]
            self._overlay[key] = [SortedTable(self._tables[key], table, meta.combiner_names, meta.table)]

    def close(self) -> None:
        """Let go of all that was opened. Partitions, tables and their rows know each other: without, they and mapped
        files stay until Python looks for circles.
        """
        for partition in self._partitions.values():
            partition.close()
        for tables in self._task_tables.values():
            for table in tables.values():
                table.close()
        self._partitions.clear()
        self._task_tables.clear()
        self._overlay.clear()
        self._view.close()

    def finish(self, key: str = "") -> tuple[bytes, Part] | None:
        """The delta of this thread, and its part without a name; None if nothing changed. `key`: as `encode`.

        Temporary PStates are no part of it.
        """
        merged = self._merged(frozenset(info.id for info in self.pstates.values() if info.is_temporary))
        if not merged:
            return None
        merged |= self._merged_sizes(merged)
        rows = {row_key(key): table.rows.height for key, table in merged.items()}
        bounds = {row_key(key): bound_of(self._tables[key], table.rows) for key, table in merged.items()}
        generations = {row_key(key): held.table.generation for key, held in merged.items() if held.table.generation}
        data = encode(merged, bounds, key)
        part = Part("", self._view.task_set, rows, bounds=bounds, generations=generations)
        return data, part.sealed(data)


def _misfit_of(pstate: str, table: Table, values: Column, keys: pl.DataFrame) -> SchemaMismatch | None:
    """The error of the first value that does not fit; None if each of them fits by itself."""
    check = checker(value_schema(table))
    for row, value in enumerate(to_values(values)):
        try:
            check(value)
        except Misfit as misfit:
            return refusal(pstate, shown(table, keys.select(table.key_names).row(row)), misfit)
    return None


def _keys_below(table: Table, task: int, prefix: Sequence[Any], last: pl.Series) -> pl.DataFrame:
    """Keys that differ in the last one only, as columns task, k0, …"""
    rows = len(last)
    same = [pl.Series("task", [task], dtype=pl.Int32).new_from_index(0, rows)]
    for name, kind, key in zip(table.key_names, table.keys, prefix, strict=False):
        same.append(key_codec(kind).stored_series([key]).new_from_index(0, rows).alias(name))
    return pl.DataFrame([*same, last.alias(table.key_names[-1])])


def _fitting_keys(table: Table, keys: Column) -> pl.Series:
    """Which keys a map of this table can have."""
    codec = key_codec(table.keys[-1])

    def fits(key: Any) -> bool:
        try:
            codec.check(key)
        except Misfit:
            return False
        return True

    return pl.Series("fits", [fits(key) for key in to_values(keys)], dtype=pl.Boolean)


def _stored_keys(table: Table, rows: pl.DataFrame) -> list[Any]:
    codec = key_codec(table.keys[-1])
    keys = rows[f"k{len(table.keys) - 1}"]
    return keys.to_list() if codec.type == "object" else codec.values(keys)
