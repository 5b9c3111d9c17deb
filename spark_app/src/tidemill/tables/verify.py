"""Whether the rows of a stored part are what its format promises: `tidemill check` asks for every part, tests as well.

Rows are decoded a row group at a time, so that a large run needs little memory beside its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tidemill.journal.snapshot import Part
from tidemill.tables.codecs import key_codec, value_codec
from tidemill.tables.container import CLEAR, DELETE, OPERAND, PUT, Member, MemberMeta, reading_container
from tidemill.tables.level_merge import key_columns
from tidemill.tables.row_order import run_starts, sort_rows
from tidemill.tables.table_bounds import bound_of
from tidemill.tables.tables import Layout, Table, is_size_of, row_key
from tidemill.tables.widened_rows import check_readable
from tidemill.values.errors import CorruptState, SchemaOutdated


def faults_of(part: Part, content: Any, layouts: Mapping[str, Layout], *, is_base: bool) -> Iterator[str]:
    """What is wrong with the rows of a part, as sentences; nothing if all is well.

    `layouts` is PState id -> layout; of other PStates, which were deleted, only the counts of rows are compared.

    Raises:
        CorruptState: `content` is no whole container.
    """
    with reading_container(content, is_checked=False) as (members, _, _):
        counts = {row_key(member.key): member.meta.rows for member in members}
        if counts != dict(part.rows):
            yield f"it holds {counts} rows, the log says {dict(part.rows)}"
        generations = {row_key(m.key): m.meta.table.generation for m in members if m.meta.table.generation}
        if generations != dict(part.generations):
            yield f"its values went through {generations} migrations, the log says {dict(part.generations)}"
        for member in members:
            if member.key[0] in layouts:
                for fault in _member_faults(part, member, layouts[member.key[0]], is_base):
                    yield f"table {row_key(member.key)} {fault}"


def _member_faults(part: Part, member: Member, layout: Layout, is_base: bool) -> Iterator[str]:
    pstate, table_id = member.key
    wanted = layout.stored.get(table_id)
    if wanted is None and is_size_of(table_id, layout):
        return  # an update gave the elements a structure whose size is not tracked; compaction drops these
    if wanted is None:
        yield f"is none of the PState {pstate}"
        return
    try:
        check_readable(member.meta.table, wanted.of_generation(member.meta.table.generation))
    except SchemaOutdated:
        pass  # the module was updated after its definition was read here
    except CorruptState as error:
        yield f"is of another schema: {error}"
        return
    found: dict[str, None] = {}
    rows, bound, last = 0, 0, pl.DataFrame()
    for chunk in member.chunks():
        frame = pl.DataFrame(pl.from_arrow(chunk))
        columns = list(_column_faults(member.meta.table, frame))
        if columns:
            yield from columns
            return
        found |= dict.fromkeys(_row_faults(member.meta, frame, last, is_base))
        found |= dict.fromkeys(_task_faults(part, frame))
        rows, bound, last = rows + frame.height, max(bound, bound_of(member.meta.table, frame)), frame.tail(1)
    yield from found
    if rows != member.meta.rows:
        yield f"holds {rows} rows, its container says {member.meta.rows}"
    if bound > part.bounds.get(row_key(member.key), 0):
        yield f"holds the integer {bound}, beyond the bound {part.bounds.get(row_key(member.key), 0)} of the log"


def _column_faults(table: Table, rows: pl.DataFrame) -> Iterator[str]:
    """Names and types of columns."""
    expected: dict[str, Any] = {"task": pl.Int32, "kind": pl.Int8}
    expected |= {name: key_codec(kind).dtype for name, kind in zip(table.key_names, table.keys, strict=True)}
    expected |= {name: value_codec(schema).dtype for name, schema in table.columns}
    if table.fields is not None and "none" in rows.columns:
        expected["none"] = pl.Int64
    if dict(rows.schema) != expected:
        yield f"has the columns {dict(rows.schema)}, expected {expected}"


def _row_faults(meta: MemberMeta, rows: pl.DataFrame, last: pl.DataFrame, is_base: bool) -> Iterator[str]:
    """Order, duplicates and kinds of rows that follow the row `last`."""
    columns = key_columns(meta.table)
    keys = pl.concat([last, rows]).select("kind", *columns) if last.height else rows.select("kind", *columns)
    if not sort_rows(keys.select(columns), columns).equals(keys.select(columns)):
        yield "is not sorted by task and keys"
    elements = keys.filter(pl.col("kind") < CLEAR).select(columns)
    if elements.height and len(run_starts(elements, columns)) != elements.height:
        yield "has several rows for one key"
    for position, name in enumerate(meta.table.key_names):
        if position not in meta.table.nullable and elements[name].null_count():
            yield f"holds None as its key {name}, which its schema does not allow"
    kinds = set(rows["kind"].unique().to_list())
    if is_base and kinds - {PUT}:
        yield "is of a base, but holds more than puts"
    if kinds - {PUT, DELETE, OPERAND, *range(CLEAR, CLEAR + max(1, len(meta.table.keys)))}:
        yield f"holds rows of unknown kinds: {sorted(kinds)}"
    if OPERAND in kinds and not any(meta.combiner_names):
        yield "holds operands, but says no combiner"


def _task_faults(part: Part, rows: pl.DataFrame) -> Iterator[str]:
    foreign = [task for task in rows["task"].unique().to_list() if task not in part.tasks]
    if foreign:
        yield f"holds rows of the tasks {foreign[:8]}, which are not of this part"
