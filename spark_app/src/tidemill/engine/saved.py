"""A thread's own state between supersteps as one message to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import msgspec

from tidemill.engine.appends import Staged
from tidemill.engine.frame import Frame
from tidemill.engine.materialized_rows import MaterializedRows
from tidemill.engine.messages import Message, decode, encode
from tidemill.engine.queries import opened
from tidemill.engine.thread import ThreadRun
from tidemill.engine.work import AttemptWork, DeltaPart
from tidemill.values import columns as cols

MARK = b"TMST"
"""Messages begin with the length of a short header, which these four bytes cannot be."""

ANSWER = "*answer"
"""The column of a query's answer."""


def is_saved(payload: bytes) -> bool:
    """Whether these bytes are a thread's saved state, and no message."""
    return bytes(payload[:4]) == MARK


def save(run: ThreadRun) -> bytes:
    """What the thread must know in the next superstep; empty where it is nothing."""
    overlay = run.state.to_bytes()
    rows, staged = run.materialized, run.staged
    answers = {0: [Frame(1, 0, {ANSWER: cols.from_values([answer])}) for answer in run.answers]} if run.answers else {}
    resumes = {block: [row] for block, row in run.resumes.items()}
    materialized = {temp: [frame] for temp in rows.frames if (frame := rows.merged(temp)) is not None}
    frames: list[Mapping[Any, Sequence[Frame]]]
    frames = [run.collected, run.partials, resumes, run.waiting, materialized, staged.waiting, answers]
    if not (overlay or staged.parts or any(frames)):
        return b""
    body = [overlay, rows.bytes, staged.sizes, msgspec.msgpack.encode(staged.parts), *map(_pack, frames)]
    return MARK + bytes(msgpack.packb(body))


def _pack(frames: Mapping[Any, Sequence[Frame]]) -> list[Any]:
    return [[key, [encode(Message(0, 0, 0, frame)) for frame in held]] for key, held in frames.items() if held]


def _unpack(data: list[Any]) -> dict[Any, list[Frame]]:
    return {key: [decode(frame).frame for frame in held] for key, held in data}


def restore(work: AttemptWork, thread: int, saved: bytes | None) -> ThreadRun:
    """The thread as it was when it was saved; as it begins without."""
    if not saved:
        return opened(work, thread)
    overlay, size, sizes, parts, *frames = msgpack.unpackb(saved[len(MARK) :], strict_map_key=False)
    run = opened(work, thread, overlay)
    run.collected, run.partials, resumes, run.waiting, materialized, staged, answers = map(_unpack, frames)
    run.answers = [cols.to_values(frame.columns[ANSWER])[0] for frame in answers.get(0, ())]
    run.resumes = {block: rows[0] for block, rows in resumes.items()}
    run.materialized = MaterializedRows(materialized, size)
    run.staged = Staged(staged, msgspec.msgpack.decode(parts, type=list[DeltaPart]), sizes)
    return run
