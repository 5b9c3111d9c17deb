"""A whole attempt in one process: all threads, superstep after superstep, without a byte in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from tidemill.engine.current_step import finder
from tidemill.engine.queries import bounded, opened
from tidemill.engine.report import add
from tidemill.engine.schedule import run_supersteps
from tidemill.engine.superstep import changes_of
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptOutcome, AttemptWork, Cancel
from tidemill.journal.step_metrics import is_of_step
from tidemill.values.errors import invariant


def run_attempt(work: AttemptWork, cancel: threading.Event | None = None) -> AttemptOutcome:
    """Runs an attempt to its deltas.

    Raises:
        UserCodeError: a function of the module raised.
        AttemptTimeout: `cancel` was set before the attempt was done.
    """
    runs = [opened(work, thread, cancel=cancel) for thread in range(work.threads)]
    try:
        with bounded(work):
            return _run(work, runs, cancel)
    finally:
        for run in runs:
            run.close()


def _run(work: AttemptWork, runs: Sequence[ThreadRun], cancel: threading.Event | None) -> AttemptOutcome:
    begin = time.perf_counter()
    if isinstance(cancel, Cancel):
        cancel.find = finder(runs, threading.get_ident())
    exploded: set[str] = set()
    steps, count = dict[str, float](), 0
    for reports in run_supersteps(work, runs):
        exploded.update(*(report.exploded for report in reports))
        add(steps, (report.metrics for report in reports))
        count += 1
    invariant(not any(run.outbox for run in runs), "the last superstep sends no message", supersteps=count)
    processed = time.perf_counter()
    changes = [changes_of(run) for run in runs]
    deltas = tuple(change.delta for change in changes if change.delta is not None)
    metrics = {name: value for name, value in steps.items() if is_of_step(name)} | {
        "process_ms": (processed - begin) * 1000, "delta_ms": (time.perf_counter() - processed) * 1000,
        "supersteps": float(count), "rows": steps.get("rows", 0.0),
        "delta_bytes": float(sum(part.part.bytes for part in deltas)),
    }  # fmt: skip
    appends = tuple(part for change in changes for part in change.appends)
    answers = tuple(answer for change in changes for answer in change.answers)
    return AttemptOutcome(deltas, frozenset(exploded), metrics, appends, answers)
