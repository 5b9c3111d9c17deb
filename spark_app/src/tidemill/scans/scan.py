"""`tidemill.scan`, `scan_depot` and `scan_arrow`: PStates and depots of a store as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tidemill.api.declaration import record_module
from tidemill.clients.module import ModuleClient
from tidemill.scans.depots import depot_scan
from tidemill.scans.frames import Scan, arrow_reader, lazy_frame, opened
from tidemill.scans.pstates import pstate_scan
from tidemill.store.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.api.module import Module


def scan(
    store: str | Path | ObjectStore,
    module: str,
    pstate: str,
    *,
    table: str = "",
    at: int | None = None,
    microbatch: int | None = None,
    code: Module | None = None,
) -> pl.LazyFrame:
    """A PState as a Polars LazyFrame, pinned to one entry of the commit log: the newest one when this is called.

    Its columns are `task`, the keys `k0`, `k1`, … (one for each level of subindexed maps), and `value` or a record's
    fields. Columns, filters on keys and a limit of rows are pushed down to the rows that are read; what is held is a
    batch, and the parts of the state that it is read from. `table` is one of a PState that has several: the path of
    fields that leads to it. `at` (an entry) or `microbatch` pin another state, as with `PStateHandle.at`. `code` is the
    module, where values wait for a migration of its.

    Raises:
        UnknownName: there is no such store, module, PState or table.
        NotSelectable: the PState is private.
        BadInput: the microbatch is not committed yet.
        SnapshotExpired: the state is kept no more; `collect` raises it, too.
    """
    found = pstate_scan(_client(store, module, code), pstate, table, at, microbatch)
    return lazy_frame(found, f"{module}/{pstate}")


def scan_depot(
    store: str | Path | ObjectStore,
    module: str,
    depot: str,
    *,
    schema: Mapping[str, Any] | None = None,
    code: Module | None = None,
) -> pl.LazyFrame:
    """The records of a depot as a Polars LazyFrame: those that it holds when this is called.

    Its columns are `partition`, `offset`, `time` (when it was appended) and the fields of the depot's schema, or of
    `schema` (names and Polars types); without either `record`, as JSON text. Filters on `partition`, `offset` and
    `time` are pushed down to the records that are read. `code` is the module, where records wait for a migration.

    Raises:
        UnknownName: there is no such store, module or depot.
        BadInput: the depot keeps no records in the store; or, when it is read, retention gave some up meanwhile.
        SchemaMismatch: `collect` raises it where a field has not the type of `schema`.
    """
    return lazy_frame(depot_scan(_client(store, module, code), depot, schema), f"{module}/{depot}")


def scan_arrow(
    store: str | Path | ObjectStore,
    module: str,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: pl.Expr | None = None,
    limit: int | None = None,
    batch_rows: int | None = None,
    **options: Any,
) -> pa.RecordBatchReader:
    """A PState (`$$name`) or a depot (`*name`) as a stream of Arrow batches, for all that reads Arrow.

    `columns`, `where` (a Polars expression) and `limit` say what is read. `options` are those of `scan` or
    `scan_depot`. Raises: as these, and BadInput where there is no such column.
    """
    client = _client(store, module, options.pop("code", None))
    found: Scan
    if name.startswith("*"):
        found = depot_scan(client, name, options.pop("schema", None), **options)
    else:
        found = pstate_scan(client, name, **options)
    return arrow_reader(found, columns, where, limit, batch_rows)


def _client(store: str | Path | ObjectStore, module: str, code: Module | None) -> ModuleClient:
    client = ModuleClient(opened(store), module)
    if code is not None:
        client.declare(record_module(code))
    return client
