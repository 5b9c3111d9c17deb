"""What the driver of a graph and its channels tell each other: the work of a step, and its result. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tidemill.graphs.dataset import DatasetObject
from tidemill.graphs.nodes import Cursor

Payload: TypeAlias = Any
"""Rows on their way: a frame, where channels are in this process, or the key of an object of the store."""
ChannelId: TypeAlias = tuple[int, int]
"""A node and the number of a channel in it."""


@dataclass(frozen=True)
class SentBatch:
    """A batch on its way to a channel: `stream` is the receiver's name for where it comes from."""

    target: ChannelId
    stream: int
    source_channel: int
    rows: int
    bytes: int
    payload: Payload


@dataclass(frozen=True)
class StepWork:
    """What a channel does in one wave: an input reads on at `cursor`, another node takes `inbox`, by stream.

    `ended` are the streams of which nothing follows. `is_last`: all sources have ended and this is all that they sent.
    `state` is what `StepResult.state` was before. `is_idle`: the node is told that its inputs find nothing new.
    `closed`: windows up to this one were ended so in some channel, and none of them comes again. `follow`: the channel
    got no rows for long, and all others reached this time.
    """

    channel: ChannelId
    cursor: Cursor = None
    inbox: tuple[tuple[int, tuple[Payload, ...]], ...] = ()
    ended: tuple[int, ...] = ()
    is_last: bool = False
    state: Any = None
    is_idle: bool = False
    closed: Any = None
    follow: int | None = None


@dataclass(frozen=True)
class StepResult:
    """What came of it. `objects` are new ones of the node's Dataset, `staged` are batches for its depot.

    `windows`: of a node that keeps a Dataset for each window those that ended, in rising order, and their rows.
    `was_told`: that its inputs are idle. `is_repeated`: the task that did this first was lost in it.
    `reached`: the time before which rows are late in it.
    `dropped_rows`: those that its executor left out since it began.
    `behind`: the records that an input has still to read, as far as it knows.
    `state`: how the channel is found again, where it is not kept in this process.
    """

    channel: ChannelId
    cursor: Cursor
    has_ended: bool
    messages: tuple[SentBatch, ...] = ()
    objects: tuple[DatasetObject, ...] = ()
    windows: tuple[tuple[Any, DatasetObject], ...] = ()
    staged: tuple[Payload, ...] = ()
    rows_in: int = 0
    rows_out: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    behind: int = 0
    dropped_rows: int = 0
    state: Any = None
    is_repeated: bool = False
    was_told: bool = False
    reached: int | None = None
    stored: tuple[str, ...] = ()
    """Keys of objects that the step created to carry messages and state."""
