"""Segments of a depot's log: Arrow IPC files of records sorted by partition, with a header (`depot.header`).

A piece of the schema's metadata is a checksum of the whole file: what a disk changes must not change a count.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import xxhash

from tidemill.depot.header import (
    HEADER_SUM,
    METADATA,
    Header,
    checksum,
    decoding,
    header_bytes,
    header_of,
    header_to_json,
)
from tidemill.store.objects import Buffer
from tidemill.values import columns
from tidemill.values.columns import Column
from tidemill.values.errors import CorruptState

_FILE_SUM = b"tidemill.file.xxh64"
_SUM_BYTES = 16
_FOOTER_END_BYTES = 10
"""The footer's length (int32) and the magic without its padding."""

_SLACK_BYTES = 4096


def encode_segment(header: Header, column: Column) -> Buffer:
    """The segment's bytes; `column` holds the records by partition and offset."""
    if header.records:
        layout, series = columns.flatten(column)
    else:
        layout, series = None, []
    metadata = msgspec.json.encode(header_to_json(replace(header, layout=layout)))
    unknown = checksum(metadata + _FILE_SUM)  # found again below: no text holds its own checksum
    arrays = [_to_arrow(plain) for plain in series]
    schema = pa.schema(
        [pa.field(name, array.type) for name, array in zip(_names(layout), arrays, strict=True)],
        metadata={METADATA: metadata, HEADER_SUM: checksum(metadata), _FILE_SUM: unknown},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        if arrays:
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return _sealed(sink.getvalue(), unknown)


def _slots(data: memoryview, value: bytes) -> tuple[int, int]:
    """Where the file's checksum stands: in the schema, and in the footer, which repeats it."""
    (footer,) = struct.unpack_from("<i", data, len(data) - _FOOTER_END_BYTES)
    start, end = header_bytes(data), len(data) - _FOOTER_END_BYTES - footer
    return bytes(data[:start]).index(value), end + bytes(data[end:]).index(value)


def _file_sum(data: memoryview, slots: tuple[int, int]) -> bytes:
    """The checksum of all bytes but those of the slots."""
    first, second = slots
    total = xxhash.xxh64(data[:first])
    total.update(data[first + _SUM_BYTES : second])
    total.update(data[second + _SUM_BYTES :])
    return total.hexdigest().encode()


def _sealed(written: Any, unknown: bytes) -> Buffer:
    """The file with its checksum, which is known only when all is written, in the place of `unknown`."""
    data = memoryview(written).cast("B")
    slots = _slots(data, unknown)
    found = _file_sum(data, slots)
    for at in slots:
        data[at : at + _SUM_BYTES] = found
    return written


def _check_file(data: memoryview, metadata: Mapping[bytes, bytes]) -> None:
    found = metadata[_FILE_SUM]
    if _file_sum(data, _slots(data, found)) != found:
        raise CorruptState("A depot segment does not match its checksum: these bytes were changed.")


def _to_arrow(series: pl.Series) -> Any:
    """Arrow's view of a series; text is copied only where it is a small part of shared buffers."""
    series = series.rechunk()
    array = series.to_arrow(compat_level=pl.CompatLevel.newest())
    if series.dtype in (pl.String, pl.Binary):
        sizes = series.str.len_bytes() if series.dtype == pl.String else series.bin.size()
        needed = 16 * len(series) + 2 * int(sizes.sum() or 0) + _SLACK_BYTES
        if sum(buffer.size for buffer in array.buffers() if buffer is not None) > needed:
            return series.to_arrow(compat_level=pl.CompatLevel.oldest())
    return array


def _names(layout: Any) -> list[str]:
    """Names for people who open the file; the layout alone says what the columns are."""
    names = [] if layout is None else _field_names(layout, "")
    return [f"{index}:{name}" for index, name in enumerate(names)]


def _field_names(layout: Any, name: str) -> list[str]:
    if isinstance(layout, str):
        return [name or "record"]
    _, fields, layouts = layout
    prefix = f"{name}." if name else ""
    return [inner for key, part in zip(fields, layouts, strict=True) for inner in _field_names(part, f"{prefix}{key}")]


class Segment:
    """A decoded segment: records of any partition and range of offsets, without copying."""

    def __init__(self, data: Any) -> None:
        """`data` is a `pyarrow.Buffer` or a memory-mapped file."""
        with decoding():
            buffer = data if isinstance(data, pa.Buffer) else data.read_buffer()
            reader = pa.ipc.open_file(pa.BufferReader(buffer))
            _check_file(memoryview(buffer), reader.schema.metadata)
            self.header = header_of(reader.schema)
            frame = pl.from_arrow(reader.get_batch(0)) if reader.num_record_batches else pl.DataFrame()
        self._series = list(frame) if isinstance(frame, pl.DataFrame) else []

    def rows(self, row: int, count: int, step: int | None = None) -> Column:
        """Records by their place in the segment; those that are packed are unpacked `step` at a time."""
        return columns.unflatten(self.header.layout, [series.slice(row, count) for series in self._series], step)
