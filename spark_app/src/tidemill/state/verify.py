"""Whether a stored container is what its format promises: `tidemill check` and tests ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from tidemill.model.errors import CorruptState
from tidemill.model.schema import Schema
from tidemill.model.snapshot import Part
from tidemill.state.container import CLEAR, Container
from tidemill.state.sorting import run_starts, sort_rows
from tidemill.state.table_bounds import bound_of
from tidemill.state.tables import Table, layout_of
from tidemill.state.view import row_key
from tidemill.state.widening import check_readable


def faults_of(part: Part, container: Container, schemas: Mapping[str, Schema], *, is_base: bool) -> Iterator[str]:
    """What is wrong with a part, as sentences; nothing if all is well. `schemas` is PState id -> schema."""
    counts = {row_key(key): meta.rows for key, meta in container.meta.items()}
    if counts != dict(part.rows):
        yield f"{part.name}: the container holds {counts} rows, the log says {dict(part.rows)}"
    for key, table in container.tables.items():
        if key[0] not in schemas:
            continue
        layout = layout_of(schemas[key[0]])
        if key[1] not in layout.stored:
            yield f"{part.name}: the PState {key[0]} has no table {key[1]}"
            continue
        stored = container.meta[key].table
        try:
            check_readable(stored, layout.stored[key[1]])
        except CorruptState as error:
            yield f"{part.name}: {error}"
        rows = pl.DataFrame(pl.from_arrow(table))
        for fault in _table_faults(stored, rows, part, is_base):
            yield f"{part.name}: table {row_key(key)} {fault}"
        if bound_of(stored, rows) > part.bounds.get(row_key(key), 0):
            yield f"{part.name}: table {row_key(key)} holds integers beyond its bound"


def _table_faults(table: Table, rows: pl.DataFrame, part: Part, is_base: bool) -> Iterator[str]:
    expected = {"task", *table.key_names, "kind", *(name for name, _ in table.columns)}
    if set(rows.columns) - {"none"} != expected:
        yield f"has the columns {rows.columns}, expected {sorted(expected)}"
        return
    columns = ["task", *table.key_names]
    if not sort_rows(rows.select(columns), columns).equals(rows.select(columns)):
        yield "is not sorted by task and keys"
    elements = rows.filter(pl.col("kind") < CLEAR).select(columns)
    if elements.height and len(run_starts(elements, columns)) != elements.height:
        yield "has several rows for one key"
    if is_base and bool((rows["kind"] != 0).any()):
        yield "is a base, but holds more than puts"
    if any(task not in part.tasks for task in rows["task"].unique().to_list()):
        yield "holds rows of tasks that the part does not cover"
