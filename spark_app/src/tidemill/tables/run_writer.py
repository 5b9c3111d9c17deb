"""A container of Parquet tables that is written a chunk of rows at a time, so that memory is bounded by a chunk.

Key and number columns of sorted rows are stored as differences, which is smaller and faster to read than pages of
numbers.
"""

from __future__ import annotations

import io
import mmap
import tempfile
import zipfile
from collections.abc import Mapping
from typing import IO, Any, Final, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.tables.container import MemberMeta, TableKey, add_member, arrow_table, member_info, meta_json
from tidemill.tables.tables import Table

MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Larger containers are written to a file without a name, and mapped."""

GROUP_ROWS: Final = 131_072
_BUFFER_BYTES: Final = 1024 * 1024
"""Parquet is written in thousands of small pieces, and the ZIP takes longer for each than for its bytes."""

_LARGE_BYTES: Final = 1024**3
"""From such estimates on a member gets the long form of its sizes in the ZIP."""


class RunWriter:
    """Tables in any order, each in ascending chunks of the same columns; for a `with` block.

    `bytes_expected` may be far off.
    """

    def __init__(self, bytes_expected: int = 0) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX)  # noqa: SIM115 - closed by __exit__
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        self._is_large = bytes_expected >= _LARGE_BYTES
        self._member: io.BufferedWriter | None = None
        self._table: pq.ParquetWriter | None = None
        self.meta: dict[TableKey, MemberMeta] = {}

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of a container that was not finished, and of its file; a mapped one stays readable."""
        with self._file:
            self.end_table()
            self._archive.close()

    def append(
        self, key: TableKey, described: Table, rows: pl.DataFrame, combiner_names: tuple[str | None, ...]
    ) -> None:
        """Rows above all earlier ones of this table; no other table may follow before `end_table`."""
        table = arrow_table(rows)
        if self._table is None:
            info = member_info(f"{key[0]}/{key[1]}.parquet", self._file.tell())
            member = self._archive.open(info, "w", force_zip64=self._is_large)
            self._member = io.BufferedWriter(cast("io.RawIOBase", member), _BUFFER_BYTES)
            self._table = _parquet_writer(self._member, table.schema)
            self.meta[key] = MemberMeta(described, 0, combiner_names)
        self._table.write_table(table, row_group_size=GROUP_ROWS)
        before = self.meta[key]
        together = tuple(a or b for a, b in zip(before.combiner_names, combiner_names, strict=True))
        self.meta[key] = MemberMeta(described, before.rows + rows.height, together)

    def end_table(self) -> None:
        """Complete the table under way, if there is one; rows of another table may follow."""
        if self._table is not None and self._member is not None:
            self._table.close()
            self._member.close()
        self._table, self._member = None, None

    def finish(self, bounds: Mapping[str, int], key: str = "") -> Any:
        """The whole container, in memory or mapped; equal rows in equal chunks give equal bytes. `key` as `encode`."""
        described = {table: self.meta[table] for table in sorted(self.meta)}
        add_member(self._archive, self._file, "meta.json", meta_json(described, bounds))
        self._archive.comment = key.encode()
        self._archive.close()
        size = self._file.tell()
        self._file.seek(0)
        if size <= MEMORY_BYTES_MAX:
            return self._file.read()
        self._file.flush()
        return mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)


def _parquet_writer(sink: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """Differences of numbers are bits already: compressing them again would only cost time."""
    numbers = [field.name for field in schema if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)]
    packed = {"task", "kind", *numbers}
    return pq.ParquetWriter(
        sink, schema, use_dictionary=["task", "kind"], write_statistics=False,
        compression={name: "none" if name in packed else "lz4" for name in schema.names},
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    )  # fmt: skip
