"""Supersteps of one thread as pure functions on bytes: what `spark` ships to its workers.

    inbox of bytes ──► step_thread ──► [(destination thread, bytes)] + report
    inbox of bytes ──► finish_thread ──► what the thread changed

A thread's own state (overlay, rows that wait for a batch block) travels from superstep to superstep as a message to
itself, so a lost worker loses nothing that the lineage cannot make again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemill.engine.frame import Frame
from tidemill.engine.messages import Message, decode, encode
from tidemill.engine.queries import bounded
from tidemill.engine.report import StepReport
from tidemill.engine.saved import is_saved, restore, save
from tidemill.engine.schedule import DynamicSchedule
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptWork, DeltaPart, ThreadChanges
from tidemill.journal.snapshot import TaskSet
from tidemill.plan.program import Event
from tidemill.store.urls import open_store
from tidemill.values import ids
from tidemill.values.errors import invariant

__all__ = ["DynamicSchedule", "StepOutput", "StepReport", "changes_of", "finish_thread", "last_step", "step_thread"]

INLINE_BYTES_MAX = 256 * 1024
"""Deltas of an attempt that are smaller in all travel with the results and ride in the commit entry."""


@dataclass(frozen=True)
class StepOutput:
    """`messages` are (destination thread, payload); the thread's own state is among them, addressed to itself."""

    messages: list[tuple[int, bytes]]
    report: StepReport


def step_thread(
    work: AttemptWork,
    thread: int,
    superstep: int,
    inbox: Sequence[bytes],
    events: Sequence[Event],
) -> StepOutput:
    """Runs all tasks of one thread through one superstep; the order of `inbox` does not matter.

    `inbox` is empty in superstep 0. `events` are `program.schedule[superstep].events`, or what `DynamicSchedule` said.

    Raises:
        UserCodeError: a function of the module raised.
    """
    run, report = _stepped(work, thread, superstep, inbox, events)
    limit = int(work.options.get("worker.combined.transfer.limit", 65_536))
    sent = [(to, encode(piece)) for to, message in run.outbox for piece in _pieces(message, limit)]
    saved = save(run)
    return StepOutput([*sent, (thread, saved)] if saved else sent, report)


def _stepped(
    work: AttemptWork,
    thread: int,
    superstep: int,
    inbox: Sequence[bytes],
    events: Sequence[Event],
) -> tuple[ThreadRun, StepReport]:
    """The thread as its superstep leaves it."""
    run = restore(work, thread, _own(inbox))
    messages = [decode(payload) for payload in inbox if not is_saved(payload)]
    with bounded(work):
        return run, run.step(superstep, messages, events)


def _own(inbox: Sequence[bytes]) -> bytes | None:
    return next((payload for payload in inbox if is_saved(payload)), None)


def _pieces(message: Message, limit: int) -> list[Message]:
    """A message in pieces of at most `limit` rows; their sequence is that of the whole, in steps of a fraction."""
    frame = message.frame
    if frame.rows <= limit:
        return [replace(message, sequence=message.sequence << 24)]
    pieces = []
    for index, start in enumerate(range(0, frame.rows, limit)):
        count = min(limit, frame.rows - start)
        origin = message.origin
        if origin is not None and not isinstance(origin, int):
            origin = origin.slice(start, count)
        part: Frame = frame.slice(start, count)
        sequence = (message.sequence << 24) + index
        pieces.append(replace(message, frame=part, origin=origin, sequence=sequence))
    return pieces


def finish_thread(work: AttemptWork, thread: int, inbox: Sequence[bytes]) -> ThreadChanges:
    """What the thread changed, from the messages of its last superstep (its own state).

    A large part is written as an object; a small one comes back as bytes.
    """
    saved = _own(inbox)
    return changes_of(restore(work, thread, saved)) if saved else ThreadChanges(None)


def last_step(
    work: AttemptWork,
    thread: int,
    superstep: int,
    inbox: Sequence[bytes],
    events: Sequence[Event],
) -> tuple[ThreadChanges, StepReport]:
    """The last superstep of a fixed schedule and what the thread changed, without turning its state into bytes.

    Raises:
        InvariantViolation: messages were sent, so this was not the last superstep.
    """
    run, report = _stepped(work, thread, superstep, inbox, events)
    invariant(not run.outbox, "the last superstep sends no message", superstep=superstep, sent=dict(report.sent))
    return changes_of(run), report


def changes_of(run: ThreadRun) -> ThreadChanges:
    """All that a thread leaves behind, at the end of the attempt."""
    return ThreadChanges(delta_part(run), run.staged.finish(run.work, run.thread), tuple(run.answers))


def delta_part(run: ThreadRun) -> DeltaPart | None:
    """The changes of one thread as a part: its bytes if they are few, else an object that was just written."""
    work = run.work
    name = f"deltas/{work.microbatch_id:020d}-{work.version:06d}-{run.thread:04d}-{ids.nonce()}.zip"
    key = f"{work.prefix}/{name}"
    finished = run.state.finish(key)
    if finished is None:
        return None
    content, part = finished
    part = replace(part, tasks=TaskSet(work.threads, run.thread))
    if len(content) <= INLINE_BYTES_MAX // work.threads:
        return DeltaPart(part, content)
    open_store(work.store_url, probe=False).create(key, content)
    return DeltaPart(replace(part, name=name), None)
