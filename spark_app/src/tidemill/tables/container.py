"""A part as bytes: a plain ZIP of `meta.json` and one member a table, `<pstate id>/<table id>.arrow` or `.parquet`.

Deltas are Arrow IPC (cheap to write and to map), runs are Parquet (small). Nothing is compressed by the ZIP itself,
and Arrow members start at multiples of 64 bytes, so that a mapped file is used in place. Rows are sorted by (task,
keys):

    task int32 | k0, k1, … | kind int8 | value | value.<field>, … | none int64

`none` is there if a record has a field that is None (a bit a field, as an absent field is null too) or is None
itself (-1). Kinds: see below. A clear of the n leading keys has kind 3 + n and nulls in the other keys; it concerns
older levels only. `meta.json` says of each table its key types and the schemas of its values, as they were when it
was written (`tables.widened_rows`).
"""

from __future__ import annotations

import io
import json
import mmap
import os
import resource
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import polars as pl
import pyarrow as pa

from tidemill.store.archive import Archive
from tidemill.tables.tables import Table, table_from_json
from tidemill.values.errors import CorruptState, NewerFormat

FORMAT_VERSION: Final = 1
META_MEMBER: Final = "meta.json"
PUT: Final = 0
DELETE: Final = 1
OPERAND: Final = 2
CLEAR: Final = 3
_ALIGNMENT: Final = 64
_LOCAL_HEADER: Final = 30
_PADDING_ID: Final = 0xD935
CHECKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Checksums of greater local files are left to `tidemill check`: they would read all that mapping spares."""
MAPPED_BYTES_MIN: Final = 1024 * 1024
"""Smaller files are read: a map of each of many would take all the places that a process has for open files."""

ALWAYS_MAPPED_BYTES: Final = 64 * 1024 * 1024
"""Files of this size are mapped however many are: there is no memory to read them into."""

MAPPED_FILES_MAX: Final = 512
_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_DATE: Final = (1980, 1, 1, 0, 0, 0)

TableKey = tuple[str, str]
"""(PState id, table id)."""


@dataclass(frozen=True)
class TableRows:
    """The sorted rows of one table. `combiner_names` names the combiner of each value column that holds operands, else
    None.
    """

    table: Table
    rows: pl.DataFrame
    combiner_names: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class MemberMeta:
    """What `meta.json` says of a member. `table` is the table as it was when the rows were written: the schema may have
    been widened since.
    """

    table: Table
    rows: int
    combiner_names: tuple[str | None, ...]

    def to_json(self) -> dict[str, Any]:
        """The member's JSON in `meta.json`; `meta_from_json` is the inverse."""
        return {**self.table.to_json(), "rows": self.rows, "combiners": list(self.combiner_names)}


def meta_from_json(table_id: str, data: Mapping[str, Any]) -> MemberMeta:
    """The inverse of `MemberMeta.to_json`."""
    return MemberMeta(table_from_json(table_id, data), data["rows"], tuple(data["combiners"]))


@dataclass
class Container:
    """A decoded container: Arrow tables (mapped where they could be) and what `meta.json` says of them."""

    tables: dict[TableKey, pa.Table]
    meta: dict[TableKey, MemberMeta]
    bounds: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """Of what it was decoded from, or of its small files where others are mapped."""

    key: str = ""
    """The object that these bytes were written to be."""

    is_compact: bool = False
    """Whether members are Parquet, which must be decoded as a whole before a key can be found."""

    pages: list[mmap.mmap] = field(default_factory=list)
    """The mapped files that hold the rows; the system takes their pages back when it needs memory."""

    is_in_place: bool = False
    """Whether `bytes` are those of the mapped file itself."""

    opened: dict[TableKey, object] = field(default_factory=dict)
    """What `PartLoader.table` made of the tables, for as long as they are held."""

    def release(self) -> None:
        """Let the system have the pages that were read: they come again when they are touched."""
        for pages in self.pages:
            pages.madvise(mmap.MADV_DONTNEED)


def encode(tables: Mapping[TableKey, TableRows], bounds: Mapping[str, int] | None = None, key: str = "") -> bytes:
    """A container of Arrow tables; equal rows give equal bytes. `key` is that of the object which it will be; it is
    the comment of the ZIP.
    """
    held = {table: tables[table] for table in sorted(tables)}
    described = {table: MemberMeta(rows.table, rows.rows.height, rows.combiner_names) for table, rows in held.items()}
    stored = {table: arrow_table(rows.rows) for table, rows in held.items()}
    out = _memory(sum(table.nbytes + _MEMBER_BYTES for table in stored.values()))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        add_member(archive, out, META_MEMBER, meta_json(described, bounds or {}))
        for (pstate, name), table in stored.items():
            info = member_info(f"{pstate}/{name}.arrow", out.tell())
            info.file_size = table.nbytes  # about; it decides on the form of the header
            with archive.open(info, "w") as member, pa.ipc.new_file(member, table.schema) as writer:
                writer.write_table(table)
        archive.comment = key.encode()
    out.truncate()
    return out.getvalue()


_MEMBER_BYTES: Final = 8192
"""About what a table needs beside its columns."""


def _memory(size: int) -> io.BytesIO:
    """A file in memory with room for so many bytes; one that grows is copied again and again."""
    out = io.BytesIO()
    out.seek(size)
    out.write(b"\0")
    out.seek(0)
    return out


def meta_json(tables: Mapping[TableKey, MemberMeta], bounds: Mapping[str, int]) -> bytes:
    """The member `meta.json`."""
    meta = {
        "format_version": FORMAT_VERSION,
        "tables": {f"{pstate}/{table}": meta.to_json() for (pstate, table), meta in tables.items()},
        "bounds": dict(sorted(bounds.items())),
    }
    return json.dumps(meta, separators=(",", ":"), sort_keys=True).encode()


def add_member(archive: zipfile.ZipFile, out: IO[bytes], name: str, data: Any) -> None:
    """Write a member whose data is aligned; `out` is the file below the archive, which knows the position."""
    archive.writestr(member_info(name, out.tell()), data)


def member_info(name: str, at: int) -> zipfile.ZipInfo:
    """The header of a member that begins at byte `at`; it is padded so that its data is aligned."""
    info = zipfile.ZipInfo(name, _DATE)
    padding = -(at + _LOCAL_HEADER + len(name.encode()) + 4) % _ALIGNMENT
    info.extra = _PADDING_ID.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
    return info


def arrow_table(rows: pl.DataFrame) -> pa.Table:
    """The rows with strings as offsets and bytes, which a key search can look into."""
    return rows.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())


@dataclass(frozen=True)
class Member:
    """One table as it stands in a container, in place."""

    key: TableKey
    kind: str
    buffer: pa.Buffer
    meta: MemberMeta

    def table(self) -> pa.Table:
        """All rows; a view of the container if it is Arrow."""
        if self.kind == "arrow":
            return pa.ipc.open_file(pa.BufferReader(self.buffer)).read_all()
        return _searchable(self._parquet().read())

    def chunks(self) -> Iterator[pa.Table]:
        """The rows, decoded a row group at a time if they are Parquet; at least one table, for its schema."""
        if self.kind == "arrow":
            yield self.table()
            return
        file = self._parquet()
        if file.num_row_groups == 0:
            yield self.table()
        for group in range(file.num_row_groups):
            yield _searchable(file.read_row_group(group))

    def _parquet(self) -> Any:
        import pyarrow.parquet as pq  # few reads meet a run, and it is a third of all of PyArrow

        return pq.ParquetFile(pa.BufferReader(self.buffer))


def _searchable(table: pa.Table) -> pa.Table:
    return arrow_table(pl.DataFrame(pl.from_arrow(table)))


def decode(data: Any, *, is_checked: bool = True) -> Container:
    """The tables of a container; Arrow members stay views of `data`. `is_checked` compares their checksums.

    Raises:
        NewerFormat: a newer Tidemill wrote it.
        CorruptState: these bytes are no whole container.
    """
    with reading_container(data, is_checked=is_checked) as (found, bounds, key):
        container = Container({}, {}, bounds, len(memoryview(data)), key)
        for member in found:
            container.is_compact |= member.kind == "parquet"
            container.tables[member.key] = member.table()
            container.meta[member.key] = member.meta
        check_counts(container)
        return container


@contextmanager
def reading_container(data: Any, *, is_checked: bool = True) -> Iterator[tuple[list[Member], dict[str, int], str]]:
    """The members, the bounds and the key of a container; what goes wrong in the body with its bytes is `CorruptState`.

    Raises:
        As `decode`.
    """
    size = len(memoryview(data))
    try:
        archive = Archive(data)
        meta = json.loads(archive.read(META_MEMBER))
        if meta["format_version"] > FORMAT_VERSION:
            text = f"a container of format {meta['format_version']} was written by a newer Tidemill; use that one"
            raise NewerFormat(text, format_version=meta["format_version"])
        yield _members(archive, meta, is_checked), dict(meta["bounds"]), archive.comment.decode()
    except (LookupError, TypeError, ValueError, AttributeError, pa.ArrowException, OSError) as error:
        raise CorruptState(f"A state container cannot be read: {error}", bytes=size) from error


def _members(archive: Archive, meta: Mapping[str, Any], is_checked: bool) -> list[Member]:
    found = []
    for filename in archive.names():
        name, _, kind = filename.rpartition(".")
        if kind not in ("arrow", "parquet"):
            continue
        pstate, _, table_id = name.partition("/")
        about = meta_from_json(table_id, meta["tables"][name])
        buffer = pa.py_buffer(archive.view(filename, is_checked=is_checked))
        found.append(Member((pstate, table_id), kind, buffer, about))
    if len(found) != len(meta["tables"]):
        raise CorruptState(f"a state container holds {len(found)} of its {len(meta['tables'])} tables")
    return found


def check_counts(container: Container) -> None:
    """Raises CorruptState if a table has not as many rows as its container promised."""
    for key, table in container.tables.items():
        if table.num_rows != container.meta[key].rows:
            text = f"table {key} holds {table.num_rows} rows, its container promised {container.meta[key].rows}"
            raise CorruptState(text, table=key)


class TooManyMapped(OSError):
    """So many files are mapped that connections and logs may find no place; read this one, or let go of others."""


def mapped_files_max() -> int:
    """How many files a process maps: a quarter of those that it may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(MAPPED_FILES_MAX, soft // 4)) if soft != resource.RLIM_INFINITY else MAPPED_FILES_MAX


def map_file(path: Path) -> mmap.mmap:
    """A container in a local file, mapped: its Arrow members are read when they are touched.

    Raises:
        CorruptState: the file is empty, as no container is.
        TooManyMapped: and it is not so large that it must be mapped.
        OSError: there is no such file, or it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise CorruptState("A state container is empty")
        if size < ALWAYS_MAPPED_BYTES and len(_mapped) >= mapped_files_max():
            raise TooManyMapped(f"{len(_mapped)} files are mapped.")
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _mapped.add(pages)
        return pages


def mapped_files() -> int:
    """How many files are mapped now, by whomever they are still used."""
    return len(_mapped)
