"""`tidemill append`: records from a file or stdin into a depot."""

from __future__ import annotations

import csv
import itertools
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tidemill.cli.loading import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    StoreOption,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, messages, say, show_json, wants_json
from tidemill.cli.reading import client_of
from tidemill.model.errors import BadInput, OutcomeUnknown, RecordRefused, TidemillError
from tidemill.runtime.barrier import ProcessedWatch
from tidemill.runtime.clients_depot import DepotHandle
from tidemill.runtime.clock import SystemClock

BATCH_RECORDS = 50_000
_FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True)
class Batch:
    """Records that are appended together; `share` of the input (0 to 1) is read with them.

    `place` says where in the input the record of an index stands, `end` where the input goes on behind them.
    """

    records: Any
    share: float
    place: Callable[[int], str]
    end: str


@command
def append(
    module: ModuleArgument,
    depot: Annotated[str, typer.Argument(metavar="DEPOT", help="Such as words; with or without its *.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, CSV or Parquet; - is JSON lines from stdin.")
    ],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    format_: Annotated[
        str, typer.Option("--format", help="json | csv | parquet, where the name does not say it.")
    ] = "",
    code: Annotated[str, typer.Option("--module", help="MODULE:CLASS, for a partitioner of its own.")] = "",
    waits: Annotated[bool, typer.Option("--wait", help="Return when the records are processed, too.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds that --wait waits at most.")] = 60.0,
) -> None:
    """Append records; when this returns they are durable. Rows of CSV and Parquet files become dicts."""
    wants_json(json_)
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    depot = "*" + depot.removeprefix("*")
    handle = DepotHandle(client_of(opened, module, code), depot)
    began, appended = time.monotonic(), 0
    with _progress(json_) as progress:
        task = progress.add_task(f"{depot}: 0 records", total=None if file == "-" else 1.0)
        end = ""
        batches = _batches(file, _format_of(file, format_))
        while (batch := _next(batches, appended, end)) is not None:
            try:
                handle.append_many(batch.records)
            except TidemillError as error:
                raise _placed(error, batch, appended, end) from error
            appended, end = appended + len(batch.records), batch.end
            progress.update(task, completed=batch.share, description=f"{depot}: {appended:,} records")
    seconds = time.monotonic() - began
    if waits:
        _wait(ProcessedWatch.of_all(opened, definition, None), timeout)
    if json_:
        show_json({"appended": appended, "seconds": round(seconds, 3)})
    else:
        say(f"Appended {appended:,} records to {depot} of {module} in {seconds:.1f} s.")


def _wait(watch: ProcessedWatch, seconds: float) -> None:
    try:
        watch.wait(seconds, SystemClock())
    except TimeoutError as error:
        raise TimeoutError(f"All records are appended. {error}") from error


def _next(batches: Iterator[Batch], appended: int, end: str) -> Batch | None:
    """The next batch; what is wrong with the input is said together with how far it was appended."""
    try:
        return next(batches, None)
    except BadInput as error:
        raise type(error)(f"{error} {_done(appended, end)}", **error.context) from error


def _placed(error: TidemillError, batch: Batch, appended: int, end: str) -> TidemillError:
    """The same error, with the place of its record in the input and what was appended before."""
    index, text = error.context.get("index"), str(error)
    if isinstance(index, int):
        text = f"{batch.place(index)}: {text.removeprefix(f'Record {index}: ')}"
    some = error.context.get("appended", 0)
    text = f"{text} {_done(appended + some, end if not some else '')}"
    if isinstance(error, OutcomeUnknown):
        text += f" Of the next {len(batch.records) - some:,}, all or none may be there too: look before you repeat."
    placed = type(error)(text)
    placed.__dict__.update({**error.__dict__, "context": error.context})
    return placed


def _done(appended: int, end: str) -> str:
    if not appended:
        return "No record was appended."
    return f"{appended:,} records before it are appended" + (f"; go on from {end}." if end else ".")


def _progress(is_quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=messages(), disable=is_quiet or not sys.stderr.isatty())


def _format_of(file: str, chosen: str) -> str:
    if chosen and chosen not in _FORMATS.values():
        raise BadInput(f"There is no format '{chosen}'; use json, csv or parquet.")
    known = chosen or ("json" if file == "-" else _FORMATS.get(Path(file).suffix.lower(), ""))
    if not known:
        raise BadInput(f"What {file} holds cannot be told from its name; say it with --format json, csv or parquet.")
    return known


def _batches(file: str, kind: str) -> Iterator[Batch]:
    if file == "-":
        if kind != "json":
            raise BadInput("stdin takes JSON lines only; write CSV or Parquet to a file first.")
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        return _json_batches(_as_they_come(sys.stdin), 0)
    Path(file).stat()
    return {"json": _json_file, "csv": _csv_file, "parquet": _parquet_file}[kind](Path(file))


# --- JSON lines ------------------------------------------------------------------------------------------------------


def _json_file(path: Path) -> Iterator[Batch]:
    with open(path, encoding="utf-8", errors="surrogateescape") as lines:
        chunks = iter(lambda: list(itertools.islice(lines, BATCH_RECORDS)), [])
        yield from _json_batches(chunks, path.stat().st_size)


def _json_batches(chunks: Iterable[list[str]], size: int) -> Iterator[Batch]:
    first, read = 1, 0
    for lines in chunks:
        numbers = [number for number, line in enumerate(lines, first) if line.strip()]
        records = [_parsed(lines[number - first], number) for number in numbers]
        first += len(lines)
        read += sum(map(len, lines))
        places = [f"Line {number}" for number in numbers]
        yield Batch(records, read / size if size else 0.0, places.__getitem__, f"line {first}")


def _parsed(line: str, number: int) -> Any:
    try:
        line.encode()
        return json.loads(line.strip())
    except json.JSONDecodeError as error:
        raise RecordRefused(f"Line {number} is not JSON: {error.msg} at column {error.colno}.") from error
    except UnicodeEncodeError as error:
        raise RecordRefused(f"Line {number} is not UTF-8; convert the input first.") from error
    except (RecursionError, ValueError) as error:
        raise RecordRefused(f"Line {number} cannot be read: {error}.") from error


def _as_they_come(stream: IO[str]) -> Iterator[list[str]]:
    """Lines in batches of what is there, so that a slow writer's records do not wait for each other."""
    lines: queue.Queue[str | None] = queue.Queue(maxsize=2 * BATCH_RECORDS)

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        batch = [line]
        while len(batch) < BATCH_RECORDS and not lines.empty():
            following = lines.get()
            if following is None:
                yield batch
                return
            batch.append(following)
        yield batch


# --- tables ----------------------------------------------------------------------------------------------------------


def _row_batch(frame: pl.DataFrame, before: int, total: int) -> Batch:
    """Times without a zone are taken as UTC: a person cannot give the columns of a file one."""
    read = before + frame.height
    naive = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime) and not dtype.time_zone]
    frame = frame.with_columns(pl.col(naive).dt.replace_time_zone("UTC"))
    return Batch(frame, read / max(1, total), lambda index: f"Row {before + index + 1}", f"row {read + 1}")


def _csv_file(path: Path) -> Iterator[Batch]:
    try:
        frame = pl.read_csv(path, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise RecordRefused(f"{path} is not CSV: {_csv_fault(path) or str(error).splitlines()[0]}.") from error
    for start in range(0, frame.height, BATCH_RECORDS):
        yield _row_batch(frame.slice(start, BATCH_RECORDS), start, frame.height)


def _csv_fault(path: Path) -> str:
    """The first line that does not fit the header, which the fast reader does not tell; empty if there is none."""
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


def _parquet_file(path: Path) -> Iterator[Batch]:
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
