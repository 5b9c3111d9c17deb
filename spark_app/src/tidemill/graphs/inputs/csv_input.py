"""CSV files, read in strides of bytes: each row once, for any stride and any number of channels.

A row belongs to the channel in whose range its first byte is. Ranges are cut where rows begin before anything is read
(`CsvInput.plan`), so that a channel goes on from the byte where its last batch ended. To know if a cut is within quotes
all bytes before it are looked at; `quote=None` saves that.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from tidemill.graphs.inputs.csv_rows import first_row_end, last_row_end, quotes_in, without_empty_lines
from tidemill.graphs.inputs.files import SourceFile
from tidemill.graphs.nodes import Cursor, LazyBatch
from tidemill.values.errors import BadInput

STRIDE = 64 * 1024 * 1024
"""Of lines: with their values, which go to the next channels in one wave, they take twice to three times as much."""
PIECE = 16 * 1024 * 1024
"""What of a stride is read at once: the memory of a piece is used again for the next one, which saves a fifth."""
SAMPLE_BYTES = 1024 * 1024
HEADER_BYTES = 64 * 1024
SCAN_BYTES = 4 * 1024 * 1024
PLACES = 32
"""Where a sample has rows from."""
PLACE_BYTES = 16 * 1024
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvFormat:
    """How the files are written. `quote` None: quotes are letters as others."""

    separator: str = ","
    has_header: bool = False
    quote: str | None = '"'

    def check(self) -> None:
        """Raises BadInput where the separator or the quote is not one ASCII letter, or is the other one."""
        for name, sign in (("sep", self.separator), ("quote_char", self.quote)):
            is_letter = isinstance(sign, str) and len(sign) == 1 and sign.isascii() and sign not in "\r\n"
            if sign is not None and not is_letter:
                raise BadInput(f"{name} is one letter, not {sign!r}.")
        if self.separator == self.quote:
            raise BadInput(f"sep and quote_char are two letters, and both are {self.quote!r}.")

    @property
    def quote_byte(self) -> bytes | None:
        """The quote as it stands in the file."""
        return None if self.quote is None else self.quote.encode()


@dataclass(frozen=True)
class CsvInput:
    """Some files with the columns `types`; those in `columns` (all, if None) of the rows that `predicate` lets pass."""

    files: tuple[SourceFile, ...]
    types: Mapping[str, pl.DataType]
    form: CsvFormat = field(default_factory=CsvFormat)
    stride: int = STRIDE
    columns: tuple[str, ...] | None = None
    predicate: pl.Expr | None = None

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {name: self.types[name] for name in self.columns or self.types}

    @property
    def batch_bytes(self) -> int:
        return self.stride

    def describe(self) -> str:
        size = sum(file.size for file in self.files)
        return f"{len(self.files)} CSV file(s), {size:,} bytes, in strides of {self.stride:,}"

    # --- cutting -----------------------------------------------------------------------------------------------------

    def plan(self, channels: int) -> list[Cursor]:
        """For each channel the pieces (file, first byte, end) that it reads; the end is None for a compressed file."""
        total, before = sum(file.size for file in self.files), 0
        cuts = [total * channel // channels for channel in range(1, channels)]
        pieces: list[list[tuple[int, int, int | None]]] = [[] for _ in range(channels)]
        for number, file in enumerate(self.files):
            inside = [max(0, min(cut - before, file.size)) for cut in cuts]
            if _codec(file):
                owner = sum(cut <= before for cut in cuts)
                pieces[owner].append((number, 0, None))
            else:
                starts = [*self._row_starts(file, inside), file.size]
                for channel, (start, end) in enumerate(zip(starts, starts[1:], strict=False)):
                    if start < end:
                        pieces[channel].append((number, start, end))
            before += file.size
        return [tuple(own) or None for own in pieces]

    def _row_starts(self, file: SourceFile, cuts: Sequence[int]) -> list[int]:
        """Where the first data row begins, and the first row at or after each cut."""
        first = self._after_header(file)
        starts = [first]
        for cut, parity in zip(cuts, self._parities(file, first, cuts), strict=True):
            starts.append(max(first, self._next_row(file, cut, parity)) if cut > first else first)
        return starts

    def _after_header(self, file: SourceFile) -> int:
        return self._next_row(file, 1, 0, begin=0) if self.form.has_header else 0

    def _next_row(self, file: SourceFile, cut: int, parity: int, begin: int | None = None) -> int:
        """The first byte of the first row that begins at `cut` or later; the file's size if there is none."""
        position, length = cut - 1 if begin is None else begin, 64 * 1024
        while position < file.size:
            chunk = file.read(position, length)
            found = first_row_end(chunk, self.form.quote_byte, parity)
            if found:
                return position + found
            if self.form.quote_byte is not None:
                parity = (parity + quotes_in(chunk, self.form.quote_byte)) % 2
            position, length = position + len(chunk), length * 2
        return file.size

    def _parities(self, file: SourceFile, first: int, cuts: Sequence[int]) -> list[int]:
        """Whether the byte before each cut is within quotes (1) or not (0)."""
        quote = self.form.quote_byte
        if quote is None or not cuts:
            return [0] * len(cuts)
        edges = [first, *(max(first, cut - 1) for cut in cuts)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            counts = list(pool.map(lambda span: _count_quotes(file, quote, *span), zip(edges, edges[1:], strict=False)))
        return [sum(counts[: number + 1]) % 2 for number in range(len(counts))]

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, cursor: Cursor) -> tuple[LazyBatch | None, Cursor]:
        """One piece of a channel's first range, cut behind its last whole row; more where a row is longer."""
        (number, start, end), *rest = cursor
        file = self.files[number]
        if end is None:
            chunk = decompressed(file)
            skipped = _header_end(chunk, self.form) if self.form.has_header else 0
            return self._parsed(chunk[skipped:], file, 0), tuple(rest) or None
        chunk = self._whole_rows(file, start, end)
        after = start + len(chunk)
        left = rest if after >= end else [(number, after, end), *rest]
        is_part = self.stride > PIECE and after < end and after // self.stride == start // self.stride
        return self._parsed(chunk, file, start, is_part), tuple(left) or None

    def _whole_rows(self, file: SourceFile, start: int, end: int) -> bytes:
        length = min(self.stride, PIECE)
        while True:
            chunk = file.read(start, file.line_end(start, min(length, end - start)) - start)
            if start + len(chunk) >= end:
                return chunk
            whole = last_row_end(chunk, self.form.quote_byte)
            if whole:
                return chunk[:whole]
            length *= 2

    def sample(self) -> pl.DataFrame:
        """Some rows, from places all over the files, for guesses: where quotes hold ends of lines some may be torn."""
        files = [file for file in self.files if not _codec(file)]
        total = sum(file.size for file in files)
        at = sorted({total * place // PLACES for place in range(PLACES)})
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            chunks = pool.map(lambda place: _whole_lines(files, place), at if total else [])
            scans = [self._scanned(chunk, is_torn=True) for chunk in chunks if chunk]
        found = [frame for frame in pl.collect_all(scans) if frame.height]
        return pl.concat(found) if found else pl.DataFrame(schema=self.schema)

    def _parsed(self, chunk: bytes, file: SourceFile, start: int, is_part: bool = False) -> LazyBatch | None:
        if start == 0:
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        if len(self.types) > 1:
            chunk = without_empty_lines(chunk, self.form.quote_byte)
        if not chunk:
            return None
        return LazyBatch(self._scanned(chunk), len(chunk), f"{file.path} from byte {start} on", is_part)

    def _scanned(self, chunk: bytes, *, is_torn: bool = False) -> pl.LazyFrame:
        lazy = pl.scan_csv(
            chunk, has_header=False, schema=self.types, separator=self.form.separator, quote_char=self.form.quote,
            missing_columns="insert", ignore_errors=is_torn, truncate_ragged_lines=is_torn,
        )  # fmt: skip
        lazy = lazy if self.predicate is None else lazy.filter(self.predicate)
        return lazy if self.columns is None else lazy.select(self.columns)


def _whole_lines(files: Sequence[SourceFile], place: int) -> bytes:
    """The lines that begin behind a byte of all files together, up to PLACE_BYTES."""
    for file in files:
        if place < file.size:
            chunk = file.read(place, PLACE_BYTES)
            return chunk[chunk.find(b"\n") + 1 : chunk.rfind(b"\n") + 1]
        place -= file.size
    return b""


def _count_quotes(file: SourceFile, quote: bytes, start: int, end: int) -> int:
    return sum(quotes_in(file.read(at, min(SCAN_BYTES, end - at)), quote) for at in range(start, end, SCAN_BYTES))


def _codec(file: SourceFile) -> str | None:
    return COMPRESSED.get(os.path.splitext(file.path)[1])


def decompressed(file: SourceFile) -> bytes:
    """All bytes of a compressed file. Raises BadInput where they are none."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(file.read(0, file.size)), _codec(file)) as stream:
            return bytes(stream.read())
    except (OSError, EOFError) as error:
        raise BadInput(f"{file.path} cannot be decompressed: {error}") from error


def sniffed(
    files: Sequence[SourceFile], names: Sequence[str] | None, form: CsvFormat, types: Mapping[str, Any] | None
) -> dict[str, pl.DataType]:
    """The columns of files and their types, from the first rows of the first file that has some; where no file has
    rows, from the first header, and text where `types` say nothing.

    Raises:
        BadInput: there are no names, other names in another file, or another number of columns.
    """
    file, header, rows = _first_rows(files, form)
    found_names = list(names) if names is not None else _split_row(header, form)
    if not found_names:
        raise BadInput("There are no names of columns: give names, or header=True if the first row has them.")
    if len(set(found_names)) != len(found_names):
        raise BadInput(f"Two columns have one name: {', '.join(found_names)}.")
    unknown = set(types or {}) - set(found_names)
    if unknown:
        raise BadInput(f"schema names {', '.join(sorted(unknown))}, which is none of {', '.join(found_names)}.")
    if form.has_header:
        _check_headers(files, form)
    if not rows.strip():
        inferred: list[pl.DataType] = [pl.String()] * len(found_names)
    else:
        inferred = _inferred(without_empty_lines(rows, form.quote_byte), form, set(found_names) <= set(types or {}))
        if len(inferred) != len(found_names):
            text = f"{file.path} has {len(inferred)} columns and there are {len(found_names)} names."
            raise BadInput(f"{text} A row that ends with {form.separator!r} has one more column: name it 'null'.")
    chosen = {name: (types or {}).get(name, kind) for name, kind in zip(found_names, inferred, strict=True)}
    return dict(pl.DataFrame(schema=chosen).schema)  # pl.Datetime alone gets the unit that Polars takes


def _first_rows(files: Sequence[SourceFile], form: CsvFormat) -> tuple[SourceFile, bytes, bytes]:
    """The first file that has rows with its header and rows; else the first one that has a header, without rows."""
    found = files[0], b"", b""
    for file in files:
        header, rows = _sample(file, form)
        if rows.strip():
            return file, header, rows
        if header.strip() and not found[1]:
            found = file, header, b""
    return found


def _sample(file: SourceFile, form: CsvFormat, size: int = SAMPLE_BYTES) -> tuple[bytes, bytes]:
    """The header of a file (empty where it has none) and its first rows, of about `size` bytes."""
    unpacked = decompressed(file) if _codec(file) else None
    chunk = b""
    whole = 0
    while not whole:
        chunk = file.read(0, size) if unpacked is None else unpacked[:size]
        is_all = len(chunk) >= (file.size if unpacked is None else len(unpacked))
        whole = len(chunk) if is_all else last_row_end(chunk, form.quote_byte)
        if is_all:
            break
        size *= 2
    chunk = chunk[:whole].removeprefix(_BYTE_ORDER_MARK)
    if not form.has_header:
        return b"", chunk
    cut = _header_end(chunk, form)
    return chunk[:cut], chunk[cut:]


def _header_end(chunk: bytes, form: CsvFormat) -> int:
    """How many bytes the first row of a chunk has; all where no line ends."""
    return first_row_end(chunk, form.quote_byte, 0) or len(chunk)


def _check_headers(files: Sequence[SourceFile], form: CsvFormat) -> None:
    """Columns are told by their place, so all files must have them in the same order."""
    first: tuple[SourceFile, list[str]] | None = None
    for file in files:
        names = _split_row(_sample(file, form, HEADER_BYTES)[0], form)
        first = first or ((file, names) if names else None)
        if names and first is not None and names != first[1]:
            raise BadInput(
                f"{file.path} has the columns {', '.join(names)}, and {first[0].path} has {', '.join(first[1])}. "
                f"Read files whose headers differ with two inputs."
            )


def _split_row(row: bytes, form: CsvFormat) -> list[str]:
    if not row.strip():
        return []
    found = csv.reader([row.decode("utf-8", "replace")], delimiter=form.separator, quotechar=form.quote)
    try:
        return next(found, [])
    except csv.Error as error:  # as where lines end with a carriage return alone: then all rows are in the first one
        raise BadInput(f"The first row of a CSV file has no names: {error}. Lines end with a newline.") from error


def _inferred(rows: bytes, form: CsvFormat, are_known: bool) -> list[pl.DataType]:
    """The types of columns; only their number counts where they `are_known`."""
    lazy = pl.scan_csv(
        rows, has_header=False, separator=form.separator, quote_char=form.quote,
        infer_schema_length=0 if are_known else None,
    )  # fmt: skip
    return [pl.String() if kind == pl.Null else kind for kind in lazy.collect_schema().dtypes()]
