"""Batches of the rows of CSV and Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.cli.batches import BATCH_RECORDS, AppendBatch
from tidemill.language.schema import FixedKeysSchema, Leaf, MapSchema, Schema
from tidemill.values.errors import RecordRefused

ANY = Leaf("object")
_LEADING_ZERO = r"^-?0[0-9]"
"""What is written as no number is, as a postal code or an article's: as a number it would lose its zeros."""


def _row_batch(frame: pl.DataFrame, before: int, total: int) -> AppendBatch:
    """Times without a zone are taken as UTC: a person cannot give the columns of a file one."""
    read = before + frame.height
    naive = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime) and not dtype.time_zone]
    frame = frame.with_columns(pl.col(naive).dt.replace_time_zone("UTC"))
    return AppendBatch(frame, read / max(1, total), lambda index: f"Row {before + index + 1}", f"row {read + 1}")


def csv_file(path: Path, schema: Schema | None = None) -> Iterator[AppendBatch]:
    """The rows of a CSV file with a header, in batches.

    The depot's `schema` says which columns are texts. Where it says nothing, Polars infers types from all rows.

    Raises:
        RecordRefused: it is not CSV.
    """
    if fault := _header_fault(path):
        raise RecordRefused(f"{path} is not CSV: {fault}.")
    try:
        frame = _typed_csv(path, schema)
    except pl.exceptions.PolarsError as error:
        raise RecordRefused(f"{path} is not CSV: {_csv_fault(path) or str(error).splitlines()[0]}.") from error
    for start in range(0, frame.height, BATCH_RECORDS):
        yield _row_batch(frame.slice(start, BATCH_RECORDS), start, frame.height)


def _typed_csv(path: Path, schema: Schema | None) -> pl.DataFrame:
    fields = {name: _field(schema, name) for name in pl.scan_csv(path, infer_schema=False).collect_schema()}
    texts = {name: pl.String() for name, field in fields.items() if field == Leaf("str")}
    frame = pl.read_csv(path, infer_schema_length=None, schema_overrides=texts)
    free = [name for name, dtype in frame.schema.items() if dtype.is_numeric() and fields[name] in (None, ANY)]
    if not free:
        return frame
    written = pl.read_csv(path, columns=free, infer_schema=False)
    return frame.with_columns(column for column in written if column.str.contains(_LEADING_ZERO).any())


def _field(schema: Schema | None, name: str) -> Schema | None:
    """What the schema of a depot's records says of one of their fields; None if it says nothing."""
    if isinstance(schema, FixedKeysSchema):
        return schema.field(name)
    return schema.value if isinstance(schema, MapSchema) else None


def _header_fault(path: Path) -> str:
    """What is wrong with the names of the columns, which the fast reader would change silently."""
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        try:
            names = next(csv.reader(lines), [])
        except csv.Error as error:
            return f"line 1: {error}"
    if any(not _is_utf8(name) for name in names):
        return "line 1 is not UTF-8"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"two columns have the name {twice[0]!r}" if twice else ""


def _csv_fault(path: Path) -> str:
    """The first line that does not fit the header, which the fast reader does not name; empty if there is none."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as lines:
        rows = csv.reader(lines)
        header: list[str] | None = None
        try:
            for row in rows:
                header = row if header is None else header
                if any(not _is_utf8(cell) for cell in row):
                    return f"line {rows.line_num} is not UTF-8"
                if len(row) > len(header):
                    return f"line {rows.line_num} has {len(row)} fields, the header {len(header)}"
        except csv.Error as error:
            return f"line {rows.line_num}: {error}"
    return "it is empty" if header is None else ""


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def parquet_file(path: Path) -> Iterator[AppendBatch]:
    """The rows of a Parquet file, in batches; the file is read piece by piece.

    Raises:
        RecordRefused: it cannot be read; says from which row on.
    """
    read = 0
    with open(path, "rb") as source:
        try:
            parquet = pq.ParquetFile(source)
            for batch in parquet.iter_batches(BATCH_RECORDS):
                yield _row_batch(pl.DataFrame(pl.from_arrow(batch)), read, parquet.metadata.num_rows)
                read += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            text = f"{path} is not readable Parquet from row {read + 1} on: {str(error).splitlines()[0]}"
            raise RecordRefused(text) from error
