"""How a PState lies on its tasks, and the keys that weigh most on each: to see skew, at a bounded cost.

What is counted are stored rows, of all levels: also those that newer ones replace, until a compaction drops them. Of a
map with structures of rows below its keys, keys are found at `PROBES` places evenly spaced among a task's rows, so one
that has more than a `PROBES`th of them in one level is always found; then its rows are counted. Of a map of whole
values each key has one row, and the bytes of `SCANNED_MAX` rows of the PState, evenly spaced, are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.journal.snapshot import Part
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.tables.codecs import key_codec
from tidemill.tables.container import DELETE
from tidemill.tables.sorted_table import SortedTable, column_of
from tidemill.tables.tables import MapPlace

KEYS_MAX: Final = 3
"""Heaviest keys of a task that are told."""

KEY_LENGTH_MAX: Final = 1_000
"""Characters or bytes of a key that is told; of a longer one only its beginning and its length are."""

PROBES: Final = 256
"""Rows of a task at which its heaviest keys are looked for."""

SCANNED_MAX: Final = 1_000_000
"""Rows of a PState whose bytes are compared."""

BYTES_MAX: Final = 1024 * 1024 * 1024
"""Stored bytes that a look reads; tasks that would need more are left out."""

Unit = Literal["rows", "bytes", ""]


@dataclass(frozen=True)
class TaskSize:
    """Stored rows of a task, about how many bytes of the store they take, and its heaviest keys with their weights.

    In place of a key beyond `KEY_LENGTH_MAX` stands a text about it.
    """

    task: int
    rows: int
    bytes: int
    keys: tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class TaskSizes:
    """All as of `entry`. `unit` is what keys weigh: rows below them, bytes of their values, or "" where they are not
    those of a map.

    `left_out` counts the tasks for which there was no time, or which would have needed too many bytes.
    """

    entry: int
    unit: Unit
    tasks: tuple[TaskSize, ...]
    left_out: int


class _TaskRows(NamedTuple):
    """One task's rows in one table of one part."""

    table: SortedTable
    start: int
    end: int


def task_sizes(reader: SnapshotReader, pstate: str, entry: int, tasks: int, is_late: Callable[[], bool]) -> TaskSizes:
    """The sizes of a PState's tasks, in their order; it ends early where it `is_late`."""
    parts = [part for part in reader.snapshot.parts() if reader.rows_in(pstate, part)]
    unit = _unit(reader, pstate)
    stride = max(1, sum(reader.rows_in(pstate, part) for part in parts) // SCANNED_MAX)
    found: list[TaskSize] = []
    counted: dict[str, int] = {}
    for task in _by_thread(parts, tasks):
        mine = [part for part in reversed(parts) if task in part.tasks]
        needed = counted | {part.name: part.bytes for part in mine}
        if is_late() or sum(needed.values()) > BYTES_MAX:
            continue
        counted = needed
        found.append(_size(reader, pstate, task, mine, unit, stride))
    return TaskSizes(entry, unit, tuple(sorted(found, key=lambda one: one.task)), tasks - len(found))


def _by_thread(parts: Sequence[Part], tasks: int) -> list[int]:
    """Tasks of one thread follow each other: they share parts, which need not be opened again."""
    threads = max((part.tasks.modulus for part in parts), default=1)
    return sorted(range(tasks), key=lambda task: (task % threads, task))


def _unit(reader: SnapshotReader, pstate: str) -> Unit:
    layout = reader.infos[pstate].layout
    if not isinstance(layout.root, MapPlace):
        return ""
    if any(len(table.keys) > 1 for table in layout.tables.values()):
        return "rows"
    return "bytes"


def _size(reader: SnapshotReader, pstate: str, task: int, parts: Sequence[Part], unit: Unit, stride: int) -> TaskSize:
    """`parts` are those of the task, newest first."""
    slices: list[_TaskRows] = []
    size = 0.0
    for part in parts:
        mine = [_TaskRows(table, *table.task_bounds(task)) for table in reader.tables_of(pstate, part)]
        slices += mine
        size += part.bytes * _rows(mine) / max(1, sum(part.rows.values()))
    found: list[tuple[Any, int]] = []
    if unit:
        found = _by_rows(task, slices) if unit == "rows" else _by_bytes(task, slices, stride)
    heaviest = sorted(found, key=lambda one: one[1], reverse=True)[:KEYS_MAX]
    return TaskSize(task, _rows(slices), round(size), tuple(heaviest))


def _rows(slices: Sequence[_TaskRows]) -> int:
    return sum(end - start for _, start, end in slices)


# --- by rows ---------------------------------------------------------------------------------------------------------


def _by_rows(task: int, slices: Sequence[_TaskRows]) -> list[tuple[Any, int]]:
    """Keys that were met at the probes most often, with all rows at and below them."""
    stride = max(1, _rows(slices) // PROBES)
    hits = Counter(table.key_at(row, 0) for table, start, end in slices for row in range(start, end, stride))
    return [
        (_shown(slices, key), sum(_width(table.prefix_bounds(task, (key,))) for table, _, _ in slices))
        for key, _ in hits.most_common(4 * KEYS_MAX)
    ]


def _width(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def _shown(slices: Sequence[_TaskRows], key: Any) -> Any:
    kind = slices[0].table.table.keys[0]
    if not isinstance(key, (str, bytes)) or len(key) <= KEY_LENGTH_MAX:
        return key_codec(kind).present(key)
    if isinstance(key, str):
        return f"{key[:40]}… ({len(key):,} characters)"
    return f"… (a key of {len(key):,} bytes)"


# --- by bytes --------------------------------------------------------------------------------------------------------


def _by_bytes(task: int, slices: Sequence[_TaskRows], stride: int) -> list[tuple[Any, int]]:
    """Keys with the longest values among every `stride`th row, as they are now."""
    keys: set[Any] = set()
    for one in slices:
        lengths = _lengths(one.table, one.start, one.end, stride)
        if lengths is not None:
            first = max(0, len(lengths) - 4 * KEYS_MAX)
            longest = np.argpartition(lengths, first)[first:] if first else np.arange(len(lengths))
            keys |= {one.table.key_at(one.start + stride * int(place), 0) for place in longest}
    found = ((key, _bytes_now(task, slices, key)) for key in keys)
    return [(_shown(slices, key), size) for key, size in found if size]


def _bytes_now(task: int, slices: Sequence[_TaskRows], key: Any) -> int:
    """Of the newest row of a key; 0 where it was deleted."""
    for table, _, _ in slices:
        row = table.find(task, (key,))
        if row >= 0:
            lengths = _lengths(table, row, row + 1, 1)
            return 0 if table.kinds[row] == DELETE or lengths is None else int(lengths[0])
        if table.clears_key(task, (key,)):
            return 0
    return 0


def _lengths(table: SortedTable, start: int, end: int, stride: int) -> np.ndarray[Any, Any] | None:
    """Bytes of the values of every `stride`th row; None where all rows of a table take the same."""
    found = None
    for name, _ in table.stored.columns:
        column = column_of(table.arrow, name).slice(start, end - start)
        if not _has_lengths(column.type):
            continue
        if stride > 1:
            column = column.take(pa.array(np.arange(0, len(column), stride)))
        lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        found = lengths if found is None else found + lengths
    return found


def _has_lengths(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )
