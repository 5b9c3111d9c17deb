"""Where a thread reads from: stored parts of PStates and the records of depots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tidemill.depot.log import DepotLog
from tidemill.engine.external import read_external
from tidemill.engine.work import AttemptWork, Pinned, SourceWork
from tidemill.journal.snapshot import Snapshot, TaskSet
from tidemill.plan.program import MirroredQuery, Program, PStatePlan
from tidemill.pstate.committed import CommittedState
from tidemill.pstate.info import PStateInfo
from tidemill.pstate.snapshot_reader import SnapshotReader
from tidemill.pstate.thread_state import ThreadState
from tidemill.store.patient import PatientStore
from tidemill.store.urls import open_store
from tidemill.tables.migrated_records import migrated_records
from tidemill.tables.parts import PartLoader
from tidemill.tables.stored_parts import part_loader
from tidemill.tables.view import SnapshotView
from tidemill.values.columns import Column, gather_rows
from tidemill.values.offsets import OffsetRanges


def infos(plans: Mapping[str, PStatePlan]) -> dict[str, PStateInfo]:
    """What a thread's state must know of each PState, by name."""
    return {
        name: PStateInfo(name, plan.id, plan.schema, (made := plan.declaration).initial_value, steps=made.steps)
        for name, plan in plans.items()
    }


def open_state(work: AttemptWork, thread: int, overlay: bytes) -> ThreadState:
    """The thread's own state: the last commit and what this attempt changed."""
    loader = part_loader(work.store_url, work.prefix)
    loader.note(work.snapshot)
    view = SnapshotView(work.snapshot, TaskSet(work.threads, thread), loader)
    limit = work.options.get("topology.microbatch.pstate.flush.path.count", 100_000)
    return ThreadState(own_pstates(work.program), view, overlay=overlay, flush_path_count=int(limit))


def _read_nothing(name: str) -> bytes:
    raise AssertionError(f"nothing was ever committed as {name}")


_NOTHING: Final = PartLoader(_read_nothing)


def empty_state(program: Program) -> ThreadState:
    """State that nothing was committed to: of a query, or of a block without a module."""
    return ThreadState(own_pstates(program), SnapshotView(Snapshot(), TaskSet(1, 0), _NOTHING))


def own_pstates(program: Program) -> dict[str, PStateInfo]:
    """The PStates that a program writes, temporary ones too, by name."""
    temps = {name: replace(info, is_temporary=True) for name, info in infos(program.temps).items()}
    return {**infos(program.pstates), **temps}


def open_others(work: AttemptWork, thread: int) -> dict[str, ThreadState]:
    """The committed PStates of other topologies, and other modules, that the program reads, by name.

    Partition p of another module's is read by task p % tasks, which is one of the thread that has p % threads.
    """
    states: dict[str, ThreadState] = {}
    for topology in sorted(set(work.program.reads.values())):
        pinned = work.reads[topology]
        names = [name for name, owner in work.program.reads.items() if owner == topology]
        plans = {name: work.program.others[name] for name in names}
        view = SnapshotView(pinned.snapshot, TaskSet(work.threads, thread), _loader(work, pinned))
        state = ThreadState(infos(plans), view)
        states.update(dict.fromkeys(names, state))
    return states


def open_committed(work: AttemptWork) -> dict[str, CommittedState]:
    """The PStates that the queries of the program read, by name: as they were committed before this attempt, those of
    its own topology too.
    """
    queries = work.program.queries.values()
    owners = {name: owner for query in queries for name, owner in query.reads.items()}
    plans = {name: query.others[name] for query in queries for name in query.reads}
    return _committed(work, owners, plans)


def open_mirrored(work: AttemptWork, query: MirroredQuery) -> dict[str, CommittedState]:
    """The PStates that a query of another module reads, by name there: as they were pinned for this attempt."""
    return _committed(work, query.places, query.plans)


def _committed(
    work: AttemptWork, owners: Mapping[str, str], plans: Mapping[str, PStatePlan]
) -> dict[str, CommittedState]:
    """PStates by name, those of one owner in one state: the topology's own, or what is pinned of another."""
    states: dict[str, CommittedState] = {}
    for owner in sorted(set(owners.values())):
        is_own = owner == work.program.topology
        pinned = Pinned(work.prefix, work.snapshot) if is_own else work.reads[owner]
        names = [name for name in owners if owners[name] == owner]
        reader = SnapshotReader(
            infos({name: plans[name] for name in names}), pinned.snapshot, _loader(work, pinned, not is_own)
        )
        states.update(dict.fromkeys(names, CommittedState(reader)))
    return states


def _loader(work: AttemptWork, pinned: Pinned, checks_floor: bool = True) -> PartLoader:
    loader = part_loader(pinned.store_url or work.store_url, pinned.prefix, checks_floor)
    loader.note(pinned.snapshot)
    return loader


def read_source(work: AttemptWork, source: SourceWork, tasks: TaskSet) -> tuple[Column, np.ndarray[Any, Any]]:
    """The records of a source on these tasks, and the task of each: partition p is on task p % tasks, by partition."""
    if source.is_external:
        return read_external(work, source, tasks)
    if not source.ranges:
        is_here = source.is_due and 0 in tasks
        return ([None], np.zeros(1, dtype=np.int32)) if is_here else ([], np.empty(0, dtype=np.int32))
    is_all = tasks.modulus == 1
    ranges = source.ranges
    if not is_all:
        ranges = OffsetRanges.of(pair if p in tasks else (0, 0) for p, pair in enumerate(ranges))
    if not ranges.records:
        return [], np.empty(0, dtype=np.int32)
    store = PatientStore(open_store(source.store_url or work.store_url, probe=False))
    depot = DepotLog(store, source.depot_prefix, len(ranges))
    column, partitions = read_records(depot, replace(source, ranges=ranges))
    migrated = work.program.migrated.get(source.depot)
    if migrated is not None:
        column, kept = migrated_records(migrated, migrated.migration, column, partitions, ranges.starts)
        partitions = partitions[kept]
    if len(ranges) <= work.tasks:
        return column, partitions
    order = np.argsort(partitions, kind="stable")  # a task has several: one after the other, whatever was rolled
    return gather_rows(column, order), partitions[order] % np.int32(work.tasks)


def read_records(depot: DepotLog, source: SourceWork) -> tuple[Column, np.ndarray[Any, Any]]:
    """The records of a source but for those that are left out, and the partition of each. Raises as `read_rows`."""
    column, partitions = depot.read_rows(source.ranges, source.segments, source.fetch)
    gone = left_out_rows(source, partitions)
    if not gone:
        return column, partitions
    kept = np.delete(np.arange(len(partitions)), gone)
    return gather_rows(column, kept), partitions[kept]


def left_out_rows(source: SourceWork, partitions: np.ndarray[Any, Any]) -> list[int]:
    """The rows of records that are left out, where the ranges of a source were read whole."""
    starts, ends = source.ranges.starts, source.ranges.ends
    return [
        int(np.flatnonzero(partitions == partition)[offset - starts[partition]])
        for partition, offset in source.left_out
        if starts[partition] <= offset < ends[partition]
    ]
