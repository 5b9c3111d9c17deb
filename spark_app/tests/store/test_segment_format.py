"""The format of stored segments: what was written once is read for ever, by us and by anyone who reads Arrow."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemill.depot.header import (
    Gate,
    Header,
    LastSequence,
    Produced,
    SegmentSummary,
    header_bytes,
    header_from_json,
    header_to_json,
    read_header,
    read_nonce,
)
from tidemill.depot.segment import Segment, encode_segment
from tidemill.values import columns
from tidemill.values.columns import from_values
from tidemill.values.errors import CorruptState, NewerFormat

GOLDENS = Path(__file__).parents[1] / "unit" / "golden"
GOLDEN = GOLDENS / "segment-5.arrow"
DAY = datetime(2024, 1, 1, tzinfo=UTC)
RECORDS: list[Any] = [
    {"n": 1, "s": "a", "b": b"\x00", "f": 1.5, "t": DAY, "x": [1, {"y": None}], "r": [True, None]},
    {"n": None, "s": "é", "b": b"", "f": -1.0, "t": None, "x": {1, 2}, "r": [False, "z"]},
]  # fmt: skip
HEADER = Header(
    entries=(SegmentSummary(7, "0123456789abcdef", 1704067200000, (5, 0, 9)),),
    first_ends=(4, 0, 8),
    starts=(1, 0, 2),
    produced=(Produced("p", 3, ((0, 4, 5),), 6, "44bc2cf5ad770999"),),
    table_at=7,
    sequences={"p": LastSequence(3, 7, "44bc2cf5ad770999")},
    key="M/depots/d-1/log/00000000000000000007.arrow",
    gate=Gate(3, is_closed=False),
)


@pytest.mark.parametrize("source", ["golden", "now"])
def test_segment_is_read_when_it_was_written_once(source: str) -> None:
    data = GOLDEN.read_bytes() if source == "golden" else bytes(encode_segment(HEADER, from_values(RECORDS)))
    segment = Segment(pa.py_buffer(data))
    assert columns.to_values(segment.rows(0, 2)) == RECORDS
    assert columns.to_values(segment.rows(1, 1)) == RECORDS[1:]
    assert (header_to_json(segment.header) | {"layout": None}) == header_to_json(HEADER)
    assert read_header(data[: header_bytes(data[:16])]) == segment.header
    assert read_nonce(data, HEADER.key) == "0123456789abcdef"


def test_rows_are_known_by_partition_when_only_offsets_are_stored() -> None:
    held = replace(HEADER, first_ends=(4, 0, 7)).held()
    assert [part.tolist() for part in held] == [[0, 2], [0, 1], [4, 7], [5, 9]]


def test_anyone_can_read_the_columns_when_they_know_arrow() -> None:
    table = pa.ipc.open_file(pa.py_buffer(GOLDEN.read_bytes())).read_all()
    names = ["0:n", "1:s", "2:b", "3:f", "4:t", "5:x", "6:r.0", "7:r.1"]
    assert table.column_names == names
    assert table.column("1:s").to_pylist() == ["a", "é"]


def test_header_comes_back_when_many_segments_were_rolled() -> None:
    entries = tuple(SegmentSummary(i, f"n{i}", i * 10, (i, 5, i // 2)) for i in range(1, 50))
    header = Header(entries, (0, 5, 0), (0, 0, 0))
    assert header_from_json(json.loads(json.dumps(header_to_json(header)))) == header


@pytest.mark.parametrize("length", [0, 7, 15, 100, 1000, 2000])
def test_segment_is_corrupt_when_cut_short(length: int) -> None:
    data = GOLDEN.read_bytes()[:length]
    with pytest.raises(CorruptState):
        Segment(pa.py_buffer(data))
    if length <= 100:
        with pytest.raises(CorruptState):
            read_header(data)


def test_segment_is_refused_when_a_newer_version_wrote_it() -> None:
    with pytest.raises(NewerFormat, match="format 6"):
        header_from_json(header_to_json(HEADER) | {"format": 6})


def test_segment_is_refused_when_it_has_the_format_before_the_first_release() -> None:
    """Its headers do not say where the table of producers is: taken for one of today it would forget them."""
    with pytest.raises(CorruptState, match="format 1"):
        Segment(pa.py_buffer((GOLDENS / "segment-1.arrow").read_bytes()))


@pytest.mark.parametrize("table_at", [7, 3])
def test_header_says_where_the_table_is_when_it_carries_it_or_not(table_at: int) -> None:
    header = replace(HEADER, table_at=table_at)
    again = header_from_json(json.loads(json.dumps(header_to_json(header))))
    assert (again.table_at, again.is_full) == (table_at, table_at == 7)


def test_no_changed_byte_goes_unseen_when_a_segment_is_read() -> None:
    golden = bytes(encode_segment(HEADER, from_values(RECORDS)))
    for at in range(len(golden)):
        changed = bytearray(golden)
        changed[at] ^= 0x15
        try:
            segment = Segment(pa.py_buffer(bytes(changed)))
        except CorruptState:
            continue
        assert (at, segment.header.last) == (at, HEADER.last)
        assert (at, columns.to_values(segment.rows(0, 2))) == (at, RECORDS)
