"""`tidemill export`: a PState as Parquet files that anything can read."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from tidemill.api.declaration import record_module
from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    PStateArgument,
    StoreOption,
    existing_store,
    load_module,
    stored_definition,
)
from tidemill.cli.output import command, say, show_json, wants_json
from tidemill.cli.whole_files import written_whole
from tidemill.definition.migration_steps import known_migrations, steps_of
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.snapshot import Snapshot
from tidemill.scans import export as exports
from tidemill.scans.pstates import tasks_of
from tidemill.store.objects import NotFound, ObjectStore
from tidemill.tables.stored_parts import part_loader
from tidemill.tables.tables import Layout, Table, layout_of
from tidemill.values.errors import SnapshotExpired


@command
def export(
    module: ModuleArgument,
    pstate: PStateArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    at: Annotated[int | None, typer.Option("--at", help="Entry of the commit log; the newest if left out.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Folder for the files.")] = ".",
    code: Annotated[str, typer.Option("--module", help="MODULE:CLASS, for values that wait for a migration.")] = "",
) -> None:
    """Write one Parquet file a table of the PState: keys k0, k1, …, and the value's columns."""
    wants_json(json_)
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    pstate = "$$" + pstate.removeprefix("$$")
    topology, found = definition.pstate(pstate)
    prefix = definition.topology_prefix(topology.name)
    number, snapshot = snapshot_of(opened, prefix, at)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    known = known_migrations(record_module(load_module(code))) if code else {}
    layout = layout_of(found.schema, steps_of(found, known))
    loader, tasks = part_loader(opened.url, prefix, True), tasks_of(definition, found)
    rows = exports.export(found.id, layout, snapshot, loader, initial=found.initial_value, tasks=tasks)
    files = _write(layout, rows, folder, pstate)
    if json_:
        show_json({"entry": number, "files": files})
        return
    for file in files:
        say(f"{file['file']}: {file['rows']:,} rows of {pstate} at entry {number}.")


def snapshot_of(store: ObjectStore, prefix: str, at: int | None) -> tuple[int, Snapshot]:
    """The state at an entry of the commit log, the newest one by default.

    Raises:
        SnapshotExpired: there is no such entry (any more).
    """
    log = CommitLog(store, prefix)
    if at is None:
        head = log.head()
        return (0, Snapshot()) if head is None else (head[0], head[1].snapshot)
    try:
        return at, log.read_kept(at).snapshot
    except NotFound as error:
        raise SnapshotExpired(
            f"The commit log has no entry {at}, or no longer; `tidemill log` shows those there are."
        ) from error


def _write(layout: Layout, chunks: Iterable[tuple[str, pl.DataFrame]], folder: Path, name: str) -> list[dict[str, Any]]:
    """The files of all tables, also of those without rows: what an older export left there would pass for them."""
    tables = layout.tables
    names = {table: _file(folder, name, table, len(tables)) for table in tables}
    rows = dict.fromkeys(tables, 0)
    with ExitStack() as files:
        writers = {}
        for table, file in names.items():
            beside = files.enter_context(written_whole(file))
            schema = _arrow(tables[table], exports.no_rows(tables[table])).schema
            writers[table] = files.enter_context(pq.ParquetWriter(beside, schema))
        for table, frame in chunks:
            schema = writers[table].schema
            data = _arrow(tables[table], frame).select(schema.names).cast(schema)
            writers[table].write_table(data)
            rows[table] += data.num_rows
    return [{"table": table, "file": str(names[table]), "rows": rows[table]} for table in tables]


def _arrow(table: Table, rows: pl.DataFrame) -> pa.Table:
    return exports.readable(table, rows).to_arrow(compat_level=pl.CompatLevel.oldest())


def _file(folder: Path, name: str, table: str, count: int) -> Path:
    plain = name.lstrip("$")
    return folder / (f"{plain}.parquet" if count == 1 else f"{plain}.{table}.parquet")
