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
from tidemill.tables import compaction, verify
from tidemill.tables.container import decode
from tidemill.tables.export import export
from tidemill.tables.parts import PartLoader
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
    found = compaction.merge({"7": SCHEMA}, levels, task_set, loader, is_base=is_base, chunk_rows=chunk_rows)
    if found is None:
        return None
    container = decode(found[0])
    part: Part = dataclasses.replace(found[1], bytes=0, checksum="")
    assert list(verify.faults_of(part, found[0], {"7": SCHEMA}, is_base=is_base)) == []
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
        found = export("7", SCHEMA, snapshot, loader, chunk_rows=chunk)
        return [row for _, frame in found for row in frame.select("task", "k0", "k1", "value").iter_rows()]

    assert rows(chunk_rows) == rows(10**9)
