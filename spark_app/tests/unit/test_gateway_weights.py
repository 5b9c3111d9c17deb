"""Small bodies that become gigabytes: told from their bytes, and refused before anything is made of them."""

from __future__ import annotations

import io
import json
import struct
import threading
import tracemalloc
from concurrent.futures import Future
from typing import Any

import msgpack
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.gateway.admission import Admission
from tidemill.gateway.faults import HttpRefusal
from tidemill.gateway.formats import ARROW, JSON, MSGPACK, NDJSON, records_of
from tidemill.gateway.weights import DECODED_BYTES_MAX, METERED_BYTES, RECORDS_MAX, arrow_weight, json_weight
from tidemill.values import columns
from tidemill.values.errors import BadInput
from tidemill.values.message_pack import EXT_SET, pack

MEGABYTE = 1024 * 1024


def arrow(table: pa.Table, codec: str | None = None) -> bytes:
    """A table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_table(table)
    return sink.getvalue()


def records(body: bytes, kind: str) -> list[Any]:
    """What a body of this type holds, where there is room enough."""
    return columns.to_values(records_of(body, kind, lambda size: None))


def dictionary(value: Any, rows: int) -> pa.Array:
    indices = pa.array([0], pa.int8()).take(pa.array([0] * rows, pa.int32()))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def in_a_list(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays([0, len(array)], array)


def in_a_struct(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array], ["inner"])


ZEROS = pa.array([bytes(300 * MEGABYTE)], pa.large_binary())
LONG = "x" * 100_000
SHARED = pl.Series([LONG]).new_from_index(0, 10_000).to_arrow(compat_level=pl.CompatLevel.newest())
ARROWS: dict[str, bytes] = {
    "zstd of zeros": arrow(pa.table({"a": ZEROS}), "zstd"),
    "lz4 of zeros": arrow(pa.table({"a": ZEROS}), "lz4"),
    "zstd of small numbers": arrow(pa.table({"a": pa.array([0], pa.int8()).take(pa.array([0] * 2_000_000))}), "zstd"),
    "nulls": arrow(pa.table({"a": pa.nulls(10_000_000)})),
    "nulls in a list": arrow(pa.table({"a": in_a_list(pa.nulls(100_000_000))})),
    "nulls in lists of one length": arrow(pa.table({"a": pa.FixedSizeListArray.from_arrays(pa.nulls(10**8), 10**8)})),
    "a dictionary of one long text": arrow(pa.table({"a": dictionary(LONG, 10_000)})),
    "a dictionary in a list": arrow(pa.table({"a": in_a_list(dictionary(LONG, 10_000))})),
    "a dictionary in a struct": arrow(pa.table({"a": in_a_struct(dictionary(LONG, 10_000))})),
    "texts that share their letters": arrow(pa.table({"a": SHARED})),
}  # fmt: skip


@pytest.mark.parametrize("body", ARROWS.values(), ids=ARROWS)
def test_an_arrow_stream_is_refused_when_its_rows_are_far_larger_than_it(body: bytes) -> None:
    with pytest.raises(HttpRefusal) as refused:
        records(body, ARROW)

    assert refused.value.status == 413, refused.value
    assert len(body) < MEGABYTE * 1.5


KINDS: dict[str, pa.Array] = {
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([10**9], pa.int32()), pa.array([LONG])),
    "a union": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
    "a dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([[1, 2]])),
    "a view of a list": pa.array([[1, 2]], pa.list_view(pa.int64())),
}


@pytest.mark.parametrize("array", KINDS.values(), ids=KINDS)
def test_an_arrow_stream_is_refused_when_it_has_a_type_that_is_not_read(array: pa.Array) -> None:
    with pytest.raises(HttpRefusal) as refused:
        records(arrow(pa.table({"a": array})), ARROW)

    assert refused.value.status in (400, 413)


def test_an_extension_is_refused_when_polars_panics_at_it() -> None:
    marks = {"ARROW:extension:name": "x", "ARROW:extension:metadata": b"\xff\xfe"}
    table = pa.table({"a": pa.array([1])}, schema=pa.schema([pa.field("a", pa.int64(), metadata=marks)]))

    with pytest.raises(BadInput, match="cannot be read"):
        records(arrow(table), ARROW)


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_the_rows_of_a_stream_are_read_when_it_is_of_any_usual_form(codec: str | None) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int16()), "t": ["a", None], "b": [b"x", b""], "n": pa.nulls(2),
            "d": pa.array(["x", "y"]).dictionary_encode(), "l": [[1], []], "s": [{"q": "z"}, {"q": None}],
            "v": pa.array(["view", "é"], pa.string_view()), "w": pa.array([b"v", None], pa.binary_view()),
        }
    )  # fmt: skip
    read = records(arrow(table, codec), ARROW)
    assert read[0] == {
        "i": 1,
        "t": "a",
        "b": b"x",
        "n": None,
        "d": "x",
        "l": [1],
        "s": {"q": "z"},
        "v": "view",
        "w": b"v",
    }
    assert records(pl.DataFrame({"a": ["x" * 50, "y"]}).write_ipc_stream(None).getvalue(), ARROW) == [
        {"a": "x" * 50},
        {"a": "y"},
    ]


def test_the_weight_of_a_stream_is_that_of_its_buffers_when_it_is_compressed() -> None:
    table = pa.table({"a": [LONG] * 20})

    assert arrow_weight(arrow(table, "zstd")) >= 20 * len(LONG)
    assert arrow_weight(arrow(table, "lz4")) >= 20 * len(LONG)
    assert len(arrow(table, "zstd")) < len(LONG)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5), st.sampled_from([None, "zstd", "lz4"])
)
def test_changed_bytes_of_a_stream_give_records_or_a_refusal_when_read(
    changes: list[tuple[int, int]], codec: str
) -> None:
    body = bytearray(arrow(pa.table({"a": ["x", "y", None], "l": [[1], [], [2, 3]]}), codec))
    for at, byte in changes:
        body[at % len(body)] = byte

    try:
        records(bytes(body), ARROW)
    except BadInput as error:
        assert str(error)


# --- JSON and MessagePack --------------------------------------------------------------------------------------------

MANY = 6 * MEGABYTE


def many(values: bytes, count: int = MANY) -> bytes:
    """A list of so many packed values."""
    return b"\xdd" + struct.pack(">I", count) + values * count


TEXTS: dict[str, tuple[bytes, str]] = {
    "empty lists as JSON": (b'{"records": [' + b"[]," * MANY + b"1]}", JSON),
    "empty lists as lines": (b"[[],[],[],[],[],[],[],[]]\n" * (MANY // 8), NDJSON),
    "empty dicts as JSON": (b'{"record": [' + b"{}," * MANY + b"1]}", JSON),
    "small numbers as lines": (b"1\n" * (RECORDS_MAX + 1), NDJSON),
    "empty lists as MessagePack": (b"\x81\xa6record" + many(b"\x90"), MSGPACK),
    "empty dicts as MessagePack": (b"\x81\xa6record" + many(b"\x80"), MSGPACK),
    "short texts as MessagePack": (b"\x81\xa6record" + many(b"\xa2ab"), MSGPACK),
    "small numbers as MessagePack": (b"\x81\xa7records" + many(b"\x01", RECORDS_MAX + 1), MSGPACK),
    "a set of lists": (b"\x81\xa6record" + msgpack.packb(msgpack.ExtType(EXT_SET, many(b"\x90"))), MSGPACK),
}


@pytest.mark.parametrize(("body", "kind"), TEXTS.values(), ids=TEXTS)
def test_a_body_is_refused_when_its_values_take_far_more_memory_than_it(body: bytes, kind: str) -> None:
    reserved: list[int] = []
    with pytest.raises(HttpRefusal) as refused:
        records_of(body, kind, reserved.append)

    assert refused.value.status == 413
    assert max(reserved, default=0) <= DECODED_BYTES_MAX


def test_the_bytes_of_a_body_are_reserved_as_it_is_unpacked_when_it_is_large() -> None:
    body = pack({"records": [{"key": number, "text": "x" * 20} for number in range(100_000)]})
    asked: list[int] = []

    assert columns.length(records_of(body, MSGPACK, asked.append)) == 100_000
    assert asked == sorted(asked)
    assert len(asked) > 1
    assert asked[0] <= 2 * METERED_BYTES


def test_a_large_value_of_bytes_is_read_when_its_bytes_look_like_many_values() -> None:
    value = b"\x90\x80\xa2" * (4 * MEGABYTE)

    assert records(pack({"record": value}), MSGPACK) == [value]


@settings(deadline=None, max_examples=30)
@given(
    st.recursive(
        st.one_of(st.integers(), st.text(), st.none()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_weight_of_json_is_not_far_below_the_memory_of_its_values_when_measured(value: Any) -> None:
    body = json.dumps([value] * 20).encode()
    tracemalloc.start()
    made = json.loads(body)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert made is not None
    assert json_weight(body) * 3 + 20_000 > size


# --- places of requests ----------------------------------------------------------------------------------------------


def test_a_place_and_its_bytes_are_held_until_the_work_has_ended_when_nobody_waits_for_it() -> None:
    admission = Admission(1, 100)
    ticket = admission.enter(10)
    work: Future[None] = Future()
    ticket.hold_until(work)
    ticket.grow(90)
    ticket.release()

    with pytest.raises(HttpRefusal, match="under way"):
        admission.enter(1)
    work.set_result(None)
    admission.enter(100).release()
    admission.enter(100)


def test_no_more_bytes_are_taken_than_there_are_when_many_requests_grow_at_once() -> None:
    admission = Admission(100, 1_000)
    busy: list[HttpRefusal] = []

    def grow() -> None:
        try:
            admission.enter(10).grow(300)
        except HttpRefusal as error:
            busy.append(error)

    threads = [threading.Thread(target=grow) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(busy) >= 7
