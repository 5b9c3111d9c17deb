"""PStates as tables: each table of sorted rows has its keys as columns k0, k1, …, and its values behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import polars as pl

from tidemill.clients.module import ModuleClient
from tidemill.clients.pages import check_pin
from tidemill.clients.topology import info_of
from tidemill.definition.definition import StoredDefinition, StoredPState
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.snapshot import Snapshot
from tidemill.language.schema import Leaf, Schema
from tidemill.pstate.info import PStateInfo
from tidemill.scans.bounds import Bounds
from tidemill.scans.columns import column_type, key_type, series_of_keys, series_of_values, shown_names
from tidemill.scans.table_rows import ALL_TASKS, initial_rows, live_rows
from tidemill.store.objects import NotFound
from tidemill.store.urls import open_store
from tidemill.tables.codecs import key_codec, value_codec
from tidemill.tables.stored_parts import part_loader
from tidemill.tables.tables import Layout, Table
from tidemill.tables.view import SnapshotView
from tidemill.values.call_checks import checked_name
from tidemill.values.errors import NotSelectable, SnapshotExpired, UnknownName
from tidemill.values.numbers import MicrobatchId

TASK = "task"


@dataclass(frozen=True)
class PStateScan:
    """One table of a PState as of an entry of the commit log of its topology, of all tasks or of `of_tasks`.

    It is plain data, so that it can be read in any process that reaches the store.
    """

    url: str
    prefix: str
    info: PStateInfo
    table_id: str
    tasks: int
    entry: int
    of_tasks: tuple[int, ...] | None = None

    @cached_property
    def table(self) -> Table:
        """The table as the newest schema has it."""
        return self.info.layout.tables[self.table_id]

    @cached_property
    def values(self) -> dict[str, str]:
        """The value columns as they are shown -> as they are stored."""
        return value_names(self.table)

    @property
    def schema(self) -> dict[str, Any]:
        """The columns with their Polars types."""
        return schema_of(self.table)

    @property
    def kinds(self) -> dict[str, Schema]:
        """The schemas of the columns that hold keys and values."""
        stored = dict(self.table.columns)
        keys = {name: Leaf(kind) for name, kind in zip(self.table.key_names, self.table.keys, strict=True)}
        return {**keys, **{name: stored[column] for name, column in self.values.items()}}

    def read(self, bounds: Bounds, columns: Sequence[str], batch_rows: int) -> Iterator[pl.DataFrame]:
        """The rows within the bounds, in the order of tasks and keys.

        Raises:
            SnapshotExpired: the entry, or what it names, was collected.
            NeedsCode: values wait for a migration whose function is not here.
        """
        loader = part_loader(self.url, self.prefix, True)
        try:
            view = SnapshotView(self._snapshot(), ALL_TASKS, loader)
            for rows in self._rows(view, bounds, columns, batch_rows):
                yield self._shown(rows, columns)
                loader.release()
        except NotFound as error:
            text = f"Entry {self.entry} of {self.info.name} was collected; scan a newer one."
            raise SnapshotExpired(text, pstate=self.info.name, entry=self.entry) from error

    def _snapshot(self) -> Snapshot:
        if self.entry == 0:
            return Snapshot()
        return CommitLog(open_store(self.url, probe=False), self.prefix).read_kept(self.entry).snapshot

    def _rows(
        self, view: SnapshotView, bounds: Bounds, columns: Sequence[str], batch_rows: int
    ) -> Iterator[pl.DataFrame]:
        tasks = self._asked_tasks(bounds)
        wanted = frozenset(self.values[name] for name in columns if name in self.values)
        written = set()
        for rows in live_rows(self.info.id, self.table, view, tasks, bounds, wanted, batch_rows):
            if not self.table.keys:
                written.update(rows[TASK].to_list())
            for start in range(0, rows.height, batch_rows):
                yield rows.slice(start, batch_rows)
        if not self.table.keys:
            missing = [task for task in (range(self.tasks) if tasks is None else tasks) if task not in written]
            yield from initial_rows(self.table, self.info.initial_value, missing)

    def _asked_tasks(self, bounds: Bounds) -> list[int] | None:
        allowed = bounds.get(TASK)
        if self.of_tasks is None and (allowed is None or allowed.values is None):
            return None
        tasks = range(self.tasks) if self.of_tasks is None else self.of_tasks
        return [task for task in tasks if allowed is None or allowed.values is None or task in allowed.values]

    def _shown(self, rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        return pl.DataFrame([self._column(rows, name) for name in columns])

    def _column(self, rows: pl.DataFrame, name: str) -> pl.Series:
        if name == TASK:
            return rows[TASK].cast(pl.Int32)
        if name in self.table.key_names:
            kind = self.table.keys[self.table.key_names.index(name)]
            return series_of_keys(name, kind, key_codec(kind).column(rows[name]))
        stored = self.values[name]
        schema = dict(self.table.columns)[stored]
        if stored not in rows.columns:  # of a record of which no row has this field
            return pl.Series(name, [None] * rows.height, dtype=column_type(schema))
        return series_of_values(name, schema, value_codec(schema).column(rows[stored]))


def schema_of(table: Table) -> dict[str, Any]:
    """The columns of a table: task, k0, k1, …, and `value` or a record's fields."""
    keys = {name: key_type(kind) for name, kind in zip(table.key_names, table.keys, strict=True)}
    stored = dict(table.columns)
    return {
        TASK: pl.Int32,
        **keys,
        **{name: column_type(stored[column]) for name, column in value_names(table).items()},
    }


def value_names(table: Table) -> dict[str, str]:
    """How the value columns are called -> how they are stored: a record's fields by their names, or, where a key
    column has that name, with `value.` before it.
    """
    if table.fields is None:
        return {name: name for name, _ in table.columns}
    shown = shown_names([str(name) for name, _ in table.fields], {TASK, *table.key_names}, "value")
    return {name: f"value.{field}" for name, field in shown.items()}


def table_names(layout: Layout) -> dict[str, str]:
    """The tables of a PState by the names that people use: "" for that of its elements, `likes` or `a.b` for those of
    fields below them.
    """
    return {".".join(map(unquote, table.split(".")[1:])): table for table in layout.tables}


def pstate_scan(
    client: ModuleClient, pstate: str, table: str = "", at: int | None = None, microbatch: int | None = None
) -> PStateScan:
    """A table of a PState, pinned to an entry: the newest one, unless `at` or `microbatch` says which.

    Raises:
        UnknownName: there is no such PState or table.
        NotSelectable: the PState is private.
        BadInput: the microbatch is not committed yet, or both are given.
        SnapshotExpired: it is kept no more.
    """
    definition = client.definition()
    topology, stored = definition.pstate("$$" + checked_name("PState", pstate).removeprefix("$$"))
    if stored.is_private:
        raise NotSelectable(f"{stored.name} is private: only its own topology reads it.", name=stored.name)
    info = info_of(stored, client.migrations)
    reader = client.reader(definition, topology)
    if at is not None or microbatch is not None:
        check_pin(at, microbatch)
    if microbatch is not None:
        entry = reader.entry_of(MicrobatchId(microbatch))
    else:
        entry = (reader.newest(0) if at is None else reader.pinned(at)).number
    prefix = definition.topology_prefix(topology.name)
    return PStateScan(client.store.url, prefix, info, table_id(info, table), tasks_of(definition, stored), entry)


def tasks_of(definition: StoredDefinition, stored: StoredPState) -> int:
    """How many partitions a PState has."""
    return 1 if stored.is_global else definition.tasks


def table_id(info: PStateInfo, name: str) -> str:
    """The table that people call by this name; "" is the only one, too. Raises UnknownName."""
    names = table_names(info.layout)
    if checked_name("table", name) in names:
        return names[name]
    if name == "" and len(names) == 1:
        return next(iter(names.values()))
    known = ", ".join(repr(each) for each in names)
    advice = "leave table= out" if list(names) == [""] else f"it has {known}. Say which with table="
    raise UnknownName(f"{info.name} has no table {name!r}; {advice}.", name=info.name)
