"""How much memory a body becomes when it is decoded, judged by its bytes alone, before anything is made of them.

A few bytes may stand for gigabytes: compressed buffers, columns of nulls, dictionaries, millions of empty lists.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.gateway.faults import HttpRefusal, malformed
from tidemill.values.message_pack import unpack_foreign

DECODED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes in memory of all that one body holds."""

RECORDS_MAX = 1_000_000
"""Records of one append."""

METERED_BYTES = 8 * 1024 * 1024
"""MessagePack that could become more than this is counted while it is unpacked."""

ARROW_COLUMNS_MAX = 10_000
ARROW_MESSAGES_MAX = 10_000

Reserve = Callable[[int], None]
"""Called with the bytes that a body becomes, before it is decoded; raises where there is no room for them."""

_LIST_BYTES = 80
_DICT_BYTES = 200
_VALUE_BYTES = 40
_WIDEST = 4
"""Bytes of a letter in memory, where a text holds one that needs them."""

_NO_LENGTH = -1


def check_weight(size: int, reserve: Reserve) -> None:
    """Refuse a body that becomes too large.

    Raises:
        HttpRefusal: 413, more than any body may have; 503, more than there is room for now.
    """
    if size > DECODED_BYTES_MAX:
        text = f"This body would take about {size:,} bytes in memory, and {DECODED_BYTES_MAX:,} are allowed"
        raise HttpRefusal(413, "TooLarge", f"{text}; send it in parts.")
    reserve(size)


def check_count(records: int) -> None:
    """Refuse too many records. Raises HttpRefusal: 413."""
    if records > RECORDS_MAX:
        text = f"One append has at most {RECORDS_MAX:,} records, not {records:,}; send them in parts."
        raise HttpRefusal(413, "TooLarge", text)


def json_weight(body: bytes) -> int:
    """About how many bytes the values of JSON or JSON lines take as Python objects: no less than half of them."""
    texts = len(body) * (1 if body.isascii() else _WIDEST)
    values = body.count(b",") + body.count(b":") + body.count(b"\n")
    return texts + _LIST_BYTES * body.count(b"[") + _DICT_BYTES * body.count(b"{") + _VALUE_BYTES * values


def unpacked(body: bytes, reserve: Reserve) -> Any:
    """The value of MessagePack, counted on the way where its bytes say that it could be large.

    Raises:
        BadInput: it is none.
        HttpRefusal: 413, it is too large in memory; 503, there is no room for it now.
    """
    size = msgpack_weight(body)
    if size > METERED_BYTES:
        return unpack_foreign(body, _Meter(reserve).count)
    reserve(size)
    return unpack_foreign(body)


def msgpack_weight(body: bytes) -> int:
    """At most how many bytes the values of MessagePack take as Python objects, by the bytes that could begin one."""
    return int(np.bincount(np.frombuffer(body, np.uint8), minlength=256) @ _COSTS)


def _costs() -> NDArray[np.int64]:
    costs = np.full(256, 60, np.int64)
    costs[0x00:0x80] = 8
    costs[0x80:0x90] = _DICT_BYTES
    costs[0x90:0xA0] = _LIST_BYTES
    costs[0xC7:0xCA] = costs[0xD4:0xD9] = costs[0xDC:0xE0] = 300
    return costs


_COSTS = _costs()
_COUNTED = (list, dict)


class _Meter:
    """Counts what is unpacked, and asks for room as it grows."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._size = 0
        self._reserved = 0

    def count(self, made: list[Any] | dict[Any, Any]) -> None:
        self._size += sys.getsizeof(made)
        if made:
            held = chain(made.keys(), made.values()) if isinstance(made, dict) else made
            # Lists and dicts in it were counted when they were made.
            self._size += sum([sys.getsizeof(item) for item in held if type(item) not in _COUNTED])
        if self._size > self._reserved:
            self._reserved = self._size + METERED_BYTES
            check_weight(self._reserved, self._reserve)


# --- Arrow streams ---------------------------------------------------------------------------------------------------


def arrow_weight(body: bytes) -> int:
    """Bytes of all buffers of an Arrow stream when they are decompressed, and 8 for each value.

    Raises:
        HttpRefusal: 400, it is no Arrow stream; 413, it has too many records or messages.
    """
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    size = records = messages = 0
    for message in reader:
        messages += 1
        if messages > ARROW_MESSAGES_MAX:
            raise HttpRefusal(413, "TooLarge", f"An Arrow stream has at most {ARROW_MESSAGES_MAX:,} messages here.")
        if message.type == "schema":
            continue
        try:
            found = _batch_weight(message)
        except struct.error as error:
            raise malformed("The body is not an Arrow stream: a message of it is not whole.") from error
        size += found[0]
        records += found[1]
        check_count(records)
    return size


def _batch_weight(message: pa.ipc.Message) -> tuple[int, int]:
    """Bytes and records of one batch, read from its flatbuffer: `Message.fbs` of Arrow's format, version 1."""
    meta = _Flat(message.metadata.to_pybytes())
    data = memoryview(message.body) if message.body is not None else memoryview(b"")
    header = meta.table(meta.root(), 2)
    is_dictionary = message.type == "dictionary"
    if is_dictionary:
        if meta.number(header, 2, "<?"):
            raise malformed("An Arrow stream whose dictionaries grow is not read here; write each of them once.")
        header = meta.table(header, 1)
    length = meta.number(header, 0, "<q")
    values = sum(max(0, count) for count, _ in meta.pairs(header, 1))
    buffers = meta.pairs(header, 2)
    is_compressed = meta.place(header, 3) != 0
    size = sum(_buffer_weight(data, offset, held, is_compressed) for offset, held in buffers)
    return size + 8 * values, 0 if is_dictionary else max(0, length)


def _buffer_weight(data: memoryview, offset: int, held: int, is_compressed: bool) -> int:
    if not is_compressed or held <= 0:
        return max(0, held)
    if offset < 0:
        raise struct.error("a buffer begins before its message")
    [length] = struct.unpack_from("<q", data, offset)
    return held if length == _NO_LENGTH else max(held, length)


class _Flat:
    """Tables of a flatbuffer: a field is found through the table's list of offsets; 0 where it is not written."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def root(self) -> int:
        return self._read("<I", 0)

    def place(self, table: int, field: int) -> int:
        offsets = table - self._read("<i", table)
        if 4 + 2 * field >= self._read("<H", offsets):
            return 0
        offset = self._read("<H", offsets + 4 + 2 * field)
        return table + offset if offset else 0

    def table(self, table: int, field: int) -> int:
        at = self.place(table, field)
        if not at:
            raise struct.error("a table is missing")
        return at + self._read("<I", at)

    def number(self, table: int, field: int, form: str) -> int:
        at = self.place(table, field)
        return self._read(form, at) if at else 0

    def pairs(self, table: int, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        at = self.place(table, field)
        if not at:
            return []
        start = at + self._read("<I", at)
        count = self._read("<I", start)
        if count * 16 > len(self._data):
            raise struct.error("a vector is longer than its message")
        return [struct.unpack_from("<qq", self._data, start + 4 + 16 * index) for index in range(count)]

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            raise struct.error("a place before the message")
        return int(struct.unpack_from(form, self._data, at)[0])


def table_weight(table: pa.Table) -> int:
    """Bytes of a table's rows when each holds its own values: dictionaries written out, nested values as objects.

    Raises:
        HttpRefusal: 400, a column has a type that is not read here.
    """
    return sum(_weight(chunk, 8) for column in table.columns for chunk in column.chunks)


def _weight(array: pa.Array, each: int) -> int:
    kind, types = array.type, pa.types
    size = each * len(array)
    if types.is_dictionary(kind):
        return size + _dictionary_weight(array)
    if _is_text(kind):
        return size + _text_bytes(array)
    if types.is_struct(kind):
        return size + _DICT_BYTES * len(array) + sum(_weight(field, _VALUE_BYTES) for field in array.flatten())
    if types.is_map(kind):
        return size + _LIST_BYTES * len(array) + _weight(array.keys, _LIST_BYTES) + _weight(array.items, _VALUE_BYTES)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return size + _LIST_BYTES * len(array) + _weight(array.flatten(), _VALUE_BYTES)
    if types.is_null(kind):
        return size
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return int(size + len(array) * kind.bit_width // 8)
    raise malformed(f"A column of the Arrow type {kind} is not read here.")


def _dictionary_weight(array: pa.DictionaryArray) -> int:
    kind = array.type.value_type
    if _is_text(kind):
        lengths = pl.Series(pl.from_arrow(array.dictionary)).cast(pl.Binary).bin.size()
        return int(lengths.gather(pl.Series(pl.from_arrow(array.indices)).drop_nulls().cast(pl.UInt32)).sum() or 0)
    if pa.types.is_primitive(kind):
        return int(len(array) * kind.bit_width // 8)
    raise malformed(f"A dictionary of the Arrow type {kind} is not read here; write its values out.")


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(texts or types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _text_bytes(array: pa.Array) -> int:
    return int(pl.Series(pl.from_arrow(array)).cast(pl.Binary).bin.size().sum() or 0)
