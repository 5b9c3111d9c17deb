"""Frames that the program holds already, or makes one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa

from tidemill.graphs.inputs.frame_marks import mark_of
from tidemill.graphs.nodes import Cursor
from tidemill.values.errors import BadInput


def frame_from(value: Any) -> pl.DataFrame:
    """A frame from Polars or Arrow. Raises BadInput for anything else."""
    if isinstance(value, pl.DataFrame):
        return value
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        found = pl.from_arrow(value)
        return found if isinstance(found, pl.DataFrame) else found.to_frame()
    raise BadInput(f"A batch is a Polars frame or an Arrow table, not {type(value).__name__}.")


@dataclass(frozen=True)
class FrameInput:
    """Some frames; each is a batch. They travel with the graph and are stored with it, to resume."""

    frames: tuple[pl.DataFrame, ...]

    @property
    def schema(self) -> dict[str, pl.DataType] | None:
        return dict(self.frames[0].schema) if self.frames else None

    @cached_property
    def mark(self) -> str:
        """What tells the frames from others of their number and size, of which a run that goes on would mix the rows;
        "" of a single one, which is read whole before a checkpoint or behind it.
        """
        return mark_of(self.frames) if len(self.frames) > 1 else ""

    @property
    def batch_bytes(self) -> int:
        return max((int(frame.estimated_size()) for frame in self.frames), default=0)

    def describe(self) -> str:
        return f"{len(self.frames)} frame(s), {sum(frame.height for frame in self.frames):,} rows"

    def plan(self, channels: int) -> list[Cursor]:
        """Frames are dealt in turn; a cursor is (next frame, step)."""
        return [(channel, channels) if channel < len(self.frames) else None for channel in range(channels)]

    def read(self, cursor: Cursor) -> tuple[pl.DataFrame | None, Cursor]:
        number, step = cursor
        return self.frames[number], (number + step, step) if number + step < len(self.frames) else None


@dataclass
class IteratorInput:
    """Frames that an iterator gives, perhaps without end. One channel reads them, in the process of the program.

    Nothing can read them again, so a graph that has one cannot be resumed.
    """

    frames: Iterator[Any]
    schema: dict[str, pl.DataType] | None = field(default=None)
    batch_bytes: int = 0

    def describe(self) -> str:
        return "an iterator of frames"

    def plan(self, channels: int) -> list[Cursor]:
        return [0, *[None] * (channels - 1)]

    def read(self, cursor: Cursor) -> tuple[pl.DataFrame | None, Cursor]:
        found = next(self.frames, None)
        return (None, None) if found is None else (frame_from(found), cursor + 1)
