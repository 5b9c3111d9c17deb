"""Tables that are written a chunk of rows at a time and come out as one Arrow record batch in a file, which can be
mapped and searched in place: memory is bounded by a chunk, however long the table is.

Arrow's own writer makes a batch a chunk, and a key search needs its columns in one piece.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

_VARIABLE = (pa.types.is_large_string, pa.types.is_large_binary)


class TableFile:
    """Appends chunks of one schema; `finish` writes them to `path`. Its other files, beside it, end with it."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._columns = [_ColumnFiles(path.with_suffix(f".{i}"), kind) for i, kind in enumerate(schema.types)]

    def append(self, rows: pa.Table) -> None:
        for column, chunked in zip(self._columns, rows.columns, strict=True):
            for chunk in chunked.chunks:
                if len(chunk):
                    column.append(chunk)

    def finish(self) -> None:
        batch = pa.RecordBatch.from_arrays([column.array() for column in self._columns], schema=self._schema)
        with pa.OSFile(str(self._path), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            writer.write_batch(batch)
        self.close()

    def close(self) -> None:
        for column in self._columns:
            column.close()


class _ColumnFiles:
    """One column: its values (bytes of strings apart from their offsets), and a byte a row that tells nulls."""

    def __init__(self, path: Path, kind: pa.DataType) -> None:
        self._path, self._kind = path, kind
        self._rows, self._bytes = 0, 0
        self._files: dict[str, BinaryIO] = {}

    def append(self, array: pa.Array) -> None:
        if array.null_count or "valid" in self._files:
            if "valid" not in self._files:
                self._write("valid", np.ones(self._rows, dtype=np.uint8))
            self._write("valid", array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
        if any(test(self._kind) for test in _VARIABLE):
            self._append_variable(array)
        elif pa.types.is_boolean(self._kind):
            self._write("values", array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8))
        else:
            width = self._kind.bit_width // 8
            start = array.offset * width
            self._write("values", memoryview(array.buffers()[1]).cast("B")[start : start + len(array) * width])
        self._rows += len(array)

    def _append_variable(self, array: pa.Array) -> None:
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        if self._rows == 0:
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

    def array(self) -> pa.Array:
        """All rows, mapped from the files."""
        valid = self._bits("valid") if "valid" in self._files else None
        if any(test(self._kind) for test in _VARIABLE):
            buffers = [valid, self._map("offsets", bytes(8)), self._map("values")]
        elif pa.types.is_boolean(self._kind):
            buffers = [valid, self._bits("values")]
        else:
            buffers = [valid, self._map("values")]
        return pa.Array.from_buffers(self._kind, self._rows, buffers)

    def _map(self, name: str, blank: bytes = b"") -> pa.Buffer:
        file = self._files.get(name)
        if file is None:
            return pa.py_buffer(blank)
        file.flush()
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else blank)

    def _bits(self, name: str) -> pa.Buffer:
        return pa.py_buffer(np.packbits(np.frombuffer(self._map(name), dtype=np.uint8), bitorder="little"))

    def close(self) -> None:
        for name, file in self._files.items():
            file.close()
            Path(f"{self._path}.{name}").unlink(missing_ok=True)
        self._files.clear()
