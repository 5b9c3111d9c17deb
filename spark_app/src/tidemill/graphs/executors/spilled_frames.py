"""Frames on disk instead of in memory: written to a file, mapped, and the file's name removed at once.

The system reads their pages when they are used and drops them when memory is short. The disk's space comes back when
the last frame of the file goes, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from tidemill.graphs.executors.levels import concatenated

MEMORY_LIMIT = 256 << 20
"""Bytes of rows that an executor holds in memory before it moves them to disk, if not told otherwise."""
PARTITIONS = 64
"""Parts by hash of keys; one part at a time is brought into memory."""


def spilled(frame: pl.DataFrame, folder: str | None = None) -> pl.DataFrame:
    """The same rows in a mapped file of this folder (None: the system's for temporary files); in memory where they have
    ints of 128 bits, as those of UInt64 and Int64 together: Arrow, which maps the file, has none.
    """
    if any(kind in (pl.Int128, pl.UInt128) for kind in frame.dtypes):
        return frame
    handle, path = tempfile.mkstemp(prefix="tidemill-spill-", suffix=".arrow", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            frame.rechunk().write_ipc(file, compression="uncompressed")
        with pa.memory_map(path) as mapped:
            made = pl.from_arrow(pa.ipc.open_file(mapped).read_all())
    finally:
        os.unlink(path)
    assert isinstance(made, pl.DataFrame)  # a table gives a frame; the type of from_arrow allows a column as well
    return made


def hashed_keys(keys: Sequence[str], schema: pl.Schema) -> list[pl.Expr]:
    """Keys in types in which values that a join finds equal have equal hashes, whatever the type of a number."""
    floats = {name for name in keys if schema[name].is_numeric() or schema[name] == pl.Boolean}
    return [pl.col(name).cast(pl.Float64) if name in floats else pl.col(name) for name in keys]


def _hashed_keys_before(keys: Sequence[str], schema: pl.Schema) -> list[pl.Expr]:
    """The same in checkpoints of older versions, in which an int and an equal float were in two parts."""
    wide = {name: pl.Int128 if schema[name].is_integer() else pl.Float64 for name in keys if schema[name].is_numeric()}
    kept = {name for name in wide if schema[name].is_decimal()}
    return [pl.col(name).cast(wide[name]) if name in wide.keys() - kept else pl.col(name) for name in keys]


class SpilledParts:
    """Rows by the hash of their keys, in memory up to a number of bytes and on disk beyond."""

    _are_numbers_alike = False
    """Whether equal numbers of all types are in one part: not where an older version began them."""

    def __init__(self, keys: Sequence[str], memory_limit: int, folder: str | None) -> None:
        self._are_numbers_alike = True
        self._keys = list(keys)
        self._memory_limit = memory_limit
        self._folder = folder
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._parts: dict[int, list[pl.DataFrame]] = {number: [] for number in range(PARTITIONS)}

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows in."""
        self._waiting.append(frame)
        self._waiting_bytes += int(frame.estimated_size())
        if self._waiting_bytes > self._memory_limit:
            self.flush()

    def flush(self) -> None:
        """Bring what waits in memory to disk: one file, sorted by part."""
        if not self._waiting:
            return
        rows = concatenated(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        hashed = hashed_keys if self._are_numbers_alike else _hashed_keys_before
        part = (pl.struct(hashed(self._keys, rows.schema)).hash(0) % PARTITIONS).alias("__tidemill_part")
        rows = rows.with_columns(part).sort("__tidemill_part")
        starts = rows.group_by("__tidemill_part", maintain_order=True).len().rows()
        mapped, start = spilled(rows.drop("__tidemill_part"), self._folder), 0
        for number, count in starts:
            self._parts[number].append(mapped.slice(start, count))
            start += count

    def part(self, number: int) -> list[pl.DataFrame]:
        """The rows of one part; `flush` first."""
        return self._parts[number]

    def remap(self) -> None:
        """Bring frames that came back into memory with a checkpoint to disk again."""
        for number, frames in self._parts.items():
            self._parts[number] = [spilled(frame, self._folder) for frame in frames]
