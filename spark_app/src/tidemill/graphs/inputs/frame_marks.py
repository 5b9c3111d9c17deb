"""What tells frames from others of their size: a checksum of their values, the same in any process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash

_BYTES = 8


def mark_of(frames: Iterable[pl.DataFrame]) -> str:
    """A checksum of the rows of frames, in their order; not of how they lie in memory."""
    total = xxhash.xxh3_64()
    for frame in frames:
        total.update(f"{frame.height} {frame.width}\n".encode())
        for series in frame.iter_columns():
            total.update(f"{series.name}\n".encode())
            try:
                _feed(total, series.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()))
            except pa.ArrowInvalid:  # Arrow has no such type, as Int128
                total.update(repr(series.to_list()).encode())
    return total.hexdigest()


def _feed(total: xxhash.xxh3_64, array: Any) -> None:
    """Which values are there, and these; never what stands in memory in the place of others."""
    total.update(f"{array.type} {len(array)}\n".encode())
    total.update(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    there, kind = array.drop_null(), array.type
    if pa.types.is_dictionary(kind):
        _feed(total, there.dictionary_decode())
    elif pa.types.is_struct(kind):
        for field in there.flatten():
            _feed(total, field)
    elif pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        total.update(there.value_lengths().to_numpy(zero_copy_only=False))
        _feed(total, there.flatten())
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        ends = np.frombuffer(there.buffers()[1], np.int64)[there.offset :][: len(there) + 1]
        total.update(ends - ends[0])
        if ends[-1] > ends[0]:
            total.update(there.buffers()[2][int(ends[0]) : int(ends[-1])])
    elif pa.types.is_boolean(kind):
        total.update(there.to_numpy(zero_copy_only=False))
    elif len(there) and not pa.types.is_null(kind):
        width = kind.bit_width // _BYTES
        total.update(there.buffers()[1][there.offset * width : (there.offset + len(there)) * width])
