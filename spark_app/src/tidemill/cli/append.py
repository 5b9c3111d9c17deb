"""`tidemill append`: records from a file or stdin into a depot."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.batches import AppendBatch, as_they_come, json_batches, json_file
from tidemill.cli.loader import (
    STORE_DEFAULT,
    DepotArgument,
    JsonOption,
    ModuleArgument,
    StoreOption,
    client_of,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, counted, messages, say, show_json, wants_json
from tidemill.clients.depot import DepotHandle
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import SystemClock
from tidemill.language.schema import Schema
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, OutcomeUnknown, TidemillError

_FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@command
def append(
    module: ModuleArgument,
    depot: DepotArgument,
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
    with _progress(depot, file != "-", json_) as show:
        end = ""
        stored = definition.depots.get(depot)
        batches = _batches(file, _format_of(file, format_), None if stored is None else stored.schema)
        while (batch := _next(batches, appended, end)) is not None:
            try:
                handle.append_many(batch.records)
            except TidemillError as error:
                raise _placed(error, batch, appended, end) from error
            appended, end = appended + len(batch.records), batch.end
            show(batch.share, appended)
    seconds = time.monotonic() - began
    if waits:
        _wait(opened, definition, timeout)
    if json_:
        show_json({"appended": appended, "seconds": round(seconds, 3)})
    else:
        say(f"Appended {counted(appended, 'record')} to {depot} of {module} in {seconds:.1f} s.")


def _wait(store: ObjectStore, definition: StoredDefinition, seconds: float) -> None:
    from tidemill.clients.barrier import ProcessedWatch

    try:
        ProcessedWatch.of_all(store, definition, None).wait(seconds, SystemClock())
    except TimeoutError as error:
        raise TimeoutError(f"All records are appended. {error}") from error


def _next(batches: Iterator[AppendBatch], appended: int, end: str) -> AppendBatch | None:
    """The next batch; what is wrong with the input is said together with how far it was appended."""
    try:
        return next(batches, None)
    except BadInput as error:
        raise type(error)(f"{error} {_done(appended, end)}", **error.context) from error


def _placed(error: TidemillError, batch: AppendBatch, appended: int, end: str) -> TidemillError:
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


@contextmanager
def _progress(depot: str, is_size_known: bool, is_quiet: bool) -> Iterator[Callable[[float, int], None]]:
    """What shows how far the append is: the share of the input, and the records; nothing where nobody looks."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda share, appended: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=messages()) as progress:
        task = progress.add_task(f"{depot}: 0 records", total=1.0 if is_size_known else None)
        yield lambda share, appended: progress.update(
            task, completed=share, description=f"{depot}: {appended:,} records"
        )


def _format_of(file: str, chosen: str) -> str:
    if chosen and chosen not in _FORMATS.values():
        raise BadInput(f"There is no format '{chosen}'; use json, csv or parquet.")
    known = chosen or ("json" if file == "-" else _FORMATS.get(Path(file).suffix.lower(), ""))
    if not known:
        raise BadInput(f"What {file} holds cannot be told from its name; say it with --format json, csv or parquet.")
    return known


def _batches(file: str, kind: str, schema: Schema | None) -> Iterator[AppendBatch]:
    if file == "-":
        if kind != "json":
            raise BadInput("stdin takes JSON lines only; write CSV or Parquet to a file first.")
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        return json_batches(as_they_come(sys.stdin), 0)
    Path(file).stat()
    if kind == "json":
        return json_file(Path(file))
    from tidemill.cli.table_batches import csv_file, parquet_file  # loads Polars and PyArrow's Parquet

    return csv_file(Path(file), schema) if kind == "csv" else parquet_file(Path(file))
