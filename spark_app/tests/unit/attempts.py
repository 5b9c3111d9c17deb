"""Runs attempts of a module's topology against a folder store without a runner: what `leader` does, in a few lines."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import pyarrow as pa

from tidemill.api.declaration import record_module
from tidemill.api.path import recorded_path
from tidemill.depot.log import DepotLog
from tidemill.depot.segment import Segment
from tidemill.engine.attempt import run_attempt
from tidemill.engine.resources import infos
from tidemill.engine.superstep import DynamicSchedule, finish_thread, step_thread
from tidemill.engine.work import (
    AttemptOutcome,
    AttemptRunner,
    AttemptWork,
    CompactionWork,
    DeltaPart,
    Pinned,
    SourceWork,
)
from tidemill.journal.snapshot import Level, Snapshot, TaskSet
from tidemill.language.dataflow import Location
from tidemill.local.runner import LocalRunner
from tidemill.paths.compiled import compile_path
from tidemill.plan.compile.topology import compile_topology
from tidemill.pstate.thread_state import ThreadState
from tidemill.store.urls import open_store
from tidemill.tables.stored_parts import part_loader
from tidemill.tables.view import SnapshotView
from tidemill.values.columns import from_values, to_values
from tidemill.values.data import route
from tidemill.values.offsets import OffsetRanges


def run_as_bytes(work: AttemptWork) -> AttemptOutcome:
    """An attempt whose threads know of each other only by bytes, as on Spark."""
    inboxes: list[list[bytes]] = [[] for _ in range(work.threads)]
    schedule = DynamicSchedule(work.program, work.options)
    fixed = work.program.schedule
    step = fixed[0] if fixed else schedule.opening()
    superstep, exploded = 0, set()
    while step is not None:
        outputs = [step_thread(work, t, superstep, inboxes[t][::-1], step.events) for t in range(work.threads)]
        inboxes = [[] for _ in range(work.threads)]
        for output in outputs:
            exploded |= output.report.exploded
            for thread, payload in output.messages:
                assert isinstance(payload, bytes) and payload
                inboxes[thread].append(payload)
        superstep += 1
        if fixed:
            step = fixed[superstep] if superstep < len(fixed) else None
        else:
            step = schedule.next([output.report for output in outputs])
    changes = [finish_thread(work, t, inboxes[t]) for t in range(work.threads)]
    deltas = tuple(change.delta for change in changes if change.delta is not None)
    appends = tuple(part for change in changes for part in change.appends)
    return AttemptOutcome(deltas, frozenset(exploded), appends=appends)


class Attempts:
    """One topology of a module on a folder: `feed` depots, `attempt`, and look at PStates."""

    def __init__(
        self,
        folder: Folder,
        module: Any,
        tasks: int = 4,
        threads: int = 1,
        topology: str = "mb",
        as_bytes: bool = False,
        runner: AttemptRunner | None = None,
        prefix: str = "m/topologies/t",
    ) -> None:
        self.prefix = prefix
        self.url = f"file://{folder}"
        self.store = open_store(self.url)
        self.declaration = record_module(module)
        assert not self.declaration.faults, self.declaration.faults
        self.program = compile_topology(self.declaration, topology)
        self.tasks, self.threads, self.as_bytes = tasks, threads, as_bytes
        self.runner = runner
        self.snapshot = Snapshot()
        self.microbatch_id = 1
        self.version = 1
        self.options: dict[str, Any] = {}
        self._depots: dict[str, DepotLog] = {}
        self._done: dict[str, tuple[int, ...]] = {}
        self._next = 0
        self.due: set[str] = set()
        self.appended: dict[str, dict[int, list[Any]]] = {}
        self.others: dict[str, Pinned] = {}

    def _depot(self, name: str) -> DepotLog:
        if name not in self._depots:
            declared = next(depot for depot in self.declaration.depots if depot.name == name)
            partitions = 1 if declared.is_global else self.tasks
            self._depots[name] = DepotLog(self.store, f"m/depots/{name[1:]}", partitions)
        return self._depots[name]

    def feed(self, name: str, records: list[Any]) -> None:
        """Appends records where the depot's partitioner says; `random` deals them round."""
        declared = next(depot for depot in self.declaration.depots if depot.name == name)
        depot = self._depot(name)
        places: dict[int, list[Any]] = {}
        for record in records:
            if declared.function is not None:
                place = route(declared.function.call(record), depot.partitions)
            else:
                place = self._next % depot.partitions
                self._next += 1
            places.setdefault(place, []).append(record)
        depot.append([(place, from_values(held, True)) for place, held in sorted(places.items())])

    def work(self) -> AttemptWork:
        sources = {}
        for region in self.program.sources:
            declared = next(
                source
                for topology in self.declaration.topologies
                for source in topology.sources
                if source.source_id == region.source_id
            )
            depot = next(found for found in self.declaration.depots if found.name == declared.depot)
            if depot.tick_millis is not None:
                sources[declared.source_id] = SourceWork(declared.source_id, "", is_due=declared.depot in self.due)
                continue
            log = self._depot(declared.depot)
            start = self._done.get(declared.source_id, (0,) * log.partitions)
            ranges = OffsetRanges(tuple(start), tuple(log.ends()))
            prefix = f"m/depots/{declared.depot[1:]}"
            sources[declared.source_id] = SourceWork(declared.source_id, prefix, ranges, log.locate(ranges))
        return AttemptWork(
            self.url, self.declaration.name, self.prefix, self.program, self.tasks, self.threads,
            self.microbatch_id, self.version, self.snapshot, sources, self.others, self.options, 1_700_000_000_000,
        )  # fmt: skip

    def _append(self, work: AttemptWork, staged: DeltaPart) -> None:
        """Publishes a staged part: depot -> partition -> records."""
        content = staged.content
        if content is None:
            content = self.store.get(f"{work.prefix}/{staged.part.name}")
        staged.part.check(content)
        segment = Segment(pa.py_buffer(content))
        ((depot, count),) = staged.part.rows.items()
        assert count == segment.header.records
        held = segment.header.held()
        for partition, row, start, end in zip(*(at.tolist() for at in held), strict=True):
            rows = to_values(segment.rows(row, end - start))
            self.appended.setdefault(depot, {}).setdefault(partition, []).extend(rows)

    def attempt(self, cancel: threading.Event | None = None) -> AttemptOutcome:
        """Runs what waits in the depots and commits it."""
        work = self.work()
        if self.runner is not None:
            outcome = self.runner.run(work, threading.Event())
        elif self.as_bytes:
            outcome = run_as_bytes(work)
        elif cancel is None and self.threads == 1:
            outcome = LocalRunner().run(work, threading.Event())
        else:
            outcome = run_attempt(work, cancel)
        self.commit(work, outcome)
        return outcome

    def commit(self, work: AttemptWork, outcome: AttemptOutcome) -> None:
        parts = []
        for index, delta in enumerate(outcome.deltas):
            part = delta.part
            if delta.content is not None:
                part = replace(part, name=f"deltas/inline-{self.microbatch_id}-{index}.zip")
                self.store.create(f"{work.prefix}/{part.name}", delta.content)
            parts.append(part)
        if parts:
            level = Level("delta", self.microbatch_id, self.microbatch_id, tuple(parts))
            self.snapshot = Snapshot((*self.snapshot.levels, level))
        for staged in outcome.appends:
            self._append(work, staged)
        for source_id in outcome.exploded:
            self._done[source_id] = work.sources[source_id].ranges.ends
        self.microbatch_id += 1

    def compact(self) -> None:
        """Merges all levels into one."""
        levels = self.snapshot.levels
        if not levels:
            return
        work = CompactionWork(
            self.url, self.declaration.name, self.prefix, self.program, self.tasks, self.threads,
            self.microbatch_id, levels, True,
        )  # fmt: skip
        parts = LocalRunner().compact(work)
        self.snapshot = Snapshot((Level("run", levels[0].first, levels[-1].last, parts, True),))

    def state(self, task: int) -> ThreadState:
        loader = part_loader(self.url, self.prefix)
        return ThreadState(infos(self.program.pstates), SnapshotView(self.snapshot, TaskSet(self.tasks, task), loader))

    def select(self, pstate: str, path: Any, task: int) -> list[Any]:
        """What a path selects on one task."""
        recorded = recorded_path(path, Location(), [])
        schema = self.program.pstates[pstate].schema
        compiled = compile_path(recorded, schema, "select", pstate=pstate)
        values = [arg.value for arg in compiled.arguments]
        return compiled.select(self.state(task).root(pstate, task), values)

    def everywhere(self, pstate: str, path: Any) -> list[Any]:
        """What a path selects on all tasks, one after the other."""
        return [value for task in range(self.tasks) for value in self.select(pstate, path, task)]

    def at_key(self, pstate: str, key: Any, path: Any) -> list[Any]:
        return self.select(pstate, path, route(key, self.tasks))
