"""Errors of a user's functions in a graph: node, channel, a sample of the batch, and the function's own traceback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from tidemill.values.errors import (
    BadInput,
    CorruptState,
    RecordRefused,
    RetryableError,
    TidemillError,
    UserCodeError,
    message_of,
    own_trace,
)

SAMPLE_ROWS = 3
_NOT_THE_USERS = (UserCodeError, RetryableError, CorruptState)


@contextmanager
def calling(name: str, function: str, channel: int, batches: Sequence[Any] = ()) -> Iterator[None]:
    """Whatever the user's function raises becomes a `UserCodeError`."""
    try:
        yield
    except _NOT_THE_USERS:
        raise
    except (Exception, SystemExit, pl.exceptions.PanicException) as error:
        step = f"{function} of {name}, channel {channel},"
        sample = sample_of(batches)
        text = f"{step} raised {type(error).__name__}: {message_of(error)}" + (f" (batch: {sample})" if sample else "")
        raise UserCodeError(text, step=step, trace=own_trace(error), sample=sample) from error


@contextmanager
def saving(name: str, channel: int) -> Iterator[None]:
    """What a state that does not pickle raises, said with its node."""
    try:
        yield
    except TidemillError:
        raise
    except Exception as error:
        text = f"The state of {name}, channel {channel}, cannot be saved: {message_of(error)}."
        advice = "Write serialize and deserialize, so that they give and take what pickles."
        raise UserCodeError(f"{text} {advice}", step=f"serialize of {name}") from error


@contextmanager
def placing(name: str) -> Iterator[None]:
    """What is wrong with a batch that a node sent, said with the node."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"A batch of {name} cannot be sent on: {error}.") from error


@contextmanager
def appending(name: str, channel: int, advice: str) -> Iterator[None]:
    """What a depot says of a row that it does not take, said with the node that gave it."""
    try:
        yield
    except RecordRefused as error:
        text = f"{name}, channel {channel}, gave what its depot does not take. {error} {advice}"
        raise RecordRefused(text, **error.context) from error


def sample_of(batches: Sequence[Any]) -> str:
    """The first rows of the first batch, and how many there are."""
    frames = [batch for batch in batches if isinstance(batch, pl.DataFrame)]
    if not frames:
        return ""
    rows = ", ".join(repr(row) for row in frames[0].head(SAMPLE_ROWS).iter_rows(named=True))
    total = sum(frame.height for frame in frames)
    return f"{rows[:2000]}{', …' if total > SAMPLE_ROWS else ''} - {total} rows"
