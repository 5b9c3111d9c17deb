"""`tidemill append`: records from a file or stdin into a depot."""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import polars as pl
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
from tidemill.model.errors import BadInput, RecordRefused
from tidemill.runtime.clients_depot import DepotHandle

BATCH_RECORDS = 50_000
_FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}

Batch = tuple[Any, float]
"""Records, and which share of the input is read with them (0 to 1)."""


@command
def append(
    module: ModuleArgument,
    depot: Annotated[str, typer.Argument(metavar="DEPOT", help="Such as '*words'.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, CSV or Parquet; - is JSON lines from stdin.")
    ],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    format_: Annotated[
        str, typer.Option("--format", help="json | csv | parquet, where the name does not say it.")
    ] = "",
    code: Annotated[str, typer.Option("--module", help="MODULE:CLASS, for a partitioner of its own.")] = "",
) -> None:
    """Append records; when this returns they are durable. Rows of CSV and Parquet files become dicts."""
    wants_json(json_)
    opened = existing_store(store)
    stored_definition(opened, module)
    handle = DepotHandle(client_of(opened, module, code), depot)
    began, appended = time.monotonic(), 0
    with _progress(json_) as progress:
        task = progress.add_task(f"{depot}: 0 records", total=None if file == "-" else 1.0)
        try:
            for records, share in _batches(file, _format_of(file, format_)):
                handle.append_many(records)
                appended += len(records)
                progress.update(task, completed=share, description=f"{depot}: {appended:,} records")
        except BadInput as error:
            before = f" {appended:,} records before it are appended." if appended else ""
            raise type(error)(f"{error}{before}") from error
    seconds = time.monotonic() - began
    if json_:
        show_json({"appended": appended, "seconds": round(seconds, 3)})
    else:
        say(f"Appended {appended:,} records to {depot} of {module} in {seconds:.1f} s.")


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
        yield from ((records, 0.0) for records in _json_records(_as_they_come(sys.stdin)))
    elif kind == "json":
        yield from _json_file(Path(file))
    elif kind == "csv":
        yield from _frames(pl.read_csv(file, infer_schema_length=None))
    else:
        yield from _parquet_file(file)


def _json_file(path: Path) -> Iterator[Batch]:
    size = max(1, path.stat().st_size)
    with open(path, encoding="utf-8") as lines:
        chunks = iter(lambda: list(itertools.islice(lines, BATCH_RECORDS)), [])
        read = 0
        for records in _json_records(chunks):
            read += sum(map(len, records.lines))
            yield list(records), read / size


class _Records(list[Any]):
    """Records and the lines they came from."""

    lines: list[str]


def _json_records(chunks: Iterable[list[str]]) -> Iterator[_Records]:
    first = 1
    for lines in chunks:
        records = _Records()
        records.lines = lines
        for number, line in enumerate(lines, first):
            if line.strip():
                records.append(_parsed(line, number))
        first += len(lines)
        yield records


def _parsed(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise RecordRefused(f"Line {number} is not JSON: {error}.") from error


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


def _frames(frame: pl.DataFrame) -> Iterator[Batch]:
    for start in range(0, frame.height, BATCH_RECORDS):
        part = frame.slice(start, BATCH_RECORDS)
        yield part, (start + part.height) / frame.height


def _parquet_file(file: str) -> Iterator[Batch]:
    with open(file, "rb") as source:
        parquet = pq.ParquetFile(source)
        total, read = max(1, parquet.metadata.num_rows), 0
        for batch in parquet.iter_batches(BATCH_RECORDS):
            read += batch.num_rows
            yield pl.DataFrame(pl.from_arrow(batch)), read / total
