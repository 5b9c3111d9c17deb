"""`tidemill graphs` and `tidemill datasets`: what task graphs did, and what they left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.loader import STORE_DEFAULT, JsonOption, StoreOption, existing_store
from tidemill.cli.output import command, counted, say, show_json, show_table, time_text, wants_json
from tidemill.cli.whole_files import written_whole
from tidemill.values.errors import BadInput

if TYPE_CHECKING:
    from tidemill.graphs.dataset import Dataset, DatasetRecord

DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="ID of a Dataset, as `list` shows it.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Needed: nothing can bring the rows back.")]

datasets = typer.Typer(help="Datasets: what task graphs left in a store.", no_args_is_help=True)


@command
def graphs(store: StoreOption = STORE_DEFAULT, json_: JsonOption = False) -> None:
    """List the task graphs of a store: when each began, how it stands, and what its nodes did."""
    wants_json(json_)
    from tidemill.graphs.run_log import list_graphs

    rows = []
    for name, last in list_graphs(existing_store(store)):
        rows.append(
            {
                "graph": name, "began": time_text(last.began_ms), "state": last.state,
                "engine": last.engine, "wave": last.wave, "seconds": last.seconds,
                "checkpoint_seconds": last.checkpoint_seconds,
                "checkpoints": last.checkpoints, "starts": last.starts, "lag": sum(node.lag for node in last.nodes),
                "dropped_rows": sum(node.dropped_rows for node in last.nodes),
                "text": last.text,
                "datasets": [record.id for record in last.datasets], "nodes": [asdict(node) for node in last.nodes],
            }
        )  # fmt: skip
    if json_:
        show_json(rows)
        return
    numbers = ["wave", "seconds", "checkpoints", "starts", "lag", "dropped_rows"]
    shown = ["graph", "began", "state", "engine", *numbers, "text"]
    show_table("", shown, [[row[name] for name in shown] for row in rows], right=numbers)


@datasets.command("list")
@command
def list_(store: StoreOption = STORE_DEFAULT, json_: JsonOption = False) -> None:
    """List the Datasets of a store, the oldest first."""
    wants_json(json_)
    from tidemill.graphs.dataset import list_datasets

    rows = [_summary(record) for record in list_datasets(existing_store(store))]
    if json_:
        show_json(rows)
    else:
        shown = ["dataset", "kind", "key", "rows", "objects", "bytes", "created"]
        cells = [[", ".join(row[n]) if n == "key" else row[n] for n in shown] for row in rows]
        show_table("", shown, cells, right=["rows", "objects", "bytes"])


@datasets.command()
@command
def show(dataset: DatasetArgument, store: StoreOption = STORE_DEFAULT, json_: JsonOption = False) -> None:
    """Show a Dataset: its columns, its objects, and where they are."""
    wants_json(json_)
    found = _dataset(store, dataset)
    columns = {name: str(kind) for name, kind in found.schema.items()}
    if json_:
        show_json(_summary(found.record) | {"columns": columns, "files": found.files()})
        return
    show_table("", ["column", "type"], list(columns.items()))
    rows = [(each.channel, each.partition, each.rows, each.bytes, file)
            for each, file in zip(found.record.objects, found.files(), strict=True)]  # fmt: skip
    show_table("", ["channel", "partition", "rows", "bytes", "file"], rows, right=["rows", "bytes"])


@datasets.command()
@command
def export(
    dataset: DatasetArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file: .parquet, .csv or .jsonl.")],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Write all rows of a Dataset to one file."""
    wants_json(json_)
    frame = _dataset(store, dataset).to_polars()
    if file.exists():
        raise BadInput(f"{file} exists; name a new file.")
    writers: dict[str, Callable[[Path], object]] = {
        ".parquet": frame.write_parquet,
        ".csv": frame.write_csv,
        ".jsonl": frame.write_ndjson,
    }
    if file.suffix not in writers:
        raise BadInput(f"{file} is none of {', '.join(writers)}.")
    with written_whole(file) as beside:
        writers[file.suffix](beside)
    if json_:
        show_json({"dataset": dataset, "rows": frame.height, "file": str(file)})
    else:
        say(f"{frame.height:,} rows are in {file}.")


@datasets.command()
@command
def delete(
    dataset: DatasetArgument, store: StoreOption = STORE_DEFAULT, json_: JsonOption = False, yes: YesOption = False
) -> None:
    """Delete a Dataset; where graphs read it, as soon as they have ended."""
    wants_json(json_)
    from tidemill.graphs.dataset import is_to_be_deleted
    from tidemill.graphs.dataset_readers import delete_dataset, readers_of
    from tidemill.journal.clock import SystemClock

    if not yes:
        raise BadInput(f"This deletes the Dataset {dataset} in {store}; say --yes if that is what you want.")
    opened, now_ms = existing_store(store), SystemClock().now_ms()
    objects = delete_dataset(opened, dataset, now_ms)
    readers = readers_of(opened, dataset, now_ms) if is_to_be_deleted(opened, dataset) else []
    if json_:
        show_json({"dataset": dataset, "objects": objects, "readers": [name for name, _ in readers]})
    elif readers:
        name, until = max(readers, key=lambda reader: reader[1])
        say(
            f"The Dataset {dataset} can be read no more, and is deleted when {name} has read it; "
            f"should that be dead, by `tidemill datasets collect` after {time_text(until)}."
        )
    else:
        say(f"The Dataset {dataset} is deleted, with {counted(objects, 'object')}.")


@datasets.command()
@command
def collect(
    store: StoreOption = STORE_DEFAULT,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Also delete Datasets of this age: 90m, 36h, 30d.")
    ] = "",
    unfinished: Annotated[
        str,
        typer.Option("--unfinished", metavar="AGE", help="Also delete what runs left that wrote nothing for so long."),
    ] = "",
    runs: Annotated[
        str,
        typer.Option(
            "--runs",
            metavar="AGE",
            help="Also delete the records of runs that ended so long ago and have no Dataset left.",
        ),
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Delete Datasets whose time is over, and those that waited for graphs which read them. Run it each day."""
    wants_json(json_)
    from tidemill.graphs.dataset_collection import collect_datasets
    from tidemill.journal.clock import SystemClock

    ages = [_age_ms(text) if text else None for text in (older_than, unfinished, runs)]
    found = collect_datasets(existing_store(store), SystemClock().now_ms(), *ages)
    if json_:
        show_json(vars(found))
        return
    datasets, runs = counted(len(found.datasets), "Dataset"), counted(len(found.runs), "unfinished run")
    say(f"Deleted: {datasets} and {runs}, {counted(found.objects, 'object')}.")
    if found.records:
        say(f"The records of {len(found.records)} runs are deleted.")
    if found.waiting:
        say(f"These are deleted when graphs have read them: {', '.join(found.waiting)}.")


def _age_ms(text: str) -> int:
    units = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
    if text[-1:] not in units or not text[:-1].isdecimal():
        raise BadInput(f"{text!r} is no age: write minutes, hours or days as 90m, 36h, 30d.")
    return int(text[:-1]) * units[text[-1]]


def _dataset(store: str, dataset: str) -> Dataset:
    from tidemill.graphs.dataset import Dataset

    existing_store(store)
    return Dataset(store, dataset)


def _summary(record: DatasetRecord) -> dict[str, Any]:
    return {
        "dataset": record.id, "kind": record.kind, "key": record.key_columns, "graph": record.graph,
        "rows": sum(each.rows for each in record.objects), "objects": len(record.objects),
        "bytes": sum(each.bytes for each in record.objects), "created": time_text(record.created_ms),
        "expires": time_text(record.expires_ms) if record.expires_ms else "",
    }  # fmt: skip
