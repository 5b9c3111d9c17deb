"""Running an attempt as the machine asks for it, and what its failure comes to: a record to blame, where one is asked
for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemill.depot.rows import in_one_partition
from tidemill.engine.appends import INLINE_BYTES_MAX, write_part
from tidemill.engine.external import read_external
from tidemill.engine.work import AttemptRunner, AttemptWork, Cancel
from tidemill.journal.entries import QUARANTINE, Poison
from tidemill.journal.snapshot import TaskSet
from tidemill.journal.step_metrics import bounded
from tidemill.leader import events
from tidemill.leader.attempt_failures import attempt_failed, is_of_record
from tidemill.leader.diagnosis import Blamed, SourceRecord, TooManyProbes, find_poison
from tidemill.leader.topology_store import TopologyStore
from tidemill.values import columns
from tidemill.values.offsets import OffsetRanges


def run_attempt(
    topology_store: TopologyStore,
    runner: AttemptRunner,
    start: events.StartAttempt,
    cancel: Cancel,
    tell: Callable[[events.Event], None],
) -> events.AttemptDone | events.AttemptFailed:
    """Run an attempt; where the module's code raised, look for the record at which it did. `tell` hears of each run.

    Raises: what the attempt raises that is not the module's fault.
    """
    work = topology_store.attempt_work(start)
    try:
        outcome = runner.run(work, cancel)
        return events.AttemptDone(start.token, replace(outcome, metrics=bounded(outcome.metrics, work.program.shape)))
    except BaseException as caught:  # a function of the module raises anything, sys.exit included
        if not start.is_diagnosed or not is_of_record(caught):
            raise
        error = caught

    def probe(part: AttemptWork) -> object:
        tell(events.ProbeStarted(start.token))
        return runner.run(replace(part, is_probe=True), cancel)

    failed = attempt_failed(start.token, error)
    try:
        blamed = find_poison(probe, work, error)
    except TooManyProbes as many:
        return replace(failed, not_found=str(many))
    return failed if blamed is None else _blaming(topology_store, start, work, blamed)


def _blaming(
    topology_store: TopologyStore, start: events.StartAttempt, work: AttemptWork, blamed: Blamed
) -> events.AttemptFailed:
    """The failure with the record to blame, as the quarantine keeps it."""
    failed, record = attempt_failed(start.token, blamed.error), blamed.record
    content = {**_described(topology_store, start, work, blamed), **_told(failed)}
    rows = in_one_partition(columns.from_values([content]), 0)
    written = write_part(work, 0, QUARANTINE, rows, 1, INLINE_BYTES_MAX, topology_store.store)
    poison = Poison(record.source_id, record.partition, record.offset, written.part)
    return replace(failed, found=events.FoundPoison(poison, written.content))


def _described(
    topology_store: TopologyStore, start: events.StartAttempt, work: AttemptWork, blamed: Blamed
) -> dict[str, Any]:
    """The record, where it stands, and the attempt that failed at it."""
    record, definition = blamed.record, topology_store.definition
    depot = work.sources[record.source_id].depot
    ranges = start.attempt.ranges[record.source_id]
    return {
        "depot": depot, "depot_id": definition.depot_identity(depot), "source": record.source_id,
        "partition": record.partition, "offset": record.offset, "record": _read(topology_store, work, record),
        "microbatch_id": work.microbatch_id, "version": work.version, "definition": definition.number,
        "start_offset": ranges.starts[record.partition], "end_offset": ranges.ends[record.partition],
        "at_ms": topology_store.clock.now_ms(),
    }  # fmt: skip


def _read(topology_store: TopologyStore, work: AttemptWork, record: SourceRecord) -> Any:
    source = work.sources[record.source_id]
    if source.is_external:
        only = OffsetRanges.only(len(source.ranges), record.partition, record.offset, record.offset + 1)
        kept, _ = read_external(work, replace(source, ranges=only, left_out=frozenset()), TaskSet(1, 0))
    else:
        depot = topology_store.opened_depot(source.depot)
        kept = depot.read_columns(record.partition, record.offset, record.offset + 1)
    return columns.to_values(kept)[0]


def _told(failed: events.AttemptFailed) -> dict[str, Any]:
    return {"message": failed.message, "step": failed.step, "trace": failed.trace, "sample": failed.sample}
