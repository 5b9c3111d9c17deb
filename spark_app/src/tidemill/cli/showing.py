"""`tidemill status | log | pause | resume`: how the topologies of a store stand."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import typer

from tidemill.cli.caller import caller
from tidemill.cli.loading import (
    STORE_DEFAULT,
    JsonOption,
    ModuleArgument,
    StoreOption,
    TopologyArgument,
    existing_store,
    stored_definition,
)
from tidemill.cli.output import (
    command,
    console,
    say,
    show_json,
    show_table,
    time_text,
    wants_json,
)
from tidemill.clients.history import topology_history
from tidemill.clients.status import TopologyStatus
from tidemill.definition.definition import StoredDefinition
from tidemill.journal.clock import SystemClock
from tidemill.journal.commit_log import CommitLog
from tidemill.journal.definition_log import DefinitionLog, modules_of
from tidemill.journal.entries import Failure
from tidemill.journal.leading import LeaderWatch
from tidemill.journal.options_log import OptionsLog
from tidemill.store.objects import ObjectStore

_LOOK_MILLIS = 50.0

# --- status ----------------------------------------------------------------------------------------------------------


@command
def status(
    module: Annotated[str, typer.Argument(metavar="[MODULE]", help="All modules if left out.")] = "",
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Show how the topologies of a store stand; works on running and on stopped modules."""
    from tidemill.clients.status_reader import topology_status  # looks at depots: loads PyArrow

    wants_json(json_)
    opened = existing_store(store)
    names = [module] if module else modules_of(opened)
    found = [stored_definition(opened, name) for name in names if module or _is_there(opened, name)]
    rows = [topology_status(opened, definition, topology) for definition in found for topology in definition.topologies]
    if json_:
        show_json([row.to_json() for row in rows])
        return
    if not rows:
        say(f"There is no module in {store} yet; start one with `tidemill run MODULE:CLASS --store {store}`.")
        return
    columns = ("module", "topology", "state", "microbatch", "under way", "processed", "waiting", "rows/s")
    show_table("", columns, map(_status_row, rows), ("processed", "waiting", "rows/s"))
    for row in rows:
        _show_troubles(row)


def _status_row(row: TopologyStatus) -> tuple[Any, ...]:
    under_way = "{}/{}".format(*row.under_way) if row.under_way else None
    where = (row.module, row.topology, row.state, row.microbatch, under_way)
    waiting = None if row.lag is None else row.waiting
    is_busy = row.is_running and bool(row.waiting or row.under_way)  # else it is the speed of a microbatch long ago
    return (*where, row.processed, waiting, row.rows_per_second if is_busy else None)


def _show_troubles(row: TopologyStatus) -> None:
    title = f"{row.module} {row.topology}"
    if row.trouble:
        console().print(f"{title}: {row.trouble}", style="bold red", markup=False)
    if row.failure is not None:
        show_failure(title, row.failure)
    if row.clock_ahead_seconds:
        text = f"{title}: the newest entry is dated {row.clock_ahead_seconds:,} s ahead of this machine's clock"
        console().print(f"{text}: one of the two clocks is wrong", style="bold red", markup=False)
    for migration in row.migrations:
        what = f"{title}: migration '{migration.id}' of {migration.pstate} {migration.location}"
        done = f"{migration.waiting:,} of {migration.rows:,} rows wait" if migration.waiting else "done"
        console().print(f"{what}: {done}", style="yellow" if migration.waiting else "green", markup=False)
    if row.unpublished:
        text = f"{title}: {row.unpublished:,} of its appends to depots are not published yet"
        console().print(text, style="yellow", markup=False)
    if row.in_quarantine:
        text = f"{title}: {row.in_quarantine:,} records are in quarantine: tidemill quarantine list"
        console().print(f"{text} {row.module} {row.topology}", style="yellow", markup=False)
    if row.skipped:
        text = f"{title}: retention deleted {row.skipped:,} records before they were read"
        console().print(text, style="bold red", markup=False)


def _is_there(store: ObjectStore, name: str) -> bool:
    found = DefinitionLog(store, name).newest()
    return found is not None and not found.is_destroyed


def show_failure(title: str, failure: Failure) -> None:
    """A failed attempt with the traceback of the user's function and a sample of the record."""
    out = console()
    step = f" in {failure.step}" if failure.step else ""
    attempt = f"microbatch {failure.microbatch_id} version {failure.version}"
    out.print(f"{title}: {attempt} failed{step} at {time_text(failure.at_ms)}", style="bold red", markup=False)
    out.print(f"{failure.code}: {failure.message}", markup=False)
    if failure.sample:
        out.print(f"record: {failure.sample}", markup=False)
    if failure.trace:
        out.print(failure.trace.rstrip(), markup=False)


# --- log -------------------------------------------------------------------------------------------------------------


@command
def log(
    module: ModuleArgument,
    topology: TopologyArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many entries, newest last.")] = 20,
) -> None:
    """Show the newest entries of a topology's commit log: claims, attempts, phases, failures."""
    wants_json(json_)
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    definition.topology(topology)
    lines = topology_history(opened, definition, topology, limit)
    if json_:
        show_json(lines)
        return
    columns = ("entry", "time", "kind", "microbatch", "records", "rows/s", "begun", "milliseconds")
    show_table("", columns, map(_log_row, lines), ("entry", "records", "rows/s"))
    failed = [line["failure"] for line in lines if line["failure"]]
    if failed:
        show_failure(f"{module} {topology}", Failure(**failed[-1]))


def _log_row(line: dict[str, Any]) -> tuple[Any, ...]:
    done = f"{line['microbatch_id']}/{line['version']}" if "microbatch_id" in line else None
    begun = line.get("begun")
    begin = f"{begun['microbatch_id']}/{begun['version']} ({begun['records']:,} records)" if begun else None
    phases = [
        f"{name.removesuffix('_ms')} {ms:.0f}" for name, ms in line.get("metrics", {}).items() if name.endswith("_ms")
    ]
    return (
        line["entry"],
        time_text(line["written_ms"]),
        line["kind"] + (" after a failure" if line["failure"] else ""),
        done,
        line.get("records"),
        line.get("rows_per_second"),
        begin,
        ", ".join(phases) or None,
    )


# --- pause and resume ------------------------------------------------------------------------------------------------


@command
def pause(
    module: ModuleArgument,
    topology: TopologyArgument,
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the running microbatch.")] = 60.0,
) -> None:
    """Pause a topology; returns when the microbatch under way is done. The pause survives restarts."""
    wants_json(json_)
    opened = existing_store(store)
    definition = stored_definition(opened, module)
    definition.topology(topology)
    number = OptionsLog(opened, module, by=caller()).pause(topology)
    wait_for_pause(opened, definition, topology, number, timeout)
    _told(json_, module, topology, "paused")


def wait_for_pause(
    store: ObjectStore, definition: StoredDefinition, topology: str, number: int, seconds: float
) -> None:
    """Wait until the leader has seen the pause of this number; without a leader nothing runs, which is as good.

    Raises:
        TimeoutError: the running microbatch did not end in time.
    """
    clock, never = SystemClock(), threading.Event()
    log = CommitLog(store, definition.topology_prefix(topology))
    watch = LeaderWatch(store, definition, topology, clock)
    deadline = clock.monotonic_ms() + 1000 * seconds
    while True:
        head = log.head()
        if (head is not None and head[1].paused_seen >= number) or not watch.leader():
            return
        if clock.monotonic_ms() >= deadline:
            text = f"The microbatch under way did not end within {seconds:g} s"
            raise TimeoutError(f"{text}; the pause of {topology} holds from its end.")
        clock.wait(never, _LOOK_MILLIS)


@command
def resume(
    module: ModuleArgument, topology: TopologyArgument, store: StoreOption = STORE_DEFAULT, json_: JsonOption = False
) -> None:
    """Let a paused topology go on."""
    wants_json(json_)
    opened = existing_store(store)
    stored_definition(opened, module).topology(topology)
    OptionsLog(opened, module, by=caller()).resume(topology)
    _told(json_, module, topology, "resumed")


def _told(is_json: bool, module: str, topology: str, done: str) -> None:
    if is_json:
        show_json({"module": module, "topology": topology, "state": done})
    else:
        say(f"{topology} of {module} is {done}.")
