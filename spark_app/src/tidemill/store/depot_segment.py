"""Segments of a depot's log: Arrow IPC files of records sorted by partition, with a JSON header as schema metadata.

The header of the newest segment says all about the depot (offsets, logical starts), so nobody has to read older ones to
go on; of idempotent producers it says where their table is (`store.depot_producers`). The schema comes first in the
file: a header is read without the records. Two more pieces of metadata are checksums, of the header's text and of the
whole file: what a disk changes must not change a count.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from tidemill.model import columns
from tidemill.model.columns import Column
from tidemill.model.errors import CorruptState, NewerFormat, check_place
from tidemill.store.objects import Buffer

FORMAT = 5
_METADATA = b"tidemill"
_HEADER_SUM = b"tidemill.header.xxh64"
_FILE_SUM = b"tidemill.file.xxh64"
_SUM_BYTES = 16
_FOOTER_END_BYTES = 10
"""The footer's length (int32) and the magic without its padding."""

_MAGIC = b"ARROW1\0\0"
_SLACK_BYTES = 4096

Offsets = tuple[tuple[int, int, int], ...]
"""(partition, start, end) of records that went in together."""


class HeldRows(NamedTuple):
    """Where records are in an object, an item for each partition that has some: from `row` on, offsets [start, end)."""

    partition: NDArray[np.int64]
    row: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


@dataclass(frozen=True)
class Produced:
    """One idempotent append in a segment, and the digest of its content (`store.append_identity`); `previous` is the
    segment of the same producer's append before, 0 if none.
    """

    producer: str
    sequence: int
    offsets: Offsets
    previous: int
    digest: str


@dataclass(frozen=True)
class LastSequence:
    """What a producer appended last, and where."""

    sequence: int
    segment: int
    digest: str


@dataclass(frozen=True)
class Entry:
    """What is kept of a segment when it is rolled: `ends` are the end offsets of all partitions after it."""

    number: int
    nonce: str
    time: int
    ends: tuple[int, ...]


class Gate(NamedTuple):
    """Whether a depot takes appends, and the definition that said so last; 0 if none ever had to."""

    definition: int = 0
    is_closed: bool = False


@dataclass(frozen=True)
class Header:
    """`entries` are the segments that this object holds: itself, or those rolled into it, in order, without holes.

    `first_ends` are the end offsets before the first of them, `starts` the logical starts (retention) after the last.
    Records are sorted by partition and offset, so these numbers tell where each one is (`held`).
    `table_at` is the newest segment up to the last of them that carries the table of producers, `sequences`; 0 if none.
    `key` is the object's name in the store. `gate` is as of the last of them: behind one that closed the depot, records
    come only after one that opened it again.
    """

    entries: tuple[Entry, ...]
    first_ends: tuple[int, ...]
    starts: tuple[int, ...]
    produced: tuple[Produced, ...] = ()
    table_at: int = 0
    sequences: Mapping[str, LastSequence] = field(default_factory=dict)
    layout: Any = None
    key: str = ""
    gate: Gate = Gate()

    @property
    def last(self) -> Entry:
        return self.entries[-1]

    @property
    def number(self) -> int:
        return self.last.number

    @property
    def ends(self) -> tuple[int, ...]:
        return self.last.ends

    @property
    def time(self) -> int:
        return self.last.time

    @property
    def is_full(self) -> bool:
        """Whether `sequences` is the table of all producers after the last segment."""
        return self.table_at == self.number

    @property
    def records(self) -> int:
        return sum(self.ends) - sum(self.first_ends)

    def held(self) -> HeldRows:
        """Which rows are of which partition."""
        first, end = np.array(self.first_ends, dtype=np.int64), np.array(self.ends, dtype=np.int64)
        partition = np.flatnonzero(end > first)
        first, end = first[partition], end[partition]
        return HeldRows(partition, np.cumsum(end - first) - (end - first), first, end)

    def ends_before(self, number: int) -> tuple[int, ...]:
        """The end offsets of all partitions before this one of its segments."""
        before = number - 1 - self.entries[0].number
        return self.entries[before].ends if before >= 0 else self.first_ends


# --- header as JSON --------------------------------------------------------------------------------------------------


def header_to_json(header: Header) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "key": header.key,
        "entries": _entries_to_json(header),
        "first_ends": header.first_ends,
        "starts": header.starts,
        "produced": [[p.producer, p.sequence, p.offsets, p.previous, p.digest] for p in header.produced],
        "table_at": header.table_at,
        "sequences": {name: [s.sequence, s.segment, s.digest] for name, s in header.sequences.items()},
        "layout": header.layout,
        "gate": header.gate,
    }


def _entries_to_json(header: Header) -> list[Any]:
    """Only what changed from entry to entry, so that an object of many rolled segments has a small header."""
    before, result = np.array(header.first_ends, dtype=np.int64), []
    for entry in header.entries:
        ends = np.array(entry.ends, dtype=np.int64)
        changed = np.flatnonzero(ends != before)
        result.append([entry.number, entry.nonce, entry.time, changed.tolist(), ends[changed].tolist()])
        before = ends
    return result


def header_from_json(data: Mapping[str, Any]) -> Header:
    _check_format(data["format"])
    first_ends = tuple(data["first_ends"])
    return Header(
        entries=_entries_from_json(data["entries"], first_ends),
        first_ends=first_ends,
        starts=tuple(data["starts"]),
        produced=tuple(Produced(name, seq, _offsets(at), *more) for name, seq, at, *more in data["produced"]),
        table_at=data["table_at"],
        sequences={name: LastSequence(*last) for name, last in data["sequences"].items()},
        layout=data["layout"],
        key=data["key"],
        gate=Gate(*data["gate"]),
    )


def _check_format(number: int) -> None:
    if number > FORMAT:
        raise NewerFormat(f"A depot segment has format {number}, this Tidemill knows up to {FORMAT}; use a newer one")
    if number < FORMAT:
        raise CorruptState(f"A depot segment has format {number}, never released; this Tidemill reads {FORMAT}.")


def _entries_from_json(data: list[Any], first_ends: tuple[int, ...]) -> tuple[Entry, ...]:
    ends, result = list(first_ends), []
    for number, nonce, time, partitions, changed in data:
        for partition, end in zip(partitions, changed, strict=True):
            ends[partition] = end
        result.append(Entry(number, nonce, time, tuple(ends)))
    return tuple(result)


def _offsets(data: list[list[int]]) -> Offsets:
    return tuple((partition, start, end) for partition, start, end in data)


# --- bytes -----------------------------------------------------------------------------------------------------------


def encode_segment(header: Header, column: Column) -> Buffer:
    """The segment's bytes; `column` holds the records by partition and offset."""
    if header.records:
        layout, series = columns.flatten(column)
    else:
        layout, series = None, []
    metadata = msgspec.json.encode(header_to_json(replace(header, layout=layout)))
    unknown = _sum(metadata + _FILE_SUM)  # found again below: no text holds its own checksum
    arrays = [_to_arrow(plain) for plain in series]
    schema = pa.schema(
        [pa.field(name, array.type) for name, array in zip(_names(layout), arrays, strict=True)],
        metadata={_METADATA: metadata, _HEADER_SUM: _sum(metadata), _FILE_SUM: unknown},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        if arrays:
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return _sealed(sink.getvalue(), unknown)


def _sum(data: Any) -> bytes:
    return xxhash.xxh64_hexdigest(data).encode()


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
    checksum = _file_sum(data, slots)
    for at in slots:
        data[at : at + _SUM_BYTES] = checksum
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
        with _decoding():
            buffer = data if isinstance(data, pa.Buffer) else data.read_buffer()
            reader = pa.ipc.open_file(pa.BufferReader(buffer))
            _check_file(memoryview(buffer), reader.schema.metadata)
            self.header = _header_of(reader.schema)
            frame = pl.from_arrow(reader.get_batch(0)) if reader.num_record_batches else pl.DataFrame()
        self._series = list(frame) if isinstance(frame, pl.DataFrame) else []

    def rows(self, row: int, count: int, step: int | None = None) -> Column:
        """Records by their place in the segment; those that are packed are unpacked `step` at a time."""
        return columns.unflatten(self.header.layout, [series.slice(row, count) for series in self._series], step)


def read_nonce(data: bytes, key: str) -> str:
    """The nonce of the group commit that wrote these bytes to be the object `key`."""
    header = read_header(data)
    check_place(header.key, key)
    return header.last.nonce


def read_header(data: Buffer) -> Header:
    """The header at the beginning of a segment's bytes; needs only `header_bytes` of them."""
    with _decoding():
        return _header_of(pa.ipc.open_stream(pa.py_buffer(memoryview(data)[len(_MAGIC) :])).schema)


def header_bytes(data: Buffer) -> int:
    """How many bytes from the beginning `read_header` needs; the first 16 say it."""
    with _decoding():
        marker, size = struct.unpack_from("<II", data, len(_MAGIC))
        if marker != 0xFFFFFFFF:
            raise pa.ArrowInvalid("not an Arrow file")
    return int(len(_MAGIC) + 8 + size)


def _header_of(schema: Any) -> Header:
    text = schema.metadata[_METADATA]
    if _sum(text) != schema.metadata[_HEADER_SUM]:
        raise CorruptState("The header of a depot segment does not match its checksum: these bytes were changed.")
    return header_from_json(msgspec.json.decode(text))


class _decoding:
    """Whatever goes wrong while stored bytes are decoded means that they are not what was written."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (pa.ArrowException, KeyError, IndexError, TypeError, ValueError, OSError, struct.error)):
            if isinstance(error, CorruptState):
                return
            raise CorruptState(f"A depot segment cannot be decoded: {error!r}") from error
