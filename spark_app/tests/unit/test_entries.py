from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace

import pytest

from tidemill.depot.mark import SegmentMark
from tidemill.journal import entries
from tidemill.journal.entries import Attempt, Committed, Entry, Failure, PendingCompaction, SourceProgress
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.values.errors import CorruptState, NewerFormat
from tidemill.values.offsets import OffsetRanges


def level(microbatch_id: int, threads: int = 1, tables: int = 1) -> Level:
    rows = {f"pstate-{i:08x}/0": 100_000 for i in range(tables)}
    parts = tuple(
        Part(f"deltas/{microbatch_id}-1-{thread}-0123456789abcdef.zip", TaskSet(threads, thread), rows, 1_000_000)
        for thread in range(threads)
    )
    return Level("delta", microbatch_id, microbatch_id, parts)


ENTRY = Entry(
    kind="begin", nonce="n", epoch=3, definition=2, written_ms=5, owner="me",
    progress={"*d": SourceProgress("d-1", (5, 6), (0, 1), SegmentMark(4, "m"))}, ticks={"*t": 9},
    attempt=Attempt(
        8, 2, {"*d": OffsetRanges((5, 6), (7, 6))}, {"*t": 10}, {"other": 4}, reached={"*d": SegmentMark(5, "m")}
    ),
    committed=(Committed(7, 1, 20, 3, {"process_ms": 1.5}), Committed(6, 4, 19)),
    processed=11, snapshot=Snapshot((level(6), level(7))), previous=Snapshot((level(6),)),
    pending=(PendingCompaction(8, 1, 5, 3),), compacted=12, paused_seen=2,
    failure=Failure(8, 1, "process", "UserCodeFailed", "no", 4, "each", "trace", "sample"),
)  # fmt: skip


@pytest.mark.parametrize("previous", [ENTRY.previous, Snapshot((level(5),)), Snapshot()])
def test_entry_is_equal_when_it_went_through_its_container(previous: Snapshot) -> None:
    entry = replace(ENTRY, previous=previous)
    content = entries.to_bytes(entry, {"part-0.zip": b"delta"})
    assert entries.from_bytes(content) == entry
    assert entries.member(content, "part-0.zip") == b"delta"
    assert content == entries.to_bytes(entry, {"part-0.zip": b"delta"})


def test_anyone_can_open_an_entry_when_it_is_stored(tmp_path: object) -> None:
    path = f"{tmp_path}/entry.zip"
    with open(path, "wb") as file:
        file.write(entries.to_bytes(ENTRY))
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("entry.json"))["processed"] == 11


def test_entry_is_refused_when_a_newer_version_wrote_it() -> None:
    with zipfile.ZipFile(io.BytesIO(entries.to_bytes(ENTRY))) as archive:
        data = json.loads(archive.read("entry.json")) | {"format": 2}
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("entry.json", json.dumps(data))
    with pytest.raises(NewerFormat):
        entries.from_bytes(buffer.getvalue())


@pytest.mark.parametrize("content", [b"", b"no zip", entries.to_bytes(ENTRY)[:-10]])
def test_error_says_corrupt_when_bytes_are_no_entry(content: bytes) -> None:
    with pytest.raises(CorruptState):
        entries.from_bytes(content)


def test_entry_stays_small_when_a_module_has_many_tasks_and_pstates() -> None:
    levels = tuple(level(i, threads=8, tables=20) for i in range(1, 13))
    offsets = tuple(range(10**12, 10**12 + 512))
    ranges = OffsetRanges.of((offset, offset + 1) for offset in offsets)
    entry = replace(
        ENTRY, snapshot=Snapshot(levels), previous=Snapshot(levels[:-1]),
        progress={"*d": SourceProgress("d-1", offsets, offsets)}, attempt=Attempt(8, 1, {"*d": ranges}),
    )  # fmt: skip
    assert len(entries.to_bytes(entry)) < entries.ENTRY_BYTES_MAX
