"""`tidemill quarantine list | show | retry | drop`: records that were left out because the module's code raised."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidemill.cli.caller import caller
from tidemill.cli.loader import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    StoreOption,
    TopologyArgument,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import command, console, counted, say, show_json, show_table, time_text, to_json, wants_json
from tidemill.clients.quarantine import Quarantine
from tidemill.clients.quarantined import PAGE_RECORDS, QuarantinedRecord
from tidemill.values.errors import BadInput
from tidemill.values.texts import shortened

app = typer.Typer(
    help="Records in quarantine: look at them, retry them, drop them.", no_args_is_help=True, add_completion=False
)

NumbersArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[NUMBER]...", help="As list shows them.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All that are there.")]
_TEXT_MAX = 60


@app.command("list")
@command
def list_(
    module: ModuleArgument,
    topology: TopologyArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Records at most.")] = PAGE_RECORDS,
    after: Annotated[int, typer.Option("--after", help="Behind the record of this number.")] = -1,
) -> None:
    """The records that wait for a decision, oldest first."""
    wants_json(json_)
    found = _opened(store, module, topology)
    records = found.records(limit, after)
    if json_:
        show_json([vars(record) for record in records])
        return
    columns = ("number", "depot", "partition", "offset", "microbatch", "time", "step", "record")
    show_table("", columns, map(_row, records), ("number", "partition", "offset"))
    if len(records) == limit:
        say(f"There may be more: go on with --after {records[-1].number}")


def _row(record: QuarantinedRecord) -> tuple[Any, ...]:
    shown = shortened(to_json(record.record), _TEXT_MAX)
    attempt = f"{record.microbatch_id}/{record.version}"
    place = (record.number, record.depot, record.partition, record.offset, attempt)
    return (*place, time_text(record.at_ms), record.step.partition(" at ")[0], shown)


@app.command("show")
@command
def show(
    module: ModuleArgument,
    topology: TopologyArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As list shows it.")],
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """One record with the error, the traceback and where it stood."""
    wants_json(json_)
    record = _opened(store, module, topology).record(number)
    if json_:
        show_json(vars(record))
        return
    out = console()
    place = f"{record.depot} partition {record.partition} offset {record.offset}, source {record.source}"
    out.print(place, markup=False)
    taken = f"which took {record.start_offset} to {record.end_offset - 1} of the partition"
    out.print(
        f"microbatch {record.microbatch_id} version {record.version}, {taken}, failed at {time_text(record.at_ms)} "
        f"with revision {record.definition}",
        markup=False,
    )
    out.print(to_json(record.record), markup=False, soft_wrap=True)
    out.print(record.message, style="bold red", markup=False)
    out.print(record.trace.rstrip(), markup=False)


@app.command("retry")
@command
def retry(
    module: ModuleArgument,
    topology: TopologyArgument,
    numbers: NumbersArgument = None,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    all_: AllOption = False,
) -> None:
    """Append records to their depots again, where they come last; each topology of the depot gets them."""
    wants_json(json_)
    count = _opened(store, module, topology).retry(_chosen(numbers, all_))
    _told(json_, "retried", count, "appended to the depots again")


@app.command("drop")
@command
def drop(
    module: ModuleArgument,
    topology: TopologyArgument,
    numbers: NumbersArgument = None,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    all_: AllOption = False,
) -> None:
    """Forget records: they are deleted from the quarantine, and stay in their depots as long as those keep them."""
    wants_json(json_)
    count = _opened(store, module, topology).drop(_chosen(numbers, all_))
    _told(json_, "dropped", count, "forgotten")


def _opened(store: str, module: str, topology: str) -> Quarantine:
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    return Quarantine(opened, lambda: definition, topology, by=caller())


def _chosen(numbers: list[int] | None, is_all: bool) -> list[int] | None:
    if bool(numbers) == is_all:
        raise BadInput("Name the records by their numbers, or all of them with --all.")
    return None if is_all else numbers


def _told(is_json: bool, verb: str, count: int, text: str) -> None:
    if is_json:
        show_json({verb: count})
    else:
        say(f"{counted(count, 'record')} {text}.")
