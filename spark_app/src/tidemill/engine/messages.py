"""Messages between tasks, in memory and as bytes.

Bytes: 4 bytes length of a MessagePack header, the header, then one Arrow IPC stream of all columns in plain form.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import polars as pl

from tidemill.engine.frame import ORDER, Frame, Tasks, concat
from tidemill.values import columns as cols
from tidemill.values.message_pack import pack_message, unpack_message

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Message:
    """Rows for one point. `frame.task` is where they go, `origin` where they came from (None if order does not matter).

    `sender` is the sending thread, `sequence` counts its messages. `is_partial`: rows are combined already.
    """

    point: int
    sender: int
    sequence: int
    frame: Frame
    origin: Tasks | None = None
    is_partial: bool = False


def encode(message: Message) -> bytes:
    """The message as bytes."""
    frame = message.frame
    series: list[pl.Series] = []
    header: dict[str, Any] = {
        "p": message.point, "f": message.sender, "s": message.sequence, "n": frame.rows, "a": message.is_partial,
        "t": _task_header(frame.task, series), "o": _task_header(message.origin, series),
        "c": [[name, _layout(column, series)] for name, column in frame.columns.items() if name[0] != ORDER],
    }  # fmt: skip
    packed = msgpack.packb(header)
    buffer = io.BytesIO()
    buffer.write(_LENGTH.pack(len(packed)))
    buffer.write(packed)
    if series:
        table = pl.DataFrame([column.alias(str(i)) for i, column in enumerate(series)])
        table.write_ipc_stream(buffer, compat_level=pl.CompatLevel.newest())
    return buffer.getvalue()


def _task_header(task: Tasks | None, series: list[pl.Series]) -> Any:
    """A number, None, or "s" for a series that travels with the columns."""
    if task is None or isinstance(task, int):
        return task
    series.append(task)
    return "s"


def _layout(column: cols.Column, series: list[pl.Series]) -> cols.Layout:
    layout, flat = cols.flatten(column, pack_message)
    series.extend(flat)
    return layout


def decode(data: bytes | memoryview) -> Message:
    """The inverse of `encode`."""
    view = memoryview(data)
    (length,) = _LENGTH.unpack_from(view)
    header = msgpack.unpackb(view[4 : 4 + length])
    rest = view[4 + length :]
    series = pl.read_ipc_stream(io.BytesIO(rest)).get_columns() if len(rest) else []
    remaining = iter(series)
    task = _read_task(header["t"], remaining)
    origin = _read_task(header["o"], remaining)
    columns = {}
    for name, layout in header["c"]:
        columns[name] = cols.unflatten(
            layout, [next(remaining) for _ in range(cols.width(layout))], unpack=unpack_message
        )
    frame = Frame(header["n"], 0 if task is None else task, columns)
    return Message(header["p"], header["f"], header["s"], frame, origin, header["a"])


def _read_task(header: Any, remaining: Any) -> Tasks | None:
    task: Tasks | None = next(remaining) if header == "s" else header
    return task


def deliver(messages: Sequence[Message], tasks: int, keeps_order: bool) -> Frame:
    """The rows of messages to one point: from one task to another in the order sent, and the senders in theirs."""
    messages = sorted(messages, key=lambda message: (message.sender, message.sequence))
    frame = concat([message.frame for message in messages])
    if not keeps_order or frame.rows < 2:
        return frame
    origins = [_origins(message) for message in messages]
    keys = frame.tasks().to_numpy().astype(np.int64) * tasks + np.concatenate(origins)
    if bool(np.all(keys[1:] >= keys[:-1])):
        return frame
    return frame.gather(np.argsort(keys, kind="stable"))


def _origins(message: Message) -> np.ndarray[Any, Any]:
    if isinstance(message.origin, pl.Series):
        return message.origin.to_numpy().astype(np.int64)
    return np.full(message.frame.rows, message.origin or 0, dtype=np.int64)
