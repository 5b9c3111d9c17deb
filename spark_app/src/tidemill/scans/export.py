"""A PState at a snapshot as plain tables, operands folded: what `tidemill export` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tidemill.journal.snapshot import Snapshot
from tidemill.scans.table_rows import ALL_TASKS, initial_rows, live_rows
from tidemill.tables.codecs import key_codec, value_codec
from tidemill.tables.parts import PartLoader
from tidemill.tables.tables import Layout, Table
from tidemill.tables.view import SnapshotView
from tidemill.values.columns import to_values


def export(
    pstate_id: str, layout: Layout, snapshot: Snapshot, loader: PartLoader, *,
    initial: Any = None, tasks: int = 0, chunk_rows: int = 1_000_000,
) -> Iterator[tuple[str, pl.DataFrame]]:  # fmt: skip
    """(table id, rows) in chunks, sorted by task and keys; operands folded. A plain value that was not written on one
    of `tasks` is `initial`.

    Columns: task, k0, k1, …, and value or value.<field>. Native types stay native, `object` keys and structures are
    left as the canonical bytes that are stored, so that nothing is lost.
    """
    view = SnapshotView(snapshot, ALL_TASKS, loader)
    for table in layout.tables.values():
        missing = set() if table.keys else set(range(tasks))
        for rows in live_rows(pstate_id, table, view, None, {}, chunk_rows=chunk_rows):
            missing = missing and missing.difference(rows["task"].to_list())
            yield table.id, rows.drop("kind")
            loader.release()
        for rows in initial_rows(table, initial, sorted(missing)):
            yield table.id, rows


def no_rows(table: Table) -> pl.DataFrame:
    """A chunk of a table without rows: its columns, as they are stored."""
    keys = {name: key_codec(kind).dtype for name, kind in zip(table.key_names, table.keys, strict=True)}
    return pl.DataFrame(
        schema={"task": pl.Int32, **keys, **{name: value_codec(schema).dtype for name, schema in table.columns}}
    )


def readable(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `object` keys and structures as text, for files that people open."""
    columns: Mapping[str, Any] = {
        **{n: key_codec(k).column(rows[n]) for n, k in zip(table.key_names, table.keys, strict=True)},
        **{name: value_codec(schema).column(rows[name]) for name, schema in table.columns},
    }
    texts = {
        name: pl.Series(name, [None if value is None else repr(value) for value in to_values(column)], dtype=pl.String)
        for name, column in columns.items()
        if not isinstance(column, pl.Series)
    }
    return rows.with_columns(**texts)
