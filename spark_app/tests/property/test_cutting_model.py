"""Levels merged in chunks of any size are what they are when merged at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import Leaf, MapSchema
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.scans.export import export
from tidemill.tables import compaction, verify
from tidemill.tables.chunks import chunks
from tidemill.tables.container import PUT, decode
from tidemill.tables.level_merge import rows_frame
from tidemill.tables.parts import PartLoader
from tidemill.tables.sorted_table import SortedTable
from tidemill.tables.tables import layout_of
from tidemill.tables.view import SnapshotView

SCHEMA = MapSchema("int", MapSchema("int", Leaf("int"), True, nullable=True), nullable=True)
ALL = TaskSet(1, 0)
TASKS = 2
KEYS = st.none() | st.integers(0, 4)
WRITES = st.tuples(
    st.sampled_from(["put", "put", "put", "delete", "clear", "drop"]), st.integers(0, TASKS - 1), KEYS, KEYS
)


def write(state: ThreadState, kind: str, task: int, outer: Any, inner: Any, value: int) -> None:
    root = state.root("$$p", task)
    if kind == "put":
        root.get(outer).put(inner, value)
    elif kind == "delete":
        root.get(outer).delete(inner)
    elif kind == "clear":
        root.get(outer).clear()
    else:
        root.clear()


def levels_of(batches: list[list[Any]], blobs: dict[str, bytes]) -> list[Level]:
    """One delta a batch, each written on top of those before."""
    levels: list[Level] = []
    loader = PartLoader(blobs.__getitem__)
    for number, writes in enumerate(batches):
        view = SnapshotView(Snapshot(tuple(levels)), ALL, loader)
        state = ThreadState({"$$p": PStateInfo("$$p", "7", SCHEMA)}, view)
        for value, one in enumerate(writes):
            write(state, *one, value)
        finished = state.finish()
        if finished is not None:
            blobs[name := f"d{number}"] = finished[0]
            levels.append(Level("delta", number, number, (dataclasses.replace(finished[1], name=name),)))
    return levels


def merged(levels: list[Level], loader: PartLoader, task_set: TaskSet, is_base: bool, chunk_rows: int) -> Any:
    """(rows, part, container) of a merge."""
    found = compaction.merge({"7": layout_of(SCHEMA)}, levels, task_set, loader, is_base=is_base, chunk_rows=chunk_rows)
    if found is None:
        return None
    container = decode(found[0])
    part: Part = dataclasses.replace(found[1], bytes=0, checksum="")
    assert list(verify.faults_of(part, found[0], {"7": layout_of(SCHEMA)}, is_base=is_base)) == []
    return pl.DataFrame(pl.from_arrow(container.tables["7", "0"])).rows(), part


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(WRITES, max_size=15), min_size=2, max_size=5),
    st.integers(0, 2),
    st.integers(1, 12),
    st.sampled_from([ALL, TaskSet(2, 0), TaskSet(2, 1)]),
)
def test_chunks_of_any_size_give_the_same_run(
    batches: list[list[Any]], first: int, chunk_rows: int, task_set: TaskSet
) -> None:
    """`first` > 0: older levels stay below, so that tombstones and clears must survive the merge, once each."""
    blobs: dict[str, bytes] = {}
    levels = levels_of(batches, blobs)[first:]
    loader = PartLoader(blobs.__getitem__)
    if levels:
        expected = merged(levels, loader, task_set, first == 0, 10**9)
        assert merged(levels, loader, task_set, first == 0, chunk_rows) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(WRITES, max_size=15), min_size=1, max_size=5), st.integers(1, 12))
def test_chunks_of_any_size_give_the_same_export(batches: list[list[Any]], chunk_rows: int) -> None:
    blobs: dict[str, bytes] = {}
    snapshot = Snapshot(tuple(levels_of(batches, blobs)))
    loader = PartLoader(blobs.__getitem__)

    def rows(chunk: int) -> list[Any]:
        found = export("7", layout_of(SCHEMA), snapshot, loader, chunk_rows=chunk)
        return [row for _, frame in found for row in frame.select("task", "k0", "k1", "value").iter_rows()]

    assert rows(chunk_rows) == rows(10**9)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 5)), min_size=1, max_size=6), st.integers(24, 300))
def test_chunks_hold_no_more_rows_than_they_may_and_most_of_them_half(
    shapes: list[tuple[int, int]], chunk_rows: int
) -> None:
    plain = MapSchema("int", Leaf("int"))
    table = next(iter(layout_of(plain).stored.values()))
    levels = []
    for rows, step in shapes:  # levels of all lengths, dense and sparse
        frame = rows_frame(table, [0] * rows, [range(0, rows * step, step)], [PUT] * rows, [1] * rows)
        levels.append([SortedTable(table, frame, (None,))])
    sizes = [sum(rows.height for rows, _ in chunk.frames) for chunk in chunks(table, levels, ALL, chunk_rows)]

    assert sum(sizes) == sum(rows for rows, _ in shapes)
    assert max(sizes) <= chunk_rows
    assert len(sizes) <= 1 + 2 * sum(sizes) / (chunk_rows - 4 * len(shapes) + 1)
