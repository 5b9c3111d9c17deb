"""A part as bytes: a plain ZIP of `meta.json` and one member a table, `<pstate id>/<table id>.arrow` or `.parquet`.

Deltas are Arrow IPC (cheap to write and to map), runs are Parquet (small). Nothing is compressed by the ZIP itself,
and Arrow members start at multiples of 64 bytes, so that a mapped file is used in place. Rows are sorted by (task,
keys):

    task int32 | k0, k1, … | kind int8 | value | value.<field>, … | none int64

`none` is there if a record has a field that is None (a bit a field, as an absent field is null too) or is None
itself (-1). Kinds: see below. A clear of the n leading keys has kind 3 + n and nulls in the other keys; it concerns
older levels only.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.model.errors import CorruptState, NewerFormat

FORMAT_VERSION: Final = 1
PUT: Final = 0
DELETE: Final = 1
OPERAND: Final = 2
CLEAR: Final = 3
_ALIGNMENT: Final = 64
_LOCAL_HEADER: Final = 30
_PADDING_ID: Final = 0xD935
_CHECKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Checksums of greater local files are left to `tidemill check`: they would read all that mapping spares."""
_DATE: Final = (1980, 1, 1, 0, 0, 0)

TableKey = tuple[str, str]
"""(PState id, table id)."""


@dataclass(frozen=True)
class TableRows:
    """The sorted rows of one table. `identities` names the combiner of each value column that holds operands, else
    None.
    """

    rows: pl.DataFrame
    identities: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class MemberMeta:
    rows: int
    identities: tuple[str | None, ...]


@dataclass
class Container:
    """A decoded container: Arrow tables (mapped where they could be) and what `meta.json` says of them."""

    tables: dict[TableKey, pa.Table]
    meta: dict[TableKey, MemberMeta]
    bounds: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    is_compact: bool = False
    """Whether members are Parquet, which must be decoded as a whole before a key can be found."""


def encode(
    tables: Mapping[TableKey, TableRows],
    kind: Literal["arrow", "parquet"],
    bounds: Mapping[str, int] | None = None,
) -> bytes:
    """The container's bytes; equal rows give equal bytes."""
    names = {key: f"{key[0]}/{key[1]}" for key in sorted(tables)}
    meta = {
        "format_version": FORMAT_VERSION,
        "tables": {
            names[key]: {"rows": tables[key].rows.height, "combiners": list(tables[key].identities)} for key in names
        },
        "bounds": dict(sorted((bounds or {}).items())),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, out, "meta.json", json.dumps(meta, separators=(",", ":"), sort_keys=True).encode())
        for key, name in names.items():
            body = _ipc(tables[key].rows) if kind == "arrow" else _parquet(tables[key].rows)
            _add(archive, out, f"{name}.{kind}", body)
    return out.getvalue()


def _add(archive: zipfile.ZipFile, out: io.BytesIO, name: str, data: Any) -> None:
    info = zipfile.ZipInfo(name, _DATE)
    start = out.tell() + _LOCAL_HEADER + len(name.encode()) + 4
    padding = -start % _ALIGNMENT
    info.extra = _PADDING_ID.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
    archive.writestr(info, data)


def arrow_table(rows: pl.DataFrame) -> pa.Table:
    """The rows with strings as offsets and bytes, which a key search can look into."""
    return rows.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())


def _ipc(rows: pl.DataFrame) -> Any:
    sink = pa.BufferOutputStream()
    table = arrow_table(rows)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet(rows: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    rows.write_parquet(out, compression="lz4", statistics=True)
    return out.getvalue()


def decode(data: Any, *, is_checked: bool = True) -> Container:
    """The tables of a container; Arrow members stay views of `data`. `is_checked` compares their checksums.

    Raises:
        NewerFormat: a newer Tidemill wrote it.
        CorruptState: these bytes are no whole container.
    """
    view = memoryview(data)
    try:
        with zipfile.ZipFile(_Window(view)) as archive:
            meta = json.loads(archive.read("meta.json"))
            if meta["format_version"] > FORMAT_VERSION:
                text = f"a container of format {meta['format_version']} was written by a newer Tidemill; use that one"
                raise NewerFormat(text, format_version=meta["format_version"])
            return _decode_members(archive, view, meta, is_checked)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, pa.ArrowException, OSError) as error:
        raise CorruptState(f"A state container cannot be read: {error}", bytes=len(view)) from error


def _decode_members(archive: zipfile.ZipFile, view: memoryview, meta: Mapping[str, Any], is_checked: bool) -> Container:
    container = Container({}, {}, dict(meta["bounds"]), len(view))
    for info in archive.infolist():
        name, _, kind = info.filename.rpartition(".")
        if kind not in ("arrow", "parquet"):
            continue
        pstate, _, table_id = name.partition("/")
        container.is_compact |= kind == "parquet"
        described = meta["tables"][name]
        container.tables[pstate, table_id] = _decode_member(_member(view, info, is_checked), kind)
        container.meta[pstate, table_id] = MemberMeta(described["rows"], tuple(described["combiners"]))
    _check_counts(container)
    return container


def _check_counts(container: Container) -> None:
    for key, table in container.tables.items():
        if table.num_rows != container.meta[key].rows:
            text = f"table {key} holds {table.num_rows} rows, its container promised {container.meta[key].rows}"
            raise CorruptState(text, table=key)


def _member(view: memoryview, info: zipfile.ZipInfo, is_checked: bool) -> pa.Buffer:
    """The member's bytes in place."""
    header = view[info.header_offset : info.header_offset + _LOCAL_HEADER]
    start = info.header_offset + _LOCAL_HEADER + int.from_bytes(header[26:28], "little")
    start += int.from_bytes(header[28:30], "little")
    body = view[start : start + info.file_size]
    if len(body) != info.file_size or (is_checked and zlib.crc32(body) != info.CRC):
        raise CorruptState(f"member {info.filename} of a state container does not match its checksum")
    return pa.py_buffer(body)


def _decode_member(buffer: pa.Buffer, kind: str) -> pa.Table:
    if kind == "arrow":
        return pa.ipc.open_file(pa.BufferReader(buffer)).read_all()
    table = pq.read_table(pa.BufferReader(buffer))
    return arrow_table(pl.DataFrame(pl.from_arrow(table)))


def decode_file(path: Path) -> Container:
    """A container in a local file, mapped: its Arrow members are read when they are touched."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise CorruptState("A state container is empty")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return decode(mapped, is_checked=size <= _CHECKED_BYTES_MAX)


class _Window(io.RawIOBase):
    """A buffer as a file, without a copy of it (`io.BytesIO` would make one)."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, len(self._view))[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._view) if size is None or size < 0 else self._at + size
        data = bytes(self._view[self._at : end])
        self._at += len(data)
        return data
