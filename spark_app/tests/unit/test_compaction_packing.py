"""Compaction for another number of threads than wrote the levels keeps each task's rows, once."""

from __future__ import annotations

import dataclasses

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import Leaf, MapSchema
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.scans.export import export
from tidemill.tables import compaction
from tidemill.tables.parts import PartLoader
from tidemill.tables.tables import layout_of
from tidemill.tables.view import SnapshotView

TASKS = 4
SCHEMA = MapSchema("int", Leaf("int"))


def test_every_row_is_kept_once_when_levels_were_packed_for_fewer_threads() -> None:
    blobs: dict[str, bytes] = {}
    loader = PartLoader(blobs.__getitem__)
    levels = []
    for microbatch, threads in enumerate((1, 2, 1, 4), start=1):
        parts = []
        for thread in range(threads):
            view = SnapshotView(Snapshot(tuple(levels)), TaskSet(threads, thread), loader)
            state = ThreadState({"$$p": PStateInfo("$$p", "7", SCHEMA)}, view)
            for task in range(thread, TASKS, threads):
                state.root("$$p", task).put(10 * task + microbatch, microbatch)
            content, part = state.finish()
            blobs[name := f"d{microbatch}-{thread}"] = content
            parts.append(dataclasses.replace(part, name=name, tasks=TaskSet(threads, thread)))
        levels.append(Level("delta", microbatch, microbatch, tuple(parts)))

    runs: list[Part] = []
    for thread in range(2):
        content, part = compaction.merge({"7": layout_of(SCHEMA)}, levels, TaskSet(2, thread), loader, is_base=True)
        blobs[name := f"r{thread}"] = content
        runs.append(dataclasses.replace(part, name=name))

    snapshot = Snapshot(tuple(levels)).with_run(Level("run", 1, 4, tuple(runs), is_base=True))
    rows = [
        row
        for _, frame in export("7", layout_of(SCHEMA), snapshot, loader)
        for row in frame.select("task", "k0").iter_rows()
    ]
    assert sorted(rows) == [(task, 10 * task + microbatch) for task in range(TASKS) for microbatch in range(1, 5)]
    assert [part.rows["7/0"] for part in runs] == [8, 8]
