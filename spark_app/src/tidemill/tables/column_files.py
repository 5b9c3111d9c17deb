"""Tables that are written a chunk of rows at a time and come out as one file whose columns are each in one piece: it
can be mapped and searched in place, and memory is bounded by a chunk, however long the table is.

Arrow's own writer makes a batch a chunk. Here each column of numbers has a place of its own in the file, so that its
bytes are written once; those of strings, and what tells nulls, follow at the end.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

_VARIABLE = (pa.types.is_large_string, pa.types.is_large_binary)
_ALIGNED: Final = 64
_COPY_BYTES: Final = 1 << 24

Place = tuple[int, int]
"""(offset, bytes) of a buffer in the file."""


class TableFile:
    """Appends chunks of one schema, of at most `rows_max` rows together; what `finish` returns is needed to open the
    file at `path`. Other files beside it end with it.
    """

    def __init__(self, path: Path, schema: pa.Schema, rows_max: int) -> None:
        self._schema = schema
        self._file = open(path, "wb")  # noqa: SIM115 - `close` ends it
        self._columns: list[_Column] = []
        start = 0
        for i, kind in enumerate(schema.types):
            self._columns.append(_Column(self._file, start, path.with_suffix(f".{i}"), kind))
            start += _aligned(rows_max * _width(kind))
        self._end = start

    def append(self, rows: pa.Table) -> None:
        """Write a chunk behind those before it; its columns are in the order of the schema."""
        for column, chunked in zip(self._columns, rows.columns, strict=True):
            for chunk in chunked.chunks:
                if len(chunk):
                    column.append(chunk)

    def finish(self) -> dict[str, Any]:
        """Complete the file; where its columns are, as JSON."""
        places = []
        for column in self._columns:
            found, self._end = column.finish(self._end)
            places.append(found)
        self._file.truncate(self._end)
        self.close()
        schema = self._schema.serialize().to_pybytes().hex()
        return {"schema": schema, "rows": self._columns[0].rows if self._columns else 0, "columns": places}

    def close(self) -> None:
        """Close all files; the one at `path` is a table only if `finish` completed it."""
        for column in self._columns:
            column.close()
        self._file.close()


class _Column:
    """One column: its values (bytes of strings apart from their offsets), and a byte a row that tells nulls.

    Numbers go to their place in the table's file; everything else to files of its own, until it ends.
    """

    def __init__(self, file: BinaryIO, start: int, path: Path, kind: pa.DataType) -> None:
        self._table, self._start, self._path, self._kind = file, start, path, kind
        self.rows, self._bytes = 0, 0
        self._files: dict[str, BinaryIO] = {}

    def append(self, array: pa.Array) -> None:
        if array.null_count or "valid" in self._files:
            if "valid" not in self._files:
                self._write("valid", np.ones(self.rows, dtype=np.uint8))
            self._write("valid", array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
        width = _width(self._kind)
        if width:
            first = array.offset * width
            values = memoryview(array.buffers()[1]).cast("B")[first : first + len(array) * width]
            self._table.seek(self._start + self.rows * width)
            self._table.write(values)
        elif pa.types.is_boolean(self._kind):
            self._write("values", array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8))
        else:
            self._append_variable(array)
        self.rows += len(array)

    def _append_variable(self, array: pa.Array) -> None:
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        if self.rows == 0:
            self._write("offsets", np.zeros(1, dtype=np.int64))
        self._write("offsets", ends[1:] - ends[0] + self._bytes)
        if data is not None:
            self._write("values", memoryview(data).cast("B")[int(ends[0]) : int(ends[-1])])
        self._bytes += int(ends[-1] - ends[0])

    def _write(self, name: str, data: Any) -> None:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = open(f"{self._path}.{name}", "w+b")  # noqa: SIM115 - `close` ends it
        file.write(data)

    def finish(self, end: int) -> tuple[list[Place | None], int]:
        """The places of the column's buffers, as Arrow orders them, and the new end of the table's file."""
        places: list[Place | None] = [None]
        if "valid" in self._files:
            places[0], end = self._add(self._bits("valid"), end)
        width = _width(self._kind)
        if width:
            return [*places, (self._start, self.rows * width)], end
        if pa.types.is_boolean(self._kind):
            place, end = self._add(self._bits("values"), end)
            return [*places, place], end
        for name in ("offsets", "values"):
            place, end = self._add(self._files.get(name, b"" if name == "values" else bytes(8)), end)
            places.append(place)
        return places, end

    def _bits(self, name: str) -> bytes:
        file = self._files.get(name)
        if file is None:
            return b""
        file.flush()
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
        return np.packbits(np.frombuffer(held, dtype=np.uint8), bitorder="little").tobytes()

    def _add(self, data: bytes | BinaryIO, end: int) -> tuple[Place, int]:
        """Write a buffer behind all others."""
        self._table.seek(end)
        if isinstance(data, bytes):
            size = self._table.write(data)
        else:
            size = data.tell()
            data.seek(0)
            while piece := data.read(_COPY_BYTES):
                self._table.write(piece)
        return (end, size), end + _aligned(size)

    def close(self) -> None:
        for name, file in self._files.items():
            file.close()
            Path(f"{self._path}.{name}").unlink(missing_ok=True)
        self._files.clear()


def _width(kind: pa.DataType) -> int:
    """Bytes of a number; 0 for what has no such width."""
    return 0 if pa.types.is_boolean(kind) or any(test(kind) for test in _VARIABLE) else int(kind.bit_width) // 8


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def open_table(pages: mmap.mmap | bytes, layout: Mapping[str, Any]) -> pa.Table:
    """The table in a mapped file, in place; `layout` is what `TableFile.finish` returned.

    Raises:
        ValueError: the file is shorter than its layout says.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(layout["schema"])))
    whole = pa.py_buffer(pages)
    arrays = []
    for field, places in zip(schema, layout["columns"], strict=True):
        if any(place is not None and sum(place) > whole.size for place in places):
            raise ValueError("a file of columns is cut short")
        buffers = [None if place is None else whole.slice(*place) for place in places]
        arrays.append(pa.Array.from_buffers(field.type, layout["rows"], buffers))
    return pa.Table.from_arrays(arrays, schema=schema)


def allocated_bytes(path: Path) -> int:
    """What a file takes on its disk: places that were not filled take nothing."""
    return os.stat(path).st_blocks * 512
