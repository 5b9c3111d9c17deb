"""The header of a depot's segment: what is known of the depot without its records.

The header of the newest segment says all about the depot (offsets, logical starts), so nobody has to read older ones to
go on; of idempotent producers it says where their table is (`depot.producers`). It is JSON in the metadata of the
Arrow schema, which comes first in the file, beside a checksum of its text: what a disk changes must not change a count.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from tidemill.depot.mark import SegmentMark
from tidemill.store.objects import Buffer
from tidemill.values.errors import CorruptState, NewerFormat, check_place

FORMAT = 5
METADATA = b"tidemill"
HEADER_SUM = b"tidemill.header.xxh64"
_MAGIC = b"ARROW1\0\0"

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
    """One idempotent append in a segment, and the digest of its content (`depot.append_identity`); `previous` is the
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
class SegmentSummary:
    """What is kept of a segment when it is rolled: `ends` are the end offsets of all partitions after it."""

    number: int
    nonce: str
    time: int
    ends: tuple[int, ...]

    @property
    def mark(self) -> SegmentMark | None:
        """How positions behind it name it; None for the beginning of a depot, which is no segment."""
        return SegmentMark(self.number, self.nonce) if self.number else None


class Gate(NamedTuple):
    """Whether a depot takes appends, and the definition that said so last; 0 if none ever had to."""

    definition: int = 0
    is_closed: bool = False


@dataclass(frozen=True)
class Header:
    """`entries` are the segments that this object holds: itself, or those rolled into it, in order, without holes.

    `first_ends` are the end offsets before the first of them, `starts` the logical starts (retention) after the last.
    Records are sorted by partition and offset, so these numbers say where each one is (`held`).
    `table_at` is the newest segment up to the last of them that carries the table of producers, `sequences`; 0 if none.
    `key` is the object's name in the store. `gate` is as of the last of them: behind one that closed the depot, records
    come only after one that opened it again.
    """

    entries: tuple[SegmentSummary, ...]
    first_ends: tuple[int, ...]
    starts: tuple[int, ...]
    produced: tuple[Produced, ...] = ()
    table_at: int = 0
    sequences: Mapping[str, LastSequence] = field(default_factory=dict)
    layout: Any = None
    key: str = ""
    gate: Gate = Gate()

    @property
    def last(self) -> SegmentSummary:
        """The newest segment that this object holds."""
        return self.entries[-1]

    @property
    def number(self) -> int:
        """The number of the newest segment."""
        return self.last.number

    @property
    def ends(self) -> tuple[int, ...]:
        """The end offset of each partition after the newest segment."""
        return self.last.ends

    @property
    def time(self) -> int:
        """When the newest segment was written, in ms since 1970; it never goes back from segment to segment."""
        return self.last.time

    @property
    def is_full(self) -> bool:
        """Whether `sequences` is the table of all producers after the last segment."""
        return self.table_at == self.number

    @property
    def records(self) -> int:
        """How many records this object holds."""
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
    """The header as JSON-like data; `header_from_json` is its inverse."""
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
    """The header in such data.

    Raises:
        NewerFormat, CorruptState: it has a format that this version does not read.
    """
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


def _entries_from_json(data: list[Any], first_ends: tuple[int, ...]) -> tuple[SegmentSummary, ...]:
    ends, result = list(first_ends), []
    for number, nonce, time, partitions, changed in data:
        for partition, end in zip(partitions, changed, strict=True):
            ends[partition] = end
        result.append(SegmentSummary(number, nonce, time, tuple(ends)))
    return tuple(result)


def _offsets(data: list[list[int]]) -> Offsets:
    return tuple((partition, start, end) for partition, start, end in data)


# --- bytes -----------------------------------------------------------------------------------------------------------


def checksum(data: Any) -> bytes:
    """The xxHash64 of these bytes, as 16 hexadecimal digits."""
    return xxhash.xxh64_hexdigest(data).encode()


def read_nonce(data: bytes, key: str) -> str:
    """The nonce of the group commit that wrote these bytes to be the object `key`."""
    header = read_header(data)
    check_place(header.key, key)
    return header.last.nonce


def read_header(data: Buffer) -> Header:
    """The header at the beginning of a segment's bytes; needs only `header_bytes` of them."""
    with decoding():
        return header_of(pa.ipc.open_stream(pa.py_buffer(memoryview(data)[len(_MAGIC) :])).schema)


def header_bytes(data: Buffer) -> int:
    """How many bytes from the beginning `read_header` needs; the first 16 say it."""
    with decoding():
        marker, size = struct.unpack_from("<II", data, len(_MAGIC))
        if marker != 0xFFFFFFFF:
            raise pa.ArrowInvalid("not an Arrow file")
    return int(len(_MAGIC) + 8 + size)


def header_of(schema: Any) -> Header:
    """The header in the metadata of a segment's Arrow schema. Raises CorruptState where its checksum is wrong."""
    text = schema.metadata[METADATA]
    if checksum(text) != schema.metadata[HEADER_SUM]:
        raise CorruptState("The header of a depot segment does not match its checksum: these bytes were changed.")
    return header_from_json(msgspec.json.decode(text))


class decoding:
    """Whatever goes wrong while stored bytes are decoded means that they are not what was written."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (pa.ArrowException, KeyError, IndexError, TypeError, ValueError, OSError, struct.error)):
            if isinstance(error, CorruptState):
                return
            raise CorruptState(f"A depot segment cannot be decoded: {error!r}") from error
